//! Wall-clock time for humans (progress, reports, sleeping). Algorithms order events by the ordered clock instead.

pub use std::time::{Duration, Instant};
