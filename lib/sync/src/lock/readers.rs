//! The number of active readers, counted in several *pieces*, each in its own cache line. Writers wait until it is
//! zero.
//!
//! The count is half of a reader-writer lock. The other half is a flag that says that a writer waits or is inside. A
//! reader increments its piece ([`arrive`](Readers::arrive)), *then* checks the flag, and decrements the piece again if
//! the flag is set. A writer sets the flag, *then* waits until every piece has been zero once
//! ([`wait_gone`](Readers::wait_gone)).
//!
//! # Why reader and writer never miss each other
//!
//! Reader: (r1) add 1 to a piece; (r2) load the flag. Writer: (w1) set the flag; (w2) load the piece. These four, and
//! all other changes of the flag and the pieces, are `SeqCst`. So they have one order, in which each load sees the last
//! change before it. If r2 comes before w1, then r1 comes before w2: the writer sees the reader and waits. Otherwise
//! the reader sees the writer. With weaker orderings, both could miss the other. (By C++20's rules, Release would
//! suffice where a reader leaves and where the flag is cleared, since coherence orders these changes. In Miri's model
//! it would not.)
//!
//! The zero that the writer loads was written by the reader's decrement or by a later change of the same piece. All
//! changes of pieces are read-modify-writes, so they belong to the decrement's release sequence. So all accesses of the
//! reader happen before the writer's later accesses.
//!
//! A writer may load the pieces one after another. A reader that increments a piece after the writer's load sees the
//! flag, and leaves without having read.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::pad::CachePadded;

use super::slots::Slots;
use super::wait::wait_until;

/// The pieces of the count. Each caller passes the number of pieces as `pieces`, always the same number.
#[derive(Debug)]
pub(super) struct Readers {
    counts: Slots<AtomicUsize>,
}

impl Readers {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { counts: Slots::new() }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { counts: Slots::new() }
    }

    /// Increments the piece of `slot` (modulo the number of pieces) for an arriving reader. The caller must afterwards
    /// load the writer's flag with `SeqCst`.
    #[inline]
    pub(super) fn arrive(&self, slot: usize, pieces: impl FnOnce() -> usize) {
        self.piece(slot, pieces).fetch_add(1, Ordering::SeqCst);
        model_fence();
    }

    /// Decrements the piece that was incremented at the reader's arrival.
    #[inline]
    pub(super) fn depart(&self, slot: usize, pieces: impl FnOnce() -> usize) {
        let before = self.piece(slot, pieces).fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a reader left that had not come");
    }

    /// Waits until every reader has left that arrived before the writer set its flag (with a `SeqCst` operation).
    pub(super) fn wait_gone(&self, pieces: impl FnOnce() -> usize) {
        model_fence();
        let counts = self.counts.get_or_make(pieces);
        // The lines are in the readers' caches; the prefetches overlap the misses.
        counts.iter().for_each(|count| prefetch_read(&raw const **count));
        for count in counts {
            wait_until(|| count.load(Ordering::SeqCst) == 0);
        }
    }

    /// Returns whether all pieces are zero. As [`wait_gone`](Self::wait_gone), for a writer that does not wait.
    pub(super) fn are_gone(&self, pieces: impl FnOnce() -> usize) -> bool {
        model_fence();
        self.counts.get_or_make(pieces).iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    #[inline]
    fn piece(&self, slot: usize, pieces: impl FnOnce() -> usize) -> &CachePadded<AtomicUsize> {
        let counts = self.counts.get_or_make(pieces);
        &counts[slot & (counts.len() - 1)]
    }
}

/// loom treats `SeqCst` accesses as Acquire and Release. Under loom, this fence has the effect that the accesses have
/// natively.
#[inline]
pub(super) fn model_fence() {
    #[cfg(loom)]
    archipelago_platform::atomic::fence(Ordering::SeqCst);
}
