//! When entries expire: ticks of a monotonic clock, so that a wall clock that is set changes nothing.

use archipelago_platform::time::{Duration, Instant};

/// Milliseconds since the cache was made.
pub(crate) type Tick = u64;

/// The deadline of what does not expire.
pub(crate) const NEVER: Tick = Tick::MAX;

/// A cache's time.
pub(crate) struct Clock(Instant);

impl Clock {
    pub fn new() -> Self {
        Self(Instant::now())
    }

    pub fn now(&self) -> Tick {
        self.0.elapsed().as_millis() as Tick
    }

    /// When `time` from now will have passed. It passes whole; none, if it is zero.
    pub fn after(&self, time: Option<Duration>) -> Tick {
        match time {
            None => NEVER,
            Some(Duration::ZERO) => self.now(),
            Some(time) => self.now().saturating_add(ticks(time)).saturating_add(1).min(NEVER - 1),
        }
    }
}

/// So long, in ticks: one at least.
pub(crate) fn ticks(time: Duration) -> Tick {
    Tick::try_from(time.as_millis()).unwrap_or(NEVER - 1).max(1)
}
