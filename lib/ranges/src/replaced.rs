//! What a change has unlinked, to be retired when its locks are given back: reclaiming runs users' destructors.

use archipelago_sync::rcu::Guard;

/// A box that is no longer linked, and how to retire it.
type Unlinked = (*mut (), unsafe fn(&Guard<'_>, *mut ()));

/// Boxes that are no longer linked.
#[must_use]
pub(crate) struct Replaced {
    first: Unlinked,
    others: Vec<Unlinked>,
}

/// # Safety
/// As [`Guard::retire_box`]; `object` is a `T`.
unsafe fn retire<T>(guard: &Guard<'_>, object: *mut ()) {
    // SAFETY: the caller's promise.
    unsafe { guard.retire_box(object.cast::<T>()) };
}

impl Replaced {
    /// # Safety
    /// As [`Guard::retire_box`], which is called for it by [`retire`](Self::retire), for a guard of the same domain.
    pub(crate) unsafe fn new<T>(object: *mut T) -> Self {
        Self { first: (object.cast(), retire::<T>), others: Vec::new() }
    }

    /// # Safety
    /// As [`new`](Self::new).
    pub(crate) unsafe fn push<T>(&mut self, object: *mut T) {
        self.others.push((object.cast(), retire::<T>));
    }

    /// Retires them. The last one is retired when nothing is held back any more, so that what is ripe is reclaimed, and a
    /// destructor that panics finds all of them retired.
    pub(crate) fn retire(self, guard: &Guard<'_>) {
        let now = |(object, retire): Unlinked| {
            // SAFETY: the promise of `new` and `push`.
            unsafe { retire(guard, object) };
        };
        if !self.others.is_empty() {
            guard.hold_back(|| self.others.into_iter().for_each(now));
        }
        now(self.first);
    }
}
