//! Waiting for a thread that may be preempted: spins, yields a few times, and then sleeps.
//!
//! Repeated yields do not help the preempted thread. A fair scheduler runs it only when the other threads have used as
//! much processor time as it has, and they spend this time on yields. A scheduler that charges the rest of the time
//! slice for each yield keeps a thread that has yielded a hundred times from running for seconds. A sleeping thread
//! leaves the processor to threads that can proceed.

use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use crate::backoff::Backoff;

/// Yields before the first sleep.
const YIELDS: u32 = 4;
/// How long the first sleep and the longest are.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(1);

/// The state of one wait.
pub(super) struct Patience {
    backoff: Backoff,
    yields: u32,
    next: Duration,
    slept: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(), yields: 0, next: FIRST, slept: Duration::ZERO }
    }

    /// Waits one step, which is mostly longer than the previous one.
    pub(super) fn wait(&mut self) {
        if !self.backoff.is_yielding() || self.yields < YIELDS {
            self.yields += u32::from(self.backoff.is_yielding());
            self.backoff.wait();
        } else {
            self.sleep();
        }
    }

    /// Waits one step, by sleeping.
    pub(super) fn sleep(&mut self) {
        // Loom has no clock.
        #[cfg(loom)]
        thread::yield_now();
        #[cfg(not(loom))]
        thread::sleep(self.next);
        self.slept += self.next;
        self.next = (2 * self.next).min(LONGEST);
    }

    /// Returns the sum of the requested sleeps.
    pub(super) fn slept(&self) -> Duration {
        self.slept
    }
}
