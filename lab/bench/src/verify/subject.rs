//! The map under test, behind a trait object. The exam measures no time, so indirect calls do no harm, and the exam is
//! compiled once for each key type instead of once for each map.

use archipelago_index::OrderedSession;

use crate::contender::BenchIndex;
use crate::keys::BenchKey;

/// A map under test.
pub trait Subject<K>: Sync {
    /// Returns a session for a thread.
    fn session(&self) -> Box<dyn Session<K> + '_>;

    /// Returns whether `insert` returns the value that it replaced.
    fn insert_returns_old(&self) -> bool;

    /// Returns whether the map has scans. If not, the exam leaves them out.
    fn scans(&self) -> bool;
}

/// The operations of one thread, as [`OrderedSession`] describes them.
pub trait Session<K> {
    fn get(&self, key: &K) -> Option<u64>;
    fn insert(&self, key: &K, value: u64) -> Option<u64>;
    fn update(&self, key: &K, next: &mut dyn FnMut(u64) -> u64) -> Option<u64>;
    fn remove(&self, key: &K) -> Option<u64>;
    /// Visits copies of the keys.
    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K, u64)) -> usize;
}

impl<K: BenchKey, I: BenchIndex<K>> Subject<K> for I {
    fn session(&self) -> Box<dyn Session<K> + '_> {
        Box::new(Of(self.pin()))
    }

    fn insert_returns_old(&self) -> bool {
        I::INSERT_RETURNS_OLD
    }

    fn scans(&self) -> bool {
        I::SCANS
    }
}

/// A session that is about to become a trait object.
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
