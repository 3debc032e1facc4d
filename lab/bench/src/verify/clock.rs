//! How long a part of the exam takes, and what it comes to.

use archipelago_platform::time::{Duration, Instant};

use crate::interrupt;

/// What was found wrong, `Err` with the first finding.
pub type Verdict = Result<(), String>;

/// How long a part may take; the time runs from [`start`](Clock::start), after the keys are loaded.
#[derive(Clone, Copy)]
pub struct Clock {
    /// In which threads look for faults.
    pub time: Duration,
}

impl Clock {
    /// Begins.
    pub fn start(self) -> Deadline {
        Deadline(Instant::now() + self.time)
    }
}

/// When a part must end.
#[derive(Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Whether it has come, or Ctrl-C was pressed.
    pub fn passed(self) -> bool {
        Instant::now() >= self.0 || interrupt::requested()
    }
}
