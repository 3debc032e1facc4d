//! Two-phase locking in which the older wait for the younger, and the younger die.
//!
//! A transaction keeps the number with which it arrived however often it begins anew, so it becomes the oldest in time, and
//! the oldest dies of no lock.
//!
//! *No deadlock*: a transaction waits only for younger ones: holders, and no one else. *No starvation by those that come
//! later*: a younger one that would be let in beside the holders dies if an older one waits for the record.

use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_sync::backoff::Backoff;

use super::{Conflict, Mode, Moment, Scheme};
use crate::record::Record;
use crate::work::Work;

/// Two-phase locking; the older waits, the younger begins anew.
#[derive(Clone, Copy, Debug)]
pub enum WaitDie {}

/// A record's lock.
#[derive(Default)]
pub struct Lock(Mutex<State>);

#[derive(Default)]
struct State {
    holders: Vec<(u64, Mode)>,
    waiting: Vec<u64>,
}

impl Lock {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code of users runs under it.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

enum Answer {
    Granted,
    Wait,
    Die,
}

impl State {
    fn ask(&mut self, mode: Mode, arrival: u64) -> Answer {
        let clashes =
            |&&(holder, held): &&(u64, Mode)| holder != arrival && (mode == Mode::Exclude || held == Mode::Exclude);
        let oldest = self.holders.iter().filter(clashes).map(|holder| holder.0).min();
        match oldest {
            Some(oldest) if oldest < arrival => Answer::Die,
            Some(_) => Answer::Wait,
            None if self.waiting.iter().any(|&waiting| waiting < arrival) => Answer::Die,
            None => Answer::Granted,
        }
    }

    fn grant(&mut self, mode: Mode, arrival: u64) {
        match self.holders.iter_mut().find(|holder| holder.0 == arrival) {
            Some(mine) => mine.1 = mode,
            None => self.holders.push((arrival, mode)),
        }
    }
}

impl Scheme for WaitDie {
    const NAME: &'static str = "2pl-wait-die";
    const LOCKS: bool = true;
    type Stamps = ();
    type Lock = Lock;
    type Gap = ();

    fn take(record: &Record<Self>, mode: Mode, _: Option<Mode>, arrival: u64) -> Result<(), Conflict> {
        let backoff = Backoff::new();
        loop {
            let mut state = record.lock.state();
            let answer = state.ask(mode, arrival);
            state.waiting.retain(|&waiting| waiting != arrival);
            match answer {
                Answer::Granted => {
                    state.grant(mode, arrival);
                    return Ok(());
                }
                Answer::Die => return Err(Conflict),
                Answer::Wait => state.waiting.push(arrival),
            }
            drop(state);
            backoff.wait();
        }
    }

    fn release(record: &Record<Self>, _: Mode, arrival: u64) {
        record.lock.state().holders.retain(|holder| holder.0 != arrival);
    }

    fn is_free(record: &Record<Self>) -> bool {
        record.lock.state().holders.is_empty()
    }

    fn judge(work: &Work<'_, Self>, _: Moment) -> Result<u64, Conflict> {
        if work.gaps_hold(0) { Ok(0) } else { Err(Conflict) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_waits_and_the_younger_dies() {
        let mut state = State::default();
        assert!(matches!(state.ask(Mode::Share, 5), Answer::Granted));
        state.grant(Mode::Share, 5);
        assert!(matches!(state.ask(Mode::Share, 9), Answer::Granted));
        assert!(matches!(state.ask(Mode::Exclude, 9), Answer::Die));
        assert!(matches!(state.ask(Mode::Exclude, 3), Answer::Wait));
        state.waiting.push(3);
        // A reader that is younger than the one that waits is not let in.
        assert!(matches!(state.ask(Mode::Share, 9), Answer::Die));
        assert!(matches!(state.ask(Mode::Share, 2), Answer::Granted));
        // The holder may have more, as the older one waits for it anyway.
        state.waiting.clear();
        assert!(matches!(state.ask(Mode::Exclude, 5), Answer::Granted));
    }
}
