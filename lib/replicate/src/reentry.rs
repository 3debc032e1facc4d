//! Detects operations that are called from inside an operation on the same structure. The inner operation would wait
//! for the outer one for ever.
//!
//! Builds with debug assertions record the structures that each thread is inside of, and panic. In other builds this
//! module does nothing. A thread is inside a structure while it holds a combiner's lock or reads a replica. During this
//! time the user's code runs under a lock.

/// Identifies a structure: the address of the data that its handles share.
pub(crate) type Identity = usize;

/// Returns the identity of the structure whose shared data is `shared`.
#[inline]
pub(crate) fn identity<S>(shared: &S) -> Identity {
    core::ptr::from_ref(shared).addr()
}

/// While this value exists, its thread is inside the structure.
#[derive(Debug)]
pub(crate) struct Inside {
    #[cfg(debug_assertions)]
    structure: Identity,
}

#[cfg(debug_assertions)]
mod known {
    use super::{Identity, Inside};
    use archipelago_platform::thread::thread_local;
    use core::cell::RefCell;

    thread_local! {
        static STRUCTURES: RefCell<Vec<Identity>> = const { RefCell::new(Vec::new()) };
    }

    /// Does nothing in a thread's last destructors, when the list may already be destroyed.
    fn with_list<R: Default>(f: impl FnOnce(&mut Vec<Identity>) -> R) -> R {
        STRUCTURES.try_with(|list| f(&mut list.borrow_mut())).unwrap_or_default()
    }

    pub(crate) fn enter(structure: Identity) -> Inside {
        with_list(|list| list.push(structure));
        Inside { structure }
    }

    #[track_caller]
    pub(crate) fn check(structure: Identity) {
        assert!(
            !with_list(|list| list.contains(&structure)),
            "an operation on a replicated or combined structure from inside an operation on the same structure: the inner \
             one would wait for the outer one"
        );
    }

    impl Drop for Inside {
        fn drop(&mut self) {
            with_list(|list| {
                let last = list.iter().rposition(|&other| other == self.structure);
                last.map(|at| list.swap_remove(at))
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod known {
    use super::{Identity, Inside};

    #[inline]
    pub(crate) fn enter(_: Identity) -> Inside {
        Inside {}
    }

    #[inline]
    pub(crate) fn check(_: Identity) {}
}

/// Marks the thread as inside `structure`. A thread keeps the returned value as long as it holds a lock of the
/// structure.
pub(crate) use known::enter;

/// Called at the beginning of each operation on `structure`.
///
/// # Panics
/// With debug assertions, if the thread is inside `structure`.
pub(crate) use known::check;
