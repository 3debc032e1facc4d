//! Checks whether a history is linearizable, by Wing and Gong's search with Lowe's memoisation.
//!
//! A history is linearizable if its operations can be put into one order with two properties: (1) if A was over before
//! B began, A precedes B; (2) a sequential [`Model`] accepts the order, including the results. The search builds such
//! an order from the front. Among the operations that no unplaced operation must precede, it tries each one that the
//! model accepts, and backtracks. A configuration (the set of placed operations, and the model's state) that failed
//! once is not entered again.
//!
//! # What differs from Wing–Gong–Lowe
//! - The set of placed operations is one count per *lane*, instead of a bit set over the history. A lane is a chain of
//!   operations that follow each other in real time. There are at most as many lanes as operations overlapped at one
//!   moment. So a few words of counts tell exactly which operations are placed, independently of the length of the
//!   history and the number of threads.
//! - If an operation may come next and leaves the state unchanged (a read with a right answer), it is placed at once
//!   and no alternative is tried. This is sound: in any order that works from here, the operation can be moved to the
//!   front without changing a state that any other operation sees. The argument requires that the operation
//!   leaves *every* state unchanged in which its answer is right. A write that does not return what it replaced can
//!   violate this requirement; [`Model::is_blind`] tells so.
//!
//! The worst-case time is exponential in the number of overlapping writes. Hence the step budget, and the verdict
//! [`Verdict::Undecided`] when the budget is used up.

use crate::history::Entry;
use core::cmp::Reverse;
use core::fmt::{self, Debug, Write};
use core::hash::Hash;
use rustc_hash::FxHashSet;
use std::collections::BinaryHeap;

/// A sequential specification.
pub trait Model {
    /// The operations with their arguments.
    type Op: Debug;
    /// The results.
    type Ret: Debug;
    /// The state between operations.
    type State: Clone + Eq + Hash + Debug;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// Returns the state after `op` returned `ret` in `state`, or `None` if this result is wrong in `state`. Several
    /// results may be right in one state. The state and the result together determine the next state.
    fn step(&self, state: &Self::State, op: &Self::Op, ret: &Self::Ret) -> Option<Self::State>;

    /// Returns whether `op` with the result `ret` may leave one state unchanged and change another. This is the case
    /// for a write that does not return what it replaced. A write that returns what it replaced (the default) leaves
    /// all states with this result unchanged, or none.
    fn is_blind(&self, _op: &Self::Op, _ret: &Self::Ret) -> bool {
        false
    }
}

/// The default step budget in calls of [`Model::step`]; they take a few seconds.
pub const DEFAULT_STEPS: u64 = 5_000_000;

/// The conclusion of a checker.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// The history is legal.
    Ok,
    /// The history is illegal, for this reason.
    Violation(CounterExample),
    /// The checker could not decide: the step budget was used up or, for transactions, the history contains too little
    /// information.
    Undecided(String),
}

impl Verdict {
    /// Returns whether the history is certainly legal.
    pub fn is_ok(&self) -> bool {
        matches!(self, Verdict::Ok)
    }

    /// Returns whether the history is certainly illegal.
    pub fn is_violation(&self) -> bool {
        matches!(self, Verdict::Violation(_))
    }

    /// Asserts that the history is legal.
    ///
    /// # Panics
    /// If the history is illegal, with the counter-example; and if the checker could not decide.
    #[track_caller]
    pub fn assert_ok(&self) {
        match self {
            Verdict::Ok => {}
            Verdict::Violation(example) => panic!("{example}"),
            Verdict::Undecided(why) => panic!("undecided: {why}"),
        }
    }
}

/// The reason why a history is illegal, for a human reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterExample {
    /// The error in one line.
    pub title: String,
    /// Of a history that is not linearizable, the smallest failing window: the end of the longest order that works, the
    /// state after it, and the operations that may come next, none of which the model accepts. Of a history of
    /// transactions, the dependencies that make a cycle, if any, and the transactions involved.
    pub text: String,
}

impl fmt::Display for CounterExample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.title, self.text)
    }
}

/// Checks `entries`, in any order, with [`DEFAULT_STEPS`]. See [`crate::history`] for the meaning of their stamps.
pub fn check<M: Model>(model: &M, entries: &[Entry<M::Op, M::Ret>]) -> Verdict {
    check_within(model, entries, DEFAULT_STEPS)
}

/// Checks like [`check`], and gives up after `steps` calls of [`Model::step`].
pub fn check_within<M: Model>(model: &M, entries: &[Entry<M::Op, M::Ret>], steps: u64) -> Verdict {
    Search::new(model, entries, steps).run()
}

/// The placed operations, as a count per lane, and the model's state after them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Config<S> {
    placed: Vec<u32>,
    state: S,
}

/// A configuration, and the alternatives that were not yet tried.
struct Frame<S> {
    config: Config<S>,
    options: Vec<(usize, S)>,
    order_len: usize,
}

/// A configuration that no operation can follow.
struct DeadEnd<S> {
    config: Config<S>,
    /// The first stamp by which an unplaced operation has returned.
    bound: u64,
    order_len: usize,
    order_tail: Vec<usize>,
}

/// The number of operations of a failing order that a counter-example shows.
const SHOWN: usize = 12;

struct Search<'a, M: Model> {
    model: &'a M,
    entries: &'a [Entry<M::Op, M::Ret>],
    lanes: Vec<Vec<usize>>,
    steps_left: u64,
    /// The order that is being tried, as indices of entries.
    order: Vec<usize>,
    worst: Option<DeadEnd<M::State>>,
}

struct OutOfSteps;

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, entries: &'a [Entry<M::Op, M::Ret>], steps: u64) -> Self {
        let lanes = lanes(entries);
        Search { model, entries, lanes, steps_left: steps, order: Vec::with_capacity(entries.len()), worst: None }
    }

    fn run(mut self) -> Verdict {
        match self.find_order() {
            Ok(true) => Verdict::Ok,
            Ok(false) => Verdict::Violation(self.explain()),
            Err(OutOfSteps) => {
                Verdict::Undecided(format!("the step budget ran out on {} operations", self.entries.len()))
            }
        }
    }

    fn find_order(&mut self) -> Result<bool, OutOfSteps> {
        let mut config = Config { placed: vec![0; self.lanes.len()], state: self.model.initial() };
        let mut failed = FxHashSet::default();
        let mut frames: Vec<Frame<M::State>> = Vec::new();
        loop {
            self.place_reads(&mut config)?;
            if self.order.len() == self.entries.len() {
                return Ok(true);
            }
            // A configuration that was entered before has failed, or is still being tried further down the stack. There
            // is nothing new to try in it.
            if failed.insert(config.clone()) {
                let options = self.options(&config)?;
                frames.push(Frame { config, options, order_len: self.order.len() });
            }
            let Some(next) = self.backtrack(&mut frames) else { return Ok(false) };
            config = next;
        }
    }

    /// Returns the next alternative of the deepest frame that has one.
    fn backtrack(&mut self, frames: &mut Vec<Frame<M::State>>) -> Option<Config<M::State>> {
        loop {
            let frame = frames.last_mut()?;
            if let Some((lane, state)) = frame.options.pop() {
                self.order.truncate(frame.order_len);
                let mut config = Config { placed: frame.config.placed.clone(), state };
                self.place(&mut config.placed, lane);
                return Some(config);
            }
            frames.pop();
        }
    }

    fn place(&mut self, placed: &mut [u32], lane: usize) {
        self.order.push(self.lanes[lane][placed[lane] as usize]);
        placed[lane] += 1;
    }

    /// Returns the next operation of a lane.
    fn head(&self, placed: &[u32], lane: usize) -> Option<&'a Entry<M::Op, M::Ret>> {
        self.lanes[lane].get(placed[lane] as usize).map(|&index| &self.entries[index])
    }

    /// Returns the first stamp by which an unplaced operation has returned. An operation that was invoked later must
    /// wait.
    fn bound(&self, placed: &[u32]) -> u64 {
        (0..self.lanes.len()).filter_map(|lane| self.head(placed, lane)).map(|e| e.returned).min().unwrap_or(u64::MAX)
    }

    fn step(&mut self, state: &M::State, e: &Entry<M::Op, M::Ret>) -> Result<Option<M::State>, OutOfSteps> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(OutOfSteps)?;
        Ok(self.model.step(state, &e.op, &e.ret))
    }

    /// Places every operation that may come next, leaves the state unchanged, and is not [blind](Model::is_blind).
    fn place_reads(&mut self, config: &mut Config<M::State>) -> Result<(), OutOfSteps> {
        loop {
            let bound = self.bound(&config.placed);
            let before = self.order.len();
            for lane in 0..self.lanes.len() {
                while let Some(entry) = self.head(&config.placed, lane).filter(|e| e.invoked <= bound) {
                    if self.model.is_blind(&entry.op, &entry.ret)
                        || self.step(&config.state, entry)?.is_none_or(|next| next != config.state)
                    {
                        break;
                    }
                    self.place(&mut config.placed, lane);
                }
            }
            if self.order.len() == before {
                return Ok(());
            }
        }
    }

    /// Returns the operations that may come next, with the states to which they lead. The operation that returns first
    /// is the last one, since the last one is tried first.
    fn options(&mut self, config: &Config<M::State>) -> Result<Vec<(usize, M::State)>, OutOfSteps> {
        let bound = self.bound(&config.placed);
        let mut options = Vec::new();
        for lane in 0..self.lanes.len() {
            if let Some(entry) = self.head(&config.placed, lane).filter(|e| e.invoked <= bound)
                && let Some(state) = self.step(&config.state, entry)?
            {
                options.push((Reverse(entry.returned), lane, state));
            }
        }
        options.sort_by_key(|&(returned, ..)| returned);
        if options.is_empty() {
            self.note_dead_end(config, bound);
        }
        Ok(options.into_iter().map(|(_, lane, state)| (lane, state)).collect())
    }

    /// Keeps the dead end that got furthest. All operations that returned before its bound can be ordered. The
    /// operations that returned by its bound cannot all be ordered, since otherwise some order would have got further.
    /// So the bound ends the shortest failing prefix.
    fn note_dead_end(&mut self, config: &Config<M::State>, bound: u64) {
        let reached = (bound, self.order.len());
        if self.worst.as_ref().is_none_or(|worst| (worst.bound, worst.order_len) < reached) {
            let order_tail = self.order[self.order.len().saturating_sub(SHOWN)..].to_vec();
            self.worst = Some(DeadEnd { config: config.clone(), bound, order_len: self.order.len(), order_tail });
        }
    }

    fn explain(&self) -> CounterExample {
        let worst = self.worst.as_ref().expect("a failed search has met a dead end");
        let mut text = String::new();
        let hidden = worst.order_len - worst.order_tail.len();
        writeln!(text, "The longest order that works ({} of {} operations):", worst.order_len, self.entries.len()).ok();
        if hidden > 0 {
            writeln!(text, "  ... {hidden} operations ...").ok();
        }
        for &index in &worst.order_tail {
            writeln!(text, "  {}", Shown(&self.entries[index])).ok();
        }
        writeln!(text, "State there: {:?}", worst.config.state).ok();
        writeln!(text, "None of these can come next, and one of them must:").ok();
        let mut stuck: Vec<_> =
            (0..self.lanes.len()).filter_map(|lane| self.head(&worst.config.placed, lane)).collect();
        stuck.retain(|e| e.invoked <= worst.bound);
        stuck.sort_by_key(|e| e.returned);
        for entry in &stuck {
            writeln!(text, "  {}", Shown(entry)).ok();
        }
        CounterExample { title: format!("not linearizable: no place for {}", Shown(stuck[0])), text }
    }
}

/// An operation in one line: thread, stamps, operation and result.
pub(crate) struct Shown<'a, Op, Ret>(pub(crate) &'a Entry<Op, Ret>);

impl<Op: Debug, Ret: Debug> fmt::Display for Shown<'_, Op, Ret> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { thread, invoked, returned, op, ret } = self.0;
        write!(f, "thread {thread:>2} [{invoked:>6} ..{returned:>6}] {op:?} -> {ret:?}")
    }
}

/// Splits the history into the fewest chains of operations that follow each other in real time.
fn lanes<Op, Ret>(entries: &[Entry<Op, Ret>]) -> Vec<Vec<usize>> {
    let mut by_invocation: Vec<usize> = (0..entries.len()).collect();
    by_invocation.sort_by_key(|&index| entries[index].invoked);
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let mut free_from = BinaryHeap::new();
    for index in by_invocation {
        let lane = match free_from.peek() {
            Some(&Reverse((returned, lane))) if returned < entries[index].invoked => {
                free_from.pop();
                lane
            }
            _ => {
                lanes.push(Vec::new());
                lanes.len() - 1
            }
        };
        lanes[lane].push(index);
        free_from.push(Reverse((entries[index].returned, lane)));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register. A write returns the old value, and a read returns the value.
    struct Register;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Read,
        Write(u32),
    }

    impl Model for Register {
        type Op = Op;
        type Ret = u32;
        type State = u32;

        fn initial(&self) -> u32 {
            0
        }

        fn step(&self, state: &u32, op: &Op, ret: &u32) -> Option<u32> {
            (state == ret).then_some(match op {
                Op::Read => *state,
                Op::Write(value) => *value,
            })
        }
    }

    fn entry(thread: usize, invoked: u64, returned: u64, op: Op, ret: u32) -> Entry<Op, u32> {
        Entry { thread, invoked, returned, op, ret }
    }

    #[test]
    fn overlapping_operations_may_take_either_order() {
        for read in [0, 7] {
            check(&Register, &[entry(0, 1, 4, Op::Write(7), 0), entry(1, 2, 3, Op::Read, read)]).assert_ok();
        }
        assert!(check(&Register, &[entry(0, 1, 4, Op::Write(7), 0), entry(1, 2, 3, Op::Read, 8)]).is_violation());
    }

    #[test]
    fn a_stale_read_is_explained() {
        let history = [entry(0, 1, 2, Op::Write(7), 0), entry(1, 3, 4, Op::Read, 0), entry(0, 5, 6, Op::Read, 7)];
        let Verdict::Violation(example) = check(&Register, &history) else { panic!("a stale read was accepted") };
        assert!(example.title.contains("thread  1 [     3 ..     4] Read -> 0"), "{example}");
        assert!(example.text.contains("(1 of 3 operations)"), "{example}");
        assert!(example.text.contains("State there: 7"), "{example}");
        assert!(!example.text.contains("[     5"), "what came later is not part of the window: {example}");
    }

    #[test]
    fn reads_that_saw_new_then_old_are_caught() {
        // Both reads overlap the write, but the second read began after the first was over.
        let history = [entry(0, 1, 10, Op::Write(7), 0), entry(1, 2, 3, Op::Read, 7), entry(2, 4, 5, Op::Read, 0)];
        assert!(check(&Register, &history).is_violation());
    }

    /// A register whose writes return 0, whatever they replace.
    struct Silent;

    impl Model for Silent {
        type Op = Op;
        type Ret = u32;
        type State = u32;

        fn initial(&self) -> u32 {
            7
        }

        fn step(&self, state: &u32, op: &Op, ret: &u32) -> Option<u32> {
            match op {
                Op::Read => (state == ret).then_some(*state),
                Op::Write(value) => Some(*value),
            }
        }

        fn is_blind(&self, op: &Op, _: &u32) -> bool {
            matches!(op, Op::Write(_))
        }
    }

    /// At the beginning, the first write leaves the state unchanged, since the register already has that value. But it
    /// must be placed after the second write to explain the last read.
    #[test]
    fn a_write_that_does_not_say_what_it_replaced_is_placed_anywhere() {
        let writes = [entry(0, 1, 10, Op::Write(7), 0), entry(1, 2, 3, Op::Write(8), 0)];
        let reads = [entry(2, 4, 5, Op::Read, 8), entry(2, 11, 12, Op::Read, 7)];
        check(&Silent, &[writes, reads].concat()).assert_ok();
    }

    #[test]
    fn equal_stamps_claim_nothing() {
        check(&Register, &[entry(0, 1, 2, Op::Write(7), 0), entry(1, 2, 3, Op::Read, 0)]).assert_ok();
    }

    #[test]
    fn a_spent_budget_is_admitted() {
        // Twelve overlapping writes and a wrong read: no order works, and there are far too many orders to try in 10
        // steps.
        let mut history: Vec<_> = (0..12).map(|t| entry(t, 1, 100, Op::Write(1), u32::from(t > 0))).collect();
        history.push(entry(12, 101, 102, Op::Read, 5));
        assert!(matches!(check_within(&Register, &history, 10), Verdict::Undecided(_)));
        assert!(check(&Register, &history).is_violation());
    }

    #[test]
    #[should_panic(expected = "undecided")]
    fn undecided_is_not_ok() {
        check_within(&Register, &[entry(0, 1, 2, Op::Read, 0)], 0).assert_ok();
    }

    #[test]
    fn many_short_lived_threads_need_few_lanes() {
        let history: Vec<_> = (0..500).map(|t| entry(t, 10 * t as u64, 10 * t as u64 + 15, Op::Read, 0)).collect();
        assert_eq!(lanes(&history).len(), 2);
        check(&Register, &history).assert_ok();
    }

    #[test]
    fn the_empty_history_is_legal() {
        check(&Register, &[]).assert_ok();
    }
}
