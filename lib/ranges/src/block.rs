//! Blocks, the content of leaves: ranges in ascending order. A block does not change once other threads can see it.
//!
//! # Invariants
//! 1. `len ≤ CAPACITY`, and the first `len` elements of all three arrays are initialized.
//! 2. `start < end` of each range, and `end ≤ start` of the next one.
//! 3. If two ranges touch, their values differ: each range is as long as possible.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use archipelago_platform::touch;

use crate::point::Point;

/// The most ranges of a block. A larger number makes changes slower, since a change copies the block; a smaller number
/// makes the directory larger.
pub(crate) const CAPACITY: usize = if cfg!(loom) {
    2
} else if cfg!(any(miri, archipelago_sim)) {
    4
} else {
    16
};

pub(crate) struct Block<K, V> {
    len: usize,
    starts: [MaybeUninit<K>; CAPACITY],
    ends: [MaybeUninit<K>; CAPACITY],
    values: [MaybeUninit<V>; CAPACITY],
}

impl<K: Point, V> Block<K, V> {
    pub(crate) fn new() -> Box<Self> {
        let mut block = Box::<Self>::new_uninit();
        // SAFETY: in bounds of the allocation. Each element that stays uninitialized is a `MaybeUninit`.
        unsafe {
            (&raw mut (*block.as_mut_ptr()).len).write(0);
            block.assume_init()
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        touch(&raw const self.len, size_of::<usize>());
        self.len
    }

    #[inline]
    pub(crate) fn starts(&self) -> &[K] {
        // SAFETY: invariant 1.
        unsafe { self.part(&self.starts) }
    }

    #[inline]
    pub(crate) fn ends(&self) -> &[K] {
        // SAFETY: invariant 1.
        unsafe { self.part(&self.ends) }
    }

    #[inline]
    pub(crate) fn value(&self, index: usize) -> &V {
        // SAFETY: invariant 1.
        let values = unsafe { self.part(&self.values) };
        &values[index]
    }

    /// # Safety
    /// `array` must be one of the block's arrays.
    #[inline]
    unsafe fn part<T>(&self, array: &[MaybeUninit<T>; CAPACITY]) -> &[T] {
        // SAFETY: invariant 1.
        let part = unsafe { slice::from_raw_parts(array.as_ptr().cast::<T>(), self.len()) };
        touch(part.as_ptr(), size_of_val(part));
        part
    }

    /// Returns the index of the range that contains `point`.
    #[inline]
    pub(crate) fn find(&self, point: K) -> Option<usize> {
        let place = self.starts().partition_point(|start| *start <= point).checked_sub(1)?;
        (point < self.ends()[place]).then_some(place)
    }

    /// Returns the index of the first range that ends above `point`.
    pub(crate) fn first_above(&self, point: K) -> Option<usize> {
        let place = self.ends().partition_point(|end| *end <= point);
        (place < self.len()).then_some(place)
    }

    /// Returns the indexes of the ranges that overlap `window`. If the window is empty, the result is empty.
    pub(crate) fn overlapping(&self, window: &Range<K>) -> Range<usize> {
        let from = self.ends().partition_point(|end| *end <= window.start);
        if window.is_empty() {
            return from..from;
        }
        from..self.starts().partition_point(|start| *start < window.end).max(from)
    }

    /// Returns the range at an index.
    #[inline]
    pub(crate) fn range(&self, place: usize) -> Range<K> {
        self.starts()[place]..self.ends()[place]
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Range<K>, &V)> {
        (0..self.len()).map(|place| (self.range(place), self.value(place)))
    }

    /// Appends a range. Returns the value if the block is full.
    fn push(&mut self, range: Range<K>, value: V) -> Result<(), V> {
        debug_assert!(range.start < range.end && self.ends().last().is_none_or(|end| *end <= range.start));
        if self.len == CAPACITY {
            return Err(value);
        }
        self.starts[self.len].write(range.start);
        self.ends[self.len].write(range.end);
        self.values[self.len].write(value);
        self.len += 1;
        Ok(())
    }

    /// Moves the last ranges of `self` to the front of `next`, so that both have equally many, or `self` has one more.
    /// If `next` has as many or more ranges, nothing is moved.
    fn share_with(&mut self, next: &mut Self) {
        let moved = self.len.saturating_sub(next.len) / 2;
        let kept = self.len - moved;
        // SAFETY: `next` has at least `2 * moved` ranges fewer than `self`, so it has `moved` free elements. The
        // elements that are moved out of `self` are above its new length.
        unsafe {
            shift_in(&self.starts[kept..self.len], &mut next.starts, next.len);
            shift_in(&self.ends[kept..self.len], &mut next.ends, next.len);
            shift_in(&self.values[kept..self.len], &mut next.values, next.len);
        }
        self.len = kept;
        next.len += moved;
    }
}

/// Moves `from` to the front of `to`, after shifting the first `len` elements of `to` towards the end.
///
/// # Safety
/// `to` must have `from.len()` free elements after its first `len` elements. The caller must treat `from` as
/// uninitialized afterwards.
unsafe fn shift_in<T>(from: &[MaybeUninit<T>], to: &mut [MaybeUninit<T>; CAPACITY], len: usize) {
    debug_assert!(len + from.len() <= CAPACITY);
    let to = to.as_mut_ptr();
    // SAFETY: the caller guarantees that the elements are within bounds; `from` belongs to another block, so it does
    // not overlap `to`.
    unsafe {
        to.copy_to(to.add(from.len()), len);
        to.copy_from_nonoverlapping(from.as_ptr(), from.len());
    }
}

impl<K, V> Drop for Block<K, V> {
    fn drop(&mut self) {
        let values = core::ptr::slice_from_raw_parts_mut(self.values.as_mut_ptr().cast::<V>(), self.len);
        // SAFETY: invariant 1; the values are dropped only here.
        unsafe { values.drop_in_place() };
    }
}

/// Ranges that are added in ascending order, in as many blocks as needed. [`Making`] joins ranges that touch and have
/// equal values.
pub(crate) struct Blocks<K, V> {
    full: Vec<Box<Block<K, V>>>,
    last: Box<Block<K, V>>,
}

/// A builder of blocks. It keeps all values that were pushed, including unused ones: values of ranges that were joined
/// to the previous range, and all values after a panic. Values' destructors are users' code, so a builder is made
/// before locks are taken, and dropped after they are released.
pub(crate) struct Making<K, V> {
    /// The blocks that are being built; `None` before the first range.
    blocks: Option<Blocks<K, V>>,
    /// The new value, while it is compared with the last range's value.
    value: Option<V>,
    /// Unused values, of ranges that were joined to the previous one.
    joined: Vec<V>,
}

impl<K: Point, V: Eq> Making<K, V> {
    pub(crate) fn new() -> Self {
        Self { blocks: None, value: None, joined: Vec::new() }
    }

    pub(crate) fn push(&mut self, range: Range<K>, value: V) {
        let blocks = self.blocks.get_or_insert_with(Blocks::new);
        let extends = blocks.extends(&range, self.value.insert(value));
        match self.value.take() {
            Some(value) if extends => self.joined.push(value),
            Some(value) => blocks.push(range, value),
            None => {}
        }
    }

    /// Takes the blocks out of the builder, which keeps only unused values.
    pub(crate) fn take(&mut self) -> Blocks<K, V> {
        self.blocks.take().unwrap_or_else(Blocks::new)
    }
}

impl<K: Point, V: Eq> Blocks<K, V> {
    fn new() -> Self {
        Self { full: Vec::new(), last: Block::new() }
    }

    fn push(&mut self, range: Range<K>, value: V) {
        if let Err(value) = self.last.push(range.clone(), value) {
            self.full.push(core::mem::replace(&mut self.last, Block::new()));
            let pushed = self.last.push(range, value);
            debug_assert!(pushed.is_ok(), "a new block has room");
        }
    }

    /// If the last range touches this one and has an equal value, lengthens the last range and returns `true`.
    fn extends(&mut self, range: &Range<K>, value: &V) -> bool {
        let block = if self.last.len > 0 { Some(&mut self.last) } else { self.full.last_mut() };
        let Some(block) = block.filter(|block| block.len > 0) else { return false };
        let place = block.len - 1;
        let touches = block.ends()[place] == range.start && block.value(place) == value;
        if touches {
            block.ends[place].write(range.end);
        }
        touches
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.full.len() * CAPACITY + self.last.len
    }

    /// Returns the last range's end.
    pub(crate) fn end(&self) -> Option<K> {
        self.last.ends().last().copied()
    }

    /// Returns the only block, or `self` if there are several.
    pub(crate) fn into_one(self) -> Result<Box<Block<K, V>>, Self> {
        if self.full.is_empty() { Ok(self.last) } else { Err(self) }
    }

    /// Returns all blocks. With `even`, the last two get equally many ranges.
    pub(crate) fn into_all(mut self, even: bool) -> Vec<Box<Block<K, V>>> {
        if even && let Some(before) = self.full.last_mut() {
            before.share_with(&mut self.last);
        }
        self.full.push(self.last);
        self.full
    }
}
