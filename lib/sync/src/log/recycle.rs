//! Taking back what every replica has applied: operations are dropped, entries become reusable, and segments that the
//! log has grown out of are freed.
//!
//! One thread recycles at a time; the thread that finds another at it goes on without. The recycler's own place in the
//! log equals `min` whenever its lock is free.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Kind, Log, Place, generations};
use archipelago_platform::cell::RaceCell;

/// Where recycling has come to, and the lock over that.
pub(super) struct Recycler<Op> {
    busy: AtomicBool,
    place: RaceCell<Place<Op>>,
    /// The tail when more than half of the segment was last found in use. Written under `busy`.
    crowded_at: AtomicU64,
}

// SAFETY: the place is touched under `busy` only; it points into the log, which threads share (see `Segment`).
unsafe impl<Op: Send + Sync> Sync for Recycler<Op> {}
// SAFETY: as above.
unsafe impl<Op: Send + Sync> Send for Recycler<Op> {}

impl<Op> Recycler<Op> {
    pub(super) fn new(start: Place<Op>) -> Self {
        Self { busy: AtomicBool::new(false), place: RaceCell::new(start), crowded_at: AtomicU64::new(0) }
    }

    /// Below this index the log was more than half full at times.
    pub(super) fn crowded_at(&self) -> u64 {
        self.crowded_at.load(Ordering::Relaxed)
    }
}

/// Held while recycling; when it goes, also by a panicking destructor of an operation, `min` is brought up to where
/// recycling has come.
struct Turn<'l, Op>(&'l Log<Op>);

impl<Op> Drop for Turn<'_, Op> {
    fn drop(&mut self) {
        // SAFETY: `busy` is ours, so no other thread touches the place.
        let reached = self.0.recycler.place.with(|place| unsafe { (*place).index });
        // Release: pairs with the Acquire of `reserve`.
        self.0.min.store(reached, Ordering::Release);
        // Release: hands the place over to the next one's Acquire.
        self.0.recycler.busy.store(false, Ordering::Release);
    }
}

impl<Op: Send + Sync> Log<Op> {
    /// Takes back what all replicas have applied. Does nothing while another thread does it. Returns whether there is
    /// more room than before.
    ///
    /// # Panics
    /// If an operation's destructor does.
    pub fn recycle(&self) -> bool {
        let busy = &self.recycler.busy;
        if busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let _turn = Turn(self);
        // Acquire in `local_tail`: the replicas have read what is dropped now.
        let low =
            (0..self.local_tails.len()).map(|reader| self.local_tail(reader)).min().unwrap_or_else(|| self.tail());
        // Relaxed: written under `busy` only.
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
    /// Drops the operations below `low`, frees the segments that lie below it, and moves the recycler's place there.
    /// The caller has the recycler's lock (or the log for itself), and no thread will read below `low` any more.
    fn take_back(&self, low: u64) {
        self.recycler.place.with_mut(|place| {
            // SAFETY: the caller has the lock.
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

    /// The index where the generation after `generation` begins.
    fn base_after(&self, generation: usize) -> u64 {
        // All replicas are past everything that is taken back, marks included, which the Acquire of their local tails
        // hands on. A base not seen yet is not below what is taken back now; that of a generation that was in this slot
        // long ago was reset by a recycler, before this one.
        self.generations.base(generations::after(generation))
    }

    /// Frees the segment that `place` stands at the end of; the place's successor.
    fn leave_segment(&self, place: &Place<Op>) -> Place<Op> {
        // Only the recycler frees segments, and the next one comes later in the log.
        let next = self.generations.place(generations::after(place.generation), place.index);
        // SAFETY: every entry of it was filled (else it could not have been replayed) and replayed by all replicas, so
        // that neither reservations nor cursors point into it.
        unsafe { self.generations.free(place.generation) };
        next
    }
}

/// Drops the operations from `place` to `end`, which lies in the same segment or just behind it.
fn drop_operations<Op>(place: &mut Place<Op>, end: u64) {
    if !core::mem::needs_drop::<Op>() {
        place.index = end;
        return;
    }
    while place.index < end {
        // SAFETY: the recycler is in this segment, so it is not freed.
        let entry = unsafe { place.entry() };
        let kind = entry.kind(place.pass());
        // First, so that a destructor which panics is not called again.
        place.index += 1;
        if kind == Some(Kind::Operation) {
            // SAFETY: an operation that all replicas have read, and the place has moved past it.
            unsafe { entry.drop_operation() };
        }
    }
}

impl<Op> Drop for Log<Op> {
    fn drop(&mut self) {
        // A thread that reserved also filled: a reservation borrows the log, and its drop fills what is left.
        let tail = super::Tail::unpack(self.tail.load(Ordering::Relaxed));
        self.take_back(tail.index);
        // SAFETY: the log is going.
        unsafe { self.generations.free(tail.generation) };
    }
}
