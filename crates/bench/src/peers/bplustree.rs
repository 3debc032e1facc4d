//! bplustree: a B+-tree with optimistic lock coupling.

use archipelago_index::{OrderedIndex, OrderedSession};

use crate::keys::BenchKey;
use crate::registry::Contender;

/// `bplustree::BPlusTree`.
pub struct BPlusTree<K>(bplustree::BPlusTree<K, u64>);

impl<K: BenchKey> Contender<K> for BPlusTree<K> {
    const UPDATES_IN_PLACE: bool = false;

    fn empty() -> Self {
        BPlusTree(bplustree::BPlusTree::new())
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for BPlusTree<K> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for &BPlusTree<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.lookup(key, |value| *value)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.insert(key.clone(), value)
    }

    /// Not atomic: the tree's in-place way is an exclusive cursor, which costs as much as an insert.
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.get(key)?;
        self.insert(key, f(&old))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key)
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let mut cursor = self.0.raw_iter();
        cursor.seek(from);
        let mut visited = 0;
        while visited < limit
            && let Some((key, value)) = cursor.next()
        {
            visit(key.shown(), value);
            visited += 1;
        }
        visited
    }
}
