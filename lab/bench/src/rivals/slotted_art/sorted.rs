//! A leaf whose keys are sorted. A search is a binary search; an insertion and a removal move the keys behind.

use archipelago_sync::version_lock::VersionLock;

use super::leaf::{Leaf, SLOTS, SlotKey};
use crate::rivals::btree::node::Node;
use crate::rivals::btree::{Body, InPlace, TreeKey};

/// A sorted leaf. In the place behind the slots is the bound.
pub type Sorted<K> = Node<<K as TreeKey>::InPlace, <K as SlotKey>::Words>;

impl<K: InPlace, B: Body> Leaf for Node<K, B> {
    type Key = K;

    fn new() -> Box<Self> {
        Node::new(0)
    }

    #[inline]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }

    #[inline]
    fn next(&self) -> u64 {
        Node::next(self)
    }

    #[inline]
    fn bound(&self) -> K {
        self.key(SLOTS)
    }

    fn set_bound(&self, bound: K) {
        self.set_key(SLOTS, bound);
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.count() == SLOTS
    }

    #[inline]
    fn find(&self, key: &K) -> (usize, bool) {
        Node::find(self, key)
    }

    #[inline]
    fn value(&self, slot: usize) -> u64 {
        Node::value(self, slot)
    }

    #[inline]
    fn set_value(&self, slot: usize, value: u64) {
        Node::set_value(self, slot, value);
    }

    #[inline]
    fn insert(&self, slot: usize, key: K, value: u64) {
        Node::insert(self, slot, key, slot, value);
    }

    #[inline]
    fn remove(&self, slot: usize) -> u64 {
        Node::remove(self, slot, slot).1
    }

    fn split(&self) -> (Box<Self>, K) {
        Node::split(self)
    }

    #[inline]
    fn copy(&self, from: Option<&K>, limit: usize, page: &mut Vec<(K, u64)>) {
        let start = from.map_or(0, |key| Node::find(self, key).0);
        page.extend((start..self.count()).take(limit).map(|at| (self.key(at), Node::value(self, at))));
    }
}
