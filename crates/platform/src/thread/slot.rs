//! Thread slots: a small dense index for every live thread, so that per-thread state lives in an array.
//!
//! The index is the smallest that no live thread has, taken when a thread first asks and given back by a thread-local
//! destructor. Asking again is one thread-local read: the slot sits in a `const` thread-local without a destructor,
//! which stays readable to the very end of the thread.
//!
//! *Late calls.* Destructors of other thread-locals may ask for the slot after the index was given back. Such a thread
//! takes an index again, and a second destructor returns it. If that one has run too, the index is never reused: a
//! wrong sharing of per-thread state would be worse than a lost number. Neither happens to a thread-local whose
//! initialiser called [`slot`], because destructors run in the reverse order of initialisation.
//!
//! In the model world an index is not reused within one execution. A simulated thread's slot is the virtual machine's.

use core::cell::Cell;

/// Who the calling thread is: a dense index, unique among live threads and reused after a thread ends, and the NUMA
/// node it was last known to run on. Correctness never depends on `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSlot {
    /// Dense index: the smallest that no live thread had when this one first asked.
    pub index: usize,
    /// NUMA node index (see [`topology`](crate::topology)), 0 on one-node machines. Known from the first call to
    /// [`slot`], from [`pin_current`](super::pin_current), and from the calls to
    /// [`Topology::node_of_current`](crate::topology::Topology::node_of_current) since.
    pub node: usize,
}

/// The index that means "none yet".
const NONE: usize = usize::MAX;
const UNKNOWN: ThreadSlot = ThreadSlot { index: NONE, node: 0 };

#[cfg(not(loom))]
std::thread_local! {
    static SLOT: Cell<ThreadSlot> = const { Cell::new(UNKNOWN) };
}
#[cfg(loom)]
loom::thread_local! {
    static SLOT: Cell<ThreadSlot> = Cell::new(UNKNOWN);
}

/// The calling thread's slot. One thread-local read after the first call of the thread.
///
/// # Panics
/// On the first call, if `ARCHIPELAGO_TOPOLOGY` has a value that is no topology.
#[inline]
pub fn slot() -> ThreadSlot {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return ThreadSlot { index: current.slot, node: current.node };
    }
    let slot = SLOT.with(Cell::get);
    if slot.index != NONE { slot } else { first_call() }
}

/// One more than the largest index ever given out: the length that an array indexed by slots needs.
///
/// Whoever got its slot before this call (in happens-before order, or in the single order of sequentially consistent
/// operations) is counted.
pub fn slots_high_water() -> usize {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return archipelago_sim::world::slots_high_water();
    }
    registry::high_water()
}

#[cold]
fn first_call() -> ThreadSlot {
    let index = registry::acquire();
    // Finding the node may ask for the slot again, so that it must know the index by then.
    SLOT.with(|slot| slot.set(ThreadSlot { index, node: 0 }));
    #[cfg(not(loom))]
    note_node(crate::topology::Topology::current().node_of_current());
    SLOT.with(Cell::get)
}

/// Remembers where the calling thread runs.
pub(crate) fn note_node(node: usize) {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return;
    }
    SLOT.with(|slot| slot.set(ThreadSlot { node, ..slot.get() }));
}

/// Who has which index: the native world.
#[cfg(not(loom))]
mod registry {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, PoisonError};

    use super::{Cell, NONE, SLOT, UNKNOWN};
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Indices below `HIGH_WATER` that no live thread has.
    static FREE: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());

    /// Written under the lock of `FREE`. Sequentially consistent, so that a thread which takes its slot, announces
    /// itself, fences and then reads shared state is either seen by a scanner that changed the state, fenced and then
    /// read this, or sees the change.
    static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

    /// Gives the index back when the thread ends.
    struct Return;

    impl Drop for Return {
        fn drop(&mut self) {
            let index = SLOT.with(|slot| slot.replace(UNKNOWN)).index;
            if index != NONE {
                FREE.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse(index));
            }
        }
    }

    std::thread_local! {
        static AT_EXIT: Return = const { Return };
        /// For an index taken after `AT_EXIT` has run.
        static AT_EXIT_LATE: Return = const { Return };
    }

    pub(super) fn acquire() -> usize {
        // Touching a thread-local registers its destructor; it fails once the destructor has run.
        let _ = AT_EXIT.try_with(|_| ()).or_else(|_| AT_EXIT_LATE.try_with(|_| ()));
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        match free.pop() {
            Some(Reverse(index)) => index,
            None => HIGH_WATER.fetch_add(1, Ordering::SeqCst),
        }
    }

    pub(super) fn high_water() -> usize {
        HIGH_WATER.load(Ordering::SeqCst)
    }

    // `Cell` is what makes `SLOT` free of a destructor; naming it here keeps that from being changed unawares.
    const _: () = assert!(!core::mem::needs_drop::<Cell<super::ThreadSlot>>());
}

/// Who has which index: the model world. The counter is not loom's own, so that asking adds no branch to the model.
#[cfg(loom)]
mod registry {
    use std::sync::atomic::{AtomicUsize, Ordering};

    loom::lazy_static! {
        static ref HIGH_WATER: AtomicUsize = AtomicUsize::new(0);
    }

    pub(super) fn acquire() -> usize {
        HIGH_WATER.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn high_water() -> usize {
        HIGH_WATER.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Tests that look at which indices are free must not run beside each other; threads of other tests may.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn live_threads_have_different_indices() {
        let _alone = alone();
        let threads = 16;
        let barrier = Arc::new(Barrier::new(threads));
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                let barrier = barrier.clone();
                std::thread::spawn(move || {
                    let mine = slot();
                    barrier.wait();
                    assert_eq!(slot().index, mine.index);
                    assert!(slots_high_water() > mine.index);
                    mine.index
                })
            })
            .collect();
        let indices: HashSet<usize> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        assert_eq!(indices.len(), threads);
    }

    #[test]
    fn indices_are_reused() {
        let _alone = alone();
        for _ in 0..300 {
            std::thread::spawn(slot).join().unwrap();
        }
        // This thread, the 16 of the other test, and whatever the other modules' tests start meanwhile.
        assert!(slots_high_water() < 150, "{}", slots_high_water());
    }

    #[test]
    fn late_calls_get_an_index_that_nobody_else_has_and_return_it() {
        struct AsksLate(Arc<Mutex<Vec<usize>>>);
        impl Drop for AsksLate {
            fn drop(&mut self) {
                self.0.lock().unwrap().push(slot().index);
            }
        }
        std::thread_local! {
            static LATE: Cell<Option<AsksLate>> = const { Cell::new(None) };
        }
        let _alone = alone();
        let mine = slot().index;
        let seen = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..300 {
            let seen = seen.clone();
            // Registers `LATE` before the slot, so that it is dropped after it.
            let thread = std::thread::spawn(move || {
                LATE.with(|late| late.set(Some(AsksLate(seen))));
                slot();
            });
            thread.join().unwrap();
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 300);
        assert!(!seen.contains(&mine));
        assert!(slots_high_water() < 150, "{}", slots_high_water());
    }
}
