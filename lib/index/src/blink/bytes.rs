//! Pages of keys that are byte strings. See [`slots`](super::slots).
//!
//! Eight bytes are stored in a word, the first one in the highest bits, padded with zeros. So comparing words is
//! comparing bytes. If all words of two strings are equal, their lengths decide.

use super::run::Run;
use super::slots::{Fence, Found, Shape, SlotForm, prefetch, shift_down, shift_up};
use crate::search::{chunk, common, partition_point};
use crate::structure::Bytes;
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use core::cmp::Ordering;
use core::hash::Hasher as _;
use core::ops::Range;

/// The number of bytes of a key in its slot, after the prefix (the bytes that all keys of the page share, which slots
/// omit).
const IN_SLOT: usize = 4;

/// The number of bytes of a fence in the header.
const IN_HEADER: usize = 8;

/// A slot's word.
#[derive(Clone, Copy)]
struct Slot(u64);

impl Slot {
    #[inline]
    fn new(head: u64, place: usize, len: usize) -> Self {
        Slot(head << 32 | (place as u64) << 16 | len as u64)
    }

    /// Returns the first bytes after the prefix.
    #[inline]
    fn head(self) -> u64 {
        self.0 >> 32
    }

    /// Returns the index of the heap word that has the value. The rest of the key follows this word.
    #[inline]
    fn place(self) -> usize {
        (self.0 >> 16) as usize & 0xFFFF
    }

    /// Returns the number of bytes after the prefix.
    #[inline]
    fn len(self) -> usize {
        self.0 as usize & 0xFFFF
    }

    /// Returns the number of heap words of the entry.
    fn heap_words(self) -> usize {
        1 + words_for(self.len(), IN_SLOT)
    }

    #[inline]
    fn tail(self, words: &[AtomicU64]) -> &[AtomicU64] {
        let start = self.place() + 1;
        words.get(start..start + words_for(self.len(), IN_SLOT)).unwrap_or(&[])
    }
}

/// Returns the number of words for the bytes of a string of `len` bytes from `from` on.
#[inline]
fn words_for(len: usize, from: usize) -> usize {
    len.saturating_sub(from).div_ceil(8)
}

/// Returns the first bytes of `key` behind a prefix, as in a slot.
#[inline]
fn head(key: &[u8], prefix: usize) -> u64 {
    chunk(key, prefix) >> 32
}

fn write_tail(words: &[AtomicU64], key: &[u8], from: usize) {
    for (at, word) in words.iter().enumerate() {
        word.store(chunk(key, from + 8 * at), Relaxed);
    }
}

/// Compares `key` with a string of `len` bytes. Both have the same first `from` bytes, and `tail` has the string's
/// other bytes.
#[inline]
fn order_tail(key: &[u8], from: usize, tail: &[AtomicU64], len: usize) -> Ordering {
    for (at, word) in tail.iter().enumerate() {
        let order = chunk(key, from + 8 * at).cmp(&word.load(Relaxed));
        if order.is_ne() {
            return order;
        }
    }
    key.len().cmp(&len)
}

/// Appends the bytes of words, and then truncates `bytes` to a length of `start + len`.
fn read_tail(bytes: &mut Vec<u8>, start: usize, tail: &[AtomicU64], len: usize) {
    for word in tail {
        bytes.extend_from_slice(&word.load(Relaxed).to_be_bytes());
    }
    bytes.truncate(start + len);
}

/// Entries whose keys are byte strings.
#[derive(Default)]
pub struct BytesRun {
    bytes: Vec<u8>,
    /// The end of each key, and its value. A key begins where the previous one ends.
    entries: Vec<(usize, u64)>,
}

impl Run<Bytes> for BytesRun {
    fn with_room(entries: usize) -> Self {
        BytesRun { bytes: Vec::with_capacity(16 * entries), entries: Vec::with_capacity(entries) }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    #[inline]
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn push(&mut self, key: &[u8], value: u64) {
        self.bytes.extend_from_slice(key);
        self.entries.push((self.bytes.len(), value));
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        &self.bytes[start..self.entries[at].0]
    }

    #[inline]
    fn value(&self, at: usize) -> u64 {
        self.entries[at].1
    }
}

impl SlotForm for Bytes {
    type Run = BytesRun;

    fn prefix(low: &[u8], high: Option<&[u8]>) -> usize {
        high.map_or(0, |high| common(low, high))
    }

    fn floor<'a>(low: Self::Probe<'a>, prefix: usize) -> Self::Probe<'a> {
        &low[..prefix]
    }

    fn separator<'a>(a: &[u8], b: Self::Probe<'a>) -> Self::Probe<'a> {
        &b[..common(a, b) + 1]
    }

    #[inline]
    fn len(key: &[u8]) -> usize {
        key.len()
    }

    fn hash(key: &[u8]) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(key);
        hasher.finish()
    }

    fn head(key: &[u8]) -> u64 {
        chunk(key, 0)
    }

    #[inline]
    fn fence_words(len: usize) -> usize {
        words_for(len, IN_HEADER)
    }

    fn write_fence(words: &[AtomicU64], key: &[u8]) {
        write_tail(words, key, IN_HEADER);
    }

    #[inline]
    fn order(key: &[u8], fence: Fence<'_>) -> Ordering {
        chunk(key, 0).cmp(&fence.head).then_with(|| order_tail(key, IN_HEADER, fence.tail, fence.len))
    }

    fn read_fence(fence: Fence<'_>) -> Vec<u8> {
        let mut bytes = fence.head.to_be_bytes().to_vec();
        read_tail(&mut bytes, 0, fence.tail, fence.len);
        bytes
    }

    #[inline]
    fn entry_words(key: &[u8], prefix: usize) -> usize {
        // A page that is changing may show a prefix that is longer than the key.
        2 + words_for(key.len().saturating_sub(prefix), IN_SLOT)
    }

    #[inline]
    fn search(words: &[AtomicU64], shape: Shape, _: (u64, Option<u64>), key: &[u8]) -> Found {
        let slots = words.get(shape.base..shape.base + shape.len).unwrap_or(&[]);
        prefetch(slots);
        let (prefix, head) = (shape.prefix, head(key, shape.prefix));
        let slot = |at: usize| Slot(slots[at].load(Relaxed));
        // The first search uses only the slots' heads, without a branch that depends on them, since few keys have the
        // same head.
        let start = partition_point(0, slots.len(), |at| slot(at).head() < head);
        let mut end = start;
        while end < slots.len() && slot(end).head() == head {
            end = (2 * end - start + 1).min(slots.len());
        }
        let order = |at: usize| {
            let slot = slot(at);
            let tails = || order_tail(key, prefix + IN_SLOT, slot.tail(words), prefix + slot.len());
            head.cmp(&slot.head()).then_with(tails)
        };
        let at = partition_point(start, end, |at| order(at).is_gt());
        Found { slot: at, hit: at < end && order(at).is_eq() }
    }

    #[inline]
    fn value(words: &[AtomicU64], shape: Shape, slot: usize) -> &AtomicU64 {
        let last = words.len() - 1;
        let slot = Slot(words[(shape.base + slot).min(last)].load(Relaxed));
        &words[slot.place().min(last)]
    }

    fn put(words: &[AtomicU64], shape: &mut Shape, slot: usize, key: &[u8], value: u64) {
        let (from, len) = (shape.prefix + IN_SLOT, key.len() - shape.prefix);
        let new = Slot::new(head(key, shape.prefix), 0, len);
        let place = shape.floor - new.heap_words();
        let new = Slot::new(new.head(), place, len);
        words[place].store(value, Relaxed);
        write_tail(new.tail(words), key, from);
        shift_up(words, shape.base + slot..shape.base + shape.len);
        words[shape.base + slot].store(new.0, Relaxed);
        (shape.len, shape.floor) = (shape.len + 1, place);
    }

    fn take(words: &[AtomicU64], shape: &mut Shape, slot: usize) -> usize {
        let old = Slot(words[shape.base + slot].load(Relaxed));
        shift_down(words, shape.base + slot + 1..shape.base + shape.len);
        shape.len -= 1;
        if old.place() == shape.floor {
            shape.floor += old.heap_words();
            return 0;
        }
        old.heap_words()
    }

    fn collect(words: &[AtomicU64], shape: Shape, low: Fence<'_>, slots: Range<usize>, run: &mut BytesRun) {
        let mut prefix = Self::read_fence(low);
        prefix.truncate(shape.prefix);
        for slot in slots {
            let slot = Slot(words[(shape.base + slot).min(words.len() - 1)].load(Relaxed));
            let value = words[slot.place().min(words.len() - 1)].load(Relaxed);
            run.bytes.extend_from_slice(&prefix);
            let start = run.bytes.len();
            run.bytes.extend_from_slice(&(slot.head() as u32).to_be_bytes());
            read_tail(&mut run.bytes, start, slot.tail(words), slot.len());
            run.entries.push((run.bytes.len(), value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between two reads of a page, a split may have given it a longer prefix.
    #[test]
    fn a_key_may_be_shorter_than_the_prefix() {
        assert_eq!(Bytes::entry_words(b"ab", 6), Bytes::entry_words(b"abcdef", 6));
    }
}
