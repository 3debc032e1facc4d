//! indexset's concurrent `BTreeMap`: a two-level tree. Takes part in the exam only.

use archipelago_index::{OrderedIndex, OrderedSession};
use indexset::concurrent::map::BTreeMap;

use crate::keys::BenchKey;
use crate::registry::Contender;

/// `indexset::concurrent::map::BTreeMap`.
pub struct IndexSet<K: BenchKey>(BTreeMap<K, u64>);

impl<K: BenchKey> Contender<K> for IndexSet<K> {
    const UPDATES_IN_PLACE: bool = false;

    fn empty() -> Self {
        IndexSet(BTreeMap::new())
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for IndexSet<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for &IndexSet<K> {
    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key).map(|pair| pair.get().value)
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert(key.clone(), value)
    }

    /// Not atomic: the map has no such operation.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key).map(|(_, value)| value)
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        self.0.range::<K, _>(from..).take(limit).map(|(key, value)| visit(key.shown(), value)).count()
    }
}
