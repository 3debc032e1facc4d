//! A model of a whole map for checking pops (removals of the least or greatest key). A pop depends on all keys, so a
//! history with pops cannot be split into one history per key.

use crate::linear::Model;

/// An operation of a history with pops. Keys are numbers below 128 in the map's order, and the value of each key is its
/// number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PopOp {
    /// Inserts a key or replaces its value. Returns the old value.
    Insert(u64),
    /// Looks a key up. Returns the value.
    Get(u64),
    /// Removes a key. Returns the old value.
    Remove(u64),
    /// Removes the least key. Returns it.
    First,
    /// Removes the greatest key. Returns it.
    Last,
}

/// The model of a whole set of keys. A bit for each key tells whether the key is in the set at the beginning.
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
