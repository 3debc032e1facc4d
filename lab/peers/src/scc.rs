//! scc's `TreeIndex`: a B+-tree with lock-free reads.

use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};
use scc::Guard;

/// `scc::TreeIndex`.
pub struct TreeIndex<K: BenchKey>(scc::TreeIndex<K, u64>);

impl<K: BenchKey> BenchIndex<K> for TreeIndex<K> {
    const UPDATES_IN_PLACE: bool = false;
    const INSERT_RETURNS_OLD: bool = false;

    fn empty() -> Self {
        TreeIndex(scc::TreeIndex::new())
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for TreeIndex<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for &TreeIndex<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.peek_with(key, |_, value| *value)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.upsert_sync(key.clone(), value);
        None
    }

    /// This update is not atomic, since the map has no atomic update.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old));
        Some(old)
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let mut old = None;
        self.0.remove_if_sync(key, |value| {
            old = Some(*value);
            true
        });
        old
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = Guard::new();
        self.0.range::<K, _>(from.., &guard).take(limit).map(|(key, value)| visit(key.shown(), value)).count()
    }
}
