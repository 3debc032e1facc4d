//! How a dedicated combiner rests while it has nothing to do, and how it is woken.
//!
//! # No wake-up is lost
//! The combiner (1) says that it rests, (2) looks for work once more, (3) parks. Who has work for it (1) posts or appends
//! that, (2) looks whether it rests, and wakes it. Both have a `SeqCst` fence between (1) and (2), so that one of them
//! sees the other.

use archipelago_platform::atomic::{AtomicBool, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::OnceLock;
use archipelago_platform::thread::{self, Thread};

use super::stats::Count;

/// The rest of one replica's dedicated combiner.
#[derive(Debug, Default)]
pub(super) struct Rest {
    resting: CachePadded<AtomicBool>,
    combiner: OnceLock<Thread>,
    /// Counted by the combiner's thread alone.
    pub(super) naps: Count,
}

impl Rest {
    /// Sleeps until it is woken, unless there `is_work`. For the combiner's thread, always the same.
    pub(super) fn sleep(&self, is_work: impl Fn() -> bool) {
        self.combiner.get_or_init(thread::current);
        self.resting.store(true, Ordering::Relaxed);
        // Partner: the fence in `wake`. It publishes the thread, too.
        fence(Ordering::SeqCst);
        if !is_work() {
            self.naps.add(1);
            thread::park();
        }
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Wakes the combiner if it rests. For those who have posted or appended what it is to do.
    pub(super) fn wake(&self) {
        // Partner: the fence in `sleep`.
        fence(Ordering::SeqCst);
        // The exchange leaves it to one of many to wake it.
        if self.resting.load(Ordering::Relaxed) && self.resting.swap(false, Ordering::Relaxed) {
            self.combiner.get().inspect(|thread| thread.unpark());
        }
    }
}
