//! crossbeam-skiplist: a lock-free skip list. Overwriting is `insert`, which is not atomic in 0.1.3.

use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_bench::method::{Method, Op, Session};
use archipelago_index::{OrderedIndex, OrderedSession};
use crossbeam_skiplist::SkipMap;

/// `crossbeam_skiplist::SkipMap`.
pub struct SkipList<K>(SkipMap<K, u64>);

impl<K: BenchKey> BenchIndex<K> for SkipList<K> {
    const UPDATES_IN_PLACE: bool = false;
    const INSERT_RETURNS_OLD: bool = false;

    fn empty() -> Self {
        SkipList(SkipMap::new())
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for SkipList<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for &SkipList<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key).map(|entry| *entry.value())
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert(key.clone(), value);
        None
    }

    /// This update is not atomic, since the map has no atomic update.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old));
        Some(old)
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key).map(|entry| *entry.value())
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        self.0.range(from..).take(limit).map(|entry| visit(entry.key().shown(), entry.value())).count()
    }
}

/// The skip list as a method of `bench nr`: a priority queue if `QUEUE`, else a dictionary. Removed nodes are freed.
pub struct List<const QUEUE: bool>(SkipMap<u64, u64>);

impl<const QUEUE: bool> FromIterator<(u64, u64)> for List<QUEUE> {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<const QUEUE: bool> Method for List<QUEUE> {
    type Session<'m> = &'m Self;

    fn session(&self) -> &Self {
        self
    }
}

impl<const QUEUE: bool> Session for &List<QUEUE> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let map = &self.0;
        std::hint::black_box(match op {
            Op::Read(_) if QUEUE => map.front().map(|entry| *entry.key()),
            Op::Read(key) => map.get(&key).map(|entry| *entry.value()),
            Op::Add(key) => Some(*map.insert(key, !key).value()),
            Op::Remove(_) if QUEUE => map.pop_front().map(|entry| *entry.key()),
            Op::Remove(key) => map.remove(&key).map(|entry| *entry.value()),
        });
    }
}
