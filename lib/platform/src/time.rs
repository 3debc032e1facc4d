//! Wall-clock time for reports, progress and sleeping. Algorithms order events by the ordered clock ([`crate::clock`])
//! instead.

pub use core::time::Duration;

#[cfg(archipelago_sim)]
pub use crate::simulated::time::{Instant, unix_time};
#[cfg(not(archipelago_sim))]
pub use std::time::Instant;

/// Returns the time since the beginning of 1970 (UTC) by the system's clock, and zero while that clock shows an earlier
/// time. The system's clock may be set, so a later call may return less. Inside a run of the simulator, a run begins
/// with 1970, and the time is virtual.
#[cfg(not(archipelago_sim))]
pub fn unix_time() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_not_from_before_2020() {
        assert!(unix_time() > Duration::from_secs(50 * 365 * 86_400));
    }
}
