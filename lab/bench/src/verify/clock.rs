//! The time limit and the result of a part of the exam.

use archipelago_platform::time::{Duration, Instant};

use crate::interrupt;

/// `Err` with the first fault found.
pub type Verdict = Result<(), String>;

/// The time limit of a part. The time runs from [`start`](Clock::start), after the keys are loaded.
#[derive(Clone, Copy)]
pub struct Clock {
    /// The time in which threads look for faults.
    pub time: Duration,
}

impl Clock {
    /// Starts the time.
    pub fn start(self) -> Deadline {
        Deadline(Instant::now() + self.time)
    }
}

/// When a part must end.
#[derive(Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns whether the deadline has passed or an interrupt was requested (by Ctrl-C, for example).
    pub fn passed(self) -> bool {
        Instant::now() >= self.0 || interrupt::requested()
    }
}
