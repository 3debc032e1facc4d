//! An operation log that replicas are fed from: node replication's (Calciu et al., §3.4, §3.5 and "log length" in §3.9), which
//! `archipelago-replicate` and the log-fed B-link trees of `archipelago-index` share.
//!
//! One sequence of operations, numbered from 0, that combiners append to and every replica replays. It lives in a
//! circular array of a power of two of entries. Indices:
//!
//! | word | who writes it | meaning |
//! |---|---|---|
//! | `tail` (the paper's *logTail*) | combiners, by compare-and-exchange | first index that no thread reserved |
//! | `local_tails[r]` | replica `r`'s combiner | replica `r` has applied everything below |
//! | `completed` (*completedTail*) | who replays | no operation at or above it was answered, or seen by a reader |
//! | `min` (*logMin*) | the recycler | entries below were applied everywhere, are dropped and may be reused |
//!
//! Invariants, asserted in debug builds: `min <= local_tails[r] <= tail`, `completed <= tail`,
//! `tail <= max(min, base) + capacity` with base and capacity of `tail`'s generation (the last of these entries holds a
//! mark or nothing), and a reserved entry is empty until the thread that reserved it fills it.
//!
//! # Appending
//! A batch is reserved with one compare-and-exchange on `tail` and filled at leisure, in parallel with other combiners;
//! each entry's state word says when it is filled (see [`segment`]). Operations are moved in, read in place by every
//! replica and dropped once, by the recycler.
//!
//! # Recycling
//! A thread that has appended and finds more than a quarter of the array in use (the paper's low mark) advances `min`
//! to the least `local_tails`; a try-lock keeps it to one thread at a time.
//!
//! # Growing and shrinking
//! One entry is always kept free. A thread that finds the log full in spite of recycling may reserve that one, fill it
//! with a mark, and let the log go on behind it in a segment of twice the size: its *generation* (see [`generations`]).
//! A log that was not even half full for a whole pass over its array goes on in one of half the size in the same way.
//! Replicas change over when they replay the mark, and the old segment is freed when all have. `tail` carries the
//! generation beside the index, so that a reservation names the segment it is in; since a segment can not be freed
//! before all its entries were filled and replayed, a successful reservation keeps its own segment alive.

mod generations;
mod recycle;
mod segment;

use core::ops::Range;
use core::ptr::NonNull;

use crate::backoff::Backoff;
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Arc;

use generations::{GENERATIONS, Generations};
use recycle::Recycler;
use segment::{Entry, Kind};

/// Bits of the packed tail that are the index: at a billion operations a second, enough for four years.
const INDEX_BITS: u32 = 57;
const GENERATION_BITS: u32 = 6;
const MOVING: u64 = 1 << 63;

/// What the word `tail` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    index: u64,
    generation: usize,
    /// The last entry reserved is the mark of a change of segment under way: no thread may reserve behind it yet.
    moving: bool,
}

impl Tail {
    fn unpack(word: u64) -> Self {
        Self {
            index: word & ((1 << INDEX_BITS) - 1),
            generation: (word >> INDEX_BITS) as usize & ((1 << GENERATION_BITS) - 1),
            moving: word & MOVING != 0,
        }
    }

    fn pack(self) -> u64 {
        debug_assert!(self.index < 1 << INDEX_BITS && self.generation < GENERATIONS);
        self.index | (self.generation as u64) << INDEX_BITS | if self.moving { MOVING } else { 0 }
    }
}

/// A place in the log, with what it takes to find the entry there.
struct Place<Op> {
    index: u64,
    generation: usize,
    /// Index of the generation's first entry.
    base: u64,
    /// Of the generation's capacity.
    bits: u32,
    entries: NonNull<Entry<Op>>,
}

impl<Op> Place<Op> {
    /// The entry at this place.
    ///
    /// # Safety
    /// The place's segment is not freed as long as the reference lives.
    #[inline]
    unsafe fn entry<'a>(&self) -> &'a Entry<Op> {
        let at = (self.index - self.base) as usize & ((1 << self.bits) - 1);
        // SAFETY: `at` is below the segment's capacity; the caller keeps the segment.
        unsafe { self.entries.add(at).as_ref() }
    }

    /// How often the log went over the array before it came to this place.
    #[inline]
    fn pass(&self) -> u64 {
        (self.index - self.base) >> self.bits
    }
}

/// A replica's place in the log. There is one for each, made with the log, and who has it is the only one to replay.
pub struct Cursor<Op> {
    log: Arc<()>,
    reader: usize,
    place: Place<Op>,
}

// SAFETY: a cursor only points into the log, which threads share (see `Segment`).
unsafe impl<Op: Send + Sync> Send for Cursor<Op> {}

impl<Op> Cursor<Op> {
    /// The index of the first operation not replayed yet.
    #[inline]
    pub fn index(&self) -> u64 {
        self.place.index
    }
}

/// Tells that a batch does not fit at present.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// The log. See the module's text.
pub struct Log<Op> {
    /// Which log it is: cursors of others are refused. Apart, as `local_tails`.
    identity: CachePadded<Arc<()>>,
    tail: CachePadded<AtomicU64>,
    completed: CachePadded<AtomicU64>,
    min: CachePadded<AtomicU64>,
    /// Apart, since every reader comes by and what follows changes.
    local_tails: CachePadded<Box<[CachePadded<AtomicU64>]>>,
    recycler: Recycler<Op>,
    generations: Generations<Op>,
}

impl<Op: Send + Sync> Log<Op> {
    /// A log for `readers` replicas with room for `capacity` entries, which may grow to `largest`; both are rounded to
    /// powers of two. The cursors are the replicas', in order.
    pub fn new(readers: usize, capacity: usize, largest: usize) -> (Self, Vec<Cursor<Op>>) {
        let generations = Generations::new(capacity, largest);
        let log = Self {
            identity: CachePadded::new(Arc::new(())),
            tail: CachePadded::new(AtomicU64::new(0)),
            completed: CachePadded::new(AtomicU64::new(0)),
            min: CachePadded::new(AtomicU64::new(0)),
            local_tails: CachePadded::new((0..readers).map(|_| CachePadded::new(AtomicU64::new(0))).collect()),
            recycler: Recycler::new(generations.place(0, 0)),
            generations,
        };
        let cursor = |reader| Cursor { log: Arc::clone(&log.identity), reader, place: log.generations.place(0, 0) };
        let cursors = (0..readers).map(cursor).collect();
        (log, cursors)
    }

    fn tail_now(&self) -> Tail {
        // Acquire: pairs with the Release of `move_on`, so that the generation's base and segment are seen.
        Tail::unpack(self.tail.load(Ordering::Acquire))
    }

    /// First index that no thread reserved.
    pub fn tail(&self) -> u64 {
        self.tail_now().index
    }

    /// Below this index everything was applied by replica `reader`.
    #[inline]
    pub fn local_tail(&self, reader: usize) -> u64 {
        // Acquire: pairs with the Release in `replay`.
        self.local_tails[reader].load(Ordering::Acquire)
    }

    /// No operation at or above this index has been answered, or seen by a reader.
    #[inline]
    pub fn completed(&self) -> u64 {
        // Acquire: pairs with the Release of `complete`.
        self.completed.load(Ordering::Acquire)
    }

    /// Raises the completed tail to `index`, to be called before an operation below it is answered and before a reader can
    /// see it.
    #[inline]
    pub fn complete(&self, index: u64) {
        debug_assert!(index <= self.tail(), "only what was appended is completed");
        if self.completed.load(Ordering::Relaxed) < index {
            // AcqRel: the Release half pairs with `completed`. A later answer to the waiting thread is ordered behind
            // this by its own Release, so the thread that heard of the answer reads at least `index`.
            self.completed.fetch_max(index, Ordering::AcqRel);
        }
    }

    /// The longest batch that can ever fit.
    pub fn longest_batch(&self) -> usize {
        (1 << self.generations.largest_bits()) - 1
    }

    /// Entries of the present segment.
    pub fn capacity(&self) -> usize {
        1 << self.generations.bits(self.tail_now().generation)
    }

    /// How often the log has grown.
    pub fn growths(&self) -> u64 {
        self.generations.growths()
    }

    /// Bytes of all segments, without what the operations own elsewhere.
    pub fn bytes(&self) -> usize {
        self.generations.bytes()
    }

    /// How many entries were reserved and not taken back yet.
    #[inline]
    pub fn in_use(&self) -> u64 {
        // `min` first: later it may be beyond the tail read before.
        let min = self.min.load(Ordering::Acquire);
        self.tail() - min
    }

    /// Reserves `count` entries in a row, to be filled by the caller without delay: replicas wait for them.
    ///
    /// # Errors
    /// If there is no room: some replica has not applied what lies there. Then replay, [`recycle`](Self::recycle),
    /// [`grow`](Self::grow) or wait, and try again.
    pub fn reserve(&self, count: usize) -> Result<Reservation<'_, Op>, Full> {
        let count = count as u64;
        let backoff = Backoff::new();
        loop {
            let tail = self.tail_now();
            if tail.moving {
                backoff.wait();
                continue;
            }
            // What is read of the generation, and `min`, may be newer than `tail`; then the exchange fails.
            let (base, bits) = self.generations.extent(tail.generation);
            // Acquire: pairs with the Release of the recycler, so that filling comes after the drop of what was there.
            let low = self.min.load(Ordering::Acquire).max(base);
            // One entry stays free for the mark.
            if tail.index + count >= low.saturating_add(1 << bits) {
                return Err(Full);
            }
            let next = Tail { index: tail.index + count, ..tail }.pack();
            // Relaxed: nothing is published here but the number, and an exchange of whatever ordering continues the
            // release sequence of `move_on`.
            if self.tail.compare_exchange(tail.pack(), next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // SAFETY of the place: reserved entries of a segment keep it from being freed (module's text).
                let place = self.generations.place(tail.generation, tail.index);
                return Ok(Reservation { log: self, place, left: count });
            }
            backoff.wait();
        }
    }

    /// Whether more entries than the capacity divided by `part` were not taken back yet.
    #[inline]
    pub fn lag_exceeds(&self, part: u64) -> bool {
        let min = self.min.load(Ordering::Acquire);
        let tail = self.tail_now();
        tail.index - min > (1 << self.generations.bits(tail.generation)) / part
    }

    fn assert_of_this(&self, cursor: &Cursor<Op>) {
        assert!(Arc::ptr_eq(&self.identity, &cursor.log), "a cursor of another log");
    }

    /// The end of the filled entries in a row from the cursor on, `until` at most.
    ///
    /// # Panics
    /// If the cursor is another log's.
    pub fn filled_until(&self, cursor: &Cursor<Op>, until: u64) -> u64 {
        debug_assert!(until <= self.tail());
        self.assert_of_this(cursor);
        let place = &cursor.place;
        let mut probe = Place { ..*place };
        while probe.index < until {
            // SAFETY: the cursor's replica has not gone past this entry, so its segment is not freed.
            match unsafe { probe.entry() }.kind(probe.pass()) {
                None => break,
                // Behind the mark there is another segment: look there when the cursor is there.
                Some(Kind::Moved) => return probe.index + 1,
                Some(_) => probe.index += 1,
            }
        }
        probe.index
    }

    /// Shows the operation at the cursor, if there is one.
    ///
    /// # Panics
    /// If the cursor is another log's.
    pub fn peek(&self, cursor: &Cursor<Op>, show: impl FnOnce(&Op)) {
        self.assert_of_this(cursor);
        // SAFETY: as in `filled_until`.
        let entry = unsafe { cursor.place.entry() };
        if entry.kind(cursor.place.pass()) == Some(Kind::Operation) {
            // SAFETY: it holds an operation, and is not recycled as long as the replica's local tail stands before it.
            unsafe { entry.with(show) }
        }
    }

    /// Calls `apply` with every operation from the cursor up to `until` and its index, in order, and stops early at an
    /// entry that is not filled yet. Then everything below the cursor counts as applied by its replica.
    ///
    /// If `apply` panics, the cursor stands somewhere on the way and nothing counts as applied.
    ///
    /// # Panics
    /// If the cursor is another log's.
    pub fn replay(&self, cursor: &mut Cursor<Op>, until: u64, mut apply: impl FnMut(u64, &Op)) {
        self.assert_of_this(cursor);
        let from = cursor.place.index;
        let place = &mut cursor.place;
        while place.index < until {
            // SAFETY: as in `filled_until`.
            let entry = unsafe { place.entry() };
            match entry.kind(place.pass()) {
                None => break,
                // SAFETY: it holds an operation, and is not recycled before this replica's local tail is behind it,
                // which happens below.
                Some(Kind::Operation) => unsafe { entry.with(|operation| apply(place.index, operation)) },
                Some(Kind::Void) => {}
                Some(Kind::Moved) => {
                    *place = self.generations.place(generations::after(place.generation), place.index + 1);
                    continue;
                }
            }
            place.index += 1;
        }
        if place.index > from {
            debug_assert!(self.min.load(Ordering::Relaxed) <= from && place.index <= self.tail());
            debug_assert_eq!(self.local_tails[cursor.reader].load(Ordering::Relaxed), from, "one cursor per replica");
            // Release: pairs with the Acquire of `recycle`, so that the operations are read before they are dropped,
            // and with that of `local_tail`.
            self.local_tails[cursor.reader].store(place.index, Ordering::Release);
        }
    }
}

/// Entries that the holder reserved and has to fill. Those left over when it is dropped are filled with nothing.
pub struct Reservation<'l, Op: Send + Sync> {
    log: &'l Log<Op>,
    place: Place<Op>,
    left: u64,
}

impl<Op: Send + Sync> Reservation<'_, Op> {
    /// The indices still to be filled.
    pub fn range(&self) -> Range<u64> {
        self.place.index..self.place.index + self.left
    }

    /// Fills the next entry.
    ///
    /// # Panics
    /// If all are filled.
    #[inline]
    pub fn fill(&mut self, operation: Op) {
        assert!(self.left > 0, "more operations than reserved entries");
        debug_assert!(self.place.index < self.log.tail());
        // SAFETY: the entry is reserved by `self` and the last pass over it was recycled before `reserve` found room.
        unsafe { self.place.entry().fill(self.place.pass(), operation) };
        self.place.index += 1;
        self.left -= 1;
    }
}

impl<Op: Send + Sync> Drop for Reservation<'_, Op> {
    fn drop(&mut self) {
        while self.left > 0 {
            // SAFETY: as in `fill`: an unfilled entry of ours keeps its segment.
            unsafe { self.place.entry() }.publish(self.place.pass(), Kind::Void);
            self.place.index += 1;
            self.left -= 1;
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
