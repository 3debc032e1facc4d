//! Arrays that are written once and then read at random: in huge pages where they are large.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::Layout;

use super::pages::Pages;
use crate::topology::NodeId;

/// An immutable array. From 64 KiB on it is mapped from the operating system (so dropping it gives the memory back),
/// from 2 MiB on in huge pages, and preferably on a given NUMA node.
///
/// ```
/// use archipelago_platform::memory::FrozenSlice;
///
/// let squares = FrozenSlice::copy_of(&[0, 1, 4, 9], None);
/// assert_eq!(squares[3], 9);
/// ```
pub struct FrozenSlice<T: Copy> {
    /// None if the array is empty.
    pages: Option<Pages>,
    len: usize,
    items: PhantomData<T>,
}

// SAFETY: it owns its items, which nothing changes.
unsafe impl<T: Copy + Send> Send for FrozenSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Sync> Sync for FrozenSlice<T> {}

impl<T: Copy> FrozenSlice<T> {
    /// A copy of `items`. If there is no memory, this ends the process as a failing `Box::new` does.
    pub fn copy_of(items: &[T], node: Option<NodeId>) -> Self {
        let layout = Layout::for_value(items);
        let pages = (layout.size() > 0).then(|| Pages::allocate(Pages::round_up(layout), node));
        let this = Self { pages, len: items.len(), items: PhantomData };
        // SAFETY: the memory is as large as `items` and aligned for them, and ours alone.
        unsafe { this.start().copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
        this
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::size)
    }

    #[inline(always)]
    fn start(&self) -> NonNull<T> {
        self.pages.as_ref().map_or(NonNull::dangling(), |pages| pages.start().cast())
    }
}

impl<T: Copy> Default for FrozenSlice<T> {
    fn default() -> Self {
        Self::copy_of(&[], None)
    }
}

impl<T: Copy> Deref for FrozenSlice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `copy_of` wrote `len` items there, and nothing changes them.
        unsafe { NonNull::slice_from_raw_parts(self.start(), self.len).as_ref() }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for FrozenSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
