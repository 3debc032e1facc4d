//! The structure that the tests replicate: a map that numbers its changes. Every answer contains the number, and so
//! tells the operation's position in the order of all changes.
#![allow(dead_code)]

use std::collections::BTreeMap;

use archipelago_check::drops::Counted;
use archipelago_check::history::{Entry, History, Log};
use archipelago_check::linear::{self, Model};
use archipelago_check::map::{self, MapOp, MapRet};
use archipelago_platform::atomic::{AtomicBool, AtomicUsize, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_replicate::{Handle, Sequential};

/// A gate at which threads wait inside an operation.
#[derive(Debug, Default)]
pub struct Gate {
    pub open: AtomicBool,
    pub waiting: AtomicUsize,
}

impl Gate {
    pub fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        while !self.open.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}

pub enum Change {
    Insert(u64, u64),
    Remove(u64),
    /// Increments only the number. Owns a value that counts its drops.
    Note(Counted),
    /// Waits at the gate, on this replica only.
    Stall(usize, Arc<Gate>),
    Panic,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of changes before this operation.
    pub number: u64,
    pub value: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub replica: usize,
    pub number: u64,
    pub map: BTreeMap<u64, u64>,
}

impl Ledger {
    /// Returns a function that makes replicas. Each replica knows its index.
    pub fn numbered() -> impl Fn() -> Ledger + Sync {
        let next = AtomicUsize::new(0);
        move || Ledger { replica: next.fetch_add(1, Ordering::Relaxed), ..Ledger::default() }
    }

    pub fn content(&self) -> (u64, BTreeMap<u64, u64>) {
        (self.number, self.map.clone())
    }
}

impl Sequential for Ledger {
    type Read = u64;
    type Write = Change;
    type Response = Answer;

    fn read(&self, key: &u64) -> Answer {
        Answer { number: self.number, value: self.map.get(key).copied() }
    }

    fn write(&mut self, change: &Change) -> Answer {
        let value = match change {
            Change::Insert(key, value) => self.map.insert(*key, *value),
            Change::Remove(key) => self.map.remove(key),
            Change::Note(counted) => Some(counted.tag()),
            Change::Stall(replica, gate) => {
                if *replica == self.replica {
                    gate.pass();
                }
                None
            }
            Change::Panic => panic!("as planned"),
        };
        self.number += 1;
        Answer { number: self.number - 1, value }
    }
}

/// An operation as recorded in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    /// Increments only the number: [`Change::Stall`].
    Stall,
}

impl Op {
    pub fn change(&self) -> Option<Change> {
        match *self {
            Op::Get(_) | Op::Stall => None,
            Op::Insert(key, value) => Some(Change::Insert(key, value)),
            Op::Remove(key) => Some(Change::Remove(key)),
        }
    }
}

/// A model of the numbers alone: a counter that changes increment and look-ups read.
struct Numbers;

impl Model for Numbers {
    type Op = Op;
    type Ret = Answer;
    type State = u64;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, &state: &u64, op: &Op, answer: &Answer) -> Option<u64> {
        (answer.number == state).then(|| if matches!(op, Op::Get(_)) { state } else { state + 1 })
    }
}

/// Checks a history twice: the order of all changes, given by their numbers, and the map's values for each key.
pub fn check(history: History<Op, Answer>) {
    linear::check(&Numbers, history.entries()).assert_ok();
    let as_map = |entry: &Entry<Op, Answer>| {
        let op = match entry.op {
            Op::Get(key) => MapOp::Get(key),
            Op::Insert(key, value) => MapOp::Insert(key, value),
            Op::Remove(key) => MapOp::Remove(key),
            Op::Stall => return None,
        };
        let &Entry { thread, invoked, returned, .. } = entry;
        Some(Entry { thread, invoked, returned, op, ret: MapRet::Value(entry.ret.value) })
    };
    let history = History::from_entries(history.entries().iter().filter_map(as_map).collect());
    map::check_map(&BTreeMap::new(), &history, linear::DEFAULT_STEPS).assert_ok();
}

/// A model of the whole ledger. For a change, the answer `None` is always correct.
struct Whole;

impl Model for Whole {
    type Op = Op;
    type Ret = Option<Answer>;
    type State = (u64, BTreeMap<u64, u64>);

    fn initial(&self) -> Self::State {
        Ledger::default().content()
    }

    fn step(&self, (number, map): &Self::State, op: &Op, answer: &Option<Answer>) -> Option<Self::State> {
        let mut ledger = Ledger { replica: 0, number: *number, map: map.clone() };
        let right = match op {
            Op::Get(key) => ledger.read(key),
            _ => ledger.write(&op.change()?),
        };
        answer.as_ref().is_none_or(|answer| *answer == right).then(|| ledger.content())
    }
}

/// Checks a history that a panic ended. An operation that got the error may have taken effect or not, and at any time.
/// The check passes if the history is linearizable for some choice of the operations that took effect.
pub fn check_poisoned(history: History<Op, Option<Answer>>) {
    let (answered, mut refused): (Vec<_>, Vec<_>) =
        history.into_entries().into_iter().partition(|entry| entry.ret.is_some());
    refused.retain(|entry| entry.op.change().is_some());
    refused.iter_mut().for_each(|entry| entry.returned = u64::MAX);
    assert!(refused.len() < 8, "one for each thread at most");
    let verdict = |effects: u32| {
        let happened = refused.iter().enumerate().filter(|(at, _)| effects & 1 << at != 0).map(|(_, entry)| entry);
        let entries: Vec<_> = answered.iter().chain(happened).cloned().collect();
        linear::check(&Whole, &entries)
    };
    if !(0..1 << refused.len()).any(|effects| verdict(effects).is_ok()) {
        verdict(0).assert_ok();
    }
}

/// The number of keys, small so that the threads use the same keys.
pub const KEYS: u64 = 4;

/// A small random generator, so that each thread's operations are its own and the same in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

/// Carries out operations; `updates` percent of them are changes, single or in batches of three.
pub fn work(handle: &mut Handle<Ledger>, log: &mut Log<'_, Op, Answer>, seed: u64, operations: usize, updates: u64) {
    let mut state = seed;
    let change = |state: &mut u64| {
        let key = random(state) % KEYS;
        if random(state).is_multiple_of(3) { Op::Remove(key) } else { Op::Insert(key, random(state)) }
    };
    for _ in 0..operations {
        let dice = random(&mut state) % 100;
        if dice >= updates {
            log.record(Op::Get(random(&mut state) % KEYS), |op| match op {
                Op::Get(key) => handle.read(key).unwrap(),
                _ => unreachable!(),
            });
        } else if dice.is_multiple_of(8) {
            let ops: Vec<Op> = (0..3).map(|_| change(&mut state)).collect();
            log.record_many(|| {
                let answers = handle.write_many(ops.iter().filter_map(Op::change).collect()).unwrap();
                assert_eq!(answers.len(), 3);
                assert!(answers.windows(2).all(|pair| pair[0].number + 1 == pair[1].number), "one batch");
                ops.into_iter().zip(answers)
            });
        } else {
            log.record(change(&mut state), |op| handle.write(op.change().unwrap()).unwrap());
        }
    }
}

/// Carries out single operations until the structure is poisoned, possibly by this thread's own operation.
pub fn work_until_panic(
    handle: &mut Handle<Ledger>,
    log: &mut Log<'_, Op, Option<Answer>>,
    seed: u64,
    operations: usize,
    panics_at: Option<usize>,
) {
    let mut state = seed;
    for at in 0..operations {
        if panics_at == Some(at) {
            handle.write(Change::Panic).unwrap_err();
            return;
        }
        let key = random(&mut state) % KEYS;
        let op = match random(&mut state) % 4 {
            0 => Op::Get(key),
            1 => Op::Remove(key),
            _ => Op::Insert(key, random(&mut state)),
        };
        let answer = log.record(op, |op| match (op, op.change()) {
            (_, Some(change)) => handle.write(change).ok(),
            (Op::Get(key), _) => handle.read(key).ok(),
            _ => unreachable!(),
        });
        if answer.is_none() {
            return;
        }
    }
}
