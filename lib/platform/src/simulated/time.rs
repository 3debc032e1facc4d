//! Instants of virtual time inside a run, and of wall-clock time outside. The two cannot be compared.

use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

use archipelago_sim::world;

/// Returns the virtual time since the start of the run, as if the run had begun with 1970. Returns the system's time
/// since 1970 outside a run.
pub fn unix_time() -> Duration {
    if world::active() {
        return Duration::from_nanos(world::now());
    }
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Returns the virtual time since the start of the run. Outside a run, returns the time since an instant that is the
/// same for the whole process.
pub fn monotonic() -> Duration {
    Instant::now().0
}

/// The counterpart of [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the current instant.
    pub fn now() -> Self {
        if world::active() {
            return Instant(Duration::from_nanos(world::now()));
        }
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Instant(START.get_or_init(std::time::Instant::now).elapsed())
    }

    /// Returns the time since this instant.
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Works as [`duration_since`](Self::duration_since) does.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// Returns the time from `earlier` to this instant, or `None` if `earlier` is later.
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns this instant plus `duration`, or `None` if it cannot be represented.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Instant(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Instant(self.0 - duration)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        self.0 -= duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
