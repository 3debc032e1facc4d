//! The map that is examined, its type forgotten: the exam takes no time, and so is compiled for each type of keys and not for
//! each map.

use archipelago_index::OrderedSession;

use crate::contender::BenchIndex;
use crate::keys::BenchKey;

/// A contender.
pub trait Subject<K>: Sync {
    /// A thread's session.
    fn session(&self) -> Box<dyn Session<K> + '_>;

    /// Whether `insert` returns the value that it replaced.
    fn insert_returns_old(&self) -> bool;
}

/// The operations of one thread, as [`OrderedSession`] describes them.
pub trait Session<K> {
    fn get(&self, key: &K) -> Option<u64>;
    fn insert(&self, key: &K, value: u64) -> Option<u64>;
    fn update(&self, key: &K, next: &mut dyn FnMut(u64) -> u64) -> Option<u64>;
    fn remove(&self, key: &K) -> Option<u64>;
    /// Hands out copies.
    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K, u64)) -> usize;
}

impl<K: BenchKey, I: BenchIndex<K>> Subject<K> for I {
    fn session(&self) -> Box<dyn Session<K> + '_> {
        Box::new(Of(self.pin()))
    }

    fn insert_returns_old(&self) -> bool {
        I::INSERT_RETURNS_OLD
    }
}

/// A session whose type is about to be forgotten.
struct Of<S>(S);

impl<K: BenchKey, S: OrderedSession<K, u64>> Session<K> for Of<S> {
    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key)
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert(key, value)
    }

    fn update(&self, key: &K, next: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.0.update(key, |old| next(*old))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key)
    }

    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K, u64)) -> usize {
        self.0.scan(from, limit, |key, value| visit(K::from_shown(key), *value))
    }
}
