//! The chunk: a leaf with a range of keys `[low, high)`. 1984 bytes, 31 cache lines, 111 slots.
//!
//! ```text
//!    0  lock     111 tags, and whether the chunk is scattered     heat                            -> 2 lines
//!  128  length of the sorted run     low     high     next     scatter     home                   -> line 2
//!  192  111 x { key, value }                                                                      -> 28 lines
//! ```
//!
//! A *tag* is the fingerprint of a slot's key, a hash byte: a key is present exactly if a slot has both the key and the
//! key's tag. Two byte values are never tags of keys: zero marks a free slot, and [`GONE`] marks a slot of a scattered
//! chunk whose entry was removed. A contended chunk has a [`Scatter`]: four *parts* of two cache lines, each with its
//! own lock and tags. A key's tag selects the part into which the key is inserted, so that insertions seldom conflict.
//!
//! # Invariants
//! 1. Used slots are dense: the first slots have non-zero tags, and the others have the tag zero. This also holds in
//!    each part. In parts and in quiet chunks (those without parts) no tag is [`GONE`].
//! 2. The first `sorted` slots (the *reserve*) are in ascending order, except slots that are [`GONE`]. The reserve
//!    grows when keys are appended in order and when later entries are sorted into it, and shrinks with removals and
//!    splits.
//! 3. A key is in one slot of the chunk whose range contains it: one of the chunk's own slots, or a slot in the part of
//!    its tag.
//! 4. `low` never changes; `high` is the next chunk's `low`, and is unused in the last chunk. An obsolete chunk's slots
//!    still have words, but other chunks own the entries.
//! 5. While the version does not change, `scatter` and the range do not change. In a scattered chunk no key is added to
//!    the chunk's own slots or moved in them; a removal marks the slot as [`GONE`] and leaves the slot's words. So
//!    while the version does not change, a key that is absent from the chunk's own slots stays absent from them,
//!    whatever is added to parts.
//! 6. A slot's value may change, by one atomic operation, while the chunk is shared. A part changes while the chunk is
//!    shared and the part locked, or in a change of the whole chunk. Everything else, except the heat, changes only in
//!    a change of the whole chunk.
//!
//! Versions: see [`region`](archipelago_sync::region). Each change of the whole chunk makes a new version, except in
//! two cases: walks are transactions, too; or changes are transactions, and the change writes one word (it replaces a
//! value, or removes an entry from a scattered chunk's own slots). Splits, merges, sorting, and adding or removing the
//! scatter lock the chunk explicitly. So they make a new version in these cases, too.

use super::form::{ChunkForm, GONE};
use super::heat::Heat;
use super::look::{Alone, Look, order, settled};
use super::memory::Memory;
use super::size::{Array, Entry, MOST_TAGS, PARTS, Size, Wide};
use crate::structure::End;
use archipelago_platform::memory::{BlockArena, taken_by};
use archipelago_platform::{hint, touch_mut};
use archipelago_sync::region::{Again, Link, Var, Versioned};
use archipelago_sync::version_lock::VersionLock;
use core::alloc::Layout;
use core::ptr::NonNull;

/// A flag in the last word of tags of a scattered chunk.
const SCATTERED: u64 = 1 << 56;

/// Aligns its content to a cache line.
#[repr(C, align(64))]
struct Lines<T>(T);

/// A chunk, as the module's documentation describes it.
#[repr(C, align(64))]
pub struct Chunk<S: Size> {
    lock: VersionLock,
    tags: S::Tags,
    /// The chunk's heat. It is in a cache line of the tags, which a search reads anyway. So a write that only replaces
    /// a value accesses no further line for it.
    pub(super) heat: Heat,
    pub(super) sorted: Var,
    low: Var,
    pub(super) high: Var,
    pub(super) next: Link<Chunk<S>>,
    pub(super) scatter: Link<Scatter<S>>,
    /// The number of the chunk's arena; never changes.
    home: Var,
    entries: Lines<S::Entries>,
}

const _: () = assert!(size_of::<Chunk<Wide>>() == 1984 && core::mem::offset_of!(Chunk<Wide>, entries) == 192);

// SAFETY: the page's words and links are plain fields.
unsafe impl<S: Size> Versioned for Chunk<S> {
    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

/// A part of a contended chunk: a lock, tags and entries.
#[repr(C, align(64))]
pub struct Part<S: Size> {
    lock: VersionLock,
    tags: [Var; 1],
    entries: S::PartEntries,
}

const _: () = assert!(size_of::<Part<Wide>>() == 128);

// SAFETY: the page's words and links are plain fields.
unsafe impl<S: Size> Versioned for Part<S> {
    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

/// The parts of a contended chunk.
#[repr(C, align(64))]
pub struct Scatter<S: Size> {
    /// The lock, which is never taken: the scatter itself does not change.
    lock: VersionLock,
    /// Padding. If walks are transactions, each walk's transaction reads the lock's cache line, so words that change
    /// are in another line.
    _line: [Var; 7],
    pub(super) door: super::door::Door,
    _door: [Var; 7],
    parts: [Part<S>; PARTS],
}

// SAFETY: the page's words and links are plain fields.
unsafe impl<S: Size> Versioned for Scatter<S> {
    const UNDER_LOCK_ONLY: bool = true;

    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

impl<S: Size> Part<S> {
    /// Removes all entries. The caller must be the only thread that may change the chunk.
    pub(super) fn empty(&self) {
        self.tags[0].set(0);
    }
}

impl<S: Size> Scatter<S> {
    fn part_empty() -> Part<S> {
        Part { lock: VersionLock::new(), tags: [Var::new(0)], entries: Array::of(|_| Entry::empty()) }
    }

    /// Makes a scatter without entries.
    pub(super) fn new() -> *mut Self {
        let parts = core::array::from_fn(|_| Self::part_empty());
        Box::into_raw(Box::new(Self {
            lock: VersionLock::new(),
            _line: Default::default(),
            door: Default::default(),
            _door: Default::default(),
            parts,
        }))
    }

    /// Returns the number of bytes that a scatter takes.
    pub(super) fn bytes() -> usize {
        taken_by(Layout::new::<Self>())
    }

    /// Returns the part for a tag.
    #[inline(always)]
    pub(super) fn part(&self, tag: u8) -> &Part<S> {
        &self.parts[usize::from(tag) % PARTS]
    }

    pub(super) fn parts(&self) -> &[Part<S>] {
        &self.parts
    }
}

/// The common interface of chunks and parts: slots with tags.
pub(super) trait Slots: Versioned {
    fn tags(&self) -> &[Var];
    fn entries(&self) -> &[Entry];

    /// Returns the slots that have this tag, as a bit mask.
    fn candidates(&self, look: &impl Look, tag: u8) -> u128;

    /// Returns how many slots are used.
    #[inline(always)]
    fn count(&self, look: &impl Look) -> usize {
        // The mask has a bit behind the last slot, for a full page.
        (self.candidates(look, 0) | 1 << self.entries().len()).trailing_zeros() as usize
    }

    /// Returns which slots have entries, as a bit mask.
    #[inline(always)]
    fn live(&self, look: &impl Look) -> u128 {
        !self.candidates(look, GONE) & first(self.count(look))
    }

    /// Returns how many entries there are.
    #[inline]
    fn entries_now(&self) -> usize {
        self.live(&Alone).count_ones() as usize
    }

    /// Returns the slot of `key`.
    #[inline(always)]
    fn find<F: ChunkForm>(&self, look: &impl Look, key: F::Probe<'_>, tag: u8) -> Result<Option<usize>, Again> {
        let mut hits = self.candidates(look, tag);
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if order::<F>(look, look.get(&self.entries()[slot].key), key)?.is_eq() {
                return Ok(Some(slot));
            }
            hits &= hits - 1;
        }
        Ok(None)
    }

    /// Writes a slot through `set`, with its tag last.
    #[inline(always)]
    fn write(
        &self,
        slot: usize,
        entry: (u64, u64),
        tag: u8,
        get: impl Fn(&Var) -> u64,
        mut set: impl FnMut(&Var, u64),
    ) {
        set(&self.entries()[slot].key, entry.0);
        set(&self.entries()[slot].value, entry.1);
        let (word, shift) = (&self.tags()[slot / 8], slot % 8 * 8);
        set(word, get(word) & !(0xFF << shift) | u64::from(tag) << shift);
    }

    /// Sets a slot's tag to a value that no key's tag has. The slot's words stay, since a reader that has seen the old
    /// tag may still read them.
    #[inline(always)]
    fn retag(&self, slot: usize, tag: u8, get: impl Fn(&Var) -> u64, mut set: impl FnMut(&Var, u64)) {
        let (word, shift) = (&self.tags()[slot / 8], slot % 8 * 8);
        set(word, get(word) & !(0xFF << shift) | u64::from(tag) << shift);
    }

    /// Returns the tag of a slot.
    #[inline(always)]
    fn tag(&self, look: &impl Look, slot: usize) -> u8 {
        (look.get(&self.tags()[slot / 8]) >> (slot % 8 * 8)) as u8
    }

    /// Returns the entry in a slot.
    #[inline(always)]
    fn pair(&self, look: &impl Look, slot: usize) -> (u64, u64) {
        let entry = &self.entries()[slot];
        (look.get(&entry.key), look.get(&entry.value))
    }
}

/// Returns a bit mask of the first `count` slots.
#[inline(always)]
pub(super) fn first(count: usize) -> u128 {
    (1 << count) - 1
}

/// Iterates over the slots of a bit mask, in order.
pub(super) fn each_of(mut slots: u128) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = slots.trailing_zeros() as usize;
        (slots != 0).then(|| {
            slots &= slots - 1;
            slot
        })
    })
}

impl<S: Size> Slots for Chunk<S> {
    #[inline(always)]
    fn tags(&self) -> &[Var] {
        self.tags.as_ref()
    }

    #[inline(always)]
    fn candidates(&self, look: &impl Look, tag: u8) -> u128 {
        look.matches(self.tags(), tag) & (u128::MAX >> (128 - S::SLOTS))
    }

    #[inline(always)]
    fn entries(&self) -> &[Entry] {
        self.entries.0.as_ref()
    }
}

impl<S: Size> Slots for Part<S> {
    #[inline(always)]
    fn tags(&self) -> &[Var] {
        &self.tags
    }

    #[inline(always)]
    fn candidates(&self, look: &impl Look, tag: u8) -> u128 {
        look.matches(&self.tags, tag) & (u128::MAX >> (128 - S::PART_SLOTS))
    }

    #[inline(always)]
    fn entries(&self) -> &[Entry] {
        self.entries.as_ref()
    }
}

/// Entries of a chunk and its parts, in order.
pub(super) struct Gathered {
    pub(super) pairs: Vec<(u64, u64)>,
    /// Whether the chunk had all entries in order, in its reserve.
    pub(super) in_order: bool,
}

impl<S: Size> Chunk<S> {
    /// Makes a chunk with a range and no entries, which no other thread can access yet. The chunk takes over the words
    /// of both bounds.
    pub(super) fn new(memory: &Memory, low: u64, high: u64, next: *mut Self) -> *mut Self {
        Self::new_at(memory, memory.home(), low, high, next)
    }

    /// Makes a chunk as `new` does, in the arena with the number `home`.
    pub(super) fn new_at(memory: &Memory, home: usize, low: u64, high: u64, next: *mut Self) -> *mut Self {
        // SAFETY: the target is null or a chunk, which is retired by RCU once nothing leads to it.
        let (next, scatter) = unsafe { (Link::new(next), Link::new(core::ptr::null_mut())) };
        let block = memory.alloc(home).cast();
        let chunk = Self {
            lock: VersionLock::new(),
            tags: Array::of(|_| Var::new(0)),
            heat: Heat::new(),
            sorted: Var::new(0),
            low: Var::new(low),
            high: Var::new(high),
            next,
            scatter,
            home: Var::new(home as u64),
            entries: Lines(Array::of(|_| Entry::empty())),
        };
        touch_mut(block.as_ptr(), size_of::<Self>());
        // SAFETY: the block is fresh, and has a chunk's layout.
        unsafe { block.write(chunk) };
        block.as_ptr()
    }

    /// Frees a chunk, its lower bound, and its scatter; not its entries or its upper bound.
    ///
    /// # Safety
    /// The chunk must be from this arena, and no thread may use it now or later.
    pub(super) unsafe fn free<F: ChunkForm>(chunk: NonNull<Self>, arena: &BlockArena) {
        // SAFETY: the caller guarantees the contract; a scatter belongs to its chunk.
        unsafe {
            F::discard(chunk.as_ref().low.load());
            let scatter = chunk.as_ref().scatter.load();
            if !scatter.is_null() {
                drop(Box::from_raw(scatter));
            }
            chunk.drop_in_place();
            arena.free(chunk.cast());
        }
    }

    /// Returns the number of the chunk's arena.
    pub(super) fn home(&self) -> usize {
        self.home.load() as usize
    }

    /// Prefetches a chunk's tags.
    #[inline(always)]
    pub(super) fn fetch_tags(chunk: *const Self) {
        hint::prefetch_read(chunk);
        hint::prefetch_read(chunk.wrapping_byte_add(64));
    }

    /// Prefetches a whole chunk, for a scan.
    #[inline]
    pub(super) fn fetch(chunk: *const Self) {
        for offset in (0..size_of::<Self>()).step_by(64) {
            hint::prefetch_read(chunk.wrapping_byte_add(offset));
        }
    }

    /// Returns the word of the lower bound. The word and its box live as long as the chunk.
    pub(super) fn low_word(&self) -> u64 {
        self.low.load()
    }

    /// Returns the lower bound.
    #[inline(always)]
    pub(super) fn low<'a, F: ChunkForm>(&'a self) -> F::Probe<'a> {
        // SAFETY: the bound never changes, and is freed with the chunk.
        unsafe { F::kept(self.low.load()) }
    }

    /// Returns whether the chunk has parts. The result is not proven (validated).
    #[inline(always)]
    pub(super) fn is_scattered(&self, look: &impl Look) -> bool {
        look.get(&self.tags()[S::LAST_TAGS]) & SCATTERED != 0
    }

    /// Returns the length of the reserve.
    #[inline(always)]
    pub(super) fn reserve(&self, look: &impl Look, count: usize) -> usize {
        (look.get(&self.sorted) as usize).min(count)
    }

    // ---- For the only thread that may change the page ---------------------------------------------------------------

    /// Sets the scatter, which has no entries, or removes it.
    pub(super) fn set_scatter(&self, scatter: *mut Scatter<S>) {
        let word = &self.tags()[S::LAST_TAGS];
        word.set(if scatter.is_null() { word.load() & !SCATTERED } else { word.load() | SCATTERED });
        // SAFETY: the target is null or a scatter, which is retired by RCU once no chunk leads to it.
        unsafe { self.scatter.publish(scatter) };
    }

    /// Returns the chunk's parts.
    pub(super) fn parts(&self) -> &[Part<S>] {
        // SAFETY: a chunk's scatter is freed with the chunk, or by RCU.
        unsafe { self.scatter.load().as_ref() }.map_or(&[], Scatter::parts)
    }

    /// Returns the chunk's part for a tag, if the chunk has parts.
    pub(super) fn part(&self, tag: u8) -> Option<&Part<S>> {
        // SAFETY: as above.
        unsafe { self.scatter.load().as_ref() }.map(|scatter| scatter.part(tag))
    }

    /// Returns the bytes that the chunk owns outside itself.
    pub(super) fn outside(&self) -> usize {
        if self.scatter.load().is_null() { 0 } else { Scatter::<S>::bytes() }
    }

    /// Returns how many entries there are, parts included.
    pub(super) fn total(&self) -> usize {
        self.entries_now() + self.parts().iter().map(Slots::entries_now).sum::<usize>()
    }

    /// Returns all entries, in order.
    pub(super) fn gather<F: ChunkForm>(&self) -> Gathered {
        let live = self.live(&Alone);
        let mut pairs = Vec::with_capacity(S::MOST);
        pairs.extend(each_of(live).map(|slot| self.pair(&Alone, slot)));
        for part in self.parts() {
            pairs.extend((0..part.count(&Alone)).map(|slot| part.pair(&Alone, slot)));
        }
        let run = (live & first(self.reserve(&Alone, S::SLOTS))).count_ones() as usize;
        let in_order = run == pairs.len();
        sort::<F>(&mut pairs, run);
        Gathered { pairs, in_order }
    }

    /// Returns the least or the greatest key, including those in parts. The chunk has an entry.
    pub(super) fn outermost<F: ChunkForm>(&self, end: End) -> u64 {
        let live = self.live(&Alone);
        let reserve = first(self.reserve(&Alone, S::SLOTS));
        // In the reserve only the first or last entry can be the outermost.
        let run = live & reserve;
        let ends = (run != 0).then(|| [run.trailing_zeros(), run.ilog2()].map(|slot| slot as usize));
        let own = ends.into_iter().flatten().chain(each_of(live & !reserve)).map(|slot| self.pair(&Alone, slot).0);
        let parts = self.parts().iter();
        let in_parts = parts.flat_map(|part| (0..part.count(&Alone)).map(|slot| part.pair(&Alone, slot).0));
        let keys = own.chain(in_parts);
        let outermost = match end {
            End::First => keys.min_by(|a, b| compare::<F>(*a, *b)),
            End::Last => keys.max_by(|a, b| compare::<F>(*a, *b)),
        };
        outermost.expect("the chunk is not empty")
    }

    /// Replaces the chunk's entries by `pairs`, which become its reserve. The pairs must be ascending. Leading entries
    /// and words of tags that already have the right value are not written, so that other threads keep their cache
    /// lines.
    pub(super) fn fill<F: ChunkForm>(&self, pairs: &[(u64, u64)]) {
        let stays = |&(slot, pair): &(usize, &(u64, u64))| self.pair(&Alone, slot) == *pair;
        let same = pairs.iter().enumerate().take_while(stays).count();
        let mut tags = [0; MOST_TAGS];
        for (slot, &(key, value)) in pairs.iter().enumerate() {
            // SAFETY: the word is an entry's key, of a page that only this thread changes.
            let tag = F::slot_tag(unsafe { F::kept(key) });
            tags[slot / 8] |= u64::from(tag) << (slot % 8 * 8);
            if slot >= same {
                self.entries()[slot].key.set(key);
                self.entries()[slot].value.set(value);
            }
        }
        tags[S::LAST_TAGS] |= self.tags()[S::LAST_TAGS].load() & SCATTERED;
        self.tags()
            .iter()
            .zip(tags)
            .filter(|(word, tags)| word.load() != *tags)
            .for_each(|(word, tags)| word.set(tags));
        self.sorted.set(pairs.len() as u64);
        self.parts().iter().for_each(Part::empty);
    }

    /// Checks the chunk's own invariants. No other thread may use the chunk meanwhile. Returns the number of its
    /// entries, and the bytes of their keys.
    pub(super) fn check<F: ChunkForm>(&self) -> (usize, usize) {
        let count = self.count(&Alone);
        assert!(self.sorted.load() as usize <= count, "the reserve is a part of the entries");
        assert_eq!(self.is_scattered(&Alone), !self.scatter.load().is_null(), "the mark of a scattered chunk");
        assert!(self.is_scattered(&Alone) || self.entries_now() == count, "a quiet chunk's entries are dense");
        let mut bytes = self.check_slots::<F>(|_, _| ());
        for (index, part) in self.parts().iter().enumerate() {
            assert!(part.lock.read().is_some(), "parts are neither locked nor obsolete");
            assert_eq!(part.entries_now(), part.count(&Alone), "a part's entries are dense");
            bytes += part.check_slots::<F>(|tag, key| {
                assert_eq!(usize::from(tag) % PARTS, index, "an entry lies in the part of its tag");
                assert_eq!(settled(self.find::<F>(&Alone, key, tag)), None, "a key is in one place");
            });
        }
        let reserve = self.live(&Alone) & first(self.sorted.load() as usize);
        for (before, this) in each_of(reserve).zip(each_of(reserve).skip(1)) {
            let [before, this] = [before, this].map(|slot| self.pair(&Alone, slot).0);
            assert!(compare::<F>(before, this).is_lt(), "the reserve ascends");
        }
        let all = self.gather::<F>().pairs;
        assert!(all.windows(2).all(|pair| compare::<F>(pair[0].0, pair[1].0).is_lt()), "no key is there twice");
        if let (Some(first), Some(last)) = (all.first(), all.last()) {
            // SAFETY: the words are keys of a page that no thread changes.
            let (first, last) = unsafe { (F::kept(first.0), F::kept(last.0)) };
            assert!(F::compare(self.low::<F>(), first).is_le(), "keys are not below their chunk");
            let within = |high| settled(order::<F>(&Alone, high, last)).is_gt();
            assert!(self.next.load().is_null() || within(self.high.load()), "keys are not above their chunk");
        }
        (all.len(), bytes)
    }
}

/// Checks of slots.
trait CheckSlots: Slots {
    fn check_slots<F: ChunkForm>(&self, each: impl Fn(u8, F::Probe<'_>)) -> usize {
        let count = self.count(&Alone);
        let tags = (0..self.entries().len()).map(|slot| self.tag(&Alone, slot));
        assert!(tags.enumerate().all(|(slot, tag)| (tag != 0) == (slot < count)), "used slots are dense");
        each_of(self.live(&Alone))
            .map(|slot| {
                // SAFETY: the word is a key of a page that no thread changes.
                let key = unsafe { F::kept(self.pair(&Alone, slot).0) };
                assert_eq!(self.tag(&Alone, slot), F::slot_tag(key), "a slot's tag is its key's");
                each(F::slot_tag(key), key);
                F::kept_bytes(key)
            })
            .sum()
    }
}

impl<P: Slots> CheckSlots for P {}

/// Compares the keys of two words, which the caller may read.
fn compare<F: ChunkForm>(a: u64, b: u64) -> core::cmp::Ordering {
    // SAFETY: the words are keys of a page that only the caller changes, or of a proven copy under the caller's guard.
    unsafe { F::compare(F::kept(a), F::kept(b)) }
}

/// Up to this many entries are inserted into a sorted run one by one. More entries are sorted first, and then merged
/// with the run.
const FEW: usize = 16;

/// Sorts entries whose keys the caller may read. The first `run` entries must be in order.
pub(super) fn sort<F: ChunkForm>(pairs: &mut [(u64, u64)], run: usize) {
    if pairs.len() - run > FEW {
        pairs[run..].sort_unstable_by(|a, b| compare::<F>(a.0, b.0));
        return merge::<F>(pairs, run);
    }
    for at in run..pairs.len() {
        let pair = pairs[at];
        let place = pairs[..at].partition_point(|before| compare::<F>(before.0, pair.0).is_lt());
        pairs.copy_within(place..at, place + 1);
        pairs[place] = pair;
    }
}

/// Merges two adjacent runs, from the greatest entry down, so that the least entries are already in place.
fn merge<F: ChunkForm>(pairs: &mut [(u64, u64)], run: usize) {
    let right = pairs[run..].to_vec();
    let (mut left, mut right) = (run, &right[..]);
    while let (Some((last, others)), true) = (right.split_last(), left > 0) {
        let from_left = compare::<F>(pairs[left - 1].0, last.0).is_gt();
        let to = left + right.len() - 1;
        if from_left {
            left -= 1;
            pairs[to] = pairs[left];
        } else {
            pairs[to] = *last;
            right = others;
        }
    }
    pairs[..right.len()].copy_from_slice(right);
}
