//! The number of active readers, as a count in pieces, each on its own cache line. Writers wait until it is zero.
//!
//! It is half of a reader-writer lock; the other half is a flag that says that a writer waits or is inside. Reader:
//! count itself in ([`arrive`](Readers::arrive)), *then* look for a writer, and count itself out again if there is one.
//! Writer: raise the flag, *then* wait until every piece has been zero once ([`wait_gone`](Readers::wait_gone)).
//!
//! # Why reader and writer never miss each other
//!
//! Reader: (r1) add 1 to a piece; (r2) load the flag. Writer: (w1) set the flag; (w2) load the piece. These four, and all
//! other changes of the flag and the pieces, are `SeqCst`, so they have one order, in which each load sees the last
//! change before it. If r2 comes before w1, then r1 comes before w2: the writer sees the reader and waits. Otherwise the
//! reader sees the writer. With anything weaker both could overlook the other. (C++20's rules would do with Release
//! where a reader leaves and where the flag is lowered, since coherence orders those; Miri's model of them would not.)
//!
//! The zero that the writer loads comes from the reader's decrement or from a later change of the same piece; changes of
//! pieces are read-modify-writes, so they all belong to the decrement's release sequence, and everything the reader did
//! happens before what the writer does next.
//!
//! A writer may load one piece after another: a reader that increments a piece after the writer's load sees the flag
//! and leaves without having read.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::pad::CachePadded;

use super::slots::Slots;
use super::wait::wait_until;

/// See the module's text. Each caller passes the number of pieces as `pieces`, always the same number.
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

    /// Counts a reader in, in the piece of `slot` (modulo the number of pieces). The caller must afterwards load the
    /// writer's flag with `SeqCst`.
    #[inline]
    pub(super) fn arrive(&self, slot: usize, pieces: impl FnOnce() -> usize) {
        self.piece(slot, pieces).fetch_add(1, Ordering::SeqCst);
        model_fence();
    }

    /// Counts a reader out, in the piece in which it was counted in.
    #[inline]
    pub(super) fn depart(&self, slot: usize, pieces: impl FnOnce() -> usize) {
        let before = self.piece(slot, pieces).fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a reader left that had not come");
    }

    /// Waits until every reader who came before the writer raised its flag (with a `SeqCst` operation) is gone.
    pub(super) fn wait_gone(&self, pieces: impl FnOnce() -> usize) {
        model_fence();
        let counts = self.counts.get_or_make(pieces);
        // The lines are in the readers' caches; the prefetches overlap the misses.
        counts.iter().for_each(|count| prefetch_read(&raw const **count));
        for count in counts {
            wait_until(|| count.load(Ordering::SeqCst) == 0);
        }
    }

    /// Whether no piece counts a reader. As [`wait_gone`](Self::wait_gone), for a writer that does not wait.
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

/// Loom takes `SeqCst` accesses for Acquire and Release ones; in its world the fence does what the accesses do natively.
#[inline]
pub(super) fn model_fence() {
    #[cfg(loom)]
    archipelago_platform::atomic::fence(Ordering::SeqCst);
}
