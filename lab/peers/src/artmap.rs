//! artmap: an adaptive radix tree with optimistic lock coupling, over byte strings.

use std::ops::Bound;

use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};
use artmap::AsBytes;

/// `artmap::ArtMap`.
pub struct ArtMap<K: BenchKey>(artmap::ArtMap<K::Raw, u64>);

impl<K: BenchKey<Raw: AsBytes>> BenchIndex<K> for ArtMap<K> {
    const UPDATES_IN_PLACE: bool = false;

    fn empty() -> Self {
        ArtMap(artmap::ArtMap::new())
    }
}

impl<K: BenchKey<Raw: AsBytes>> OrderedIndex<K, u64> for ArtMap<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey<Raw: AsBytes>> OrderedSession<K, u64> for &ArtMap<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        key.with_raw(|raw| self.0.get_by_slice(raw).map(|entry| *entry.value()))
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert_cloned(key.raw(), value)
    }

    /// This update is not atomic, since the map has no atomic update.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        key.with_raw(|raw| self.0.remove_by_slice(raw).map(|entry| *entry.value()))
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = self.0.pin();
        from.with_raw(|raw| {
            let entries = self.0.range_with_guard::<_, [u8]>((Bound::Included(raw), Bound::Unbounded), &guard);
            entries.take(limit).map(|entry| visit(K::shown_of_raw(entry.key().as_ref()), entry.value())).count()
        })
    }
}
