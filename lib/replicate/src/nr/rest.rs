//! Rest of a dedicated combiner: it sleeps while it has nothing to do, and is woken when there is work.
//!
//! # No wake-up is lost
//! The combiner (1) sets the flag `resting`, (2) checks for work once more, (3) parks. A thread with work for it (1)
//! posts or appends the work, (2) checks the flag and wakes the combiner. Both have a `SeqCst` fence between (1) and
//! (2), so at least one of them sees the other.

use archipelago_platform::atomic::{AtomicBool, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::OnceLock;
use archipelago_platform::thread::{self, Thread};

use super::stats::Count;

/// The rest state of one replica's dedicated combiner.
#[derive(Debug, Default)]
pub(super) struct Rest {
    resting: CachePadded<AtomicBool>,
    combiner: OnceLock<Thread>,
    /// Counted only by the combiner's thread.
    pub(super) naps: Count,
}

impl Rest {
    /// Sleeps until it is woken, unless `is_work` returns true. Always called by the same thread, the dedicated
    /// combiner.
    pub(super) fn sleep(&self, is_work: impl Fn() -> bool) {
        self.combiner.get_or_init(thread::current);
        self.resting.store(true, Ordering::Relaxed);
        // Partner: the fence in `wake`. This fence also publishes `combiner`.
        fence(Ordering::SeqCst);
        if !is_work() {
            self.naps.add(1);
            thread::park();
        }
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Wakes the combiner if it rests. Called by threads that have posted or appended work for it.
    pub(super) fn wake(&self) {
        // Partner: the fence in `sleep`.
        fence(Ordering::SeqCst);
        // Because of the exchange, only one of several waking threads wakes the combiner.
        if self.resting.load(Ordering::Relaxed) && self.resting.swap(false, Ordering::Relaxed) {
            self.combiner.get().inspect(|thread| thread.unpark());
        }
    }
}
