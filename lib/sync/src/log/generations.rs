//! The segments that the log goes through: each a *generation*, in a slot of a ring of them.
//!
//! The log goes on in the next generation's segment, of twice or half the size, behind a *mark*. A slot is used anew
//! when its segment was freed, so a log may grow and shrink as often as it likes.
//!
//! | a slot's | while it is unused | written by |
//! |---|---|---|
//! | `base` | `u64::MAX` | who moves on, when the mark is reserved; the recycler, before it frees |
//! | `segment` | null | the same; a null is what shows that the slot is free |
//!
//! # Memory
//! Segments live until all replicas have gone through them. One that stays behind pins the segment it stands in and all
//! later ones. Each of those is twice as long as the one before, but for one step down at most: the log shrinks after a
//! whole pass over its segment, and with at most half of it in use, so that a replica which stays is in that segment; and
//! after a pass over the next one it lags by too much. So all segments together have at most two and a half times as many
//! entries as the largest may have.

use core::array;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::topology::{NodeId, Topology};

use super::segment::{Kind, Segment};
use super::{GENERATION_BITS, Log, Place, Tail};

/// How many segments there can be at once. Growing doubles, so that these are more than memory could hold.
pub(super) const GENERATIONS: usize = if cfg!(loom) { 3 } else { 1 << GENERATION_BITS };

/// Bytes of a segment at most: blocks of memory may not be much longer.
const LARGEST_SEGMENT: usize = 512 << 20;

/// The slot of the generation after this one.
pub(super) fn after(generation: usize) -> usize {
    (generation + 1) % GENERATIONS
}

/// A stretch of the log with an array of its own.
struct Generation<Op> {
    /// Index of its first entry.
    base: AtomicU64,
    /// Its capacity, as a power of two.
    bits: AtomicU32,
    segment: AtomicPtr<Segment<Op>>,
}

/// All generations. See the module's text.
pub(super) struct Generations<Op> {
    ring: [Generation<Op>; GENERATIONS],
    /// Capacities of the smallest and the largest segment, as powers of two.
    smallest_bits: u32,
    largest_bits: u32,
    /// Segments are dealt out to this many nodes in turn.
    nodes: usize,
    growths: AtomicU64,
    bytes: AtomicUsize,
}

impl<Op> Generations<Op> {
    /// A first generation with room for `capacity` entries; later ones have at most `largest`.
    pub(super) fn new(capacity: usize, largest: usize) -> Self {
        let longest = (LARGEST_SEGMENT / Segment::<Op>::bytes(1)).max(2).ilog2();
        let bits = |entries: usize| entries.clamp(2, 1 << longest).next_power_of_two().ilog2();
        let smallest_bits = bits(capacity);
        let free = || Generation {
            base: AtomicU64::new(u64::MAX),
            bits: AtomicU32::new(0),
            segment: AtomicPtr::new(ptr::null_mut()),
        };
        let generations = Self {
            ring: array::from_fn(|_| free()),
            smallest_bits,
            largest_bits: bits(largest).max(smallest_bits),
            nodes: if cfg!(loom) { 1 } else { Topology::current().nodes().len() },
            growths: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
        };
        generations.begin(0, 0, smallest_bits, generations.make(0, smallest_bits));
        generations
    }

    pub(super) fn largest_bits(&self) -> u32 {
        self.largest_bits
    }

    pub(super) fn growths(&self) -> u64 {
        self.growths.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Capacity of a generation, as a power of two. As for [`extent`](Self::extent).
    #[inline]
    pub(super) fn bits(&self, generation: usize) -> u32 {
        self.ring[generation].bits.load(Ordering::Relaxed)
    }

    /// Index of a generation's first entry, and its capacity as a power of two. If it was freed meanwhile, those of a
    /// later one or of none.
    #[inline]
    pub(super) fn extent(&self, generation: usize) -> (u64, u32) {
        // Relaxed: how the caller learnt of the generation (Acquire on `tail` or on the mark) came after the stores.
        (self.ring[generation].base.load(Ordering::Relaxed), self.bits(generation))
    }

    /// Index where a generation begins of which the caller may not have heard: `u64::MAX`, or where it begins.
    pub(super) fn base(&self, generation: usize) -> u64 {
        self.ring[generation].base.load(Ordering::Relaxed)
    }

    /// The place of index `index`, which lies in `generation`.
    ///
    /// The caller knows that the generation has begun (from `tail` or from a replayed mark) and that it is not freed.
    pub(super) fn place(&self, generation: usize, index: u64) -> Place<Op> {
        let (base, bits) = self.extent(generation);
        // Relaxed: as in `extent`.
        let segment = NonNull::new(self.ring[generation].segment.load(Ordering::Relaxed));
        let segment = segment.expect("a generation in use has a segment");
        debug_assert!(base <= index);
        // SAFETY: the segment is alive, by the caller's knowledge.
        let entries = unsafe { segment.as_ref() }.entries();
        Place { index, generation, base, bits, entries }
    }

    fn make(&self, generation: usize, bits: u32) -> Box<Segment<Op>> {
        Segment::new(1 << bits, Some(NodeId(generation % self.nodes)))
    }

    fn is_free(&self, generation: usize) -> bool {
        // Acquire: pairs with the Release of `free`, so that what is stored here anew comes after what it reset.
        self.ring[generation].segment.load(Ordering::Acquire).is_null()
    }

    /// Puts a segment into a free slot. To be published to others by the caller.
    fn begin(&self, generation: usize, base: u64, bits: u32, segment: Box<Segment<Op>>) {
        let slot = &self.ring[generation];
        debug_assert!(self.is_free(generation));
        slot.base.store(base, Ordering::Relaxed);
        slot.bits.store(bits, Ordering::Relaxed);
        slot.segment.store(Box::into_raw(segment), Ordering::Relaxed);
        self.bytes.fetch_add(Segment::<Op>::bytes(1 << bits), Ordering::Relaxed);
    }

    /// Frees a generation's segment.
    ///
    /// # Safety
    /// No reservation and no cursor points into it, nor will.
    pub(super) unsafe fn free(&self, generation: usize) {
        let slot = &self.ring[generation];
        self.bytes.fetch_sub(Segment::<Op>::bytes(1 << self.bits(generation)), Ordering::Relaxed);
        slot.base.store(u64::MAX, Ordering::Relaxed);
        // Release: pairs with the Acquire of `is_free`.
        let segment = slot.segment.swap(ptr::null_mut(), Ordering::Release);
        // SAFETY: made by `Box::into_raw`, and no thread has it, by the caller's promise.
        drop(unsafe { Box::from_raw(segment) });
    }
}

impl<Op: Send + Sync> Log<Op> {
    /// Lets the log go on in a segment of twice the size, if it may. Returns whether it (or another thread) did.
    pub fn grow(&self) -> bool {
        let tail = self.tail_now();
        let bits = self.generations.bits(tail.generation) + 1;
        tail.moving || bits <= self.generations.largest_bits && self.move_on(tail, bits)
    }

    /// Lets the log go on in a segment of half the size, if it has shown that it needs no more: see [`Self::grow`]. To
    /// be called now and then, by those who recycle.
    pub fn shrink(&self) {
        let tail = self.tail_now();
        let (base, bits) = self.generations.extent(tail.generation);
        let calm_since = base.max(self.recycler.crowded_at());
        let is_calm = tail.index.saturating_sub(calm_since) >= 1 << bits;
        if bits > self.generations.smallest_bits && is_calm && !tail.moving && !self.lag_exceeds(2) {
            self.move_on(tail, bits - 1);
        }
    }

    /// Lets the log go on behind `tail` in a segment of another size. Returns whether this or another thread moved on or
    /// appended.
    fn move_on(&self, tail: Tail, bits: u32) -> bool {
        debug_assert!(!tail.moving);
        let (base, present) = self.generations.extent(tail.generation);
        // Acquire: pairs with the Release of the recycler, so that the mark is filled in after the drop of what was there.
        let low = self.min.load(Ordering::Acquire).max(base);
        if tail.index >= low.saturating_add(1 << present) {
            // The thread that reserved up to here has heard of a recycling that this one has not.
            return true;
        }
        let new = after(tail.generation);
        if !self.generations.is_free(new) {
            return false;
        }
        let fresh = self.generations.make(new, bits);
        let mark = Tail { index: tail.index + 1, moving: true, ..tail };
        // Acquire: as in `reserve`. The kept entry makes room for the mark.
        if self.tail.compare_exchange(tail.pack(), mark.pack(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread appended or moved on.
            return true;
        }
        let place = self.generations.place(tail.generation, tail.index);
        self.generations.begin(new, mark.index, bits, fresh);
        // SAFETY: the mark's entry was reserved just now, which keeps its segment.
        let entry = unsafe { place.entry() };
        debug_assert!(entry.kind(place.pass()).is_none());
        // Its Release publishes the new generation to replicas.
        entry.publish(place.pass(), Kind::Moved);
        if bits > place.bits {
            self.generations.growths.fetch_add(1, Ordering::Relaxed);
        }
        // Release: publishes it to those who append.
        self.tail.store(Tail { index: mark.index, generation: new, moving: false }.pack(), Ordering::Release);
        true
    }
}
