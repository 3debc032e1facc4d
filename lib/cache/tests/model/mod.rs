//! The model with which the tests compare a cache: a map from which any key may vanish at any time.

// Every test program has its own copy of this module and uses its own part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;

use archipelago_cache::{Cache, Policy};
use archipelago_check::linear::Model;

/// The number of keys of a history.
const KEYS: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Get(u8),
    Insert(u8, u32),
    Remove(u8),
    GetOrInsert(u8, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ret {
    Value(Option<u32>),
    Was(bool),
}

/// Returns a random operation. `random(bound)` returns a random number below `bound`; `unique` is a value that no other
/// operation has.
pub fn draw(mut random: impl FnMut(u64) -> u64, unique: u32) -> Op {
    let key = random(KEYS) as u8;
    match random(16) {
        0..=5 => Op::Get(key),
        6..=10 => Op::Insert(key, unique),
        11 | 12 => Op::Remove(key),
        _ => Op::GetOrInsert(key, unique),
    }
}

pub fn perform<P: Policy>(cache: &Cache<u8, u32, P>, op: &Op) -> Ret {
    match *op {
        Op::Get(key) => Ret::Value(cache.get(&key)),
        Op::Insert(key, value) => Ret::Was(cache.insert(key, value)),
        Op::Remove(key) => Ret::Was(cache.remove(&key)),
        Op::GetOrInsert(key, value) => Ret::Value(Some(cache.get_or_insert_with(key, |_| value))),
    }
}

/// The model. `may_vanish` is whether the cache has evicted or refused entries. If not, no key may be absent without a
/// removal.
pub struct Map {
    pub may_vanish: bool,
}

type State = BTreeMap<u8, u32>;

impl Map {
    /// Returns the state without `key`, or `None` if the model does not allow that `key` is absent.
    fn absent(&self, state: &State, key: u8) -> Option<State> {
        let mut state = state.clone();
        (state.remove(&key).is_none() || self.may_vanish).then_some(state)
    }
}

impl Model for Map {
    type Op = Op;
    type Ret = Ret;
    type State = State;

    fn initial(&self) -> State {
        State::new()
    }

    fn step(&self, state: &State, op: &Op, ret: &Ret) -> Option<State> {
        let with =
            |state: &State, key, value| Some(state.iter().map(|(k, v)| (*k, *v)).chain([(key, value)]).collect());
        match (op, ret) {
            (Op::Get(key), Ret::Value(Some(value))) => (state.get(key) == Some(value)).then(|| state.clone()),
            (Op::Get(key), Ret::Value(None)) => self.absent(state, *key),
            (Op::Insert(key, value), Ret::Was(true)) => with(state, *key, *value),
            // A refused insertion removes the previous value.
            (Op::Insert(key, _), Ret::Was(false)) => self.absent(state, *key),
            (Op::Remove(key), Ret::Was(true)) => state.contains_key(key).then(|| self.without(state, *key)),
            (Op::Remove(key), Ret::Was(false)) => self.absent(state, *key),
            (Op::GetOrInsert(key, own), Ret::Value(Some(value))) => match state.get(key) {
                Some(there) if there == value => Some(state.clone()),
                there if value == own && (there.is_none() || self.may_vanish) => with(state, *key, *value),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_blind(&self, op: &Op, ret: &Ret) -> bool {
        match op {
            Op::Insert(..) => true,
            Op::GetOrInsert(_, own) => *ret == Ret::Value(Some(*own)),
            _ => self.may_vanish,
        }
    }
}

impl Map {
    fn without(&self, state: &State, key: u8) -> State {
        state.iter().filter(|(other, _)| **other != key).map(|(key, value)| (*key, *value)).collect()
    }
}
