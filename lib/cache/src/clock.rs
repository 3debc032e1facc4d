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

    /// Sets the clock back, but not below 0. If the clock has run for less than `time`, it stands still for the
    /// difference.
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
            Some(time) => ticks(self.0.elapsed().saturating_add(time)),
        }
    }
}

/// A time to idle, in ticks.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// The time that must pass before an entry expires. It is rounded up, and has a tick in addition, since a tick may
    /// end right after it was read.
    pub least: Tick,
    /// How much later an entry may expire, so that most hits of a popular entry need not write its deadline: at most a
    /// 16th of the time.
    slack: Tick,
}

impl Idle {
    pub fn new(time: Duration) -> Self {
        let least = if time.is_zero() { 0 } else { ticks(time).saturating_add(1) };
        Self { least, slack: least.saturating_sub(2) / 16 }
    }

    /// Returns the deadline of an entry that is inserted or hit at `now`.
    pub fn deadline(self, now: Tick) -> Tick {
        now.saturating_add(self.least).saturating_add(self.slack).min(NEVER - 1)
    }
}

/// Returns a duration in ticks (milliseconds), rounded up, and less than [`NEVER`].
fn ticks(time: Duration) -> Tick {
    let rest = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1_000).saturating_add(rest).min(NEVER - 1)
}
