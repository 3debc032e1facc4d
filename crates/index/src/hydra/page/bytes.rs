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
//! All keys of `[low, high)` share the common prefix of the two bounds, so it is not stored with the keys; of the rest,
//! the *suffix*, twelve bytes sit in the slot and what is longer (the *tail*) in the heap. Words hold bytes big-endian
//! and padded with zeros: comparing words as integers, and lengths last, is comparing strings. Keys longer than
//! [`LONG_KEY`] are boxed whole, immutable, and reclaimed through RCU; the slot still has their first twelve bytes.
//!
//! A look-up touches line 0, the slot's line, and the last lines (the bound, `next`); the tail's line for long
//! suffixes. Bounds are as short as can be: the shortest string that separates the two halves of a split.
//!
//! What a racing reader may get wrong is bounded: indices are clamped, and a pointer read from a page is followed only
//! after the version under which it was read has been validated ([`Seen`]).

use super::{Page, PageCopy, PageForm, Removed, Seen};
use crate::key::Bytes;
use archipelago_platform::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::*};
use archipelago_platform::hint;
use archipelago_platform::simd;
use archipelago_sync::version_lock::VersionLock;
use core::cmp::Ordering;
use core::hash::Hasher;

/// Entries per page, at most.
const SLOTS: usize = 48;

/// Words for slots and heap.
const WORDS: usize = 150;

/// Words per slot.
const SLOT: usize = 3;

/// Bytes of a suffix that are in the slot itself.
const IN_SLOT: usize = 12;

/// Longer keys are boxed. At this length a page without common prefix still has room for five.
const LONG_KEY: usize = 192;

/// Longer upper bounds are read from the next page's boxed `low`.
const LONG_HIGH: usize = 64;

/// In a slot's length: the key is boxed.
const BOXED: u64 = 0xFFFF;

/// A page is underfull below this many entries, if they use less than this many words too; two are merged when
/// together they have at most twice as much.
const UNDERFULL: usize = SLOTS / 4;
const UNDERFULL_WORDS: usize = WORDS * 3 / 8;

/// An immutable byte string at a stable, thin address.
type Boxed = Box<[u8]>;

/// See the module's drawing.
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

/// What a page knows about its contents, in one word.
#[derive(Clone, Copy)]
struct Meta {
    /// Length of the sorted run.
    sorted: usize,
    /// Length of the prefix that is not stored.
    prefix: usize,
    /// The lowest heap word in use.
    floor: usize,
    /// Length of `high`; above [`LONG_HIGH`] it is a pointer in the top word. 0 on the last page.
    high: usize,
}

impl Meta {
    #[inline]
    fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift) as usize & 0xFFFF;
        Self { sorted: field(0).min(SLOTS), prefix: field(16), floor: field(32).min(WORDS), high: field(48) }
    }

    fn pack(self) -> u64 {
        self.sorted as u64 | (self.prefix as u64) << 16 | (self.floor as u64) << 32 | (self.high as u64) << 48
    }

    /// Heap words that `high` takes, at the top.
    #[inline]
    fn high_words(self) -> usize {
        if self.high > LONG_HIGH { 1 } else { self.high.div_ceil(8) }
    }
}

/// Eight bytes of `key` from `at`, big-endian, padded with zeros.
#[inline]
fn chunk(key: &[u8], at: usize) -> u64 {
    if let Some(bytes) = key.get(at..at + 8) {
        return u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    if at >= key.len() {
        return 0;
    }
    if let Some(last) = key.last_chunk::<8>() {
        return u64::from_be_bytes(*last) << (8 * (at + 8 - key.len()));
    }
    key[at..].iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i))
}

/// Heap words for the tail of a key of `len` bytes under a prefix of `prefix` bytes.
#[inline]
fn tail_words(len: usize, prefix: usize) -> usize {
    if len > LONG_KEY { 1 } else { (len - prefix).saturating_sub(IN_SLOT).div_ceil(8) }
}

/// The length of the longest common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// # Safety
/// `word` is the address of a live `Boxed`, for `'a`.
unsafe fn boxed<'a>(word: u64) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { &*core::ptr::with_exposed_provenance::<Boxed>(word as usize) }
}

/// The third word of a slot.
#[derive(Clone, Copy)]
struct Info(u64);

impl Info {
    fn new(fourth: u64, place: usize, len: u64) -> Self {
        Self(fourth << 32 | (place as u64) << 16 | len)
    }

    #[inline]
    fn place(self) -> usize {
        (self.0 >> 16) as usize & 0xFFFF
    }

    #[inline]
    fn len(self) -> u64 {
        self.0 & 0xFFFF
    }

    /// The bytes 8..12 of the suffix.
    #[inline]
    fn middle(self) -> u64 {
        self.0 >> 32
    }

    /// Heap words of the tail.
    #[inline]
    fn tail_words(self) -> usize {
        if self.len() == BOXED { 1 } else { (self.len() as usize).saturating_sub(IN_SLOT).div_ceil(8) }
    }
}

/// How `key` compares with the entry in `slot` of a page whose words `word` reads. Both share a prefix of `prefix`
/// bytes. `trust` tells whether what `word` has given so far may be followed as a pointer.
#[inline]
fn compare(key: &[u8], prefix: usize, slot: usize, word: impl Fn(usize) -> u64, trust: impl Fn() -> bool) -> Ordering {
    let head = chunk(key, prefix).cmp(&word(slot * SLOT));
    if head.is_ne() {
        return head;
    }
    let info = Info(word(slot * SLOT + 2));
    let middle = (chunk(key, prefix + 8) >> 32).cmp(&info.middle());
    if middle.is_ne() {
        return middle;
    }
    if info.len() == BOXED {
        let address = word(info.place().min(WORDS - 1));
        // SAFETY: validated: the word is a boxed key of this page, alive as long as the caller's guard or lock.
        return if trust() { key.cmp(unsafe { boxed(address) }) } else { Ordering::Less };
    }
    let place = info.place().min(WORDS);
    for at in 0..info.tail_words().min(WORDS - place) {
        let tail = chunk(key, prefix + IN_SLOT + 8 * at).cmp(&word(place + at));
        if tail.is_ne() {
            return tail;
        }
    }
    (key.len() as u64).cmp(&(prefix as u64 + info.len()))
}

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

    #[inline]
    fn trusts(&self, seen: Seen) -> bool {
        seen.is_none_or(|version| self.lock.validate(version))
    }

    /// How `key` compares with `high`; meaningless on the last page.
    #[inline]
    fn compare_high(&self, key: &[u8], seen: Seen) -> Ordering {
        let meta = self.meta();
        let top = WORDS - meta.high_words();
        if meta.high > LONG_HIGH {
            let address = self.word(top);
            // SAFETY: validated: the word is the next page's `low`, which outlives the caller's guard or lock.
            return if self.trusts(seen) { key.cmp(unsafe { boxed(address) }) } else { Ordering::Less };
        }
        for at in top..WORDS {
            let order = chunk(key, 8 * (at - top)).cmp(&self.word(at));
            if order.is_ne() {
                return order;
            }
        }
        key.len().cmp(&meta.high)
    }

    /// Words in use by live entries and `high`.
    fn live_words(&self) -> usize {
        let tails = (0..self.len()).map(|slot| SLOT + Info(self.word(slot * SLOT + 2)).tail_words());
        tails.sum::<usize>() + self.meta().high_words()
    }

    /// Adds an entry behind the others. The key is in range, `address` its box if it is long.
    fn append(&self, key: &[u8], tag: u8, value: u64, address: u64) -> bool {
        let (len, mut meta) = (self.len(), self.meta());
        let tail = tail_words(key.len(), meta.prefix);
        if len == SLOTS || SLOT * (len + 1) + tail > meta.floor {
            return false;
        }
        let last = len.wrapping_sub(1);
        if meta.sorted == len && (len == 0 || compare(key, meta.prefix, last, |at| self.word(at), || true).is_gt()) {
            meta.sorted = len + 1;
        }
        meta.floor -= tail;
        let long = key.len() > LONG_KEY;
        if long {
            self.set_word(meta.floor, address);
        } else {
            for at in 0..tail {
                self.set_word(meta.floor + at, chunk(key, meta.prefix + IN_SLOT + 8 * at));
            }
        }
        let stored = if long { BOXED } else { (key.len() - meta.prefix) as u64 };
        self.set_word(len * SLOT, chunk(key, meta.prefix));
        self.set_word(len * SLOT + 1, value);
        self.set_word(len * SLOT + 2, Info::new(chunk(key, meta.prefix + 8) >> 32, meta.floor, stored).0);
        self.set_meta(meta);
        self.tags[len].store(tag, Relaxed);
        true
    }

    /// Empties the page and gives it an upper bound: `high`, boxed at `address` in case it is long.
    fn reset(&self, high: Option<(&[u8], u64)>) {
        self.tags.iter().for_each(|tag| tag.store(0, Relaxed));
        let prefix = high.map_or(0, |(high, _)| common(self.low(), high).min(0xFFFF));
        let len = high.map_or(0, |(high, _)| high.len().min(LONG_HIGH + 1));
        let mut meta = Meta { sorted: 0, prefix, floor: WORDS, high: len };
        meta.floor -= meta.high_words();
        self.set_meta(meta);
        if let Some((high, address)) = high {
            let long = high.len() > LONG_HIGH;
            for at in meta.floor..WORDS {
                self.set_word(at, if long { address } else { chunk(high, 8 * (at - meta.floor)) });
            }
        }
    }

    /// `high` with the address of its box, for a page that is locked or private. `None` on the last page.
    fn bound<'a>(&self, next: *const Self, buffer: &'a mut Vec<u8>) -> Option<(&'a [u8], u64)> {
        if next.is_null() {
            return None;
        }
        // SAFETY: a locked page's neighbour is not retired.
        let low = unsafe { (*next).low.load(Relaxed) };
        // SAFETY: a page's `low` lives as long as the page.
        buffer.extend_from_slice(unsafe { &*low });
        Some((buffer, low.expose_provenance() as u64))
    }

    /// Adds entries of a copy, which are known to fit, in the copy's order.
    fn refill(&self, copy: &BytesCopy, range: core::ops::Range<usize>) {
        let mut scratch = Scratch::default();
        copy.prepare(&mut scratch);
        for at in range {
            let (slot, address) = (usize::from(copy.order[at]), copy.address(at));
            let (key, value) = copy.entry(at, &mut scratch);
            assert!(self.append(key, copy.tags[slot], value, address), "entries fit where they were measured to fit");
        }
    }

    fn copied(&self) -> BytesCopy {
        let mut copy = BytesCopy::new();
        self.copy_all(&mut copy);
        copy.take_tags(self);
        copy
    }
}

impl PageForm for Bytes {
    type Page = BytesPage;
    type Owned = Vec<u8>;

    fn own(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }

    fn probe(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    fn just_below(bound: &[u8]) -> Option<Vec<u8>> {
        let (&last, rest) = bound.split_last()?;
        let mut below = rest.to_vec();
        if last > 0 {
            below.push(last - 1);
            below.extend([0xFF; 8]);
        }
        Some(below)
    }

    fn just_above(key: &[u8]) -> Option<Vec<u8>> {
        Some([key, &[0]].concat())
    }

    fn least() -> Vec<u8> {
        Vec::new()
    }

    fn great() -> Vec<u8> {
        vec![0xFF; 8]
    }

    #[inline]
    fn with_bytes<R>(key: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
        f(key)
    }

    #[inline]
    fn tag(key: &[u8]) -> u8 {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(key);
        // The hasher rotates its best bits to the bottom; zero means "empty slot" and is moved to one.
        ((hasher.finish() >> 16) as u8).max(1)
    }
}

impl Page<Bytes> for BytesPage {
    type Copy = BytesCopy;

    unsafe fn init(at: *mut Self, low: &[u8], next: *const Self) {
        let page = Self {
            lock: VersionLock::new(),
            meta: AtomicU64::new(0),
            tags: [const { AtomicU8::new(0) }; SLOTS],
            words: [const { AtomicU64::new(0) }; WORDS],
            low: AtomicPtr::new(Box::into_raw(Box::new(low.into()))),
            next: AtomicPtr::new(next.cast_mut()),
        };
        page.reset(page.bound(next, &mut Vec::new()));
        // SAFETY: by the caller's promise.
        unsafe { at.write(page) }
    }

    #[inline]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }

    #[inline]
    fn next(&self) -> *const Self {
        // Acquire pairs with the Release in `set_next`: whoever gets the pointer sees the page initialised.
        self.next.load(Acquire)
    }

    #[inline]
    fn prefetch(page: *const Self) {
        hint::prefetch_read(page);
        // The bound and `next` are in the last line.
        hint::prefetch_read(page.wrapping_byte_add(size_of::<Self>() - 64));
    }

    #[inline]
    fn is_beyond(&self, key: &[u8], seen: Seen) -> bool {
        self.compare_high(key, seen).is_ge() && !self.next().is_null()
    }

    #[inline]
    fn ends_before(&self, bound: &[u8], seen: Seen) -> bool {
        self.compare_high(bound, seen).is_gt() && !self.next().is_null()
    }

    #[inline]
    fn candidates(&self, tag: u8) -> u64 {
        simd::match_bytes(&self.tags, tag)
    }

    #[inline]
    fn prefetch_slot(&self, slot: usize) {
        hint::prefetch_read(&raw const self.words[slot * SLOT]);
    }

    #[inline]
    fn find_among(&self, mut candidates: u64, key: &[u8], seen: Seen) -> Option<usize> {
        let prefix = self.meta().prefix;
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if compare(key, prefix, slot, |at| self.word(at), || self.trusts(seen)).is_eq() {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    #[inline]
    fn value(&self, slot: usize) -> u64 {
        self.word(slot * SLOT + 1)
    }

    #[inline]
    fn len(&self) -> usize {
        (self.candidates(0) | 1 << SLOTS).trailing_zeros() as usize
    }

    #[inline]
    fn copy_from(&self, _: &[u8], _: usize, copy: &mut BytesCopy) {
        self.copy_all(copy);
    }

    fn copy_all(&self, copy: &mut BytesCopy) {
        copy.len = self.len();
        copy.meta = self.meta();
        let slots = copy.len * SLOT;
        for used in [0..slots, copy.meta.floor..WORDS] {
            for (to, from) in copy.words[used.clone()].iter_mut().zip(&self.words[used]) {
                *to = from.load(Relaxed);
            }
        }
        copy.sorted = copy.meta.sorted >= copy.len;
        copy.order = IN_ORDER;
    }

    fn set_next(&self, next: *const Self) {
        self.next.store(next.cast_mut(), Release);
    }

    #[inline]
    fn set_value(&self, slot: usize, value: u64) -> u64 {
        let old = self.value(slot);
        self.set_word(slot * SLOT + 1, value);
        old
    }

    #[inline]
    fn push(&self, key: &[u8], tag: u8, value: u64) -> bool {
        if key.len() <= LONG_KEY {
            return self.append(key, tag, value, 0);
        }
        let address = Box::into_raw(Box::new(Boxed::from(key)));
        let pushed = self.append(key, tag, value, address.expose_provenance() as u64);
        if !pushed {
            // SAFETY: made above and not stored.
            drop(unsafe { Box::from_raw(address) });
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
        let mut copy = self.copied();
        let ascending = copy.sorted;
        copy.sort();
        let len = copy.len;
        let (mut buffer, next) = (Vec::new(), self.next.load(Relaxed));
        // Room may have been lost to tails of removed keys only.
        if len < SLOTS && self.live_words() <= WORDS * 3 / 4 {
            self.reset(self.bound(next, &mut buffer));
            self.refill(&copy, 0..len);
            return false;
        }
        let (mut left_scratch, mut right_scratch) = (Scratch::default(), Scratch::default());
        copy.prepare(&mut left_scratch);
        copy.prepare(&mut right_scratch);
        let last = copy.entry(len - 1, &mut left_scratch).0;
        // Keys that arrive in ascending order leave this page full and go on in an empty one, if the new bound fits.
        let fits = || {
            let prefix = common(self.low(), &key[..common(last, key) + 1]);
            copy.words_under(prefix) + LONG_HIGH / 8 <= WORDS
        };
        let middle = if ascending && last < key && fits() { len } else { copy.middle() };
        let below = copy.entry(middle - 1, &mut left_scratch).0;
        let above = if middle == len { key } else { copy.entry(middle, &mut right_scratch).0 };
        let separator = &above[..common(below, above) + 1];
        // SAFETY: `right` is ours to write, by the caller's promise.
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

    fn is_underfull(&self) -> bool {
        self.len() < UNDERFULL && self.live_words() < UNDERFULL_WORDS
    }

    fn absorb(&self, right: &Self) -> bool {
        if self.len() + right.len() > 2 * UNDERFULL {
            return false;
        }
        let (mut ours, mut theirs) = (self.copied(), right.copied());
        let next = right.next();
        let mut buffer = Vec::new();
        let high = self.bound(next, &mut buffer);
        let prefix = high.map_or(0, |(high, _)| common(self.low(), high).min(0xFFFF));
        let words = ours.words_under(prefix) + theirs.words_under(prefix) + LONG_HIGH / 8;
        if words > 2 * UNDERFULL_WORDS {
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

    #[inline]
    fn low(&self) -> &[u8] {
        // SAFETY: `low` is set before the page is published, never changed, and freed with the page.
        unsafe { &*self.low.load(Relaxed) }
    }

    unsafe fn destroy(at: *mut Self) {
        // SAFETY: by the caller's promise the page is ours, and this happens once.
        drop(unsafe { Box::from_raw((*at).low.load(Relaxed)) });
    }

    unsafe fn reclaim_key(key: *mut ()) {
        // SAFETY: by the caller's promise; `push` made it.
        drop(unsafe { Box::from_raw(key.cast::<Boxed>()) });
    }

    fn check(&self) {
        let (len, meta) = (self.len(), self.meta());
        assert!(meta.sorted <= len, "sorted run of {} in {len} entries", meta.sorted);
        assert!(len * SLOT <= meta.floor, "slots and heap do not overlap");
        assert!(self.tags[len..].iter().all(|tag| tag.load(Relaxed) == 0), "slots are dense");
        let mut copy = self.copied();
        let mut scratch = Scratch::default();
        let mut previous: Option<Vec<u8>> = None;
        copy.prepare(&mut scratch);
        for slot in 0..len {
            let key = copy.entry(slot, &mut scratch).0;
            assert_eq!(copy.tags[slot], Bytes::tag(key), "tag of {key:?}");
            assert!(key >= self.low() && !self.is_beyond(key, None), "{key:?} lies outside its page");
            assert!(slot >= meta.sorted || previous.as_deref().is_none_or(|it| it < key), "sorted run at {slot}");
            previous = Some(key.to_vec());
        }
        copy.sort();
        assert!((1..len).all(|at| copy.compare_entries(at - 1, at).is_lt()), "keys are distinct");
    }
}

const IN_ORDER: [u8; SLOTS] = {
    let mut order = [0; SLOTS];
    let mut at = 0;
    while at < SLOTS {
        order[at] = at as u8;
        at += 1;
    }
    order
};

/// A copy of a [`BytesPage`]'s entries.
pub struct BytesCopy {
    words: [u64; WORDS],
    meta: Meta,
    len: usize,
    sorted: bool,
    /// Slots in key order.
    order: [u8; SLOTS],
    /// Filled only for rebuilding pages.
    tags: [u8; SLOTS],
}

/// Where keys are put together: the prefix stays, suffixes come and go behind it.
#[derive(Default)]
pub struct Scratch(Vec<u8>);

impl BytesCopy {
    fn take_tags(&mut self, page: &BytesPage) {
        self.tags = core::array::from_fn(|slot| page.tags[slot].load(Relaxed));
    }

    #[inline]
    fn info(&self, at: usize) -> Info {
        Info(self.words[usize::from(self.order[at]) * SLOT + 2])
    }

    /// The address of a boxed key, else 0.
    fn address(&self, at: usize) -> u64 {
        let info = self.info(at);
        if info.len() == BOXED { self.words[info.place()] } else { 0 }
    }

    fn key_len(&self, at: usize) -> usize {
        match self.address(at) {
            0 => self.meta.prefix + self.info(at).len() as usize,
            // SAFETY: a validated copy's boxed keys live as long as the guard or lock under which it is used.
            address => unsafe { boxed(address) }.len(),
        }
    }

    /// Words that all entries would take under another prefix.
    fn words_under(&self, prefix: usize) -> usize {
        (0..self.len).map(|at| SLOT + tail_words(self.key_len(at), prefix)).sum()
    }

    /// Where to split so that both sides take about the same space.
    fn middle(&self) -> usize {
        let half = self.words_under(self.meta.prefix) / 2;
        let mut words = 0;
        let full = (0..self.len).position(|at| {
            words += SLOT + self.info(at).tail_words();
            words > half
        });
        full.unwrap_or(self.len / 2).clamp(1, self.len - 1)
    }

    #[inline]
    fn compare(&self, key: &[u8], at: usize) -> Ordering {
        compare(key, self.meta.prefix, usize::from(self.order[at]), |at| self.words[at], || true)
    }

    /// Compares two entries, by position.
    fn compare_entries(&self, a: usize, b: usize) -> Ordering {
        let slot = |at: usize| usize::from(self.order[at]) * SLOT;
        let (ia, ib) = (self.info(a), self.info(b));
        let short = self.words[slot(a)].cmp(&self.words[slot(b)]).then(ia.middle().cmp(&ib.middle()));
        if short.is_ne() {
            return short;
        }
        let mut scratch = Scratch::default();
        self.prepare(&mut scratch);
        self.compare(self.entry(a, &mut scratch).0, b)
    }

    /// The bytes of `high`, of which the prefix is a part.
    fn write_prefix(&self, prefix: &mut Vec<u8>) {
        let top = WORDS - self.meta.high_words();
        if self.meta.high > LONG_HIGH {
            // SAFETY: a validated copy's bound lives as long as the guard or lock under which it is used.
            prefix.extend_from_slice(unsafe { boxed(self.words[top]) });
        } else {
            prefix.extend(self.words[top..].iter().flat_map(|word| word.to_be_bytes()));
        }
        prefix.truncate(self.meta.prefix);
    }
}

impl PageCopy<Bytes> for BytesCopy {
    type Scratch = Scratch;

    fn new() -> Self {
        let meta = Meta { sorted: 0, prefix: 0, floor: WORDS, high: 0 };
        Self { words: [0; WORDS], meta, len: 0, sorted: true, order: IN_ORDER, tags: [0; SLOTS] }
    }

    fn sort(&mut self) -> bool {
        if self.sorted {
            return false;
        }
        // Sorting by the first eight bytes of the suffix nearly always settles it.
        let mut heads: [(u64, u8); SLOTS] = core::array::from_fn(|slot| (self.words[slot * SLOT], slot as u8));
        let heads = &mut heads[..self.len];
        heads.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| self.compare_entries(usize::from(a.1), usize::from(b.1)))
        });
        for (order, head) in self.order.iter_mut().zip(heads) {
            *order = head.1;
        }
        self.sorted = true;
        true
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        super::partition_point(0, self.len, |at| self.compare(key, at).is_gt())
    }

    fn prepare(&self, scratch: &mut Scratch) {
        scratch.0.clear();
        self.write_prefix(&mut scratch.0);
    }

    #[inline]
    fn entry<'s>(&self, at: usize, Scratch(key): &'s mut Scratch) -> (&'s [u8], u64) {
        let slot = usize::from(self.order[at]) * SLOT;
        let (info, value, prefix) = (self.info(at), self.words[slot + 1], self.meta.prefix);
        if info.len() == BOXED {
            key.resize(prefix, 0);
            // SAFETY: a validated copy's boxed keys live as long as the guard or lock under which it is used.
            let whole = unsafe { boxed(self.words[info.place()]) };
            key.extend_from_slice(&whole[prefix..]);
            return (key, value);
        }
        let tail = info.tail_words();
        key.resize(prefix + IN_SLOT + 8 * tail, 0);
        let suffix = &mut key[prefix..];
        suffix[..8].copy_from_slice(&self.words[slot].to_be_bytes());
        suffix[8..IN_SLOT].copy_from_slice(&(info.middle() as u32).to_be_bytes());
        for (at, bytes) in suffix[IN_SLOT..].chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.words[info.place() + at].to_be_bytes());
        }
        (&key[..prefix + info.len() as usize], value)
    }
}
