//! Memory that is reused for vectors of different types.

use core::mem::{self, ManuallyDrop};

/// The memory that a session keeps for its commits.
#[doc(hidden)]
#[derive(Default)]
pub struct Scratch(Vec<usize>);

impl Scratch {
    /// Returns the size of a `T` in words.
    const fn words<T>() -> usize {
        const { assert!(size_of::<T>() > 0 && size_of::<T>().is_multiple_of(size_of::<usize>())) };
        const { assert!(align_of::<T>() == align_of::<usize>()) };
        size_of::<T>() / size_of::<usize>()
    }

    /// Returns an empty vector of `T`, in the memory of the vector that was kept last. If the size of that memory is
    /// not a multiple of `T`'s size, the memory is freed, and the vector has none yet.
    pub(super) fn take<T: Copy>(&mut self) -> Vec<T> {
        let mut kept = mem::take(&mut self.0);
        if !kept.capacity().is_multiple_of(Self::words::<T>()) {
            kept = Vec::new();
        }
        let mut kept = ManuallyDrop::new(kept);
        // SAFETY: the vector is empty and has the same alignment, and a whole number of `T` fills the allocation.
        unsafe { Vec::from_raw_parts(kept.as_mut_ptr().cast(), 0, kept.capacity() / Self::words::<T>()) }
    }

    /// Keeps a vector's memory.
    pub(super) fn keep<T: Copy>(&mut self, things: Vec<T>) {
        let mut things = ManuallyDrop::new(things);
        let words = things.capacity() * Self::words::<T>();
        // SAFETY: as above; a `Copy` type needs no drop.
        self.0 = unsafe { Vec::from_raw_parts(things.as_mut_ptr().cast(), 0, words) };
    }
}
