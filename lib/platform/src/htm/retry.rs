//! The retry policy of transactions.
//!
//! The cause of an abort tells whether another try may succeed. A *conflict* with another thread is temporary. It ends
//! sooner if the thread waits a little before the next try, and longer before each further one. Cache lines that did
//! not fit (*capacity*) seldom fit the next time. An abort without a stated reason (*silent*: an interrupt, a page
//! fault, an instruction that is not allowed in a transaction) either does not recur or recurs every time. So each
//! cause has a budget of its own, and all budgets are small. An abort by the program itself is a result, not a failure.

use super::{Abort, Cause, Site, transaction};

/// How often a transaction is tried again: a budget for each cause. When a budget is used up, the caller uses its
/// fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Number of further tries after conflicts.
    pub conflicts: u32,
    /// Number of further tries after aborts for lack of capacity.
    pub capacity: u32,
    /// Number of further tries after aborts without a stated reason.
    pub silent: u32,
    /// Length of the pause after the first conflict, in turns of a wait loop. It doubles with every further conflict,
    /// up to 1024.
    pub pause: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { conflicts: 7, capacity: 1, silent: 2, pause: 4 }
    }
}

/// The longest pause, in turns of a wait loop.
const LONGEST: u32 = 1024;

impl Retry {
    /// Runs `body` as a transaction until it commits.
    ///
    /// # Errors
    /// The last abort, when a budget is used up. The program's own abort ([`Abort::code`]) is returned at once.
    #[inline]
    #[track_caller]
    pub fn run<R>(mut self, mut body: impl FnMut() -> R) -> Result<R, Abort> {
        loop {
            match transaction(&mut body) {
                Ok(result) => return Ok(result),
                Err(why) if self.spend(why) => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Works as [`run`](Self::run) does, but counts the aborts at `site`.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    #[inline]
    #[track_caller]
    pub fn run_at<R>(mut self, site: &'static Site, mut body: impl FnMut() -> R) -> Result<R, Abort> {
        loop {
            match transaction(&mut body) {
                Ok(result) => return Ok(result),
                Err(why) if self.spend_at(site, why) => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Takes one try from the budget for this abort's cause, and returns whether the budget had one. If it had, and the
    /// cause is a conflict, the call pauses before it returns. Returns false for the program's own aborts.
    #[cold]
    pub fn spend(&mut self, why: Abort) -> bool {
        let budget = match why.cause() {
            Cause::Explicit(_) => return false,
            Cause::Conflict => &mut self.conflicts,
            Cause::Capacity => &mut self.capacity,
            Cause::Silent => &mut self.silent,
        };
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        if why.is_conflict() {
            crate::hint::pause(self.pause.min(LONGEST));
            self.pause = self.pause.saturating_mul(2).min(LONGEST);
        }
        true
    }

    /// Works as [`spend`](Self::spend) does, but counts the abort at `site`, and also that a budget was used up if one
    /// was.
    #[cold]
    pub fn spend_at(&mut self, site: &'static Site, why: Abort) -> bool {
        site.note_abort(why);
        let again = self.spend(why);
        if !again && why.code().is_none() {
            site.note_given_up();
        }
        again
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each cause has a budget of its own. The program's own aborts have no budget.
    #[test]
    fn budgets_are_spent_cause_by_cause() {
        let mut retry = Retry { conflicts: 2, capacity: 1, silent: 0, pause: 1 };
        let (conflict, capacity, silent, own) = (Abort(0b110), Abort(0b1000), Abort(0), Abort(1 | 9 << 24));
        assert!(!retry.spend(silent) && !retry.spend(own));
        assert!(retry.spend(conflict) && retry.spend(capacity) && retry.spend(conflict));
        assert!(!retry.spend(conflict) && !retry.spend(capacity));
        assert_eq!(retry.pause, 4);
        let mut long = Retry { conflicts: 2, pause: u32::MAX, ..retry };
        assert!(long.spend(conflict) && long.spend(conflict));
        assert_eq!(long.pause, LONGEST);
    }
}
