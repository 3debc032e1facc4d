//! Memory that is used anew for vectors of things of any type.

use core::mem::{self, ManuallyDrop};

/// Memory that a session keeps for its commits.
#[doc(hidden)]
#[derive(Default)]
pub struct Scratch(Vec<usize>);

impl Scratch {
    /// The size of a thing in words.
    const fn words<T>() -> usize {
        const { assert!(size_of::<T>() > 0 && size_of::<T>().is_multiple_of(size_of::<usize>())) };
        const { assert!(align_of::<T>() == align_of::<usize>()) };
        size_of::<T>() / size_of::<usize>()
    }

    /// An empty vector of things of some words each, with the memory of the last one that was kept. Always of the same size,
    /// or the memory is made anew.
    pub(super) fn take<T: Copy>(&mut self) -> Vec<T> {
        let mut kept = mem::take(&mut self.0);
        if !kept.capacity().is_multiple_of(Self::words::<T>()) {
            kept = Vec::new();
        }
        let mut kept = ManuallyDrop::new(kept);
        // SAFETY: empty, aligned alike, and a whole number of things fills what was allocated.
        unsafe { Vec::from_raw_parts(kept.as_mut_ptr().cast(), 0, kept.capacity() / Self::words::<T>()) }
    }

    /// Keeps its memory.
    pub(super) fn keep<T: Copy>(&mut self, things: Vec<T>) {
        let mut things = ManuallyDrop::new(things);
        let words = things.capacity() * Self::words::<T>();
        // SAFETY: as above; what is `Copy` needs no drop.
        self.0 = unsafe { Vec::from_raw_parts(things.as_mut_ptr().cast(), 0, words) };
    }
}
