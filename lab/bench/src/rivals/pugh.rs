//! A skip list with a lock for each link (Pugh: Concurrent Maintenance of Skip Lists, CS-TR-2222.1, 1990). Keys are
//! `u64`.
//!
//! # Invariants
//! - Keys ascend on each level. A link changes only while its lock is held.
//! - A removal unlinks a node level by level. In one critical section it makes the predecessor's link lead past the
//!   node, and turns the node's own link back to the predecessor. So a thread that has reached the node follows that
//!   link back to the predecessor and continues there. A removed node is *garbage*: its link on the lowest level leads
//!   to a lesser key.
//! - A node's own lock is held by the thread that links the node, until the node is linked on all its levels; and by
//!   the thread that removes the node.
//! - A key is present while a node with the key is linked on the lowest level. The node's value changes only while the
//!   link to the node is locked.
//! - A walk that begins after a node was unlinked does not reach the node. The only other links to the node are those
//!   of garbage nodes that were unlinked earlier, and such a walk does not reach these either. So an unlinked node may
//!   be retired to RCU.
//!
//! The order of locks: a node's own lock comes before locks of links. On one level, the link to a node comes before the
//! node's own link, that is, from left to right. A thread that holds a link's lock never waits for a lock to its left,
//! or for a node's own lock.

use core::array;
use core::cell::Cell;
use core::ptr;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_sync::lock::{Mutex, MutexGuard, RawTtas};
use archipelago_sync::rcu::{Domain, Guard, Reader};

use super::heights::{Heights, LEVELS};
use crate::contender::BenchIndex;

type Held<'g> = MutexGuard<'g, RawTtas, ()>;

struct Link {
    to: AtomicPtr<Node>,
    lock: Mutex<RawTtas, ()>,
}

#[repr(C, align(64))]
struct Node {
    key: AtomicU64,
    value: AtomicU64,
    height: AtomicU64,
    /// The node's own lock.
    lock: Mutex<RawTtas, ()>,
    next: [Link; LEVELS],
}

impl Node {
    fn new(key: u64, value: u64, height: usize) -> Box<Node> {
        let link = |_| Link { to: AtomicPtr::new(ptr::null_mut()), lock: Mutex::new(()) };
        let [key, value, height] = [key, value, height as u64].map(AtomicU64::new);
        Box::new(Node { key, value, height, lock: Mutex::new(()), next: array::from_fn(link) })
    }

    fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    /// Returns the next node on a level. Acquire pairs with the Release of the store that linked the node. The caller
    /// is in an RCU guard of the list's domain.
    fn next(&self, level: usize) -> Option<&Node> {
        // SAFETY: linked nodes are freed through RCU only.
        unsafe { self.next[level].to.load(Ordering::Acquire).as_ref() }
    }

    /// Links a node. Release: the node's content was written before.
    fn set_next(&self, level: usize, to: *const Node) {
        self.next[level].to.store(to.cast_mut(), Ordering::Release);
    }
}

/// A map from `u64` to `u64`.
pub struct PughSkipList {
    /// The head, which has no key and precedes all nodes.
    head: Box<Node>,
    heights: Heights,
    // Dropped last: dropping the domain frees retired nodes.
    domain: Domain,
}

/// A thread's access to the list.
pub struct Session<'l> {
    list: &'l PughSkipList,
    reader: Reader<'l>,
    random: Cell<u64>,
}

impl Default for PughSkipList {
    fn default() -> Self {
        let (heights, domain) = Default::default();
        PughSkipList { head: Node::new(0, 0, LEVELS), heights, domain }
    }
}

impl PughSkipList {
    /// Returns whether a node precedes `key`.
    fn is_below(&self, node: &Node, key: u64) -> bool {
        ptr::eq(node, &*self.head) || node.key() < key
    }

    /// Returns the last node below `key` on a level. The walk starts at a node that is below `key` or garbage.
    fn walk<'g>(&self, mut at: &'g Node, level: usize, key: u64) -> &'g Node {
        while let Some(next) = at.next(level).filter(|next| self.is_below(next, key)) {
            at = next;
        }
        at
    }

    /// Returns the last node below `key` on each level.
    fn path<'g>(&'g self, key: u64, _: &'g Guard<'_>) -> [&'g Node; LEVELS] {
        let mut path = [&*self.head; LEVELS];
        let mut at = &*self.head;
        for level in (0..LEVELS).rev() {
            at = self.walk(at, level, key);
            path[level] = at;
        }
        path
    }

    /// Returns the node with `key`. The walk starts at a node that is below `key` or garbage.
    fn find<'g>(&self, from: &'g Node, key: u64) -> Option<&'g Node> {
        let mut at = from;
        loop {
            match at.next(0) {
                Some(next) if self.is_below(next, key) => at = next,
                found => return found.filter(|node| node.key() == key),
            }
        }
    }

    /// Locks the link on a level that leads from the last node below `key`. Returns that node too.
    fn lock_before<'g>(&self, from: &'g Node, level: usize, key: u64) -> (&'g Node, Held<'g>) {
        let mut at = self.walk(from, level, key);
        loop {
            let held = at.next[level].lock.lock();
            match at.next(level).filter(|next| self.is_below(next, key)) {
                None => return (at, held),
                Some(next) => {
                    drop(held);
                    at = self.walk(next, level, key);
                }
            }
        }
    }

    fn is_garbage(&self, node: &Node) -> bool {
        node.next(0).is_some_and(|next| self.is_below(next, node.key()))
    }

    /// Locks the link that leads to `key`, and returns the result of `f` for the key's node, if the key is present.
    fn with<R>(&self, key: u64, guard: &Guard<'_>, f: impl FnOnce(&Node) -> R) -> Option<R> {
        let (before, _held) = self.lock_before(self.path(key, guard)[0], 0, key);
        before.next(0).filter(|node| node.key() == key).map(f)
    }

    fn store(&self, key: u64, value: u64, height: usize, guard: &Guard<'_>) -> Option<u64> {
        let path = self.path(key, guard);
        let (before, held) = self.lock_before(path[0], 0, key);
        if let Some(node) = before.next(0).filter(|node| node.key() == key) {
            return Some(node.value.swap(value, Ordering::AcqRel));
        }
        // SAFETY: the node was just made, and no thread removes it before its own lock is free.
        let node = unsafe { &*Box::into_raw(Node::new(key, value, height)) };
        let _own = node.lock.lock();
        let link = |before: &Node, level: usize| {
            node.set_next(level, before.next[level].to.load(Ordering::Relaxed));
            before.set_next(level, node);
        };
        link(before, 0);
        drop(held);
        for (level, from) in path.iter().enumerate().take(height).skip(1) {
            let (before, _held) = self.lock_before(from, level, key);
            link(before, level);
        }
        None
    }

    fn unlink<'g>(&'g self, key: u64, guard: &'g Guard<'_>) -> Option<(&'g Node, u64)> {
        let path = self.path(key, guard);
        let node = self.find(path[0], key)?;
        let _own = node.lock.lock();
        if self.is_garbage(node) {
            return None;
        }
        for level in (0..node.height.load(Ordering::Relaxed) as usize).rev() {
            let (before, _before) = self.lock_before(path[level], level, key);
            let _after = node.next[level].lock.lock();
            debug_assert!(
                ptr::eq(before.next[level].to.load(Ordering::Relaxed), node),
                "it is linked where it is high"
            );
            before.set_next(level, node.next[level].to.load(Ordering::Relaxed));
            node.set_next(level, before);
        }
        // Once the link to the node leads past the node, no thread changes the node's value any more.
        Some((node, node.value.load(Ordering::Acquire)))
    }

    /// Checks the whole list.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) {
        for level in 0..LEVELS {
            let (mut at, mut last) = (self.head.next(level), None);
            while let Some(node) = at {
                assert!(last.is_none_or(|last| last < node.key()), "keys ascend");
                assert!(node.height.load(Ordering::Relaxed) as usize > level, "nodes are as high as they say");
                assert!(!node.lock.is_locked() && !node.next[level].lock.is_locked(), "no lock is left");
                last = Some(node.key());
                at = node.next(level);
            }
        }
    }
}

impl BenchIndex<u64> for PughSkipList {
    fn empty() -> Self {
        Self::default()
    }
}

impl OrderedIndex<u64, u64> for PughSkipList {
    type Session<'a> = Session<'a>;

    fn pin(&self) -> Session<'_> {
        Session { list: self, reader: self.domain.reader(), random: Cell::new(self.heights.seed()) }
    }
}

impl OrderedSession<u64, u64> for Session<'_> {
    fn get(&self, key: &u64) -> Option<u64> {
        let guard = &self.reader.enter();
        let node = self.list.find(self.list.path(*key, guard)[0], *key)?;
        Some(node.value.load(Ordering::Acquire))
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        self.list.store(*key, value, Heights::draw(&self.random), &self.reader.enter())
    }

    fn update(&self, key: &u64, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        self.list.with(*key, &self.reader.enter(), |node| {
            let old = node.value.load(Ordering::Acquire);
            node.value.store(f(&old), Ordering::Release);
            old
        })
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        let guard = &self.reader.enter();
        let (node, value) = self.list.unlink(*key, guard)?;
        // SAFETY: the node was unlinked on all levels, by this thread alone.
        unsafe { guard.retire_box(ptr::from_ref(node).cast_mut()) };
        Some(value)
    }

    fn scan(&self, from: &u64, limit: usize, mut visit: impl FnMut(u64, &u64)) -> usize {
        let guard = &self.reader.enter();
        let (mut least, mut seen) = (*from, 0);
        let mut at = self.list.path(least, guard)[0];
        while seen < limit {
            // If the node was removed meanwhile, the walk goes back to nodes that were shown already, and on to
            // `least`.
            at = self.list.walk(at, 0, least);
            let Some(node) = at.next(0) else { break };
            if !self.list.is_below(node, least) {
                visit(node.key(), &node.value.load(Ordering::Acquire));
                seen += 1;
                let Some(next) = node.key().checked_add(1) else { break };
                least = next;
            }
            at = node;
        }
        seen
    }
}

impl Drop for PughSkipList {
    fn drop(&mut self) {
        let mut at = self.head.next[0].to.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: no other thread uses the list; every node is linked once on the lowest level.
            let node = unsafe { Box::from_raw(at) };
            at = node.next[0].to.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{check_rival, words};

    #[test]
    fn it_agrees_with_a_model_and_its_histories_are_linearizable() {
        check_rival::<PughSkipList>(&words(2_000), PughSkipList::check_invariants);
    }
}
