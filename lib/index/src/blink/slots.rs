//! The layout of a page's words, which depends on the keys' form.
//!
//! ```text
//! | high's tail | low's tail | slot 0, 1, 2 ... ->      free      <- heap |
//! 0                          base             base+len          floor    end
//! ```
//!
//! Slots are in key order, one word each, so that a search touches few cache lines; the rest of an entry is in the
//! heap.
//! - [`Word`](crate::Word): the slot is the key; the value of slot `i` is word `i` of the heap, counted from the end.
//! - [`Bytes`](crate::Bytes): the slot contains the *head* (four bytes after the prefix that all keys of the page
//!   share), the position in the heap, and the length after the prefix. The heap contains the value and the bytes after
//!   the head. Heads are compared first, and are sufficient in most cases.
//!
//! Functions that only read may be called while a concurrent writer changes the page. Then the result is meaningful
//! only after validation, but the functions never access words outside the page, whatever they read.

use super::run::Run;
use crate::structure::Form;
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint;
use core::cmp::Ordering;
use core::ops::Range;

/// The sizes and offsets in a page, in one word of its header.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of entries.
    pub len: usize,
    /// The number of bytes that all keys of the page's range share, and that no slot repeats.
    pub prefix: usize,
    /// The index of the word of slot 0.
    pub base: usize,
    /// The index of the lowest word of the heap.
    pub floor: usize,
}

impl Shape {
    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift) as usize & 0xFFFF;
        Shape { len: field(0), prefix: field(16), base: field(32), floor: field(48) }
    }

    #[inline]
    pub(super) fn pack(self) -> u64 {
        self.len as u64 | (self.prefix as u64) << 16 | (self.base as u64) << 32 | (self.floor as u64) << 48
    }

    /// Returns the number of words between the slots and the heap.
    #[inline]
    pub(super) fn free(self) -> usize {
        self.floor - self.base - self.len
    }
}

/// The position of a key, or the position at which it would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first slot whose key is not less than the searched key.
    pub slot: usize,
    /// Whether this slot has the key.
    pub hit: bool,
}

/// A fence key in a page: its first eight bytes (or the whole word), its length, and the rest.
#[derive(Clone, Copy)]
pub struct Fence<'a> {
    /// The first bytes, in the header.
    pub head: u64,
    /// The whole length in bytes; 0 for words.
    pub len: usize,
    /// The bytes after the head.
    pub tail: &'a [AtomicU64],
}

/// A form of keys for which pages have a layout.
pub trait SlotForm: Form {
    /// A private copy of entries.
    type Run: Run<Self>;

    /// Returns the number of bytes that all keys of a range share.
    fn prefix(low: Self::Probe<'_>, high: Option<Self::Probe<'_>>) -> usize;

    /// Returns the key under which the first entry of an inner page is stored: for byte strings the page's prefix, for
    /// words the least key of the range.
    fn floor<'a>(low: Self::Probe<'a>, prefix: usize) -> Self::Probe<'a>;

    /// Returns a short key `s` with `a < s <= b`.
    fn separator<'a>(a: Self::Probe<'_>, b: Self::Probe<'a>) -> Self::Probe<'a>;

    /// Returns the length of a key in bytes; 0 for words.
    fn len(key: Self::Probe<'_>) -> usize;

    /// Returns a number that depends only on the key. The number's bits need not be mixed.
    fn hash(key: Self::Probe<'_>) -> u64;

    /// Returns the part of a fence that is in the header.
    fn head(key: Self::Probe<'_>) -> u64;

    /// Returns the number of words of a fence outside the header.
    fn fence_words(len: usize) -> usize;

    /// Writes the tail of a fence.
    fn write_fence(words: &[AtomicU64], key: Self::Probe<'_>);

    /// Compares a key with a fence.
    fn order(key: Self::Probe<'_>, fence: Fence<'_>) -> Ordering;

    /// Returns a fence as an owned key.
    fn read_fence(fence: Fence<'_>) -> Self::Owned;

    /// Returns the number of words that an entry takes under a prefix.
    fn entry_words(key: Self::Probe<'_>, prefix: usize) -> usize;

    /// Searches for a key that has the page's prefix. `heads` are the heads of the fences, from which the search
    /// guesses the position; the second is `None` on the last page.
    fn search(words: &[AtomicU64], shape: Shape, heads: (u64, Option<u64>), key: Self::Probe<'_>) -> Found;

    /// Returns the value word of a slot.
    fn value(words: &[AtomicU64], shape: Shape, slot: usize) -> &AtomicU64;

    /// Writes an entry, for which there is room, into a new slot.
    fn put(words: &[AtomicU64], shape: &mut Shape, slot: usize, key: Self::Probe<'_>, value: u64);

    /// Removes an entry. Returns how many words of the heap become unused.
    fn take(words: &[AtomicU64], shape: &mut Shape, slot: usize) -> usize;

    /// Appends entries of a page whose lower fence is `low`.
    fn collect(words: &[AtomicU64], shape: Shape, low: Fence<'_>, slots: Range<usize>, run: &mut Self::Run);
}

/// Prefetches, all at the same time, the cache lines that a search over slots reads first. Otherwise each step of the
/// search would wait for a cache line.
#[inline]
pub(super) fn prefetch(slots: &[AtomicU64]) {
    if slots.len() > 8 {
        for part in 1..8 {
            hint::prefetch_read(slots.as_ptr().wrapping_add(slots.len() * part / 8));
        }
    }
}

/// Moves `range` one word up.
#[inline]
pub(super) fn shift_up(words: &[AtomicU64], range: Range<usize>) {
    words[range.start..=range.end].windows(2).rev().for_each(|pair| pair[1].store(pair[0].load(Relaxed), Relaxed));
}

/// Moves `range` one word down.
#[inline]
pub(super) fn shift_down(words: &[AtomicU64], range: Range<usize>) {
    words[range.start - 1..range.end].windows(2).for_each(|pair| pair[0].store(pair[1].load(Relaxed), Relaxed));
}
