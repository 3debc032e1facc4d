//! The HTM-B+Tree of Eunomia's authors. Each look-up, insertion and removal is one hardware transaction; an update is
//! two or more, and a scan is one for every 128 entries. Keys are `u64`.
//!
//! # Invariants
//! - Nodes are those of [`BTreeOlc`](super::btree::BTreeOlc), with 30 keys or the paper's 16. Their locks are not used.
//! - An insertion splits every full node on its way. Nodes never leave the tree, as in the original: emptied leaves
//!   stay. So no node is freed before the tree is.
//! - Transactions allocate nothing. A session keeps a spare node for each level; a transaction returns which spare
//!   nodes it used, or the level for which it lacked one.

use core::cell::{Cell, RefCell};
use core::ptr;

use archipelago_index::map::When;
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::rcu::Guard;

use super::btree::node::{Node, address, pointer};
use super::elided::{Elided, Place};
use super::indexes::{Points, stores};
use crate::contender::BenchIndex;

/// More levels than any tree that fits in memory has.
const LEVELS: usize = 20;

/// The most keys of a node.
const MOST: usize = 30;

/// A node with `WORDS` words for its keys and values.
type Page<const WORDS: usize> = Node<u64, [AtomicU64; WORDS]>;

/// A map from `u64` to `u64`, in nodes with `WORDS` words for keys and values.
pub struct HtmBTree<const WORDS: usize = { 2 * MOST + 1 }> {
    root: CachePadded<AtomicU64>,
    lock: Elided,
}

/// The tree with the paper's node size.
pub type HtmBTree16 = HtmBTree<{ 2 * 16 + 1 }>;

/// A spare node for each level, or null.
type Spares<N> = [*mut N; LEVELS];

/// A thread's access to the tree.
pub struct Session<'t, const WORDS: usize> {
    tree: &'t HtmBTree<WORDS>,
    spares: RefCell<Spares<Page<WORDS>>>,
}

/// The result of a transaction that inserts.
struct Stored {
    /// The value replaced; or, as an error, the level for which a spare node is missing.
    old: Result<Option<u64>, usize>,
    /// One bit for each level whose spare node was used.
    used: u32,
}

impl<const WORDS: usize> Default for HtmBTree<WORDS> {
    fn default() -> Self {
        let root = address(Box::into_raw(Page::<WORDS>::new(0)));
        HtmBTree { root: CachePadded::new(AtomicU64::new(root)), lock: Elided::default() }
    }
}

impl<const WORDS: usize> HtmBTree<WORDS> {
    fn root(&self) -> &Page<WORDS> {
        self.node(self.root.load(Ordering::Relaxed))
    }

    fn node(&self, word: u64) -> &Page<WORDS> {
        // SAFETY: nodes are freed together with the tree. A word that was read in a transaction was written by a
        // transaction that committed.
        unsafe { &*pointer(word) }
    }

    fn child(&self, node: &Page<WORDS>, key: u64) -> usize {
        node.child_of(&key)
    }

    fn find(&self, leaf: &Page<WORDS>, key: u64) -> (usize, bool) {
        leaf.find(&key)
    }

    /// In a transaction: returns the leaf for a key.
    fn leaf(&self, key: u64) -> &Page<WORDS> {
        let mut node = self.root();
        while !node.is_leaf() {
            node = self.node(node.value(self.child(node, key)));
        }
        node
    }

    /// In a transaction: returns the key's leaf and position, if the key is present.
    fn look(&self, key: u64) -> Option<(&Page<WORDS>, usize)> {
        let leaf = self.leaf(key);
        let (at, found) = self.find(leaf, key);
        found.then_some((leaf, at))
    }

    /// In a transaction: splits full nodes on the way, and stores the value if `when` permits.
    fn store(&self, key: u64, value: u64, when: When, spares: &Spares<Page<WORDS>>) -> Stored {
        let mut used = 0;
        // SAFETY: a spare node belongs to the session alone.
        let spare = |level: usize| unsafe { spares[level].as_ref() }.ok_or(level);
        let old = self.try_store(key, value, when, &spare, &mut used);
        Stored { old, used }
    }

    fn try_store<'s>(
        &'s self,
        key: u64,
        value: u64,
        when: When,
        spare: &impl Fn(usize) -> Result<&'s Page<WORDS>, usize>,
        used: &mut u32,
    ) -> Result<Option<u64>, usize> {
        let mut node = self.root();
        if node.count() == Page::<WORDS>::KEYS {
            let level = node.level() as usize;
            let (right, above) = (spare(level)?, spare(level + 1)?);
            *used |= 0b11 << level;
            let separator = node.split_into(right);
            above.set_value(0, address(node));
            above.insert(0, separator, 1, address(right));
            self.root.store(address(above), Ordering::Relaxed);
            node = above;
        }
        while !node.is_leaf() {
            let at = self.child(node, key);
            let mut child = self.node(node.value(at));
            if child.count() == Page::<WORDS>::KEYS {
                let right = spare(child.level() as usize)?;
                *used |= 1 << child.level();
                let separator = child.split_into(right);
                node.insert(at, separator, at + 1, address(right));
                if key >= separator {
                    child = right;
                }
            }
            node = child;
        }
        let (at, found) = self.find(node, key);
        let old = found.then(|| node.value(at));
        match found {
            _ if !stores(when, old) => {}
            true => node.set_value(at, value),
            false => node.insert(at, key, at, value),
        }
        Ok(old)
    }

    /// In a transaction: copies entries from `from` on, as many as `to` has room for. Returns how many it copied.
    fn copy(&self, from: u64, to: &[Place]) -> usize {
        let mut leaf = self.leaf(from);
        let (mut at, mut copied) = (self.find(leaf, from).0, 0);
        while copied < to.len() {
            if at < leaf.count() {
                to[copied].set((leaf.key(at), leaf.value(at)));
                (at, copied) = (at + 1, copied + 1);
            } else if leaf.next() == 0 {
                break;
            } else {
                (leaf, at) = (self.node(leaf.next()), 0);
            }
        }
        copied
    }

    /// In a transaction: copies the entries of `key`'s leaf up to `key`, descending. Returns how many it copied, and
    /// the leaf's lower bound.
    fn copy_back(&self, key: u64, to: &[Place; MOST]) -> (usize, u64) {
        let (mut node, mut begin) = (self.root(), 0);
        while !node.is_leaf() {
            let at = self.child(node, key);
            if at > 0 {
                begin = node.key(at - 1);
            }
            node = self.node(node.value(at));
        }
        let (at, found) = self.find(node, key);
        let count = at + usize::from(found);
        (0..count).for_each(|at| to[count - 1 - at].set((node.key(at), node.value(at))));
        (count, begin)
    }

    /// Checks the whole tree. Returns the number of nodes.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> usize {
        super::btree::check_nodes(self.root())
    }
}

impl<const WORDS: usize> BenchIndex<u64> for HtmBTree<WORDS> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<const WORDS: usize> OrderedIndex<u64, u64> for HtmBTree<WORDS> {
    type Session<'a> = Session<'a, WORDS>;

    fn pin(&self) -> Session<'_, WORDS> {
        Session { tree: self, spares: RefCell::new([ptr::null_mut(); LEVELS]) }
    }
}

impl<const WORDS: usize> Session<'_, WORDS> {
    /// Stores a value, if `when` permits for the old value. Returns the old value.
    fn put(&self, key: u64, value: u64, when: When) -> Option<u64> {
        let (tree, mut spares) = (self.tree, self.spares.borrow_mut());
        loop {
            let now = *spares;
            let Stored { old, used } = tree.lock.run(|| tree.store(key, value, when, &now));
            (0..LEVELS).filter(|level| used >> level & 1 == 1).for_each(|level| spares[level] = ptr::null_mut());
            match old {
                Ok(old) => return old,
                Err(level) => spares[level] = Box::into_raw(Node::new(level as u32)),
            }
        }
    }
}

impl<const WORDS: usize> Points for HtmBTree<WORDS> {
    fn get(&self, key: u64, _: &Guard<'_>) -> Option<u64> {
        self.pin().get(&key)
    }

    fn put(&self, key: u64, word: u64, when: When, _: &Guard<'_>) -> Option<u64> {
        self.pin().put(key, word, when)
    }

    fn take(&self, key: u64, expected: Option<u64>, _: &Guard<'_>) -> Option<u64> {
        self.lock.run(|| {
            let (leaf, at) = self.look(key)?;
            let old = leaf.value(at);
            if expected.is_none_or(|expected| expected == old) {
                leaf.remove(at, at);
            }
            Some(old)
        })
    }

    fn ahead(&self, from: u64, limit: usize, _: &Guard<'_>, to: &mut Vec<(u64, u64)>) {
        self.pin().scan(&from, limit, |key, word| to.push((key, *word)));
    }

    fn behind(&self, key: u64, _: &Guard<'_>, to: &mut Vec<(u64, u64)>) -> u64 {
        let page: [Place; MOST] = [const { Cell::new((0, 0)) }; MOST];
        let (copied, begin) = self.lock.run(|| self.copy_back(key, &page));
        to.extend(page[..copied].iter().map(Cell::get));
        begin
    }
}

impl<const WORDS: usize> OrderedSession<u64, u64> for Session<'_, WORDS> {
    fn get(&self, key: &u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.run(|| tree.look(key).map(|(leaf, at)| leaf.value(at)))
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        self.put(*key, value, When::Always)
    }

    fn update(&self, key: &u64, f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.update(self.get(&key)?, f, |expected, new| {
            let (leaf, at) = tree.look(key)?;
            let found = leaf.value(at);
            if found == expected {
                leaf.set_value(at, new);
            }
            Some(found)
        })
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.run(|| tree.look(key).map(|(leaf, at)| leaf.remove(at, at).1))
    }

    fn scan(&self, from: &u64, limit: usize, visit: impl FnMut(u64, &u64)) -> usize {
        self.tree.lock.scan(*from, limit, visit, |from, to| self.tree.copy(from, to))
    }
}

impl<const WORDS: usize> Drop for Session<'_, WORDS> {
    fn drop(&mut self) {
        let spares = self.spares.get_mut().iter().filter(|spare| !spare.is_null());
        // SAFETY: the node was made by this session, and is in no tree.
        spares.for_each(|spare| drop(unsafe { Box::from_raw(*spare) }));
    }
}

impl<const WORDS: usize> Drop for HtmBTree<WORDS> {
    fn drop(&mut self) {
        fn free<const WORDS: usize>(word: u64) {
            // SAFETY: no other thread uses the tree; every node is a box and is reached once.
            let node = unsafe { Box::from_raw(pointer::<Page<WORDS>>(word)) };
            if !node.is_leaf() {
                (0..=node.count()).for_each(|at| free::<WORDS>(node.value(at)));
            }
        }
        free::<WORDS>(self.root.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{check_rival, words};

    /// A root needs two spare nodes to split. If only one is ready, the session keeps it.
    #[test]
    fn a_spare_node_that_is_not_used_stays_one() {
        let tree = HtmBTree16::default();
        let session = tree.pin();
        (0..16).for_each(|key| _ = session.insert(&key, 1));
        let mut right = Node::new(0);
        let mut spares = [ptr::null_mut(); LEVELS];
        spares[0] = &raw mut *right;
        let stored = tree.store(16, 1, When::Always, &spares);
        assert_eq!((stored.old, stored.used), (Err(1), 0));
    }

    #[test]
    fn it_agrees_with_a_model_and_its_histories_are_linearizable() {
        check_rival::<HtmBTree>(&words(2_000), |tree| _ = tree.check_invariants());
        check_rival::<HtmBTree16>(&words(2_000), |tree| _ = tree.check_invariants());
    }
}
