//! The *generations* of the log: the stretches that are stored in one segment each. Each generation has a slot in a
//! ring of slots.
//!
//! The log continues after a *mark* in the next generation's segment, which has twice or half the size. A slot is used
//! again after its segment was freed. So the log may grow and shrink any number of times.
//!
//! # Memory
//! A segment is kept until all replicas have replayed it. A replica that stops keeps alive the segment in which its
//! cursor is, and all later segments. Each of these is twice as long as the one before it, with at most one exception,
//! where the log shrank by one step. The reason: the log shrinks only after a whole pass over its segment, and only if
//! at most half of this segment is in use. The stopped replica is then in this segment. After a pass over the next
//! segment, the replica lags behind by more than half of that segment, so the log does not shrink again. All segments
//! together therefore have at most two and a half times as many entries as the largest one may have.

use core::array;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::topology::{NodeId, Topology};

use super::segment::{Content, Segment};
use super::{GENERATION_BITS, Log, Position, Tail};

/// The largest number of segments at one time. Since each growth doubles the size, memory is exhausted before this
/// number is reached.
pub(super) const GENERATIONS: usize = if cfg!(loom) { 3 } else { 1 << GENERATION_BITS };

/// Largest size of a segment in bytes: the platform's memory blocks cannot be much longer.
const LARGEST_SEGMENT: usize = 512 << 20;

/// Returns the slot of the generation after this one.
pub(super) fn after(generation: usize) -> usize {
    (generation + 1) % GENERATIONS
}

/// A stretch of the log that is stored in one segment, or an unused slot. The fields are written by the thread that
/// changes the segment, when it has reserved the mark, and by the recycler, before it frees the segment.
struct Generation<Op> {
    /// Index of the generation's first entry; `u64::MAX` while the slot is unused.
    base: AtomicU64,
    /// The segment's capacity is 2 to the power of `bits`.
    bits: AtomicU32,
    /// Null while the slot is unused: this marks the slot as free.
    segment: AtomicPtr<Segment<Op>>,
}

/// All generations of a log. See the module's text.
pub(super) struct Generations<Op> {
    ring: [Generation<Op>; GENERATIONS],
    /// Capacities of the smallest and the largest segment, as exponents of two.
    smallest_bits: u32,
    largest_bits: u32,
    /// The number of NUMA nodes to which the segments are allotted in turn.
    nodes: usize,
    growths: AtomicU64,
    bytes: AtomicUsize,
}

impl<Op> Generations<Op> {
    /// Makes the first generation with room for `capacity` entries. Later generations have at most `largest` entries.
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

    /// Returns a generation's capacity, as an exponent of two. The note on freed generations at
    /// [`extent`](Self::extent) applies.
    #[inline]
    pub(super) fn bits(&self, generation: usize) -> u32 {
        self.ring[generation].bits.load(Ordering::Relaxed)
    }

    /// Returns the index of a generation's first entry, and its capacity as an exponent of two. If the generation was
    /// freed in the meantime, these are the values of a later generation in the same slot, or of an unused slot.
    #[inline]
    pub(super) fn extent(&self, generation: usize) -> (u64, u32) {
        // Relaxed: the caller learnt of the generation by an Acquire load, of `tail` or of the mark. This load makes
        // the generation's stores visible.
        (self.ring[generation].base.load(Ordering::Relaxed), self.bits(generation))
    }

    /// Returns the index at which a generation begins. Returns `u64::MAX` if the begin of the generation is not visible
    /// to the caller.
    pub(super) fn base(&self, generation: usize) -> u64 {
        self.ring[generation].base.load(Ordering::Relaxed)
    }

    /// Returns the position of index `index`, which is in `generation`.
    ///
    /// The caller knows that the generation has begun (from `tail` or from a replayed mark) and that its segment is not
    /// freed.
    pub(super) fn place(&self, generation: usize, index: u64) -> Position<Op> {
        let (base, bits) = self.extent(generation);
        // Relaxed: as in `extent`.
        let segment = NonNull::new(self.ring[generation].segment.load(Ordering::Relaxed));
        let segment = segment.expect("a generation in use has a segment");
        debug_assert!(base <= index);
        // SAFETY: the segment is not freed, by the caller's promise.
        let entries = unsafe { segment.as_ref() }.entries();
        Position { index, generation, base, bits, entries }
    }

    fn make(&self, generation: usize, bits: u32) -> Box<Segment<Op>> {
        Segment::new(1 << bits, Some(NodeId(generation % self.nodes)))
    }

    fn is_free(&self, generation: usize) -> bool {
        // Acquire: pairs with the Release of `free`. So new values are stored in this slot after `free` has reset it.
        self.ring[generation].segment.load(Ordering::Acquire).is_null()
    }

    /// Stores a segment in a free slot. The caller publishes the slot to other threads.
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
    /// No reservation or cursor points into the segment, and none will.
    pub(super) unsafe fn free(&self, generation: usize) {
        let slot = &self.ring[generation];
        self.bytes.fetch_sub(Segment::<Op>::bytes(1 << self.bits(generation)), Ordering::Relaxed);
        slot.base.store(u64::MAX, Ordering::Relaxed);
        // Release: pairs with the Acquire of `is_free`.
        let segment = slot.segment.swap(ptr::null_mut(), Ordering::Release);
        // SAFETY: made by `Box::into_raw`, and no thread uses it, by the caller's promise.
        drop(unsafe { Box::from_raw(segment) });
    }
}

impl<Op: Send + Sync> Log<Op> {
    /// Continues the log in a segment of twice the size, unless the limit is reached. Returns false if the log cannot
    /// grow now. Otherwise this thread or another one has done so, or another thread has appended, and the caller tries
    /// again.
    pub fn grow(&self) -> bool {
        let tail = self.tail_now();
        let bits = self.generations.bits(tail.generation) + 1;
        tail.moving || bits <= self.generations.largest_bits && self.move_on(tail, bits)
    }

    /// Continues the log in a segment of half the size, if the log was at most half full during a whole pass (see
    /// [`Self::grow`] for the opposite). To be called from time to time by the threads that recycle.
    pub fn shrink(&self) {
        let tail = self.tail_now();
        let (base, bits) = self.generations.extent(tail.generation);
        let calm_since = base.max(self.recycler.crowded_at());
        let is_calm = tail.index.saturating_sub(calm_since) >= 1 << bits;
        if bits > self.generations.smallest_bits && is_calm && !tail.moving && !self.lag_exceeds(2) {
            self.move_on(tail, bits - 1);
        }
    }

    /// Continues the log after `tail` in a segment of another size. Returns whether this or another thread changed the
    /// segment or appended.
    fn move_on(&self, tail: Tail, bits: u32) -> bool {
        debug_assert!(!tail.moving);
        let (base, present) = self.generations.extent(tail.generation);
        // Acquire: pairs with the Release of the recycler. So the old operation is dropped before its entry is filled
        // with the mark.
        let low = self.min.load(Ordering::Acquire).max(base);
        if tail.index >= low.saturating_add(1 << present) {
            // `min` is out of date here: the thread that reserved the entries up to `tail` saw a newer value.
            return true;
        }
        let new = after(tail.generation);
        if !self.generations.is_free(new) {
            return false;
        }
        let fresh = self.generations.make(new, bits);
        let mark = Tail { index: tail.index + 1, moving: true, ..tail };
        // Acquire, as in `tail_now`. The mark takes the entry that `reserve` keeps free.
        if self.tail.compare_exchange(tail.pack(), mark.pack(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread appended or changed the segment.
            return true;
        }
        let place = self.generations.place(tail.generation, tail.index);
        self.generations.begin(new, mark.index, bits, fresh);
        // SAFETY: this thread has reserved the mark's entry, which keeps its segment alive.
        let entry = unsafe { place.entry() };
        debug_assert!(entry.kind(place.pass()).is_none());
        // The Release in `publish` makes the new generation visible to replicas.
        entry.publish(place.pass(), Content::Moved);
        if bits > place.bits {
            self.generations.growths.fetch_add(1, Ordering::Relaxed);
        }
        // Release: makes the new generation visible to the threads that append.
        self.tail.store(Tail { index: mark.index, generation: new, moving: false }.pack(), Ordering::Release);
        true
    }
}
