//! A script's time limit. All replicas stop a script at the same point.
//!
//! Each replica runs the script itself. The replicas' clocks differ, and changes that a script made before it was
//! stopped remain. So the replicas must agree where the script stops, and a clock can only propose the end: the first
//! replica on which the time is over fixes the *point* at which all replicas stop the script. Each replica meets the
//! same points in the same order and numbers them from 1. There is one point every thousand instructions, one at each
//! call of a command or of a function that may take long, one at a lack of memory, and one every hundred values of the
//! script's result.
//!
//! # Argument
//! [`State`] is behind a lock, so its steps have one order. A replica calls [`State::pass`] at each point. The replica
//! continues beyond the point `p` only after a step that set `passed` to at least `p`, or if `p` is before a fixed stop.
//! - *No replica is beyond the stop when the stop is fixed*: the stop is greater than `passed`, and `passed` is at least as
//!   great as every point beyond which a replica has continued by then.
//! - *No replica continues beyond the stop later*: a fixed stop never changes, and `pass` compares the point with it first.
//! - *After a replica has reached the script's own end, no stop is fixed*: `finish` closes the state, in the same order of
//!   steps.
//! - If a replica reaches the script's own end after a stop was fixed, the end comes before the stop. Before the stop all
//!   replicas carry out the same steps, so each replica reaches the end before the stop.
//!
//! With a log, every decision that depends on a clock is durable before any replica shows the script's effects: it is
//! written to a second journal, the *journal of stops* ([`stops`](crate::stops)). `marked` is set only while the state
//! is open. So if a replica has ended a script that was not marked, no mark is recorded later that would contradict
//! this replica.

use core::fmt;
use core::time::Duration;

use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

use crate::stops::{CallId, Entry, Recalled, Stops};

/// The default time limit of a script, in milliseconds.
pub const LIMIT: u64 = 5_000;

/// Once a script has run for its limit divided by this number, the journal of stops records that the script runs. For
/// shorter scripts the sync of such a record would cost too much.
const SOON: u32 = 50;

/// A script's time limit, shared by all replicas that run the script. See the module's documentation.
pub struct Deadline {
    limit: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    /// The position of the call in the log, if there is a log.
    place: Option<(Arc<Stops>, CallId)>,
}

/// The point at which a script ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum End {
    /// Not decided yet.
    #[default]
    Open,
    /// At this point, where all replicas stop the script.
    Stop(u64),
    /// At the script's own end.
    Own,
}

/// What a replica does at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Continues the script.
    On,
    /// Records in the journal of stops that the script runs, and continues the script.
    Mark,
    /// Stops the script. The point of the stop is given if the replica must first record it in the journal of stops.
    Stop(Option<u64>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    /// The greatest point beyond which a replica has continued.
    passed: u64,
    end: End,
    /// Whether the journal of stops has recorded that the script runs.
    marked: bool,
    /// Whether the journal of stops has recorded how the script ends.
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

    /// Notes the script's own end. Returns whether the journal of stops must record it.
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
    /// Returns the limit of a new script.
    pub fn new(limit: Duration) -> Self {
        Self::with(limit, State::default(), None)
    }

    fn with(limit: Duration, state: State, place: Option<(Arc<Stops>, CallId)>) -> Self {
        Self { limit, inner: Mutex::new(Inner { state, place }) }
    }

    /// Returns the limit of a script that a recovery runs again. Returns `None` if the script has no limit.
    pub fn recalled(stops: &Arc<Stops>, place: CallId, limit: Duration) -> Option<Self> {
        let at = Some((stops.clone(), place));
        match stops.recall(place) {
            Recalled::Known(Entry::Stopped(stop)) => {
                Some(Self::with(limit, State { end: End::Stop(stop), told: true, ..State::default() }, None))
            }
            Recalled::Known(Entry::Finished) | Recalled::Old => None,
            // The script was running when the process ended. It is stopped at its first point, because it may be the reason
            // why the process was ended.
            Recalled::Known(Entry::Running) => {
                Some(Self::with(Duration::ZERO, State { marked: true, ..State::default() }, at))
            }
            Recalled::Unseen => Some(Self::with(limit, State::default(), at)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it is locked")
    }

    /// Sets the call's position in the log. Must be called before any replica runs the call.
    pub fn is_logged(&self, stops: Arc<Stops>, place: CallId) {
        self.lock().place = Some((stops, place));
    }

    /// Returns whether the script continues beyond a point; `elapsed` is the script's running time on this replica. Other
    /// replicas that call `pass` wait while a decision is being synced.
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

    /// Notes that a replica has reached the call's end. A stopped call has an end as well.
    pub fn finish(&self) {
        let Inner { state, place } = &mut *self.lock();
        let entry = state.finish().then_some(Entry::Finished);
        note(place, entry);
    }
}

fn note(place: &Option<(Arc<Stops>, CallId)>, entry: Option<Entry>) {
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

    /// The number of points of the script in the test below.
    const POINTS: u64 = 4;
    const REPLICAS: usize = 3;

    /// A state of all replicas that run one script, between two steps.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Moment {
        state: State,
        /// The next point of each replica; 0 if the replica has ended.
        next: [u64; REPLICAS],
        /// The points at which replicas have ended; `u64::MAX` stands for the script's own end.
        ended: BTreeSet<u64>,
        /// Whether the journal of stops has recorded that the script runs.
        running: bool,
        outcome: Option<u64>,
    }

    impl Moment {
        /// Returns the state after one step of a replica.
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
                        // A database calls `finish` after each call, too.
                        assert!(!after.state.finish(), "what is stopped is told once");
                        end = Some(point);
                    }
                }
            }
            after.next[replica] = if end.is_some() { 0 } else { point + 1 };
            after.ended.extend(end);
            after
        }

        /// Checks that all replicas that have ended, and a recovery, come to the same end.
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
