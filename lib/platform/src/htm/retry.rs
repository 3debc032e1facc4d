//! How often a transaction is tried.
//!
//! An abort tells what another try is worth. Other threads' accesses (*conflict*) go away, and sooner if one waits a
//! little, longer each time. Lines that did not fit (*capacity*) seldom do the next time. An abort that says nothing
//! (*silent*: an interrupt, a page fault, an instruction that no transaction may contain) is either over or for ever. So
//! each has a budget of its own, and all are small. The program's own code is an answer, not a failure.

use super::{Abort, Cause, Site, transaction};

/// How often a transaction is tried again: a budget for each cause. When one is used up, the caller goes its other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Further tries after conflicts.
    pub conflicts: u32,
    /// Further tries for lack of capacity.
    pub capacity: u32,
    /// Further tries after aborts that tell no reason.
    pub silent: u32,
    /// Turns of waiting after the first conflict; they double with every further one, up to 1024.
    pub pause: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { conflicts: 7, capacity: 1, silent: 2, pause: 4 }
    }
}

/// The longest pause, in turns.
const LONGEST: u32 = 1024;

impl Retry {
    /// Runs `body` as a transaction until it commits.
    ///
    /// # Errors
    /// The last abort, when a budget is used up, or the program's own ([`Abort::code`]), at once.
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

    /// As [`run`](Self::run); aborts are counted at `site`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
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

    /// Takes one try from the budget of this abort's cause and says whether there was one; the pause is over on return.
    /// False for the program's own aborts.
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

    /// As [`spend`](Self::spend), counted at `site`, giving up too.
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

    /// Each cause has a budget of its own, and the program's own aborts have none.
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
