//! A private copy of a [`BytesPage`]'s entries, to sort, search and read.

use super::boxed::Boxed;
use super::layout::{
    BOXED, IN_SLOT, Info, LONG_HIGH, LONG_KEY, Meta, SLOT, SLOTS, WORDS, compare, tail_words, unchanging,
};
use super::{Bytes, BytesPage, PageCopy};
use archipelago_platform::atomic::Ordering::Relaxed;
use core::cmp::Ordering;

/// The value of [`BytesCopy::order`] if the slots are in key order.
pub(super) const IN_ORDER: [u8; SLOTS] = {
    let mut order = [0; SLOTS];
    let mut at = 0;
    while at < SLOTS {
        order[at] = at as u8;
        at += 1;
    }
    order
};

/// As many bits of a word as the number of a slot takes.
const LAST_BITS: u64 = SLOTS.next_power_of_two() as u64 - 1;

/// The [`Meta`] of an empty copy.
const NOTHING: Meta = Meta { sorted: 0, prefix: 0, floor: WORDS, high: 0 };

/// A copy of a [`BytesPage`]'s entries.
pub struct BytesCopy {
    pub(super) words: [u64; WORDS],
    pub(super) meta: Meta,
    pub(super) len: usize,
    pub(super) sorted: bool,
    /// Slots in key order.
    pub(super) order: [u8; SLOTS],
    /// The slots' tags, which are filled only for rebuilding pages.
    pub(super) tags: [u8; SLOTS],
}

/// A buffer in which keys are assembled: the prefix stays, and each suffix is written behind it, its tail in whole
/// words. It has room for all keys that are not boxed.
pub struct Scratch([u8; ROOM]);

/// A key that ends in the slot takes [`IN_SLOT`] bytes behind the prefix, and the last word of a tail up to eight.
const ROOM: usize = LONG_KEY + 16;

const HAS_ROOM: &str = "a buffer has room for sixteen bytes behind every prefix";

impl Default for Scratch {
    fn default() -> Self {
        Self([0; ROOM])
    }
}

impl BytesCopy {
    /// Removes all copied entries, so that no pointer can be followed.
    pub(super) fn clear(&mut self) {
        (self.meta, self.len, self.sorted) = (NOTHING, 0, true);
    }

    pub(super) fn take_tags(&mut self, page: &BytesPage) {
        self.tags = core::array::from_fn(|slot| page.tags[slot].load(Relaxed));
    }

    #[inline]
    pub(super) fn info(&self, at: usize) -> Info {
        Info(self.words[usize::from(self.order[at]) * SLOT + 2])
    }

    /// Returns the words of an entry's slot, its tail, and its tag.
    #[inline]
    pub(super) fn stored(&self, at: usize) -> ([u64; SLOT], &[u64], u8) {
        let slot = usize::from(self.order[at]);
        let words = self.words.as_chunks::<SLOT>().0[slot];
        let info = Info(words[2]);
        (words, &self.words[info.place()..][..info.tail_words()], self.tags[slot])
    }

    /// Returns the address of a boxed key, and 0 for other keys.
    pub(super) fn address(&self, at: usize) -> u64 {
        let info = self.info(at);
        if info.len() == BOXED { self.words[info.place()] } else { 0 }
    }

    pub(super) fn key_len(&self, at: usize) -> usize {
        match self.address(at) {
            0 => self.meta.prefix + self.info(at).len() as usize,
            // SAFETY: a validated copy's boxed keys live as long as the guard or lock under which it is used.
            address => unsafe { Boxed::at(address) }.len(),
        }
    }

    /// Returns the number of words that all entries would take under another prefix.
    pub(super) fn words_under(&self, prefix: usize) -> usize {
        (0..self.len).map(|at| SLOT + tail_words(self.key_len(at), prefix)).sum()
    }

    /// Returns the position at which to split so that both sides take about the same space.
    pub(super) fn middle(&self) -> usize {
        let slots = &self.words.as_chunks::<SLOT>().0[..self.len];
        let taken = |slot: &[u64; SLOT]| SLOT + Info(slot[2]).tail_words();
        let half = slots.iter().map(taken).sum::<usize>() / 2;
        let mut words = 0;
        let full = self.order[..self.len].iter().position(|&at| {
            words += taken(&slots[usize::from(at)]);
            words > half
        });
        full.unwrap_or(self.len / 2).clamp(1, self.len - 1)
    }

    #[inline]
    pub(super) fn compare(&self, key: &[u8], at: usize) -> Ordering {
        let Ok(order) = compare(key, self.meta.prefix, usize::from(self.order[at]), |at| self.words[at], unchanging);
        order
    }

    /// Compares two entries, by position.
    pub(super) fn compare_entries(&self, a: usize, b: usize) -> Ordering {
        let slot = |at: usize| usize::from(self.order[at]) * SLOT;
        let (ia, ib) = (self.info(a), self.info(b));
        let short = self.words[slot(a)].cmp(&self.words[slot(b)]).then(ia.middle().cmp(&ib.middle()));
        if short.is_ne() {
            return short;
        }
        if ia.len() == BOXED || ib.len() == BOXED {
            return self.compare_boxed(a, b);
        }
        // The last word of a tail is filled up with zeros. So a key and the same key with zero bytes behind it may have
        // equal words, and then the lengths decide.
        let tail = |info: Info| self.words[info.place()..][..info.tail_words()].iter().map(|&word| u64::from_be(word));
        tail(ia).cmp(tail(ib)).then(ia.len().cmp(&ib.len()))
    }

    /// Compares two entries of which at least one has a boxed key.
    #[cold]
    fn compare_boxed(&self, a: usize, b: usize) -> Ordering {
        let mut scratch = Scratch::default();
        self.prepare(&mut scratch);
        self.compare(self.entry(a, &mut scratch).0, b)
    }
}

impl PageCopy<Bytes> for BytesCopy {
    type Scratch = Scratch;

    fn new() -> Self {
        Self { words: [0; WORDS], meta: NOTHING, len: 0, sorted: true, order: IN_ORDER, tags: [0; SLOTS] }
    }

    fn sort(&mut self) -> bool {
        if self.sorted {
            return false;
        }
        // Numbers are sorted with hardly any branch that depends on them. A number is the head of an entry, without the
        // last bits, and its slot. So entries with nearly equal heads are in the order of their slots at first.
        let number = |slot: usize| self.words[slot * SLOT] & !LAST_BITS | slot as u64;
        let mut numbers: [u64; SLOTS] = core::array::from_fn(number);
        let numbers = &mut numbers[..self.len];
        numbers.sort_unstable();
        for equal in numbers.chunk_by_mut(|a, b| a & !LAST_BITS == b & !LAST_BITS).filter(|equal| equal.len() > 1) {
            let slot = |number: &u64| (number & LAST_BITS) as usize;
            equal.sort_unstable_by(|a, b| self.compare_entries(slot(a), slot(b)));
        }
        for (order, number) in self.order.iter_mut().zip(numbers) {
            *order = (*number & LAST_BITS) as u8;
        }
        self.sorted = true;
        true
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn fill(&self) -> usize {
        self.len.max(1)
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        crate::search::partition_point(0, self.len, |at| self.compare(key, at).is_gt())
    }

    /// Writes the prefix of all keys, the first bytes of `high`.
    fn prepare(&self, Scratch(key): &mut Scratch) {
        let top = WORDS - self.meta.high_words();
        if self.meta.high <= LONG_HIGH {
            for (bytes, word) in key.as_chunks_mut().0.iter_mut().zip(&self.words[top..]) {
                *bytes = word.to_be_bytes();
            }
        } else if let Some(prefix) = key.get_mut(..self.meta.prefix) {
            // SAFETY: a validated copy's bound lives as long as the guard or lock under which it is used.
            let high = unsafe { Boxed::at(self.words[top]) };
            prefix.copy_from_slice(&high[..prefix.len()]);
        }
        // A prefix for which the buffer has no room is one of boxed keys only.
    }

    #[inline]
    fn value(&self, at: usize) -> u64 {
        self.words[usize::from(self.order[at]) * SLOT + 1]
    }

    #[inline]
    fn entry<'s>(&self, at: usize, Scratch(key): &'s mut Scratch) -> (&'s [u8], u64) {
        let [head, value, info] = self.words.as_chunks::<SLOT>().0[usize::from(self.order[at])];
        let (info, prefix) = (Info(info), self.meta.prefix);
        if info.len() == BOXED {
            // SAFETY: a validated copy's boxed keys live as long as the guard or lock under which it is used.
            return (unsafe { Boxed::at(self.words[info.place()]) }, value);
        }
        let suffix = &mut key[prefix..];
        let in_slot = u128::from(head) << 64 | u128::from(info.middle()) << 32;
        // The last four of these bytes are the tail's, if there is one.
        *suffix.first_chunk_mut().expect(HAS_ROOM) = in_slot.to_be_bytes();
        let tail = &self.words[info.place()..][..info.tail_words()];
        for (bytes, word) in suffix[IN_SLOT..].as_chunks_mut().0.iter_mut().zip(tail) {
            *bytes = word.to_ne_bytes();
        }
        (&key[..prefix + info.len() as usize], value)
    }
}
