//! [`FraserSkipList`] as an ordered map, for experiments with ordered maps.

use core::cell::RefCell;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_sets::{FraserSession, FraserSkipList, Set, SetSession};

use crate::contender::BenchIndex;

/// A map from `u64` to `u64`.
#[derive(Default)]
pub struct Fraser(FraserSkipList);

/// A thread's access to the map.
pub struct Session<'l>(RefCell<FraserSession<'l>>);

impl BenchIndex<u64> for Fraser {
    fn empty() -> Self {
        Self::default()
    }
}

impl OrderedIndex<u64, u64> for Fraser {
    type Session<'a> = Session<'a>;

    fn pin(&self) -> Session<'_> {
        Session(RefCell::new(self.0.session()))
    }
}

impl OrderedSession<u64, u64> for Session<'_> {
    fn get(&self, key: &u64) -> Option<u64> {
        self.0.borrow_mut().get(*key)
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        self.0.borrow_mut().upsert(*key, value)
    }

    fn update(&self, key: &u64, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        self.0.borrow_mut().update(*key, |old| f(&old))
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.0.borrow_mut().remove(*key)
    }

    fn scan(&self, from: &u64, limit: usize, mut visit: impl FnMut(u64, &u64)) -> usize {
        self.0.borrow_mut().scan(*from, limit, |key, value| visit(key, &value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{check_rival, words};

    #[test]
    fn it_agrees_with_a_model_and_its_histories_are_linearizable() {
        check_rival::<Fraser>(&words(2_000), |_| ());
    }
}
