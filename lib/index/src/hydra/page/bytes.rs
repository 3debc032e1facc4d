//! The page for byte-string keys: 1280 bytes, 20 cache lines, up to 48 slots.
//!
//! ```text
//!    0  version lock     8  Meta (sorted run, prefix length, heap floor, length of high)     16  48 tags  -> line 0
//!   64  slots, 3 words each, growing up:  head (8 bytes) | value | next 4 bytes, tail's place, length
//!       ...
//!       heap, growing down: tails of keys; at its very top the bytes of `high`
//! 1264  low (boxed)     1272  next
//! ```
//!
//! All keys of `[low, high)` share the common prefix of the two bounds, so it is not stored with the keys. The rest of
//! a key is its *suffix*. The first twelve bytes of the suffix are in the slot, and the others (the *tail*) in the
//! heap. Words contain bytes big-endian and padded with zeros, so strings are compared by comparing words as integers,
//! and lengths last. (Only the words of tails have the bytes in the key's own order, so that scans copy them as they
//! are.) Keys longer than [`LONG_KEY`] are boxed whole, immutable, and reclaimed through RCU; the slot still has the
//! first twelve bytes of their suffix.
//!
//! A look-up reads line 0, the slot's line, and the last lines (the bound, `next`). For long suffixes it also reads the
//! tail's line. Bounds are as short as possible: the shortest string that separates the two halves of a split.
//!
//! A concurrent reader may read inconsistent words, but stays in bounds: indices are clamped, and a pointer is
//! followed only after the version at which it was read has been validated ([`Seen`]).
//!
//! Words and their packing are in [`layout`], changes of a locked page in [`edit`], and the copies that scans read in
//! [`copy`].

mod boxed;
mod copy;
mod edit;
mod layout;

use super::{Changed, Fill, Page, PageCopy, PageForm, Removed, Seen};
use crate::points;
use crate::search::chunk;
use crate::structure::{Bytes, Form as _};
use archipelago_platform::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::*};
use archipelago_platform::hint;
use archipelago_platform::simd;
use archipelago_sync::version_lock::VersionLock;
use boxed::Boxed;
use copy::{BytesCopy, IN_ORDER, Scratch};
use core::cmp::Ordering;
use edit::{UNDERFULL, UNDERFULL_WORDS};
use layout::{BOXED, Info, LONG_HIGH, LONG_KEY, Meta, SLOT, SLOTS, WORDS, compare};

/// The page, as the module's documentation describes it.
#[repr(C, align(64))]
pub struct BytesPage {
    lock: VersionLock,
    meta: AtomicU64,
    tags: [AtomicU8; SLOTS],
    words: [AtomicU64; WORDS],
    low: AtomicPtr<Boxed>,
    next: AtomicPtr<BytesPage>,
}

const _: () = assert!(size_of::<BytesPage>() == 1280);

impl BytesPage {
    #[inline]
    fn meta(&self) -> Meta {
        Meta::unpack(self.meta.load(Relaxed))
    }

    fn set_meta(&self, meta: Meta) {
        self.meta.store(meta.pack(), Relaxed);
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    fn set_word(&self, at: usize, word: u64) {
        self.words[at].store(word, Relaxed);
    }

    /// Compares `key` with `high`. The result is meaningless on the last page.
    #[inline]
    fn compare_high(&self, key: &[u8], seen: Seen) -> Result<Ordering, Changed> {
        let meta = self.meta();
        let top = WORDS - meta.high_words();
        if meta.high > LONG_HIGH {
            hint::point(points::BOXED);
            let address = self.word(top);
            self.trust(seen)?;
            // SAFETY: the word was validated: it is the next page's `low`, which outlives the caller's guard or lock.
            return Ok(key.cmp(unsafe { Boxed::at(address) }));
        }
        for at in top..WORDS {
            let order = chunk(key, 8 * (at - top)).cmp(&self.word(at));
            if order.is_ne() {
                return Ok(order);
            }
        }
        Ok(key.len().cmp(&meta.high))
    }
}

impl PageForm for Bytes {
    type Page = BytesPage;

    #[inline]
    fn outside(key: &[u8]) -> usize {
        if key.len() > LONG_KEY { Self::bound_bytes(key) } else { 0 }
    }

    /// Returns the number of bytes that a box of a byte string takes.
    fn bound_bytes(low: &[u8]) -> usize {
        Boxed::bytes(low.len())
    }
}

impl Page<Bytes> for BytesPage {
    type Copy = BytesCopy;

    const SLOTS: usize = SLOTS;

    const MOST: usize = SLOTS * 3 / 4;

    unsafe fn init(at: *mut Self, low: &[u8], next: *const Self) {
        let page = Self {
            lock: VersionLock::new(),
            meta: AtomicU64::new(0),
            tags: [const { AtomicU8::new(0) }; SLOTS],
            words: [const { AtomicU64::new(0) }; WORDS],
            low: AtomicPtr::new(Boxed::create(low)),
            next: AtomicPtr::new(next.cast_mut()),
        };
        page.reset(page.bound(next, &mut Vec::new()));
        // SAFETY: the caller guarantees the contract.
        unsafe { at.write(page) }
    }

    #[inline]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }

    #[inline]
    fn next(&self) -> *const Self {
        // Acquire pairs with the Release in `set_next`: a thread that gets the pointer sees the page initialised.
        self.next.load(Acquire)
    }

    #[inline]
    fn prefetch(page: *const Self) {
        hint::prefetch_read(page);
        // The bound and `next` are in the last line.
        hint::prefetch_read(page.wrapping_byte_add(size_of::<Self>() - 64));
    }

    /// The first and the last line are fetched first: a walk reads them before the others.
    #[inline]
    fn prefetch_all(page: *const Self) {
        Self::prefetch(page);
        for offset in (64..size_of::<Self>() - 64).step_by(64) {
            hint::prefetch_read(page.wrapping_byte_add(offset));
        }
    }

    #[inline]
    fn is_beyond(&self, key: &[u8], seen: Seen) -> Result<bool, Changed> {
        Ok(self.compare_high(key, seen)?.is_ge() && !self.next().is_null())
    }

    #[inline]
    fn ends_before(&self, bound: &[u8], seen: Seen) -> Result<bool, Changed> {
        Ok(self.compare_high(bound, seen)?.is_gt() && !self.next().is_null())
    }

    #[inline]
    fn candidates(&self, _: &[u8], tag: u8) -> u64 {
        simd::match_bytes(&self.tags, tag)
    }

    #[inline]
    fn prefetch_slot(&self, slot: usize) {
        hint::prefetch_read(&raw const self.words[slot * SLOT]);
    }

    #[inline]
    fn find_among(&self, mut candidates: u64, key: &[u8], seen: Seen) -> Result<Option<usize>, Changed> {
        let prefix = self.meta().prefix;
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if compare(key, prefix, slot, |at| self.word(at), || self.trust(seen))?.is_eq() {
                return Ok(Some(slot));
            }
            candidates &= candidates - 1;
        }
        Ok(None)
    }

    #[inline]
    fn value_word(&self, slot: usize) -> &AtomicU64 {
        &self.words[slot * SLOT + 1]
    }

    #[inline]
    fn len(&self) -> usize {
        (self.candidates(&[], 0) | 1 << SLOTS).trailing_zeros() as usize
    }

    #[inline]
    fn copy_from(&self, _: &[u8], _: usize, seen: Seen, copy: &mut BytesCopy) -> Result<(), Changed> {
        self.copy_all(seen, copy)
    }

    fn copy_all(&self, seen: Seen, copy: &mut BytesCopy) -> Result<(), Changed> {
        copy.len = self.len();
        copy.meta = self.meta();
        hint::point(points::COPYING);
        let slots = copy.len * SLOT;
        for used in [0..slots, copy.meta.floor..WORDS] {
            for (to, from) in copy.words[used.clone()].iter_mut().zip(&self.words[used]) {
                *to = from.load(Relaxed);
            }
        }
        copy.sorted = copy.meta.sorted >= copy.len;
        copy.order = IN_ORDER;
        self.trust(seen).inspect_err(|_| copy.clear())
    }

    fn set_next(&self, next: *const Self) {
        self.next.store(next.cast_mut(), Release);
    }

    #[inline]
    fn push(&self, key: &[u8], tag: u8, value: u64, _: usize) -> bool {
        if key.len() <= LONG_KEY {
            return self.append(key, tag, value, 0);
        }
        let address = Boxed::create(key);
        let pushed = self.append(key, tag, value, address.expose_provenance() as u64);
        if !pushed {
            // SAFETY: the box was made above, and is not stored.
            unsafe { Boxed::free(address) };
        }
        pushed
    }

    fn remove(&self, slot: usize) -> Removed {
        let (len, mut meta) = (self.len(), self.meta());
        let value = self.value(slot);
        let info = Info(self.word(slot * SLOT + 2));
        let key = if info.len() == BOXED { self.word(info.place()) as usize } else { 0 };
        let copy_slot = |from: usize, to: usize| {
            for at in 0..SLOT {
                self.set_word(to * SLOT + at, self.word(from * SLOT + at));
            }
            self.tags[to].store(self.tags[from].load(Relaxed), Relaxed);
        };
        if meta.sorted == len {
            // A sorted page stays sorted: removals in key order (queues, expiry) keep scans cheap.
            (slot + 1..len).for_each(|from| copy_slot(from, from - 1));
            meta.sorted -= 1;
        } else {
            copy_slot(len - 1, slot);
            meta.sorted = meta.sorted.min(slot);
        }
        self.tags[len - 1].store(0, Relaxed);
        if len == 1 {
            meta.floor = WORDS - meta.high_words();
        }
        self.set_meta(meta);
        Removed { value, key: core::ptr::with_exposed_provenance_mut(key) }
    }

    fn pop(&self) -> Option<Removed> {
        self.len().checked_sub(1).map(|slot| self.remove(slot))
    }

    fn write_back(&self, copy: &BytesCopy) {
        let tags: [u8; SLOTS] = core::array::from_fn(|slot| self.tags[slot].load(Relaxed));
        for (to, &from) in copy.order[..copy.len].iter().enumerate() {
            let from = usize::from(from);
            for at in 0..SLOT {
                self.set_word(to * SLOT + at, copy.words[from * SLOT + at]);
            }
            self.tags[to].store(tags[from], Relaxed);
        }
        self.set_meta(Meta { sorted: copy.len, ..copy.meta });
    }

    unsafe fn split(&self, right: *mut Self, key: &[u8]) -> bool {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.split_for(right, key) }
    }

    fn is_underfull(&self) -> bool {
        self.len() < UNDERFULL && self.live_words() < UNDERFULL_WORDS
    }

    fn has_room_for(&self, key: &[u8]) -> bool {
        self.has_words_for(key)
    }

    fn absorb(&self, right: &Self, fill: Fill) -> bool {
        self.take_over(right, fill)
    }

    unsafe fn copy_to(&self, at: *mut Self) {
        // SAFETY: the caller guarantees the same contract; a locked page's neighbour is not retired.
        let twin = unsafe {
            Self::init(at, self.low(), self.next());
            &*at
        };
        // The bounds are the same, hence so is the prefix, and with it every word.
        debug_assert_eq!(twin.meta().prefix, self.meta().prefix);
        (0..WORDS).for_each(|at| twin.set_word(at, self.word(at)));
        (0..SLOTS).for_each(|slot| twin.tags[slot].store(self.tags[slot].load(Relaxed), Relaxed));
        twin.set_meta(self.meta());
    }

    fn set_twin(&self, twin: &Self) {
        let meta = self.meta();
        if meta.high > LONG_HIGH {
            // The bound is read from the next page's `low`, which is freed with that page.
            let low = twin.low.load(Relaxed).expose_provenance() as u64;
            self.set_word(WORDS - meta.high_words(), low);
        }
        self.set_next(twin);
    }

    fn low(&self) -> &[u8] {
        // SAFETY: `low` is set before the page is published, never changed, and freed with the page.
        unsafe { Boxed::lent(self.low.load(Relaxed)) }
    }

    unsafe fn destroy(at: *mut Self) {
        // SAFETY: the caller guarantees that only this thread has the page, and that this happens once.
        unsafe { Boxed::free((*at).low.load(Relaxed)) };
    }

    unsafe fn reclaim_key(key: *mut ()) {
        // SAFETY: the caller guarantees the contract; `push` has made the box.
        unsafe { Boxed::free(key.cast()) };
    }

    fn check(&self) {
        let (len, meta) = (self.len(), self.meta());
        assert!(meta.sorted <= len, "sorted run of {} in {len} entries", meta.sorted);
        assert!(len * SLOT <= meta.floor, "slots and heap do not overlap");
        assert!(self.tags[len..].iter().all(|tag| tag.load(Relaxed) == 0), "occupied slots come first");
        let mut copy = self.copied();
        let mut scratch = Scratch::default();
        let mut previous: Option<Vec<u8>> = None;
        copy.prepare(&mut scratch);
        for slot in 0..len {
            let key = copy.entry(slot, &mut scratch).0;
            assert_eq!(copy.tags[slot], Bytes::tag(key), "tag of {key:?}");
            assert!(key >= self.low() && self.is_beyond(key, Seen::Held) == Ok(false), "{key:?} lies outside its page");
            assert!(slot >= meta.sorted || previous.as_deref().is_none_or(|it| it < key), "sorted run at {slot}");
            previous = Some(key.to_vec());
        }
        copy.sort();
        assert!((1..len).all(|at| copy.compare_entries(at - 1, at).is_lt()), "keys are distinct");
    }
}
