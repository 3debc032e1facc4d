//! A lock's cells, one per cache line, made when first needed.
//!
//! A lock must be constructible in a constant, and a lock that is never contended or never read should stay small. So
//! the first access allocates the cells (one per reader slot, or one per node), and dropping the lock frees them.
//!
//! Invariants: `cells` changes once, from null to its final value, by a compare-and-exchange; it then points at a
//! leaked boxed slice of `len` cells, and `len` no longer changes.

use core::{ptr, slice};

use archipelago_platform::atomic::{AtomicPtr, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::boxed;

/// A power of two of padded cells. There are none until the first call of [`get_or_make`](Self::get_or_make).
#[derive(Debug)]
pub(super) struct Slots<T> {
    cells: AtomicPtr<CachePadded<T>>,
    len: AtomicUsize,
}

// SAFETY: equivalent to a box of cells with respect to threads: only shared references to cells are returned.
unsafe impl<T: Send + Sync> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

impl<T: Default> Slots<T> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { cells: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { cells: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0) }
    }

    /// Returns all cells. The first call makes `wanted()` cells, rounded up to a power of two. `wanted` must always
    /// return the same number for the same lock.
    #[inline]
    pub(super) fn get_or_make(&self, wanted: impl FnOnce() -> usize) -> &[CachePadded<T>] {
        // Acquire: pairs with the Release in `make`, so the length and the cells are visible as initialized.
        let cells = self.cells.load(Ordering::Acquire);
        if cells.is_null() {
            return self.make(wanted());
        }
        // SAFETY: a non-null pointer is a boxed slice of `len` cells that lives as long as `self`.
        unsafe { slice::from_raw_parts(cells, self.len.load(Ordering::Relaxed)) }
    }

    #[cold]
    fn make(&self, wanted: usize) -> &[CachePadded<T>] {
        let len = wanted.max(1).next_power_of_two();
        let fresh: Box<[CachePadded<T>]> = boxed(len, CachePadded::default);
        let fresh = Box::into_raw(fresh).cast::<CachePadded<T>>();
        // Stored before the pointer, so that a thread that sees the pointer also sees the length. Racing threads store
        // the same number.
        self.len.store(len, Ordering::Relaxed);
        match self.cells.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just made with this length, and from now on freed with `self` only.
            Ok(_) => unsafe { slice::from_raw_parts(fresh, len) },
            Err(winner) => {
                // SAFETY: made above, and no other thread saw it.
                unsafe { free(fresh, len) };
                // SAFETY: the winner's cells, of the same length, live as long as `self`.
                unsafe { slice::from_raw_parts(winner, len) }
            }
        }
    }
}

/// # Safety
/// `cells` is a leaked boxed slice of `len` cells, and no thread uses it any more.
unsafe fn free<T>(cells: *mut CachePadded<T>, len: usize) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(cells, len)) });
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` orders every earlier use before this one.
        let (cells, len) = (self.cells.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        if !cells.is_null() {
            // SAFETY: made by `make` with this length; because of `&mut self` no thread borrows it.
            unsafe { free(cells, len) };
        }
    }
}
