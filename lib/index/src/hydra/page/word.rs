//! The page for keys that fit one word: 832 bytes, 13 cache lines, 47 slots. Pages of consecutive keys have another form,
//! with 64 values and no keys, see [`direct`].
//!
//! ```text
//!   0  version lock        8  high (exclusive)      16  47 tags, then the length of the sorted run   -> line 0
//!  64  47 x { key, value }                                                                          -> 12 lines
//! 816  low                824  next
//! ```
//!
//! A look-up reads line 0 and the line of one entry (of 1.08 entries on average, since a tag is only one byte of a hash
//! of the key). Keys and values are interleaved because a point look-up then needs one line for both. A design study
//! with this layout measured that separate arrays make look-ups 5-10 % slower, and that 47 slots are the smallest page
//! at which tags are faster than comparing all keys.

mod direct;

use super::{Changed, Fill, LOCKED, Page, PageCopy, PageForm, Removed, Seen, Unsorted};
use crate::points;
use crate::search::partition_point;
use crate::structure::{Form as _, Word};
use archipelago_platform::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::*};
use archipelago_platform::hint;
use archipelago_platform::simd;
use archipelago_sync::version_lock::VersionLock;
pub(crate) use direct::WINDOW;
use direct::place;

/// The number of slots per page.
pub(crate) const SLOTS: usize = 47;

/// The bits of a tag mask that represent slots.
const SLOT_MASK: u64 = (1 << SLOTS) - 1;

/// The number of entries below which a page is underfull. After a removal two pages are merged if they have at most
/// half a page together (compaction merges pages with up to `MOST` entries).
const UNDERFULL: usize = SLOTS / 4;

/// The number of words of the slots.
const WORDS: usize = 2 * SLOTS;

/// Returns the place of a slot's value among the words.
#[inline]
const fn value_of(slot: usize) -> usize {
    2 * slot + 1
}

/// The page, as the module's documentation describes it.
#[repr(C, align(64))]
pub struct WordPage {
    lock: VersionLock,
    /// The exclusive upper bound. On the last page (`next` is null) it is not a bound, so that `u64::MAX` is an
    /// ordinary key.
    high: AtomicU64,
    /// Slot tags; the byte behind them is the length of the sorted run, or [`DIRECT`](direct::DIRECT).
    tags: [AtomicU8; 48],
    /// A key and a value for each slot.
    words: [AtomicU64; WORDS],
    low: AtomicU64,
    next: AtomicPtr<WordPage>,
}

const _: () = assert!(size_of::<WordPage>() == 832);

impl WordPage {
    #[inline]
    fn sorted(&self) -> usize {
        usize::from(self.tags[SLOTS].load(Relaxed)).min(SLOTS)
    }

    fn set_sorted(&self, sorted: usize) {
        self.tags[SLOTS].store(sorted as u8, Relaxed);
    }

    /// Returns the number of entries, if all are in order. Occupied slots come first, so all are in order if the slot
    /// behind the sorted run is empty.
    #[inline]
    fn len_if_sorted(&self) -> Option<usize> {
        let sorted = self.sorted();
        (sorted == SLOTS || self.tags[sorted].load(Relaxed) == 0).then_some(sorted)
    }

    /// Returns how many of the first `len` entries, which are in order, have keys below `from`. A concurrent writer can
    /// make the answer meaningless, but not greater than `len`.
    ///
    /// The number of steps does not depend on `len`: a branch predictor could not predict the end of a loop that is
    /// shorter for shorter pages.
    #[inline]
    fn below(&self, from: u64, len: usize) -> usize {
        const STEPS: u32 = usize::BITS - SLOTS.leading_zeros();
        let (mut start, mut size) = (0, len);
        for _ in 0..STEPS {
            let half = size / 2;
            // SAFETY: start + size <= len <= SLOTS. Either half < size, or both are 0; then the first entry is read.
            let middle = unsafe { self.words.get_unchecked(2 * (start + half)) };
            start = core::hint::select_unpredictable(middle.load(Relaxed) < from, start + half, start);
            size -= half;
        }
        // Now size is 1, or 0 if len is.
        start + usize::from(start < len && self.key(start) < from)
    }

    /// Returns how many slots are used.
    #[inline]
    fn used(&self) -> usize {
        (self.slots_with(0) | !SLOT_MASK).trailing_zeros() as usize
    }

    /// Returns the slots with this tag.
    #[inline]
    fn slots_with(&self, tag: u8) -> u64 {
        simd::match_bytes(&self.tags, tag) & SLOT_MASK
    }

    /// Returns the place of the value of `key`, if one of the slots `candidates` holds the key.
    #[inline(always)]
    fn slot_among(&self, mut candidates: u64, key: u64) -> Option<usize> {
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if self.key(slot) == key {
                return Some(value_of(slot));
            }
            candidates &= candidates - 1;
        }
        None
    }

    #[inline]
    fn key(&self, slot: usize) -> u64 {
        self.words[2 * slot].load(Relaxed)
    }

    #[inline]
    fn pair(&self, slot: usize) -> (u64, u64) {
        (self.key(slot), self.words[2 * slot + 1].load(Relaxed))
    }

    #[inline]
    fn put(&self, slot: usize, (key, value): (u64, u64), tag: u8) {
        self.words[2 * slot].store(key, Relaxed);
        self.words[2 * slot + 1].store(value, Relaxed);
        self.tags[slot].store(tag, Relaxed);
    }

    /// Replaces the entries of a page with slots by `pairs`, which are ascending.
    fn fill(&self, pairs: &[(u64, u64)]) {
        let old = self.used();
        for (slot, &pair) in pairs.iter().enumerate() {
            self.put(slot, pair, Word::tag(pair.0));
        }
        for slot in pairs.len()..old {
            self.tags[slot].store(0, Relaxed);
        }
        self.set_sorted(pairs.len());
    }

    /// Splits so that keys from `pivot` on are in the page `right`, which gets the entries `upper`.
    ///
    /// # Safety
    /// The contract of [`Page::split`] must hold.
    unsafe fn hand_over(&self, right: *mut Self, pivot: u64, upper: &[(u64, u64)]) {
        let next = self.next.load(Relaxed);
        // SAFETY: the caller guarantees that `right` may be written.
        let fresh = unsafe {
            Self::init(right, pivot, next);
            &*right
        };
        fresh.fill(upper);
        self.high.store(pivot, Relaxed);
        self.set_next(right);
    }
}

impl PageForm for Word {
    type Page = WordPage;
}

impl Page<Word> for WordPage {
    type Copy = WordCopy;

    const SLOTS: usize = SLOTS;

    const MOST: usize = SLOTS * 3 / 4;

    unsafe fn init(at: *mut Self, low: u64, next: *const Self) {
        // SAFETY: the caller guarantees that `next` is null or a page that stays.
        let high = unsafe { next.as_ref() }.map_or(u64::MAX, Self::low);
        let page = Self {
            lock: VersionLock::new(),
            high: AtomicU64::new(high),
            tags: [const { AtomicU8::new(0) }; 48],
            words: [const { AtomicU64::new(0) }; WORDS],
            low: AtomicU64::new(low),
            next: AtomicPtr::new(next.cast_mut()),
        };
        // SAFETY: the caller guarantees the contract.
        unsafe { at.write(page) }
    }

    #[inline]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }

    #[inline]
    fn next(&self) -> *const Self {
        // Acquire pairs with the Release in `set_next`: the thread that gets the pointer sees the page initialised.
        self.next.load(Acquire)
    }

    #[inline]
    fn prefetch(page: *const Self) {
        hint::prefetch_read(page);
    }

    #[inline]
    fn is_beyond(&self, key: u64, _: Seen) -> Result<bool, Changed> {
        Ok(key >= self.high.load(Relaxed) && !self.next().is_null())
    }

    #[inline]
    fn ends_before(&self, bound: u64, _: Seen) -> Result<bool, Changed> {
        Ok(self.high.load(Relaxed) < bound && !self.next().is_null())
    }

    #[inline]
    fn candidates(&self, key: u64, tag: u8) -> u64 {
        if self.is_direct() {
            return self.find_direct(key).map_or(0, |_| 1 << place(key));
        }
        self.slots_with(tag)
    }

    #[inline]
    fn prefetch_slot(&self, slot: usize) {
        let at = if self.is_direct() { slot } else { 2 * slot };
        hint::prefetch_read(self.words.as_ptr().wrapping_add(at));
    }

    #[inline]
    fn prepare_push(&self, key: u64) -> usize {
        if self.is_direct() {
            hint::prefetch_read(&raw const self.words[place(key)]);
            return 0;
        }
        let len = self.used();
        // A full page will be split, and the split reads all entries. So the address may be that of any entry of the
        // page.
        hint::prefetch_read(self.words.as_ptr().wrapping_add(2 * len));
        len
    }

    #[inline]
    fn find_among(&self, candidates: u64, key: u64, _: Seen) -> Result<Option<usize>, Changed> {
        if self.is_direct() {
            return Ok(self.find_direct(key));
        }
        // If the page has lost the direct form meanwhile, the candidates were not slots.
        Ok(self.slot_among(candidates & SLOT_MASK, key))
    }

    #[inline(always)]
    fn find(&self, key: u64, tag: u8, _: Seen) -> Result<Option<usize>, Changed> {
        if self.is_direct() {
            hint::point(points::CANDIDATES);
            return Ok(self.find_direct(key));
        }
        let candidates = self.slots_with(tag);
        hint::point(points::CANDIDATES);
        Ok(self.slot_among(candidates, key))
    }

    #[inline]
    fn value_word(&self, place: usize) -> &AtomicU64 {
        &self.words[place]
    }

    #[inline]
    fn len(&self) -> usize {
        if self.is_direct() { self.bits().count_ones() as usize } else { self.used() }
    }

    #[inline]
    fn successor(&self, from: u64) -> Result<Option<(u64, u64)>, Unsorted> {
        if self.is_direct() {
            let first = self.direct_from(from).next();
            hint::point(points::ABOVE);
            return Ok(first);
        }
        let len = self.len_if_sorted().ok_or(Unsorted)?;
        let slot = self.below(from, len);
        hint::point(points::ABOVE);
        Ok((slot < len).then(|| self.pair(slot)))
    }

    #[inline]
    fn copy_from(&self, from: u64, limit: usize, seen: Seen, copy: &mut WordCopy) -> Result<(), Changed> {
        if self.is_direct() {
            return copy.take_direct(self, from, limit, seen);
        }
        let len = self.used();
        if self.sorted() < len {
            return self.copy_all(seen, copy);
        }
        // The page is sorted: only the requested entries are copied. A concurrent writer can make this search
        // meaningless, but not unsafe.
        let start = self.below(from, len);
        let end = len.min(start.saturating_add(limit));
        copy.take(self, start..end, end - start, false, seen)
    }

    #[inline]
    fn copy_first(&self, limit: usize, seen: Seen, copy: &mut WordCopy) -> Result<(), Changed> {
        if self.is_direct() {
            return copy.take_direct(self, 0, limit, seen);
        }
        let len = self.used();
        if self.sorted() < len {
            return self.copy_all(seen, copy);
        }
        let end = len.min(limit);
        copy.take(self, 0..end, end, false, seen)
    }

    #[inline]
    fn copy_all(&self, seen: Seen, copy: &mut WordCopy) -> Result<(), Changed> {
        if self.is_direct() {
            return copy.take_direct(self, 0, WINDOW, seen);
        }
        let len = self.used();
        copy.take(self, 0..len, self.sorted().min(len), true, seen)
    }

    fn has_room_for(&self, _: u64) -> bool {
        self.is_direct() || self.used() < SLOTS || self.has_window()
    }

    fn set_next(&self, next: *const Self) {
        self.next.store(next.cast_mut(), Release);
    }

    #[inline]
    fn push(&self, key: u64, tag: u8, value: u64, len: usize) -> bool {
        if self.is_direct() {
            self.push_direct(key, value);
            return true;
        }
        debug_assert_eq!(len, self.used());
        if len == SLOTS {
            return self.push_full(key, value);
        }
        if self.sorted() == len && (len == 0 || self.key(len - 1) < key) {
            self.set_sorted(len + 1);
        }
        self.put(len, (key, value), tag);
        true
    }

    fn remove(&self, place: usize) -> Removed {
        if self.is_direct() {
            return self.remove_direct(place);
        }
        let (len, sorted) = (self.used(), self.sorted());
        let (slot, value) = (place / 2, self.value(place));
        if sorted == len {
            // A sorted page stays sorted: removals in key order (queues, expiry) keep scans cheap.
            for at in slot + 1..len {
                self.put(at - 1, self.pair(at), self.tags[at].load(Relaxed));
            }
            self.set_sorted(len - 1);
        } else {
            self.put(slot, self.pair(len - 1), self.tags[len - 1].load(Relaxed));
            self.set_sorted(sorted.min(slot));
        }
        self.tags[len - 1].store(0, Relaxed);
        Removed { value, key: core::ptr::null_mut() }
    }

    fn pop(&self) -> Option<Removed> {
        if self.is_direct() {
            return self.bits().checked_ilog2().map(|at| self.remove_direct(at as usize));
        }
        let slot = self.used().checked_sub(1)?;
        self.tags[slot].store(0, Relaxed);
        self.set_sorted(self.sorted().min(slot));
        Some(Removed { value: self.value(value_of(slot)), key: core::ptr::null_mut() })
    }

    fn write_back(&self, copy: &WordCopy) {
        self.fill(copy.pairs());
    }

    unsafe fn split(&self, right: *mut Self, key: u64) -> bool {
        let mut copy = WordCopy::new();
        self.copy_all(Seen::Held, &mut copy).expect(LOCKED);
        let in_order = copy.run == copy.len;
        copy.sort();
        let pairs: &[_; SLOTS] = copy.pairs().try_into().expect("a page that is split is full");
        // If keys arrive in ascending order, this page stays full, and the new page gets the new key.
        let follows = in_order && pairs[SLOTS - 1].0 < key && key - self.low() >= WINDOW as u64;
        let (bound, stay) = if follows { (key, SLOTS) } else { self.pivot(pairs) };
        let (lower, upper) = pairs.split_at(stay);
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.hand_over(right, bound, upper) };
        if stay < SLOTS {
            self.fill(lower);
        }
        true
    }

    fn is_underfull(&self) -> bool {
        self.len() < UNDERFULL
    }

    fn absorb(&self, right: &Self, fill: Fill) -> bool {
        let (len, more) = (self.len(), right.len());
        let most = if fill == Fill::Half { SLOTS / 2 } else { Self::MOST };
        if len + more > most {
            return false;
        }
        if self.is_direct() {
            self.to_slots();
        }
        let mut copy = WordCopy::new();
        right.copy_all(Seen::Held, &mut copy).expect(LOCKED);
        let in_order = self.sorted() == len;
        for (slot, &pair) in (len..).zip(copy.pairs()) {
            self.put(slot, pair, Word::tag(pair.0));
        }
        if in_order {
            // All keys of the right page are greater than all keys of this page.
            self.set_sorted(len + copy.run);
        }
        self.high.store(right.high.load(Relaxed), Relaxed);
        self.set_next(right.next());
        true
    }

    unsafe fn copy_to(&self, at: *mut Self) {
        // SAFETY: the caller guarantees the same contract; a locked page's neighbour is not retired.
        let twin = unsafe {
            Self::init(at, self.low(), self.next());
            &*at
        };
        // Of either form.
        twin.words.iter().zip(&self.words).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        twin.tags.iter().zip(&self.tags).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
    }

    fn low(&self) -> u64 {
        self.low.load(Relaxed)
    }

    unsafe fn destroy(_: *mut Self) {}

    unsafe fn reclaim_key(_: *mut ()) {
        unreachable!("word keys live in their page")
    }

    fn check(&self) {
        if self.is_direct() {
            assert!(self.has_window(), "each key of a direct page's range has a place");
            let mut rest = self.tags[size_of::<u64>()..SLOTS].iter();
            assert!(rest.all(|tag| tag.load(Relaxed) == 0), "a direct page has no tags");
            return;
        }
        let (len, sorted) = (self.len(), self.sorted());
        assert!(sorted <= len, "sorted run of {sorted} in {len} entries");
        for slot in 0..SLOTS {
            let tag = self.tags[slot].load(Relaxed);
            if slot >= len {
                assert_eq!(tag, 0, "occupied slots come first");
                continue;
            }
            let key = self.key(slot);
            assert_eq!(tag, Word::tag(key), "tag of {key}");
            assert!(key >= self.low() && self.is_beyond(key, Seen::Held) == Ok(false), "{key} lies outside its page");
            assert!(slot == 0 || slot >= sorted || self.key(slot - 1) < key, "sorted run at {slot}");
        }
    }
}

/// A copy of a [`WordPage`]'s entries.
pub struct WordCopy {
    pairs: [(u64, u64); WINDOW],
    len: usize,
    /// The number of leading entries that are in order.
    run: usize,
    /// Whether these are all entries of their page.
    whole: bool,
}

impl WordCopy {
    /// Copies some slots, of which the first `run` are in order; see [`Page::copy_from`].
    #[inline]
    fn take(
        &mut self,
        page: &WordPage,
        slots: core::ops::Range<usize>,
        run: usize,
        whole: bool,
        seen: Seen,
    ) -> Result<(), Changed> {
        self.len = slots.len();
        hint::point(points::COPYING);
        let words = page.words[2 * slots.start..2 * slots.end].chunks_exact(2);
        for (pair, word) in self.pairs.iter_mut().zip(words) {
            *pair = (word[0].load(Relaxed), word[1].load(Relaxed));
        }
        (self.run, self.whole) = (run, whole);
        page.trust(seen).inspect_err(|_| (self.len, self.run) = (0, 0))
    }

    /// Copies up to `limit` entries at or above `from` of a direct page; see [`Page::copy_from`].
    #[inline]
    fn take_direct(&mut self, page: &WordPage, from: u64, limit: usize, seen: Seen) -> Result<(), Changed> {
        self.len = 0;
        hint::point(points::COPYING);
        for pair in page.direct_from(from).take(limit) {
            self.pairs[self.len] = pair;
            self.len += 1;
        }
        (self.run, self.whole) = (self.len, true);
        page.trust(seen).inspect_err(|_| (self.len, self.run) = (0, 0))
    }

    /// Sorts the entries behind the run, and merges them with the run.
    fn merge_tail(&mut self) {
        let mut tail = [(0, 0); SLOTS];
        let tail = &mut tail[..self.len - self.run];
        tail.copy_from_slice(&self.pairs[self.run..self.len]);
        tail.sort_unstable_by_key(|pair| pair.0);
        let (mut run, mut to) = (self.run, self.len);
        for &pair in tail.iter().rev() {
            while run > 0 && self.pairs[run - 1].0 > pair.0 {
                (run, to) = (run - 1, to - 1);
                self.pairs[to] = self.pairs[run];
            }
            to -= 1;
            self.pairs[to] = pair;
        }
        self.run = self.len;
    }

    #[inline]
    fn pairs(&self) -> &[(u64, u64)] {
        &self.pairs[..self.len]
    }
}

impl PageCopy<Word> for WordCopy {
    type Scratch = ();

    #[inline]
    fn new() -> Self {
        Self { pairs: [(0, 0); WINDOW], len: 0, run: 0, whole: false }
    }

    #[inline]
    fn sort(&mut self) -> bool {
        if self.run == self.len {
            return false;
        }
        self.merge_tail();
        self.whole
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn lower_bound(&self, key: u64) -> usize {
        // Most copies begin at the requested key.
        if self.pairs[0].0 >= key {
            return 0;
        }
        partition_point(0, self.len, |at| self.pairs[at].0 < key)
    }

    #[inline]
    fn value(&self, at: usize) -> u64 {
        self.pairs[at].1
    }

    #[inline]
    fn entry(&self, at: usize, (): &mut ()) -> (u64, u64) {
        self.pairs[at]
    }
}
