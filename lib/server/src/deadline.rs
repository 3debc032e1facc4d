//! A script's time limit, and how the replicas stop the script at one and the same point.
//!
//! Clocks differ between replicas, and what a script did before it was stopped stays. So a clock only proposes: of all replicas that run a
//! script the first whose time is over fixes the *point* at which all of them stop it. Each replica meets the same points in
//! the same order, and numbers them from 1: one every thousand instructions, and one at each call of a command or
//! of `string.rep`.
//!
//! # Argument
//! [`State`] is behind a lock, so its steps have one order. A replica asks [`State::pass`] at each point, and goes beyond the point `p`
//! only after a step that set `passed` to at least `p`, or when `p` is before a fixed stop.
//! - *No replica is beyond the stop when it is fixed*: it is greater than `passed`, which is no less than any point that a replica went
//!   beyond until then.
//! - *None goes beyond it later*: it is never changed, and `pass` compares with it first.
//! - *If a replica has come to the script's end before a stop was fixed, none is fixed any more*: `finish` closes the
//!   state in the same order of steps.
//! - If a stop was fixed and a replica comes to the script's end before it, the end is at an earlier point, so each replica comes to
//!   the end: without the stop they do the same.
//!
//! With a log, whatever follows from a clock is durable before any replica shows what the script did: see [`stops`](crate::stops). `marked`
//! goes up only while the state is open, so that a replica which has ended a script that was not marked is not contradicted
//! by a mark that comes later.

use core::fmt;
use core::time::Duration;

use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

use crate::stops::{Entry, Place, Recalled, Stops};

/// Milliseconds that a script may run, unless another limit is set.
pub const LIMIT: u64 = 5_000;

/// Which part of its limit a script runs before the log hears that it runs: below, a sync would cost more than it is worth.
const SOON: u32 = 50;

/// A script's time limit, shared by all that run it. See the module.
pub struct Deadline {
    limit: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    /// Where a log has the call.
    place: Option<(Arc<Stops>, Place)>,
}

/// Where a script ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum End {
    /// Not decided.
    #[default]
    Open,
    /// At this point.
    Stop(u64),
    /// At its own end.
    Own,
}

/// What a replica does at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It goes on.
    On,
    /// It says that the script runs, and goes on.
    Mark,
    /// It stops the script, after it has said where if that is not known yet.
    Stop(Option<u64>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    /// The greatest point that a replica has gone beyond.
    passed: u64,
    end: End,
    /// The log heard that the script runs.
    marked: bool,
    /// The log heard how it ends.
    told: bool,
}

impl State {
    fn pass(&mut self, point: u64, long: bool, over: bool) -> Next {
        if over && self.end == End::Open {
            self.end = End::Stop(point.max(self.passed + 1));
        }
        match self.end {
            End::Stop(stop) if point >= stop => {
                let told = core::mem::replace(&mut self.told, true);
                return Next::Stop((!told).then_some(stop));
            }
            _ => self.passed = self.passed.max(point),
        }
        let marks = long && self.end == End::Open && !self.marked;
        self.marked |= marks;
        if marks { Next::Mark } else { Next::On }
    }

    /// The script's own end. Returns whether the log has to hear of it.
    fn finish(&mut self) -> bool {
        if self.end == End::Open {
            self.end = End::Own;
        }
        let tells = self.marked && !self.told;
        self.told |= tells;
        tells
    }
}

impl Deadline {
    /// The limit of a script that is new.
    pub fn new(limit: Duration) -> Self {
        Self::with(limit, State::default(), None)
    }

    fn with(limit: Duration, state: State, place: Option<(Arc<Stops>, Place)>) -> Self {
        Self { limit, inner: Mutex::new(Inner { state, place }) }
    }

    /// The limit of a script that a recovery runs, if it has any.
    pub fn recalled(stops: &Arc<Stops>, place: Place, limit: Duration) -> Option<Self> {
        let at = Some((stops.clone(), place));
        match stops.recall(place) {
            Recalled::Known(Entry::Stopped(stop)) => {
                Some(Self::with(limit, State { end: End::Stop(stop), told: true, ..State::default() }, None))
            }
            Recalled::Known(Entry::Finished) | Recalled::Old => None,
            // It ran when the process ended: it is stopped at its first point, since it may be what the process was ended for.
            Recalled::Known(Entry::Running) => {
                Some(Self::with(Duration::ZERO, State { marked: true, ..State::default() }, at))
            }
            Recalled::Unseen => Some(Self::with(limit, State::default(), at)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it is locked")
    }

    /// Says where a log has the call: before any replica runs it.
    pub fn is_logged(&self, stops: Arc<Stops>, place: Place) {
        self.lock().place = Some((stops, place));
    }

    /// Asks at a point whether the script goes on, which runs for `elapsed` on this replica. Other replicas wait here while a
    /// decision is being synced.
    pub fn pass(&self, point: u64, elapsed: Duration) -> bool {
        let Inner { state, place } = &mut *self.lock();
        let next = state.pass(point, elapsed >= self.limit / SOON, elapsed >= self.limit);
        let entry = match next {
            Next::Mark => Some(Entry::Running),
            Next::Stop(stop) => stop.map(Entry::Stopped),
            Next::On => None,
        };
        note(place, entry);
        !matches!(next, Next::Stop(_))
    }

    /// Says that a replica has come to the call's end, stopped or not.
    pub fn finish(&self) {
        let Inner { state, place } = &mut *self.lock();
        let entry = state.finish().then_some(Entry::Finished);
        note(place, entry);
    }
}

fn note(place: &Option<(Arc<Stops>, Place)>, entry: Option<Entry>) {
    if let (Some((stops, place)), Some(entry)) = (place, entry) {
        stops.note(*place, entry);
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The points of a script in the test below, and replicas that run it.
    const POINTS: u64 = 4;
    const REPLICAS: usize = 3;

    /// A moment of replicas that run one script.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Moment {
        state: State,
        /// The next point of each; 0: it has ended.
        next: [u64; REPLICAS],
        /// Where those that have ended did: a point, or behind the last.
        ended: BTreeSet<u64>,
        /// What the log heard.
        running: bool,
        outcome: Option<u64>,
    }

    impl Moment {
        /// What comes of a replica's step.
        fn after(&self, replica: usize, long: bool, over: bool) -> Self {
            let mut after = self.clone();
            let point = after.next[replica];
            let mut end = None;
            if point > POINTS {
                if after.state.finish() {
                    after.outcome = Some(u64::MAX);
                }
                end = Some(u64::MAX);
            } else {
                match after.state.pass(point, long, over) {
                    Next::On => {}
                    Next::Mark => after.running = true,
                    Next::Stop(told) => {
                        after.outcome = after.outcome.or(told);
                        // As a database does behind each call.
                        assert!(!after.state.finish(), "what is stopped is told once");
                        end = Some(point);
                    }
                }
            }
            after.next[replica] = if end.is_some() { 0 } else { point + 1 };
            after.ended.extend(end);
            after
        }

        /// Whatever was shown is what the other replicas and a recovery come to.
        fn check(&self) {
            assert!(self.ended.len() <= 1, "replicas ended at {:?}", self.ended);
            let Some(&ended) = self.ended.first() else { return };
            match self.outcome {
                Some(outcome) => assert_eq!(outcome, ended, "the log has heard otherwise"),
                None => assert!(ended == u64::MAX && !self.running, "a recovery does not know the end {ended}"),
            }
        }
    }

    #[test]
    fn replicas_agree_in_all_orders_of_their_steps() {
        let state = State::default();
        let first = Moment { state, next: [1; REPLICAS], ended: BTreeSet::new(), running: false, outcome: None };
        let (mut seen, mut open) = (BTreeSet::from([first.clone()]), vec![first]);
        let mut ends = BTreeSet::new();
        while let Some(moment) = open.pop() {
            for replica in (0..REPLICAS).filter(|replica| moment.next[*replica] > 0) {
                for (long, over) in [(false, false), (true, false), (true, true)] {
                    let after = moment.after(replica, long, over);
                    after.check();
                    if after.next == [0; REPLICAS] {
                        ends.extend(&after.ended);
                    }
                    if seen.insert(after.clone()) {
                        open.push(after);
                    }
                }
            }
        }
        assert_eq!(ends, BTreeSet::from([1, 2, 3, 4, u64::MAX]), "each end is met");
        assert!(seen.len() > 500, "{} moments are too few", seen.len());
    }
}
