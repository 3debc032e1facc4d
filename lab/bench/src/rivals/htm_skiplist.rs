//! The HTM-SkipList of Eunomia's authors. Each look-up, insertion and removal is one hardware transaction; an update is
//! two or more, and a scan is one for every 128 entries. Keys are `u64`.
//!
//! # Invariants
//! - Keys ascend on each level, and the nodes of a level are among the nodes of the level below. All links change only
//!   in transactions or under the lock.
//! - A node is made before the transaction that links it, and is retired to RCU after the transaction that unlinks it.
//!   Walks hold an RCU guard, so that a transaction that is about to abort reads no freed memory.

use core::array;
use core::cell::Cell;
use core::ptr;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use archipelago_sync::rcu::{Domain, Guard, Reader};

use super::elided::Elided;
use super::heights::{Heights, LEVELS};
use crate::contender::BenchIndex;

#[repr(C, align(64))]
struct Node {
    key: AtomicU64,
    value: AtomicU64,
    height: AtomicU64,
    next: [AtomicPtr<Node>; LEVELS],
}

impl Node {
    fn new(key: u64, value: u64, height: usize) -> Box<Node> {
        let next = array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Box::new(Node {
            key: AtomicU64::new(key),
            value: AtomicU64::new(value),
            height: AtomicU64::new(height as u64),
            next,
        })
    }

    fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// Returns the next node on a level. The caller holds a guard of the list's domain, or borrows the list
    /// exclusively.
    fn next(&self, level: usize) -> Option<&Node> {
        // SAFETY: linked nodes are freed through RCU only.
        unsafe { self.next[level].load(Relaxed).as_ref() }
    }
}

/// A map from `u64` to `u64`.
pub struct HtmSkipList {
    /// The head, which has no key.
    head: Box<Node>,
    lock: Elided,
    heights: Heights,
    // Dropped last: dropping the domain frees retired nodes.
    domain: Domain,
}

/// A thread's access to the list.
pub struct Session<'l> {
    list: &'l HtmSkipList,
    reader: Reader<'l>,
    random: Cell<u64>,
}

impl Default for HtmSkipList {
    fn default() -> Self {
        let (lock, heights, domain) = Default::default();
        HtmSkipList { head: Node::new(0, 0, LEVELS), lock, heights, domain }
    }
}

impl HtmSkipList {
    /// In a transaction: returns the last node below `key` on each level.
    fn path<'g>(&'g self, key: u64, _: &'g Guard<'_>) -> [&'g Node; LEVELS] {
        let mut path = [&*self.head; LEVELS];
        let mut at = &*self.head;
        for level in (0..LEVELS).rev() {
            while let Some(next) = at.next(level).filter(|next| next.key() < key) {
                at = next;
            }
            path[level] = at;
        }
        path
    }

    /// In a transaction: returns the first node whose key is `key` or greater.
    fn from<'g>(&'g self, key: u64, guard: &'g Guard<'_>) -> Option<&'g Node> {
        self.path(key, guard)[0].next(0)
    }

    /// In a transaction: returns the node with this key.
    fn node<'g>(&'g self, key: u64, guard: &'g Guard<'_>) -> Option<&'g Node> {
        self.from(key, guard).filter(|node| node.key() == key)
    }

    /// In a transaction: replaces the value of a present key, or links the node.
    fn store(&self, key: u64, node: *mut Node, value: u64, height: usize, guard: &Guard<'_>) -> Option<u64> {
        let path = self.path(key, guard);
        if let Some(there) = path[0].next(0).filter(|node| node.key() == key) {
            let old = there.value.load(Relaxed);
            there.value.store(value, Relaxed);
            return Some(old);
        }
        // SAFETY: the node belongs to the caller.
        let links = unsafe { &(*node).next };
        for (level, before) in path.iter().enumerate().take(height) {
            links[level].store(before.next[level].load(Relaxed), Relaxed);
            before.next[level].store(node, Relaxed);
        }
        None
    }

    /// In a transaction: unlinks the node with this key.
    fn unlink(&self, key: u64, guard: &Guard<'_>) -> Option<(*mut Node, u64)> {
        let path = self.path(key, guard);
        let node = path[0].next(0).filter(|node| node.key() == key)?;
        for (level, before) in path.iter().enumerate().take(node.height.load(Relaxed) as usize) {
            before.next[level].store(node.next[level].load(Relaxed), Relaxed);
        }
        Some((ptr::from_ref(node).cast_mut(), node.value.load(Relaxed)))
    }

    /// Checks the whole list.
    ///
    /// # Panics
    /// If keys do not ascend on a level, or a node is on a level above its height.
    pub fn check_invariants(&mut self) {
        for level in 0..LEVELS {
            let (mut at, mut last) = (self.head.next(level), None);
            while let Some(node) = at {
                assert!(last.is_none_or(|last| last < node.key()), "keys ascend");
                assert!(node.height.load(Relaxed) as usize > level, "nodes are as high as they say");
                last = Some(node.key());
                at = node.next(level);
            }
        }
    }
}

impl BenchIndex<u64> for HtmSkipList {
    fn empty() -> Self {
        Self::default()
    }
}

impl OrderedIndex<u64, u64> for HtmSkipList {
    type Session<'a> = Session<'a>;

    fn pin(&self) -> Session<'_> {
        Session { list: self, reader: self.domain.reader(), random: Cell::new(self.heights.seed()) }
    }
}

impl OrderedSession<u64, u64> for Session<'_> {
    fn get(&self, key: &u64) -> Option<u64> {
        let (list, key, guard) = (self.list, *key, &self.reader.enter());
        list.lock.run(|| list.node(key, guard).map(|node| node.value.load(Relaxed)))
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        let (list, key, guard) = (self.list, *key, &self.reader.enter());
        let height = Heights::draw(&self.random);
        let node = Box::into_raw(Node::new(key, value, height));
        let old = list.lock.run(|| list.store(key, node, value, height, guard));
        if old.is_some() {
            // SAFETY: the node was not linked.
            drop(unsafe { Box::from_raw(node) });
        }
        old
    }

    fn update(&self, key: &u64, f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let (list, key, guard) = (self.list, *key, &self.reader.enter());
        list.lock.update(self.get(&key)?, f, |expected, new| {
            let node = list.node(key, guard)?;
            let found = node.value.load(Relaxed);
            if found == expected {
                node.value.store(new, Relaxed);
            }
            Some(found)
        })
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        let (list, key, guard) = (self.list, *key, &self.reader.enter());
        let (node, value) = list.lock.run(|| list.unlink(key, guard))?;
        // SAFETY: the node was unlinked on all levels, by this thread alone.
        unsafe { guard.retire_box(node) };
        Some(value)
    }

    fn scan(&self, from: &u64, limit: usize, visit: impl FnMut(u64, &u64)) -> usize {
        let (list, guard) = (self.list, &self.reader.enter());
        list.lock.scan(*from, limit, visit, |from, to| {
            let (mut at, mut copied) = (list.from(from, guard), 0);
            while let Some(node) = at.filter(|_| copied < to.len()) {
                to[copied].set((node.key(), node.value.load(Relaxed)));
                (at, copied) = (node.next(0), copied + 1);
            }
            copied
        })
    }
}

impl Drop for HtmSkipList {
    fn drop(&mut self) {
        let mut at = self.head.next[0].load(Relaxed);
        while !at.is_null() {
            // SAFETY: no other thread uses the list; every node is linked once on the lowest level.
            let node = unsafe { Box::from_raw(at) };
            at = node.next[0].load(Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{check_rival, words};

    #[test]
    fn it_agrees_with_a_model_and_its_histories_are_linearizable() {
        check_rival::<HtmSkipList>(&words(2_000), HtmSkipList::check_invariants);
    }
}
