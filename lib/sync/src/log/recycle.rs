//! Recycling, the log's memory reclamation: it drops the operations that every replica has applied, makes their entries
//! reusable, and frees the segments before them.
//!
//! One thread recycles at a time. A thread that finds another thread recycling returns at once. While the recycler's
//! lock is free, the recycler's position in the log equals `min`.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Content, Log, Position, generations};
use archipelago_platform::cell::RaceCell;

/// The position up to which entries were recycled, and the lock that protects it.
pub(super) struct Recycler<Op> {
    busy: AtomicBool,
    place: RaceCell<Position<Op>>,
    /// The tail at the last time that more than half of the segment was found in use. Written only by the holder of
    /// `busy`.
    crowded_at: AtomicU64,
}

// SAFETY: only the holder of `busy` accesses the position. It points into the log, which threads share (see `Segment`).
unsafe impl<Op: Send + Sync> Sync for Recycler<Op> {}
// SAFETY: as above.
unsafe impl<Op: Send + Sync> Send for Recycler<Op> {}

impl<Op> Recycler<Op> {
    pub(super) fn new(start: Position<Op>) -> Self {
        Self { busy: AtomicBool::new(false), place: RaceCell::new(start), crowded_at: AtomicU64::new(0) }
    }

    /// Returns the last index at which the log was found more than half full, or 0.
    pub(super) fn crowded_at(&self) -> u64 {
        self.crowded_at.load(Ordering::Relaxed)
    }
}

/// Held while recycling. Dropping it, also when an operation's destructor panics, raises `min` to the recycler's
/// position and unlocks.
struct Turn<'l, Op>(&'l Log<Op>);

impl<Op> Drop for Turn<'_, Op> {
    fn drop(&mut self) {
        // SAFETY: this thread holds `busy`, so no other thread accesses the position.
        let reached = self.0.recycler.place.with(|place| unsafe { (*place).index });
        // Release: pairs with the Acquire of `reserve`.
        self.0.min.store(reached, Ordering::Release);
        // Release: pairs with the Acquire of the next thread that recycles, which then sees the position.
        self.0.recycler.busy.store(false, Ordering::Release);
    }
}

impl<Op: Send + Sync> Log<Op> {
    /// Recycles the entries that all replicas have applied. Does nothing while another thread recycles. Returns whether
    /// the log has more room than before.
    ///
    /// # Panics
    /// If an operation's destructor panics.
    pub fn recycle(&self) -> bool {
        let busy = &self.recycler.busy;
        if busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let _turn = Turn(self);
        // Acquire, in `local_tail`: the replicas have read the operations before they are dropped here.
        let low = (0..self.local_tails.len()).map(|reader| self.local_tail(reader)).min();
        let low = low.expect("a log has at least one reader");
        // Relaxed: `min` is written only by the holder of `busy`.
        let before = self.min.load(Ordering::Relaxed);
        debug_assert!(before <= low, "a replica can not be behind what was recycled");
        if self.lag_exceeds(2) {
            self.recycler.crowded_at.store(self.tail(), Ordering::Relaxed);
        }
        self.take_back(low);
        before < low
    }
}

impl<Op> Log<Op> {
    /// Drops the operations below `low`, frees the segments that end at or below `low`, and moves the recycler's
    /// position to `low`. The caller holds the recycler's lock (or owns the log), and no thread will read below `low`
    /// any more.
    fn take_back(&self, low: u64) {
        self.recycler.place.with_mut(|place| {
            // SAFETY: the caller holds the lock.
            let place = unsafe { &mut *place };
            while place.index < low {
                let next_base = self.base_after(place.generation);
                debug_assert!(next_base > place.index, "the next generation begins behind this place");
                drop_operations(place, low.min(next_base));
                if place.index == next_base {
                    *place = self.leave_segment(place);
                }
            }
        });
    }

    /// Returns the index at which the generation after `generation` begins, or `u64::MAX`.
    fn base_after(&self, generation: usize) -> u64 {
        // All replicas have moved past the entries that are recycled now, marks included. The Acquire loads of their
        // local tails make the bases of the generations they entered visible to this thread. A base that is not visible
        // yet is therefore not below the entries that are recycled now. This slot may have been used by an earlier
        // generation, long ago. Its base was reset by a recycler that held the lock before this one.
        self.generations.base(generations::after(generation))
    }

    /// Frees the segment at whose end `place` is. Returns the same position in the next segment.
    fn leave_segment(&self, place: &Position<Op>) -> Position<Op> {
        // Only the recycler frees segments, and the recycler frees the next segment later.
        let next = self.generations.place(generations::after(place.generation), place.index);
        // SAFETY: every entry of the segment was filled (otherwise it could not have been replayed) and replayed by all
        // replicas. So neither reservations nor cursors point into it.
        unsafe { self.generations.free(place.generation) };
        next
    }
}

/// Drops the operations from `place` to `end`, which is in the same segment or directly after it.
fn drop_operations<Op>(place: &mut Position<Op>, end: u64) {
    if !core::mem::needs_drop::<Op>() {
        place.index = end;
        return;
    }
    while place.index < end {
        // SAFETY: the recycler's position is in this segment, so the segment is not freed.
        let entry = unsafe { place.entry() };
        let kind = entry.kind(place.pass());
        // The position is moved first, so a destructor that panics is not called a second time.
        place.index += 1;
        if kind == Some(Content::Operation) {
            // SAFETY: all replicas have read the operation, and the recycler's position has moved past it.
            unsafe { entry.drop_operation() };
        }
    }
}

impl<Op> Drop for Log<Op> {
    fn drop(&mut self) {
        // Every reserved entry is filled: a reservation borrows the log, and its drop fills the entries that are left.
        let tail = super::Tail::unpack(self.tail.load(Ordering::Relaxed));
        self.take_back(tail.index);
        // SAFETY: the log is being dropped, so nothing points into its segments.
        unsafe { self.generations.free(tail.generation) };
    }
}
