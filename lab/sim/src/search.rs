//! Runs all schedules of a small program that have few preemptions.
//!
//! A *preemption* takes the processor from a thread that could continue. Most bugs need one or two preemptions
//! (Musuvathi and Qadeer, PLDI 2007), and the number of schedules with so few is polynomial. [`search`] runs each of
//! these schedules once. It visits, depth first, the choices at all points where more than one thread can continue. To
//! visit the next choice, it runs the program again with a prefix of the previous choices whose last changeable choice
//! is changed. If the running thread waits, ends or yields, the choice costs no preemption, and all choices are
//! visited.
//!
//! # Invariants
//! - A program and a prefix determine one run, since [`Schedule::Chosen`] is not random. So a recorded prefix can be
//!   followed.
//! - Prefixes are visited in lexical order, each once.

use crate::config::{Config, Schedule};
use crate::report::{Choice, Outcome, Report};

/// More preemptions than any search uses.
const MOST: u32 = 1 << 16;

/// The result of [`search`].
#[derive(Clone, Debug)]
pub struct Search {
    /// The number of schedules that were run, by their number of preemptions.
    pub schedules: Vec<u64>,
    /// `true` if `schedules` counts every schedule with at most the given number of preemptions.
    pub complete: bool,
    /// The first run that was not [`Outcome::Done`]; its choices are in [`Report::trace`].
    pub failure: Option<Report>,
}

impl Search {
    /// Returns the number of schedules that were run.
    pub fn count(&self) -> u64 {
        self.schedules.iter().sum()
    }
}

/// Runs `simulate` under every schedule with at most `preemptions` preemptions, until a run is not [`Outcome::Done`] or
/// `most` schedules have been run. `simulate` makes new structures each time, as for [`find`](crate::find).
///
/// Preemptions are possible before every access, and where a thread reads the time or ends or aborts a transaction.
/// Timers (sleeps, time-outs) fire only when no thread can continue.
pub fn search(config: &Config, preemptions: u32, most: u64, simulate: impl Fn(&Config) -> Report) -> Search {
    let preemptions = preemptions.min(MOST);
    let mut found = Search { schedules: vec![0; preemptions as usize + 1], complete: false, failure: None };
    let mut choices = Vec::new();
    while found.count() < most {
        let report = simulate(&Config { schedule: Schedule::Chosen, choices, ..config.clone() });
        found.schedules[cost(&report.trace) as usize] += 1;
        if report.outcome != Outcome::Done {
            found.failure = Some(report);
            return found;
        }
        match next(&report.trace, preemptions) {
            Some(prefix) => choices = prefix,
            None => {
                found.complete = true;
                return found;
            }
        }
    }
    found
}

fn cost(trace: &[Choice]) -> u32 {
    trace.iter().map(|choice| choice.cost()).sum()
}

/// Returns the prefix that follows a run's choices in lexical order and has no more preemptions than allowed.
fn next(trace: &[Choice], preemptions: u32) -> Option<Vec<u16>> {
    let allowed = |&at: &usize| {
        let other = Choice { taken: trace[at].taken + 1, ..trace[at] };
        other.taken < other.options && cost(&trace[..at]) + other.cost() <= preemptions
    };
    let at = (0..trace.len()).rev().find(allowed)?;
    let prefix = trace[..at].iter().map(|choice| choice.taken);
    Some(prefix.chain([trace[at].taken + 1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits all prefixes of a tree in which every run has these choices, and counts them by preemptions.
    fn count(points: &[(u16, bool)], preemptions: u32) -> Vec<u64> {
        let mut counts = vec![0; preemptions as usize + 1];
        let mut prefix = Some(Vec::new());
        while let Some(choices) = prefix {
            let taken = |k: usize| choices.get(k).copied().unwrap_or(0);
            let choice =
                |(k, &(options, preempts)): (usize, &(u16, bool))| Choice { options, taken: taken(k), preempts };
            let trace: Vec<Choice> = points.iter().enumerate().map(choice).collect();
            counts[cost(&trace) as usize] += 1;
            prefix = next(&trace, preemptions);
        }
        counts
    }

    #[test]
    fn every_prefix_is_visited_once() {
        // Six points with one alternative each give the binomial coefficients.
        assert_eq!(count(&[(2, true); 6], 2), [1, 6, 15]);
        assert_eq!(count(&[(2, true); 6], 0), [1]);
        // The numbers of choices without preemption multiply.
        assert_eq!(count(&[(3, false), (2, true), (2, false)], 1), [6, 6]);
        assert_eq!(count(&[], 2), [1, 0, 0]);
    }
}
