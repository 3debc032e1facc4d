//! The operation log from which replicas are updated. It is the log of node replication (Calciu et al., §3.4, §3.5 and
//! "log length" in §3.9). `archipelago-replicate` and the log-fed B-link trees of `archipelago-index` share this
//! module.
//!
//! The log is one sequence of operations, numbered from 0. *Combiners* (threads that append batches of operations for
//! others) append to it, and every replica replays all of it in order. The entries are stored in a circular array whose
//! length is a power of two. These words describe the log's state:
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `tail` (the paper's *logTail*) | combiners, by compare-and-exchange | first index that no thread has reserved |
//! | `local_tails[r]` | replica `r`'s combiner | replica `r` has applied all operations below this index |
//! | `completed` (*completedTail*) | the threads that replay | no operation at or above this index was answered or seen by a reader |
//! | `min` (*logMin*) | the recycler | operations below this index were applied by all replicas; they are dropped, and their entries may be reused |
//!
//! Invariants, asserted in debug builds:
//! - `min <= local_tails[r] <= tail`, and `completed <= tail`.
//! - `tail <= max(min, base) + capacity`, with the base and the capacity of `tail`'s generation. The last of these
//!   entries contains a mark (see "Growing and shrinking") or nothing.
//! - A reserved entry is empty until the thread that reserved it fills it.
//!
//! # Appending
//! A combiner reserves the entries of a batch with one compare-and-exchange on `tail`. It then fills them in parallel
//! with other combiners. Each entry has a state word that says whether the entry is filled (see [`segment`]).
//! Operations are moved into the log. Every replica reads them in place, and the recycler drops each of them once.
//!
//! # Recycling
//! A thread that has appended checks how much of the array is in use. If more than a quarter (the paper's low mark) is
//! in use, the thread advances `min` to the least of the `local_tails`. A try-lock admits one recycling thread at a
//! time.
//!
//! # Growing and shrinking
//! One entry is always kept free. If the log is full in spite of recycling, a thread may reserve this last entry and
//! fill it with a *mark*. After the mark, the log continues in a new array, a *segment* of twice the size. The stretch
//! of the log in one segment is a *generation* (see [`generations`]). The log shrinks in the same way: if it was at
//! most half full during a whole pass over its array, it continues in a segment of half the size.
//!
//! Each replica changes to the new segment when it replays the mark. The old segment is freed when all replicas have
//! changed. The word `tail` contains the generation beside the index, so a reservation identifies its segment. A
//! segment is freed only after all its entries were filled and replayed. A thread with an unfilled reservation
//! therefore keeps the segment of this reservation alive.

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
use segment::{Content, Entry};

/// Number of bits of the packed tail that contain the index. At a billion operations per second, they last for four
/// years.
const INDEX_BITS: u32 = 57;
const GENERATION_BITS: u32 = 6;
const MOVING: u64 = 1 << 63;

/// The unpacked value of the word `tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    index: u64,
    generation: usize,
    /// Whether a change of segment is in progress. Then the last reserved entry is its mark, and no thread may reserve
    /// an entry after the mark.
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

/// A position in the log, with the data needed to find the entry at this position.
struct Position<Op> {
    index: u64,
    generation: usize,
    /// Index of the generation's first entry.
    base: u64,
    /// The generation's capacity is 2 to the power of `bits`.
    bits: u32,
    entries: NonNull<Entry<Op>>,
}

impl<Op> Position<Op> {
    /// Returns the entry at this position.
    ///
    /// # Safety
    /// The position's segment is not freed while the reference is in use.
    #[inline]
    unsafe fn entry<'a>(&self) -> &'a Entry<Op> {
        let at = (self.index - self.base) as usize & ((1 << self.bits) - 1);
        // SAFETY: `at` is less than the segment's capacity; the caller keeps the segment alive.
        unsafe { self.entries.add(at).as_ref() }
    }

    /// Returns how many times the log had passed over the whole array before it reached this position.
    #[inline]
    fn pass(&self) -> u64 {
        (self.index - self.base) >> self.bits
    }
}

/// A replica's read position in the log. Each replica has one cursor, made together with the log. Only the owner of the
/// cursor replays operations for this replica.
pub struct Cursor<Op> {
    log: Arc<()>,
    reader: usize,
    place: Position<Op>,
}

// SAFETY: a cursor only points into the log, which may be shared between threads (see `Segment`).
unsafe impl<Op: Send + Sync> Send for Cursor<Op> {}

impl<Op> Cursor<Op> {
    /// Returns the index of the first operation that was not replayed yet.
    #[inline]
    pub fn index(&self) -> u64 {
        self.place.index
    }
}

/// The error for a batch that does not fit into the log at present.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// The operation log. See [the module](self).
pub struct Log<Op> {
    /// Identifies the log, so that cursors of other logs are refused. In a cache line of its own for the same reason as
    /// `local_tails`.
    identity: CachePadded<Arc<()>>,
    tail: CachePadded<AtomicU64>,
    completed: CachePadded<AtomicU64>,
    min: CachePadded<AtomicU64>,
    /// In a cache line of its own: every reader reads this pointer, and the fields after it change often.
    local_tails: CachePadded<Box<[CachePadded<AtomicU64>]>>,
    recycler: Recycler<Op>,
    /// In a cache line of its own: every combiner reads the sizes, and the recycler's lock changes often.
    generations: CachePadded<Generations<Op>>,
}

impl<Op: Send + Sync> Log<Op> {
    /// Makes a log for `readers` replicas with `capacity` entries, which may grow to `largest` entries. Both numbers
    /// are rounded up to powers of two, from 2 up to the largest segment (512 MiB). Also returns the replicas' cursors,
    /// in the order of the replicas.
    ///
    /// # Panics
    /// If `readers` is 0: entries are recycled up to the least position of all readers, so at least one must exist.
    pub fn new(readers: usize, capacity: usize, largest: usize) -> (Self, Vec<Cursor<Op>>) {
        assert!(readers > 0, "a log has at least one reader");
        let generations = CachePadded::new(Generations::new(capacity, largest));
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
        // Acquire: pairs with the Release of `move_on`, so the generation's base and segment are visible to this
        // thread.
        Tail::unpack(self.tail.load(Ordering::Acquire))
    }

    /// Returns the first index that no thread has reserved.
    pub fn tail(&self) -> u64 {
        self.tail_now().index
    }

    /// Returns the index below which replica `reader` has applied all operations.
    #[inline]
    pub fn local_tail(&self, reader: usize) -> u64 {
        // Acquire: pairs with the Release in `replay`.
        self.local_tails[reader].load(Ordering::Acquire)
    }

    /// Returns the completed tail: no operation at or above this index was answered or seen by a reader.
    #[inline]
    pub fn completed(&self) -> u64 {
        // Acquire: pairs with the Release of `complete`.
        self.completed.load(Ordering::Acquire)
    }

    /// Raises the completed tail to `index`. The caller does this before an operation below `index` is answered, and
    /// before a reader can see such an operation.
    #[inline]
    pub fn complete(&self, index: u64) {
        debug_assert!(index <= self.tail(), "only what was appended is completed");
        if self.completed.load(Ordering::Relaxed) < index {
            // AcqRel: the Release half pairs with the Acquire of `completed`. The caller answers the waiting thread
            // later, with a Release of its own, which orders the answer after this update. So a thread that has
            // received the answer reads at least `index` from `completed`.
            self.completed.fetch_max(index, Ordering::AcqRel);
        }
    }

    /// Returns the length of the longest batch that can ever fit.
    pub fn longest_batch(&self) -> usize {
        (1 << self.generations.largest_bits()) - 1
    }

    /// Returns the number of entries of the current segment.
    pub fn capacity(&self) -> usize {
        1 << self.generations.bits(self.tail_now().generation)
    }

    /// Returns how many times the log has grown.
    pub fn growths(&self) -> u64 {
        self.generations.growths()
    }

    /// Returns the size of all segments in bytes, without the memory that the operations own elsewhere.
    pub fn bytes(&self) -> usize {
        self.generations.bytes()
    }

    /// Returns the number of entries that were reserved and not recycled yet.
    #[inline]
    pub fn in_use(&self) -> u64 {
        // `min` is read first: if it were read second, it could be greater than the tail that was read before.
        let min = self.min.load(Ordering::Acquire);
        self.tail() - min
    }

    /// Returns the index below which all entries were recycled.
    pub fn recycled(&self) -> u64 {
        // Acquire: pairs with the Release of the recycler. So the destructors of the operations below have run.
        self.min.load(Ordering::Acquire)
    }

    /// Reserves `count` consecutive entries. The caller fills them without delay, because replicas wait for them.
    ///
    /// # Errors
    /// Returns `Full` if the log has no room, because some replica has not applied the old operations yet. The caller
    /// then replays operations, calls [`recycle`](Self::recycle) or [`grow`](Self::grow), or waits, and tries again.
    ///
    /// # Panics
    /// If `count` is 0: only reserved entries keep the reservation's segment alive.
    pub fn reserve(&self, count: usize) -> Result<Reservation<'_, Op>, Full> {
        assert!(count > 0, "a reservation has at least one entry");
        let count = count as u64;
        let backoff = Backoff::new();
        loop {
            let tail = self.tail_now();
            if tail.moving {
                backoff.wait();
                continue;
            }
            // The generation's extent and `min` may be newer than `tail`. If they are, the compare-and-exchange fails.
            let (base, bits) = self.generations.extent(tail.generation);
            // Acquire: pairs with the Release of the recycler. So the old operation is dropped before its entry is
            // filled again.
            let low = self.min.load(Ordering::Acquire).max(base);
            // One entry is kept free for the mark.
            if tail.index.saturating_add(count) >= low.saturating_add(1 << bits) {
                return Err(Full);
            }
            let next = Tail { index: tail.index + count, ..tail }.pack();
            // Relaxed: this exchange publishes only the index. A read-modify-write of any ordering continues the
            // release sequence that `move_on` begins.
            if self.tail.compare_exchange(tail.pack(), next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // SAFETY of `place`: a segment with a reserved, unfilled entry is not freed (see the module's text).
                let place = self.generations.place(tail.generation, tail.index);
                return Ok(Reservation { log: self, place, left: count });
            }
            backoff.wait();
        }
    }

    /// Returns whether the number of entries not recycled yet exceeds the segment's capacity divided by `part`.
    #[inline]
    pub fn lag_exceeds(&self, part: u64) -> bool {
        let min = self.min.load(Ordering::Acquire);
        let tail = self.tail_now();
        tail.index - min > (1 << self.generations.bits(tail.generation)) / part
    }

    fn assert_of_this(&self, cursor: &Cursor<Op>) {
        assert!(Arc::ptr_eq(&self.identity, &cursor.log), "a cursor of another log");
    }

    /// Returns the end of the run of filled entries that begins at the cursor, but at most `until`.
    ///
    /// # Panics
    /// If the cursor belongs to another log.
    pub fn filled_until(&self, cursor: &Cursor<Op>, until: u64) -> u64 {
        debug_assert!(until <= self.tail());
        self.assert_of_this(cursor);
        let place = &cursor.place;
        let mut probe = Position { ..*place };
        while probe.index < until {
            // SAFETY: the cursor's replica has not moved past this entry, so its segment is not freed.
            match unsafe { probe.entry() }.kind(probe.pass()) {
                None => break,
                // After the mark the log continues in another segment, which this cursor has not reached yet.
                Some(Content::Moved) => return probe.index + 1,
                Some(_) => probe.index += 1,
            }
        }
        probe.index
    }

    /// Calls `show` with the operation at the cursor, if the entry contains one.
    ///
    /// # Panics
    /// If the cursor belongs to another log.
    pub fn peek(&self, cursor: &Cursor<Op>, show: impl FnOnce(&Op)) {
        self.assert_of_this(cursor);
        // SAFETY: as in `filled_until`.
        let entry = unsafe { cursor.place.entry() };
        if entry.kind(cursor.place.pass()) == Some(Content::Operation) {
            // SAFETY: the entry contains an operation, and is not recycled while the replica's local tail is not past
            // it.
            unsafe { entry.with(show) }
        }
    }

    /// Calls `apply` with the index and the operation of each entry from the cursor up to `until`, in order. Skips
    /// entries without an operation. Stops early at an entry that is not filled yet. At the end, all operations before
    /// the cursor count as applied by its replica.
    ///
    /// If `apply` panics, the cursor is left between its old position and `until`, and no further operation counts as
    /// applied.
    ///
    /// # Panics
    /// If the cursor belongs to another log.
    pub fn replay(&self, cursor: &mut Cursor<Op>, until: u64, mut apply: impl FnMut(u64, &Op)) {
        self.assert_of_this(cursor);
        let from = cursor.place.index;
        let place = &mut cursor.place;
        while place.index < until {
            // SAFETY: as in `filled_until`.
            let entry = unsafe { place.entry() };
            match entry.kind(place.pass()) {
                None => break,
                // SAFETY: the entry contains an operation. It is not recycled before this replica's local tail is past
                // it, and the local tail is stored below.
                Some(Content::Operation) => unsafe { entry.with(|operation| apply(place.index, operation)) },
                Some(Content::Void) => {}
                Some(Content::Moved) => {
                    *place = self.generations.place(generations::after(place.generation), place.index + 1);
                    continue;
                }
            }
            place.index += 1;
        }
        if place.index > from {
            debug_assert!(self.min.load(Ordering::Relaxed) <= from && place.index <= self.tail());
            debug_assert_eq!(self.local_tails[cursor.reader].load(Ordering::Relaxed), from, "one cursor per replica");
            // Release: pairs with the Acquire of `local_tail`. So a recycler that reads this value drops the operations
            // only after they were read here.
            self.local_tails[cursor.reader].store(place.index, Ordering::Release);
        }
    }
}

/// Entries that the holder has reserved and must fill. Entries that are still unfilled when the reservation is dropped
/// are filled with nothing.
pub struct Reservation<'l, Op: Send + Sync> {
    log: &'l Log<Op>,
    place: Position<Op>,
    left: u64,
}

impl<Op: Send + Sync> Reservation<'_, Op> {
    /// Returns the range of indices that are still to be filled.
    pub fn range(&self) -> Range<u64> {
        self.place.index..self.place.index + self.left
    }

    /// Fills the next entry.
    ///
    /// # Panics
    /// If all entries are filled.
    #[inline]
    pub fn fill(&mut self, operation: Op) {
        assert!(self.left > 0, "more operations than reserved entries");
        debug_assert!(self.place.index < self.log.tail());
        // SAFETY: `self` has reserved the entry, and `reserve` found room only after its previous use was recycled.
        unsafe { self.place.entry().fill(self.place.pass(), operation) };
        self.place.index += 1;
        self.left -= 1;
    }
}

impl<Op: Send + Sync> Drop for Reservation<'_, Op> {
    fn drop(&mut self) {
        while self.left > 0 {
            // SAFETY: as in `fill`: the segment of a reserved, unfilled entry is not freed.
            unsafe { self.place.entry() }.publish(self.place.pass(), Content::Void);
            self.place.index += 1;
            self.left -= 1;
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
