//! Rest of a background thread, that is, a dedicated combiner or a helper: it sleeps while it has nothing to do, and is
//! woken when there is work.
//!
//! # No wake-up is lost
//! The background thread (1) sets the flag `resting`, (2) checks for work once more, (3) parks. A thread with work for
//! it (1) posts or appends the work, (2) checks the flag and wakes the background thread. Both have a `SeqCst` fence
//! between (1) and (2), so at least one of them sees the other.

use archipelago_platform::atomic::{AtomicBool, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::OnceLock;
use archipelago_platform::thread::{self, Thread};
use archipelago_platform::time::Duration;

use super::stats::Count;

/// The rest state of one background thread of a replica.
#[derive(Debug, Default)]
pub(super) struct Rest {
    resting: CachePadded<AtomicBool>,
    thread: OnceLock<Thread>,
    /// Counted only by the background thread.
    pub(super) naps: Count,
}

impl Rest {
    /// Sleeps until it is woken, at most for `longest` if that is given, unless `is_work` returns true. Always called
    /// by the same thread.
    pub(super) fn sleep(&self, longest: Option<Duration>, is_work: impl Fn() -> bool) {
        self.thread.get_or_init(thread::current);
        self.resting.store(true, Ordering::Relaxed);
        // Partner: the fence in `wake`. This fence also publishes `thread`.
        fence(Ordering::SeqCst);
        if !is_work() {
            self.naps.add(1);
            longest.map_or_else(thread::park, thread::park_timeout);
        }
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Wakes the background thread if it rests. Called by threads that have posted or appended work for it.
    pub(super) fn wake(&self) {
        // Partner: the fence in `sleep`.
        fence(Ordering::SeqCst);
        // Because of the exchange, only one of several waking threads makes the system call.
        if self.resting.load(Ordering::Relaxed) && self.resting.swap(false, Ordering::Relaxed) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
    }
}
