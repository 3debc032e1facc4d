//! What a domain keeps per thread slot: the published state of its readers, and its garbage.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};

use super::garbage::Garbage;

/// Low bits of the state that count nested guards; above them is the epoch that the outermost one published.
const NESTING_BITS: u32 = 16;
const NESTING: u64 = (1 << NESTING_BITS) - 1;

/// One thread's record. Only the thread that owns slot `slot` writes `state` and `reclaiming`.
pub(super) struct Record {
    pub(super) slot: usize,
    /// `epoch << NESTING_BITS | nested guards`; without guards the epoch means nothing.
    state: AtomicU64,
    /// The owner is running reclaim functions; more of them must wait, or they would nest without bound.
    reclaiming: AtomicBool,
    garbage: Mutex<Garbage>,
}

impl Record {
    pub(super) fn new(slot: usize) -> Self {
        let garbage = Mutex::new(Garbage::default());
        Self { slot, state: AtomicU64::new(0), reclaiming: AtomicBool::new(false), garbage }
    }

    /// Owner only: how many guards it holds.
    #[inline]
    pub(super) fn nesting(&self) -> u64 {
        self.state.load(Ordering::Relaxed) & NESTING
    }

    /// Owner only: counts one more guard; the outermost publishes `epoch()` and then needs its barrier.
    ///
    /// Release on every store: whoever sees it has seen all earlier critical sections of this record leave.
    #[inline]
    pub(super) fn enter(&self, epoch: impl FnOnce() -> u64, barrier: impl FnOnce()) {
        let state = self.state.load(Ordering::Relaxed);
        if state & NESTING == 0 {
            self.state.store(epoch() << NESTING_BITS | 1, Ordering::Release);
            barrier();
        } else {
            self.enter_nested(state);
        }
    }

    fn enter_nested(&self, state: u64) {
        assert!(state & NESTING < NESTING, "65,535 guards of one domain are alive in one thread; drop some");
        self.state.store(state + 1, Ordering::Release);
    }

    /// Owner only: counts one guard less.
    #[inline]
    pub(super) fn leave(&self) {
        let state = self.state.load(Ordering::Relaxed);
        debug_assert!(state & NESTING != 0);
        self.state.store(state - 1, Ordering::Release);
    }

    /// The epoch that the owner is reading at, if it is. Acquire, see the proof in the parent module.
    pub(super) fn active_epoch(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state & NESTING != 0).then_some(state >> NESTING_BITS)
    }

    /// The garbage of this slot. Held for a few instructions only, and never while foreign code runs.
    pub(super) fn garbage(&self) -> MutexGuard<'_, Garbage> {
        // A poisoned lock would mean that a Vec's growth panicked half-way, which leaves the Vec intact.
        self.garbage.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Owner only: marks that reclaim functions run until the result is dropped; `None` if they were running already.
    pub(super) fn begin_reclaiming(&self) -> Option<Reclaiming<'_>> {
        // Relaxed: one thread at a time, see the type.
        if self.reclaiming.load(Ordering::Relaxed) {
            return None;
        }
        self.reclaiming.store(true, Ordering::Relaxed);
        Some(Reclaiming(self))
    }
}

/// Reclaim functions of one record's owner are running.
pub(super) struct Reclaiming<'r>(&'r Record);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaiming.store(false, Ordering::Relaxed);
    }
}
