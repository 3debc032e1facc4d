//! How this module waits for a thread that may have lost its processor: it spins, yields a few times, and then sleeps.
//!
//! To yield again and again does not help that thread: a scheduler that is fair lets it run when the others have had as much of
//! the processor as it had, and they spend that on yielding; and one that takes the rest of a slice for each yield keeps who
//! yielded a hundred times away for seconds. Who sleeps leaves the processor to those that can go on.

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

    /// One step, mostly longer than the last.
    pub(super) fn wait(&mut self) {
        if !self.backoff.is_yielding() || self.yields < YIELDS {
            self.yields += u32::from(self.backoff.is_yielding());
            self.backoff.wait();
        } else {
            self.sleep();
        }
    }

    /// A step that sleeps.
    pub(super) fn sleep(&mut self) {
        // The model has no time.
        #[cfg(loom)]
        thread::yield_now();
        #[cfg(not(loom))]
        thread::sleep(self.next);
        self.slept += self.next;
        self.next = (2 * self.next).min(LONGEST);
    }

    /// How long it has slept by intention.
    pub(super) fn slept(&self) -> Duration {
        self.slept
    }
}
