//! What pops are judged by: a whole map. They speak of all keys, so a history with them does not fall apart into one per key.

use crate::linear::Model;

/// An operation of such a history. Keys are numbers below 128, in the map's order, and each key's value is its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PopOp {
    /// Insert or replace; answered with the old value.
    Insert(u64),
    /// Look up; answered with the value.
    Get(u64),
    /// Remove; answered with the old value.
    Remove(u64),
    /// Take the least key; answered with it.
    First,
    /// Take the greatest key; answered with it.
    Last,
}

/// A set of keys, whole: those in it at first, as bits.
#[derive(Debug, Default)]
pub struct Whole(pub u128);

impl Model for Whole {
    type Op = PopOp;
    type Ret = Option<u64>;
    type State = u128;

    fn initial(&self) -> u128 {
        self.0
    }

    fn step(&self, state: &u128, op: &PopOp, ret: &Option<u64>) -> Option<u128> {
        let there = |key: u64| (state & 1 << key != 0).then_some(key);
        let least = || (*state != 0).then(|| u64::from(state.trailing_zeros()));
        let greatest = || (*state != 0).then(|| u64::from(state.ilog2()));
        let without = |key: Option<u64>| key.map_or(*state, |key| state & !(1 << key));
        let (answer, next) = match *op {
            PopOp::Insert(key) => (there(key), state | 1 << key),
            PopOp::Get(key) => (there(key), *state),
            PopOp::Remove(key) => (there(key), without(Some(key))),
            PopOp::First => (least(), without(least())),
            PopOp::Last => (greatest(), without(greatest())),
        };
        (answer == *ret).then_some(next)
    }
}
