//! masstree: a trie of B+-trees over byte strings, values inline.

use core::marker::PhantomData;

use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};
use masstree::RangeBound;

/// `masstree::MassTree`, the inline variant.
pub struct MassTree<K>(masstree::MassTree<u64>, PhantomData<fn(K)>);

impl<K: BenchKey> BenchIndex<K> for MassTree<K> {
    const UPDATES_IN_PLACE: bool = false;

    fn empty() -> Self {
        MassTree(masstree::MassTree::new(), PhantomData)
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for MassTree<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for &MassTree<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        key.with_raw(|raw| self.0.get_with_guard(raw, &self.0.guard()))
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        key.with_raw(|raw| self.0.insert_with_guard(raw, value, &self.0.guard()))
    }

    /// This update is not atomic, since the tree has no atomic update.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        key.with_raw(|raw| self.0.remove_with_guard(raw, &self.0.guard())).expect("only memory exhaustion fails")
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        if limit == 0 {
            return 0;
        }
        let mut visited = 0;
        let step = |raw: &[u8], value: u64| {
            visit(K::shown_of_raw(raw), &value);
            visited += 1;
            visited < limit
        };
        let guard = self.0.guard();
        from.with_raw(|raw| self.0.scan(RangeBound::Included(raw), RangeBound::Unbounded, step, &guard));
        visited
    }
}
