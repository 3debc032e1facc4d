//! The time of expiry: ticks of a monotonic clock, which is independent of changes to the wall clock.

use archipelago_platform::time::{Duration, Instant};

/// Milliseconds since the cache was made.
pub(crate) type Tick = u64;

/// The deadline of entries that do not expire.
pub(crate) const NEVER: Tick = Tick::MAX;

/// A cache's clock.
pub(crate) struct Clock(Instant);

impl Clock {
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Makes the clock jump forward.
    #[cfg(all(test, not(any(loom, archipelago_sim))))]
    pub fn jump(&mut self, time: Duration) {
        self.0 = self.0.checked_sub(time).expect("the machine's clock has such times");
    }

    /// Sets the clock back, to 0 at most. If it has run for less than `time`, it stands still for the difference.
    #[cfg(all(test, not(any(loom, archipelago_sim))))]
    pub fn set_back(&mut self, time: Duration) {
        self.0 = self.0.checked_add(time).expect("as above");
    }

    pub fn now(&self) -> Tick {
        self.0.elapsed().as_millis() as Tick
    }

    /// Returns the first tick at which `time` has passed in full, the present tick if `time` is zero, and [`NEVER`] if
    /// `time` is `None`.
    pub fn after(&self, time: Option<Duration>) -> Tick {
        match time {
            None => NEVER,
            Some(Duration::ZERO) => self.now(),
            Some(time) => self.now().saturating_add(ticks(time)).saturating_add(1).min(NEVER - 1),
        }
    }
}

/// Returns a duration in ticks (milliseconds), rounded down, but at least one.
pub(crate) fn ticks(time: Duration) -> Tick {
    Tick::try_from(time.as_millis()).unwrap_or(NEVER - 1).max(1)
}
