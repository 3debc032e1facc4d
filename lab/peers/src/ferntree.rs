//! ferntree: a B+-tree with optimistic reads.

use std::ops::Bound;

use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};
use ferntree::OptimisticRead;

/// `ferntree::Tree`.
pub struct FernTree<K: OptimisticRead>(ferntree::Tree<K, u64>);

impl<K: BenchKey + OptimisticRead> BenchIndex<K> for FernTree<K> {
    const UPDATES_IN_PLACE: bool = false;
    const INSERT_RETURNS_OLD: bool = false;

    fn empty() -> Self {
        FernTree(ferntree::Tree::new())
    }
}

impl<K: BenchKey + OptimisticRead> OrderedIndex<K, u64> for FernTree<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey + OptimisticRead> OrderedSession<K, u64> for &FernTree<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.lookup_optimistic(key, |value| *value)
    }

    /// If keys are boxed and readers are optimistic, the tree requires inserts that defer reclamation.
    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert_defer(key.clone(), value);
        None
    }

    /// This update is not atomic. The tree's in-place update needs an exclusive cursor, which costs as
    /// much as an insert.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old));
        Some(old)
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let old = self.get(key)?;
        self.0.remove_defer(key).then_some(old)
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let mut range = self.0.range(Bound::Included(from), Bound::Unbounded);
        let mut visited = 0;
        while visited < limit
            && let Some((key, value)) = range.next()
        {
            visit(key.shown(), value);
            visited += 1;
        }
        visited
    }
}
