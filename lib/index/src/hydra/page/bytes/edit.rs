//! Changing a locked [`BytesPage`]: adding entries, rebuilding under other bounds, splitting, merging. The module
//! `bytes` explains the layout: the common prefix, and the tails of keys in the heap.

use super::boxed::Boxed;
use super::copy::{BytesCopy, Scratch};
use super::layout::{
    BOXED, IN_SLOT, Info, LONG_HIGH, LONG_KEY, Meta, SLOT, SLOTS, WORDS, compare, tail_words, unchanging,
};
use super::{BytesPage, Fill, Page, PageCopy, Seen};
use crate::hydra::page::LOCKED;
use crate::points;
use crate::search::{chunk, common};
use archipelago_platform::atomic::Ordering::*;
use archipelago_platform::hint;

/// A page is underfull if it has fewer than `UNDERFULL` entries and uses fewer than `UNDERFULL_WORDS` words. After a
/// removal two pages are merged if together they have at most twice these numbers. (Compaction merges pages with up to
/// `MOST` entries in up to seven eighths of the words.)
pub(super) const UNDERFULL: usize = SLOTS / 4;
pub(super) const UNDERFULL_WORDS: usize = WORDS * 3 / 8;

const MEASURED: &str = "entries fit where they were measured to fit";

impl BytesPage {
    /// Returns the number of words in use by live entries and `high`.
    pub(super) fn live_words(&self) -> usize {
        let tails = (0..self.len()).map(|slot| SLOT + Info(self.word(slot * SLOT + 2)).tail_words());
        tails.sum::<usize>() + self.meta().high_words()
    }

    /// Returns whether a key would fit into the page as it is, or after the page has been compacted in place.
    pub(super) fn has_words_for(&self, key: &[u8]) -> bool {
        let (len, meta) = (self.len(), self.meta());
        // A page that changes meanwhile may have any prefix.
        let tail = tail_words(key.len(), meta.prefix.min(key.len()));
        len < SLOTS && (SLOT * (len + 1) + tail <= meta.floor || self.live_words() <= WORDS * 3 / 4)
    }

    /// Appends an entry. The key is in range, and `address` is its box if it is long.
    pub(super) fn append(&self, key: &[u8], tag: u8, value: u64, address: u64) -> bool {
        let (len, mut meta) = (self.len(), self.meta());
        if !meta.has_room(len, key) {
            return false;
        }
        let last = len.wrapping_sub(1);
        let follows_last = || {
            let Ok(order) = compare(key, meta.prefix, last, |at| self.word(at), unchanging);
            order.is_gt()
        };
        if meta.sorted == len && (len == 0 || follows_last()) {
            meta.sorted = len + 1;
        }
        self.write(&mut meta, len, key, tag, value, address);
        self.set_meta(meta);
        true
    }

    /// Writes an entry to the free slot `slot`, and its tail to the heap of `meta`.
    #[inline]
    fn write(&self, meta: &mut Meta, slot: usize, key: &[u8], tag: u8, value: u64, address: u64) {
        let tail = tail_words(key.len(), meta.prefix);
        meta.floor -= tail;
        let long = key.len() > LONG_KEY;
        if long {
            self.set_word(meta.floor, address);
        } else {
            for at in 0..tail {
                self.set_word(meta.floor + at, chunk(key, meta.prefix + IN_SLOT + 8 * at).to_be());
            }
        }
        let stored = if long { BOXED } else { (key.len() - meta.prefix) as u64 };
        let info = Info::new(chunk(key, meta.prefix + 8) >> 32, meta.floor, stored);
        self.set_slot(slot, [chunk(key, meta.prefix), value, info.0], tag);
    }

    /// Writes, as [`write`](Self::write) does, an entry of a page with the same prefix: the words of its slot, and its
    /// tail.
    #[inline]
    fn write_again(&self, meta: &mut Meta, slot: usize, [head, value, info]: [u64; SLOT], tail: &[u64], tag: u8) {
        meta.floor -= tail.len();
        for (at, &word) in (meta.floor..).zip(tail) {
            self.set_word(at, word);
        }
        self.set_slot(slot, [head, value, Info(info).moved_to(meta.floor).0], tag);
    }

    #[inline]
    fn set_slot(&self, slot: usize, words: [u64; SLOT], tag: u8) {
        for (at, word) in (slot * SLOT..).zip(words) {
            self.set_word(at, word);
        }
        self.tags[slot].store(tag, Relaxed);
    }

    /// Empties the page and gives it the upper bound `high`. If `high` is long, `address` is its box.
    pub(super) fn reset(&self, high: Option<(&[u8], u64)>) {
        self.tags.iter().for_each(|tag| tag.store(0, Relaxed));
        let prefix = high.map_or(0, |(high, _)| common(self.low(), high).min(0xFFFF));
        let len = high.map_or(0, |(high, _)| high.len().min(LONG_HIGH + 1));
        let mut meta = Meta { sorted: 0, prefix, floor: WORDS, high: len };
        meta.floor -= meta.high_words();
        self.set_meta(meta);
        hint::point(points::BOUND);
        if let Some((high, address)) = high {
            let long = high.len() > LONG_HIGH;
            for at in meta.floor..WORDS {
                self.set_word(at, if long { address } else { chunk(high, 8 * (at - meta.floor)) });
            }
        }
    }

    /// Returns the upper bound of a page before `next` (`next`'s `low`) with the address of its box, or `None` on the
    /// last page. The page must be locked or private.
    pub(super) fn bound<'a>(&self, next: *const Self, buffer: &'a mut Vec<u8>) -> Option<(&'a [u8], u64)> {
        if next.is_null() {
            return None;
        }
        // SAFETY: a locked page's neighbour is not retired.
        let low = unsafe { (*next).low.load(Relaxed) };
        // SAFETY: a page's `low` lives as long as the page.
        buffer.extend_from_slice(unsafe { Boxed::lent(low) });
        Some((buffer, low.expose_provenance() as u64))
    }

    /// Adds entries of a copy, which are in order, to a page of lower keys in order. The entries must fit.
    pub(super) fn refill(&self, copy: &BytesCopy, range: core::ops::Range<usize>) {
        let (len, mut meta) = (self.len(), self.meta());
        debug_assert_eq!(meta.sorted, len);
        meta.sorted = len + range.len();
        if meta.prefix == copy.meta.prefix {
            for (slot, at) in (len..).zip(range) {
                let (words, tail, tag) = copy.stored(at);
                assert!(meta.has_words(slot, tail.len()), "{MEASURED}");
                self.write_again(&mut meta, slot, words, tail, tag);
            }
        } else {
            let mut scratch = Scratch::default();
            copy.prepare(&mut scratch);
            for (slot, at) in (len..).zip(range) {
                let (from, address) = (usize::from(copy.order[at]), copy.address(at));
                let (key, value) = copy.entry(at, &mut scratch);
                assert!(meta.has_room(slot, key), "{MEASURED}");
                self.write(&mut meta, slot, key, copy.tags[from], value, address);
            }
        }
        self.set_meta(meta);
    }

    pub(super) fn copied(&self) -> BytesCopy {
        let mut copy = BytesCopy::new();
        self.copy_all(Seen::Held, &mut copy).expect(LOCKED);
        copy.take_tags(self);
        copy
    }

    /// Implements [`Page::split`].
    ///
    /// # Safety
    /// The contract of [`Page::split`] must hold.
    pub(super) unsafe fn split_for(&self, right: *mut Self, key: &[u8]) -> bool {
        let mut copy = self.copied();
        let ascending = copy.sorted;
        copy.sort();
        let len = copy.len;
        let (mut buffer, next) = (Vec::new(), self.next.load(Relaxed));
        // The page may be full only because of tails of removed keys.
        if len < SLOTS && self.live_words() <= WORDS * 3 / 4 {
            self.reset(self.bound(next, &mut buffer));
            self.refill(&copy, 0..len);
            return false;
        }
        let (mut left_scratch, mut right_scratch) = (Scratch::default(), Scratch::default());
        copy.prepare(&mut left_scratch);
        copy.prepare(&mut right_scratch);
        let last = copy.entry(len - 1, &mut left_scratch).0;
        // If keys arrive in ascending order, this page stays full and the new page gets the new key, if the new bound
        // fits.
        let fits = || {
            let prefix = common(self.low(), &key[..common(last, key) + 1]);
            copy.words_under(prefix) + LONG_HIGH / 8 <= WORDS
        };
        let middle = if ascending && last < key && fits() { len } else { copy.middle() };
        let below = copy.entry(middle - 1, &mut left_scratch).0;
        let above = if middle == len { key } else { copy.entry(middle, &mut right_scratch).0 };
        let separator = &above[..common(below, above) + 1];
        // SAFETY: the caller guarantees that `right` may be written.
        let fresh = unsafe {
            Self::init(right, separator, next);
            &*right
        };
        fresh.refill(&copy, middle..len);
        self.reset(self.bound(fresh, &mut buffer));
        self.refill(&copy, 0..middle);
        self.set_next(fresh);
        true
    }

    /// Implements [`Page::absorb`].
    pub(super) fn take_over(&self, right: &Self, fill: Fill) -> bool {
        let (most, most_words) = match fill {
            Fill::Half => (2 * UNDERFULL, 2 * UNDERFULL_WORDS),
            Fill::Most => (Self::MOST, WORDS * 7 / 8),
        };
        if self.len() + right.len() > most {
            return false;
        }
        let (mut ours, mut theirs) = (self.copied(), right.copied());
        let next = right.next();
        let mut buffer = Vec::new();
        let high = self.bound(next, &mut buffer);
        let prefix = high.map_or(0, |(high, _)| common(self.low(), high).min(0xFFFF));
        let words = ours.words_under(prefix) + theirs.words_under(prefix) + LONG_HIGH / 8;
        if words > most_words {
            return false;
        }
        ours.sort();
        theirs.sort();
        self.reset(high);
        self.refill(&ours, 0..ours.len);
        self.refill(&theirs, 0..theirs.len);
        self.set_next(next);
        true
    }
}
