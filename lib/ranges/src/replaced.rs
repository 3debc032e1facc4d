//! Boxes (blocks, leaves, chunks and roots) that a change has unlinked. They are retired (given to RCU, which frees
//! them after the readers) when the change has released its locks, since reclamation runs users' destructors.

use archipelago_sync::rcu::Guard;

/// An unlinked box, and the function that retires it.
type Unlinked = (*mut (), unsafe fn(&Guard<'_>, *mut ()));

/// Unlinked boxes.
#[must_use]
pub(crate) struct Replaced {
    first: Unlinked,
    others: Vec<Unlinked>,
}

/// # Safety
/// The contract of [`Guard::retire_box`] must hold; `object` must be a `T`.
unsafe fn retire<T>(guard: &Guard<'_>, object: *mut ()) {
    // SAFETY: the caller guarantees the contract.
    unsafe { guard.retire_box(object.cast::<T>()) };
}

impl Replaced {
    /// # Safety
    /// The contract of [`Guard::retire_box`] must hold for the box: [`retire`](Self::retire) calls it with a guard of
    /// the same RCU domain.
    pub(crate) unsafe fn new<T>(object: *mut T) -> Self {
        Self { first: (object.cast(), retire::<T>), others: Vec::new() }
    }

    /// # Safety
    /// The contract of [`new`](Self::new) must hold.
    pub(crate) unsafe fn push<T>(&mut self, object: *mut T) {
        self.others.push((object.cast(), retire::<T>));
    }

    /// Retires the boxes. Reclamation begins only when the last box is retired, so a destructor's panic leaves no box
    /// unretired.
    pub(crate) fn retire(self, guard: &Guard<'_>) {
        let now = |(object, retire): Unlinked| {
            // SAFETY: the callers of `new` and `push` guarantee the contract.
            unsafe { retire(guard, object) };
        };
        if !self.others.is_empty() {
            guard.hold_back(|| self.others.into_iter().for_each(now));
        }
        now(self.first);
    }
}
