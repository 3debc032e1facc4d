//! A tree like the Bw-tree (Levandoski, Lomet, Sengupta: The Bw-Tree: A B-tree for New Hardware Platforms, ICDE 2013),
//! in the form of OpenBw-Tree (Wang, Pavlo, Lim, Leis, Zhang, Kaminsky, Andersen: Building a Bw-Tree Takes More Than
//! Just Buzz Words, SIGMOD 2018).
//!
//! As in the papers:
//!
//! - nodes refer to each other by ids. A mapping table has for each id the address of the node's newest record;
//! - a change prepends a *delta* to the node's chain of records, by one compare-and-exchange in the table. There are no
//!   locks;
//! - a chain ends with a *base*: sorted items. A chain of 24 deltas (of 2 in an inner node) is *consolidated*: a new
//!   base replaces the chain. The memory for deltas is allocated with the base;
//! - a node of 128 items (of 64 in an inner node) is split in two steps, as in a B-link tree: a *split delta* at the
//!   node, which leads to the new right sibling, and an *index term* at the parent. Each record has the node's bound,
//!   so a thread finds its way to the right without the term. A writer that meets a split without its term helps to
//!   post it;
//! - readers change nothing;
//! - keys are unique, and are in the nodes (as in index-microbench).
//!
//! These four numbers are those of OpenBw-Tree in index-microbench, the benchmark program of both papers.
//!
//! Different from the papers:
//!
//! - nodes are never merged, so there are no remove and merge deltas. Emptied leaves stay until the tree is dropped;
//! - a value is replaced by one delta, not by a deletion and an insertion;
//! - a block has places for 32 deltas (8 in an inner node), and is consolidated if none is left. OpenBw-Tree's code
//!   adds further memory of 8 deltas each;
//! - a split node is consolidated as soon as its term is posted, so that no other writer looks for the term again;
//! - a base has no table of positions that narrows the search (*search shortcuts*), and a consolidation sorts the
//!   deltas;
//! - a node keeps no lower bound. A scan goes on with the right sibling's id, and not from the root;
//! - the mapping table grows in parts, instead of being a range of virtual memory;
//! - memory is reclaimed by this library's epochs.
//!
//! # Invariants
//! - A node's level and lower bound never change. Its bound changes by a split only, to a lesser key, which is the
//!   lower bound of the new right sibling. An id that a second thread can know is never given to another node.
//! - The chain at a node's head is its whole state. So an operation on a key takes effect when it reads or replaces the
//!   head of the leaf that has the key at this head.
//! - **A record is prepended to a split, or replaces it, only after the split's term is in the parent**, or the new
//!   root has both halves. So a node has at most one split without its term, and this split is its head.
//!
//! # Why a walk is right
//! A node that a walk meets has a lower bound that is not above the key: by the separator in the parent, or by the left
//! sibling's bound. If the key is not below the node's bound, the walk goes to the right. Otherwise the node has the
//! key.
//!
//! Complexity: O(log n) nodes with at most 32 deltas each. An insertion copies the leaf once in 24 times.

mod record;
mod table;

use core::cell::Cell;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::rcu::{Domain, Guard, Reader};

use super::btree::{LONGEST, TreeKey};
use crate::contender::BenchIndex;
use record::{Change, Item, Kind, Limits, NONE, Place, Record};
use table::Table;

/// A map from `K` to `u64`. Byte strings have at most [`LONGEST`] bytes.
pub struct BwTree<K: TreeKey> {
    /// The root's id.
    root: CachePadded<AtomicU64>,
    table: Table<K::InPlace>,
    // Dropped last: dropping the domain frees the chains that were replaced.
    domain: Domain,
}

/// A thread's access to the tree.
pub struct Session<'t, K: TreeKey> {
    tree: &'t BwTree<K>,
    reader: Reader<'t>,
    /// Memory for the leaf that a scan copies. A scan takes it, and puts it back.
    page: Cell<Vec<Item<K::InPlace>>>,
}

/// A node, and the head of its chain as a thread has read it.
struct At<'g, K> {
    id: u64,
    head: &'g Record<K>,
}

impl<K> Clone for At<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for At<'_, K> {}

impl<K: TreeKey> Default for BwTree<K> {
    fn default() -> Self {
        let table = Table::default();
        let root = table.add(record::base(0, None, NONE, &[]));
        BwTree { root: CachePadded::new(AtomicU64::new(root)), table, domain: Domain::new() }
    }
}

impl<K: TreeKey> BwTree<K> {
    #[inline]
    fn at<'g>(&self, id: u64, guard: &'g Guard<'_>) -> At<'g, K::InPlace> {
        At { id, head: self.table.head(id, guard) }
    }

    /// Returns the root. Acquire pairs with the Release in [`raise`](Self::raise), so that the node is in the table.
    #[inline]
    fn root<'g>(&self, guard: &'g Guard<'_>) -> At<'g, K::InPlace> {
        self.at(self.root.load(Ordering::Acquire), guard)
    }

    /// Returns the leaf with a key, for a reader.
    #[inline]
    fn leaf<'g>(&self, key: &K::InPlace, guard: &'g Guard<'_>) -> At<'g, K::InPlace> {
        let mut at = self.root(guard);
        loop {
            at = match () {
                () if at.head.is_below(key) => self.at(at.head.right(), guard),
                () if at.head.level() == 0 => return at,
                () => self.at(at.head.child(key), guard),
            };
        }
    }

    /// Returns the node of a level with a key, for a writer: finishes splits on the way, consolidates and splits.
    fn tidy<'g>(&self, key: &K::InPlace, level: u8, guard: &'g Guard<'_>) -> At<'g, K::InPlace> {
        let mut at = self.root(guard);
        loop {
            at = self.tidied(at, key, guard);
            if at.head.level() == level {
                return at;
            }
            at = self.at(at.head.child(key), guard);
        }
    }

    /// Returns the node with a key, at the right of a node or this node. Its head is no split. A consolidation that
    /// another thread's change prevents is left to a later writer.
    fn tidied<'g>(&self, mut at: At<'g, K::InPlace>, key: &K::InPlace, guard: &'g Guard<'_>) -> At<'g, K::InPlace> {
        let mut consolidated = false;
        loop {
            let Limits { chain, items, .. } = *Limits::of(at.head.level());
            let (head, depth) = (at.head, at.head.depth());
            if let Some((separator, right)) = head.as_split() {
                self.post(head.level(), separator, right, guard);
                self.consolidate(at, guard);
            } else if head.is_below(key) {
                at.id = head.right();
                consolidated = false;
            } else if depth >= chain && !consolidated {
                self.consolidate(at, guard);
                consolidated = true;
            } else if depth == 0 && head.items().len() >= items {
                self.split(at, guard);
            } else {
                return at;
            }
            at = self.at(at.id, guard);
        }
    }

    /// Prepends a delta, if the head is still the same. `place` is that of an earlier attempt of the operation, or
    /// none. The head is no split.
    fn prepend(
        &self,
        at: At<'_, K::InPlace>,
        change: Change<K::InPlace>,
        place: &mut Option<Place<K::InPlace>>,
        guard: &Guard<'_>,
    ) -> bool {
        debug_assert!(at.head.as_split().is_none(), "a split has its term before it is covered");
        if place.as_ref().is_none_or(|place| !at.head.has(place)) {
            *place = at.head.place();
        }
        let Some(own) = place else {
            self.consolidate(at, guard);
            return false;
        };
        let delta = at.head.prepend(own, change);
        let done = self.table.replace(at.id, at.head, delta);
        if done {
            *place = None;
        }
        done
    }

    /// Replaces a chain by a base of the same content, if the head is still the same. If the head is a split, its term
    /// has been posted.
    fn consolidate(&self, at: At<'_, K::InPlace>, guard: &Guard<'_>) {
        let mut items = Vec::with_capacity(at.head.items().len() + usize::from(at.head.depth()));
        at.head.collect(&mut items);
        let base = record::base(at.head.level(), at.head.high().copied(), at.head.right(), &items);
        if self.table.replace(at.id, at.head, base) {
            // SAFETY: the table leads to the chain no more, and one thread replaces a head.
            unsafe { at.head.retire(guard) };
        } else {
            // SAFETY: the block was not published.
            unsafe { record::free(base) };
        }
    }

    /// Splits a node whose head is its base, if the head is still the same. The term is posted by the next writer that
    /// meets the split: in general by the caller.
    fn split(&self, at: At<'_, K::InPlace>, guard: &Guard<'_>) {
        let (head, items) = (at.head, at.head.items());
        let (_, upper) = items.split_at(items.len() / 2);
        archipelago_platform::touch(upper.as_ptr(), size_of_val(upper));
        let separator = upper[0].key;
        let right = self.table.add(record::base(head.level(), head.high().copied(), head.right(), upper));
        let change = Change { kind: Kind::Split, key: separator, word: right, until: None };
        if !self.prepend(at, change, &mut None, guard) {
            self.table.take_back(right);
        }
    }

    /// Adds the term of a split to the parent, if it is missing: the node `right` of a level begins with the separator.
    fn post(&self, level: u8, separator: K::InPlace, right: u64, guard: &Guard<'_>) {
        let mut place = None;
        loop {
            let root = self.root(guard);
            if root.head.level() == level {
                // The first node of the level is the root, and was split before any other. So its split is still the
                // head, or there is a new root.
                self.raise(root);
                continue;
            }
            let parent = self.tidy(&separator, level + 1, guard);
            let (present, until) = parent.head.around(&separator);
            let change = Change { kind: Kind::Term, key: separator, word: right, until };
            if present || self.prepend(parent, change, &mut place, guard) {
                return;
            }
        }
    }

    /// Makes a new root above a root that is split, if the root is still the same.
    fn raise(&self, root: At<'_, K::InPlace>) {
        let Some((separator, right)) = root.head.as_split() else { return };
        let items = [Item { key: K::InPlace::default(), word: root.id }, Item { key: separator, word: right }];
        let above = self.table.add(record::base(root.head.level() + 1, None, NONE, &items));
        // Release publishes the new root's entry of the table, and its content.
        if self.root.compare_exchange(root.id, above, Ordering::Release, Ordering::Relaxed).is_err() {
            self.table.take_back(above);
        }
    }

    /// Changes a key's value as `decide` says for the old value: to a value, to none for `Some(None)`, or not at all.
    /// Returns the old value.
    fn write(
        &self,
        key: &K::InPlace,
        guard: &Guard<'_>,
        mut decide: impl FnMut(Option<u64>) -> Option<Option<u64>>,
    ) -> Option<u64> {
        let (mut at, mut place) = (self.tidy(key, 0, guard), None);
        loop {
            let old = at.head.get(key);
            let Some(new) = decide(old) else { return old };
            let kind = if new.is_some() { Kind::Insert } else { Kind::Delete };
            let change = Change { kind, key: *key, word: new.unwrap_or(0), until: None };
            if self.prepend(at, change, &mut place, guard) {
                return old;
            }
            at = self.tidied(self.at(at.id, guard), key, guard);
        }
    }

    /// Checks the whole tree. Returns the numbers of nodes and of keys. No thread may use the tree meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> (usize, usize) {
        let guard = self.domain.pin();
        let (mut first, mut nodes, mut items) = (self.root(&guard).id, 0, Vec::new());
        let mut expected = vec![Item { key: K::InPlace::default(), word: first }];
        for level in (0..=self.root(&guard).head.level()).rev() {
            let (mut next, mut bound) = (first, Some(K::InPlace::default()));
            items.clear();
            for parent in &expected {
                assert_eq!((parent.word, Some(parent.key)), (next, bound), "all nodes of a level have their terms");
                let head = self.at(next, &guard).head;
                let from = items.len();
                head.collect(&mut items);
                assert_eq!(head.level(), level);
                assert!(items[from..].is_sorted_by(|a, b| a.key < b.key), "keys ascend");
                assert!(items[from..].iter().all(|item| item.key >= parent.key && !head.is_below(&item.key)));
                (next, bound) = (head.right(), head.high().copied());
                nodes += 1;
            }
            assert_eq!((next, bound), (NONE, None), "the last node of a level has no bound");
            if level > 0 {
                first = items[0].word;
                core::mem::swap(&mut expected, &mut items);
            }
        }
        (nodes, items.len())
    }
}

impl<K: TreeKey> BenchIndex<K> for BwTree<K> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: TreeKey> OrderedIndex<K, u64> for BwTree<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { tree: self, reader: self.domain.reader(), page: Cell::default() }
    }
}

impl<K: TreeKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        let key = key.in_place();
        self.tree.leaf(&key, &guard).head.get(&key)
    }

    /// # Panics
    /// If the key has more than [`LONGEST`] bytes.
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        assert!(key.with_raw(<[u8]>::len) <= LONGEST, "a key of the tree has at most {LONGEST} bytes");
        let guard = self.reader.enter();
        self.tree.write(&key.in_place(), &guard, |_| Some(Some(value)))
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let guard = self.reader.enter();
        self.tree.write(&key.in_place(), &guard, |old| old.map(|old| Some(f(&old))))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        self.tree.write(&key.in_place(), &guard, |old| old.map(|_| None))
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = self.reader.enter();
        let from = from.in_place();
        let (mut page, mut seen) = (self.page.take(), 0);
        let mut leaf = self.tree.leaf(&from, &guard);
        loop {
            page.clear();
            leaf.head.collect(&mut page);
            // A leaf further to the right begins above `from`.
            let first = page.partition_point(|item| item.key < from);
            for item in page[first..].iter().take(limit - seen) {
                K::show(item.key, |key| visit(key, &item.word));
                seen += 1;
            }
            if seen == limit || leaf.head.right() == NONE {
                break;
            }
            leaf = self.tree.at(leaf.head.right(), &guard);
        }
        self.page.set(page);
        seen
    }
}

#[cfg(test)]
mod tests;
