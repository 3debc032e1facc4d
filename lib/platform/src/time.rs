//! Wall-clock time for humans (progress, reports, sleeping). Algorithms order events by the ordered clock instead.

pub use core::time::Duration;

#[cfg(archipelago_sim)]
pub use crate::simulated::time::Instant;
#[cfg(not(archipelago_sim))]
pub use std::time::Instant;
