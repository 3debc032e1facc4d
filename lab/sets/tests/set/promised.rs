//! The sets' guarantees as a sequential specification for the linearizability checker, and random operations for tests.

// Every test program has its own copy of this module, and uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;

use archipelago_check::linear::Model;
use archipelago_sets::SetSession;

/// A structure's guarantees beyond operations on single keys.
#[derive(Clone, Copy, PartialEq)]
pub enum Promise {
    /// Several keys are read at one moment, ranges too.
    Ordered,
    /// Several keys are read at one moment; there are no ranges.
    Hashed,
    /// Single keys, and ranges that are not of one moment.
    Rival,
    /// Single keys only; there are no ranges.
    RivalTable,
}

impl Promise {
    /// Returns whether the structure has ranges.
    pub fn has_ranges(self) -> bool {
        matches!(self, Self::Ordered | Self::Rival)
    }
}

/// The sets' guarantees, as a sequential specification.
pub struct Promised;

#[derive(Clone, Debug)]
pub enum Op {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
    Move(u64, u64),
    GetMany(Vec<u64>),
    Range(u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ret {
    Done(bool),
    Value(Option<u64>),
    Values(Vec<Option<u64>>),
    Entries(Vec<(u64, u64)>),
}

impl Model for Promised {
    type Op = Op;
    type Ret = Ret;
    type State = BTreeMap<u64, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, op: &Op, ret: &Ret) -> Option<Self::State> {
        let mut state = state.clone();
        let right = match op {
            Op::Insert(key, value) => {
                let absent = !state.contains_key(key);
                state.entry(*key).or_insert(*value);
                Ret::Done(absent)
            }
            Op::Remove(key) => Ret::Value(state.remove(key)),
            Op::Get(key) => Ret::Value(state.get(key).copied()),
            Op::Move(from, to) => {
                let moves = from != to && state.contains_key(from) && !state.contains_key(to);
                if moves {
                    let value = state.remove(from).expect("just seen");
                    state.insert(*to, value);
                }
                Ret::Done(moves)
            }
            Op::GetMany(keys) => Ret::Values(keys.iter().map(|key| state.get(key).copied()).collect()),
            Op::Range(from, to) => Ret::Entries(state.range(from..to).map(|(key, value)| (*key, *value)).collect()),
        };
        (right == *ret).then_some(state)
    }
}

/// Runs an operation on a set.
pub fn perform(session: &mut (impl SetSession + ?Sized), op: &Op) -> Ret {
    match op {
        Op::Insert(key, value) => Ret::Done(session.insert(*key, *value)),
        Op::Remove(key) => Ret::Value(session.remove(*key)),
        Op::Get(key) => Ret::Value(session.get(*key)),
        Op::Move(from, to) => Ret::Done(session.move_key(*from, *to)),
        Op::GetMany(keys) => Ret::Values(session.get_many(keys)),
        Op::Range(from, to) => Ret::Entries(session.range(*from, *to)),
    }
}

/// Draws an operation on one or two of five keys, among the operations that the structure guarantees. `below` returns a
/// random number below its argument.
pub fn draw(mut below: impl FnMut(u64) -> u64, promise: Promise, unique: u64) -> Op {
    let (key, other) = (below(5), below(5));
    match (below(8), promise) {
        (0 | 1, _) => Op::Insert(key, unique),
        (2 | 3, _) => Op::Remove(key),
        (4, Promise::Ordered | Promise::Hashed) if key != other => Op::Move(key, other),
        (5, Promise::Ordered | Promise::Hashed) => Op::GetMany(vec![key, other, 4]),
        (6, Promise::Ordered) => Op::Range(key.min(other), key.max(other) + 1),
        _ => Op::Get(key),
    }
}

/// Checks that a range contains each key at most once, in order and with its constant value, and contains all steady
/// keys.
pub fn check_range(found: &[(u64, u64)], steady: impl Iterator<Item = u64>) {
    assert!(found.is_sorted_by(|a, b| a.0 < b.0) && found.iter().all(|(key, value)| key == value), "{found:?}");
    for key in steady {
        assert!(found.iter().any(|(here, _)| *here == key), "{key} is missing in {found:?}");
    }
}
