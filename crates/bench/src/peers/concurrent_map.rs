//! concurrent-map: a lock-free B+-tree. Every thread works on a clone of the handle.

use std::sync::Mutex;

use archipelago_index::{OrderedIndex, OrderedSession};
use concurrent_map::Minimum;

use crate::keys::BenchKey;
use crate::registry::Contender;

type Handle<K> = concurrent_map::ConcurrentMap<K, u64>;

/// `concurrent_map::ConcurrentMap`. The mutex is taken once per session, to clone the handle.
pub struct ConcurrentMap<K: BenchKey + Minimum>(Mutex<Handle<K>>);

/// A thread's handle.
pub struct Session<K: BenchKey + Minimum>(Handle<K>);

impl<K: BenchKey + Minimum> Contender<K> for ConcurrentMap<K> {
    const UPDATES_IN_PLACE: bool = false;

    fn empty() -> Self {
        ConcurrentMap(Mutex::new(Handle::new()))
    }
}

impl<K: BenchKey + Minimum> OrderedIndex<K, u64> for ConcurrentMap<K> {
    type Session<'a> = Session<K>;

    fn pin(&self) -> Session<K> {
        Session(self.0.lock().expect("cloning does not panic").clone())
    }
}

impl<K: BenchKey + Minimum> OrderedSession<K, u64> for Session<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert(key.clone(), value)
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        self.0.fetch_and_update(key.clone(), |old| old.map(&mut f))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key)
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        self.0.range(from..).take(limit).map(|(key, value)| visit(key.shown(), &value)).count()
    }
}
