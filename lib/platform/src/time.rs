//! Wall-clock time for reports, progress and sleeping. Algorithms order events by the ordered clock ([`crate::clock`])
//! instead.

pub use core::time::Duration;

#[cfg(archipelago_sim)]
pub use crate::simulated::time::Instant;
#[cfg(not(archipelago_sim))]
pub use std::time::Instant;
