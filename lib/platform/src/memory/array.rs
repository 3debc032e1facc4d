//! Large arrays of plain data that are built, read in random order, and freed as a whole.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::alloc::Layout;

use super::pages::Pages;
use crate::topology::NodeId;

/// A growable array of plain data in memory of its own. On Linux, from 64 KiB on, this memory is mapped from the
/// operating system. So dropping the array returns the memory at once, and capacity that was never written costs
/// nothing, except the rest of a page. From 2 MiB on, huge pages are requested. The memory prefers a given NUMA node if
/// the machine has several.
///
/// ```
/// use archipelago::platform::memory::Array;
///
/// let mut squares = Array::with_capacity(3, None);
/// squares.extend_from_slice(&[0, 1, 4]);
/// squares.push(9);
/// assert_eq!(squares[..], [0, 1, 4, 9]);
/// ```
pub struct Array<T: Copy> {
    /// The begin of `pages`, or dangling.
    start: NonNull<T>,
    len: usize,
    /// `None` if there is no capacity.
    pages: Option<Pages>,
    node: Option<NodeId>,
    items: PhantomData<T>,
}

// SAFETY: the array owns its items.
unsafe impl<T: Copy + Send> Send for Array<T> {}
// SAFETY: as above; `&Array` gives out shared references only.
unsafe impl<T: Copy + Sync> Sync for Array<T> {}

impl<T: Copy> Array<T> {
    /// Makes an empty array with room for `capacity` items. If there is no memory, this ends the process, as a failing
    /// `Box::new` does.
    ///
    /// # Panics
    /// If `T` has no size, or the capacity exceeds the address space.
    pub fn with_capacity(capacity: usize, node: Option<NodeId>) -> Self {
        assert!(size_of::<T>() > 0, "items have a size");
        let layout = Layout::array::<T>(capacity).expect("an array fits the address space");
        let pages = (capacity > 0).then(|| Pages::allocate(Pages::round_up(layout), node));
        let start = pages.as_ref().map_or(NonNull::dangling(), |pages| pages.start().cast());
        Self { start, len: 0, pages, node, items: PhantomData }
    }

    /// Makes an empty array without memory. Memory that it allocates later prefers `node`.
    pub fn on(node: Option<NodeId>) -> Self {
        Self::with_capacity(0, node)
    }

    /// Returns the node that the array's memory prefers.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Adds an item. Amortised constant time.
    ///
    /// # Panics
    /// As for [`with_capacity`](Self::with_capacity), if the array has to grow.
    #[inline]
    pub fn push(&mut self, item: T) {
        self.extend_from_slice(&[item]);
    }

    /// Adds items.
    ///
    /// # Panics
    /// As for [`with_capacity`](Self::with_capacity), if the array has to grow.
    #[inline]
    pub fn extend_from_slice(&mut self, items: &[T]) {
        self.make_room(items.len());
        crate::touch_mut(self.start.as_ptr().wrapping_add(self.len), size_of_val(items));
        // SAFETY: there is room for this many items after the first `len`, and it belongs to this array alone.
        unsafe { self.start.add(self.len).copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
        self.len += items.len();
    }

    /// Adds `more` items that are copies of `item`.
    ///
    /// # Panics
    /// As for [`with_capacity`](Self::with_capacity), if the array has to grow.
    pub fn extend_with(&mut self, item: T, more: usize) {
        self.make_room(more);
        (0..more).for_each(|_| self.push(item));
    }

    /// Keeps only the first `len` items. The memory of the others is not freed.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes an empty array with a little more capacity than `like` has items, on the same node: for an array that
    /// replaces `like`.
    pub fn successor_of(like: &Self) -> Self {
        Self::with_capacity(like.len + like.len / 16 + 1, like.node)
    }

    /// Returns the bytes of memory held. Of memory that is mapped from the operating system, only the pages that
    /// contain present items count.
    pub fn bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.backed(self.len * size_of::<T>()))
    }

    /// Returns the number of items for which there is room.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::size) / size_of::<T>()
    }

    #[inline]
    fn make_room(&mut self, more: usize) {
        if self.capacity() - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let capacity = self.len.saturating_add(more).max(self.len + self.len / 4).max(4);
        let mut larger = Self::with_capacity(capacity, self.node);
        larger.extend_from_slice(self);
        *self = larger;
    }
}

impl<T: Copy> Default for Array<T> {
    fn default() -> Self {
        Self::on(None)
    }
}

impl<T: Copy> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items are initialized, and borrowed with `self`.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl<T: Copy> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed mutably.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn grows_and_keeps_its_items() {
        let many = if cfg!(miri) { 20_000 } else { 600_000 };
        let mut array = Array::default();
        assert!(array.is_empty());
        for i in 0..many {
            array.push(i);
        }
        array.extend_with(7, 5);
        array[0] = 9;
        assert_eq!(array.len(), many as usize + 5);
        assert!(array[1..many as usize].iter().copied().eq(1..many));
        assert_eq!((array[0], array[many as usize + 4]), (9, 7));
        assert!(array.capacity() >= array.len() && array.bytes() >= array.len() * 4);
    }
}
