//! All schedules of a small program with few preemptions.
//!
//! A *preemption* takes the processor from a thread that could continue. Most bugs need one or two (Musuvathi and
//! Qadeer, PLDI 2007), and there are only polynomially many schedules with so few. [`search`] runs each of them once:
//! it visits, depth first, the choices at all points where more than one thread can continue, by running the program
//! again with a prefix of choices whose last possible one is changed. Choices at which the running thread waits, ends
//! or yields cost no preemption, and all of them are visited.
//!
//! # Invariants
//! - A program and a prefix determine one run, since [`Schedule::Chosen`] is not random, so a recorded prefix can be
//!   followed.
//! - Prefixes are visited in lexical order, each once.

use crate::config::{Config, Schedule};
use crate::report::{Choice, Outcome, Report};

/// More preemptions than any search reaches.
const MOST: u32 = 1 << 16;

/// What [`search`] covered.
#[derive(Clone, Debug)]
pub struct Search {
    /// Schedules run, by their number of preemptions.
    pub schedules: Vec<u64>,
    /// `true` if `schedules` counts every schedule with at most the given number of preemptions.
    pub complete: bool,
    /// The first run that was not [`Outcome::Done`]; its [`Report::trace`] has the choices.
    pub failure: Option<Report>,
}

impl Search {
    /// Schedules run in all.
    pub fn count(&self) -> u64 {
        self.schedules.iter().sum()
    }
}

/// Runs `simulate` under every schedule with at most `preemptions` preemptions, `most` of them at most, until one is not
/// [`Outcome::Done`]. It makes its structures afresh each time, as for [`find`](crate::find).
///
/// Preemptions are possible before every access, and where a thread asks for the time or ends a transaction. Timers
/// (sleeps, time-outs) fire only when no thread can go on.
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

/// Returns the next prefix in lexical order after a run's that has no more preemptions than allowed.
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

    /// All prefixes of a tree in which every run has these choices, counted by preemptions.
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
        // Six points with one alternative each: the binomial coefficients.
        assert_eq!(count(&[(2, true); 6], 2), [1, 6, 15]);
        assert_eq!(count(&[(2, true); 6], 0), [1]);
        // Free choices multiply.
        assert_eq!(count(&[(3, false), (2, true), (2, false)], 1), [6, 6]);
        assert_eq!(count(&[], 2), [1, 0, 0]);
    }
}
