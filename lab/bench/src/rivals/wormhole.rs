//! An ordered map like Wormhole (Wu, Ni, Jiang: Wormhole: A Fast Ordered Index for In-memory Data Management, EuroSys
//! 2019): a linked list of leaves, and a hash table of all prefixes of the leaves' anchors (their lower bounds).
//!
//! As in the paper:
//!
//! - a look-up finds the longest prefix of its key in the hash table by binary search over the prefix's length, so it
//!   takes O(log length) probes; the prefix's node has the leaf, or tells which sibling's leaf is next;
//! - a leaf has up to 128 entries, ordered by a hash of their keys for look-ups. A second array is ordered by key only as
//!   far as the last scan has sorted it; later entries follow unsorted;
//! - each leaf has a readers-writer lock in one word;
//! - there are two hash tables. A split changes the one that no thread reads, makes it the table of readers, waits for the
//!   readers of the other one, and changes that one. Leaves have the version of the table since which their range is as
//!   it is, and an operation with an older table starts again.
//!
//! Different from the paper:
//!
//! - an anchor may be a prefix of another anchor: a node of the hash table says whether an anchor ends there;
//! - leaves are never merged. Emptied leaves stay until the map is dropped;
//! - a value is changed in place, under the leaf's lock.
//!
//! # Invariants
//! - Leaves are linked from left to right by ascending anchors. The first anchor is empty. A leaf's entries lie between
//!   its anchor and the next leaf's. A split moves the upper half to the right, so a leaf's lower bound never changes.
//! - A thread may lock `changes` while it holds a leaf's lock, and locks no leaf while it holds `changes`. No thread waits
//!   for a lock inside an RCU guard. So the holder of `changes` can wait for readers of the table.
//!
//! # Why an operation is right
//! A table of version `v` leads to the leaf that has had the key in its range at version `v`. A later split of that leaf
//! stores its own version, which is greater than `v`, in both halves while the leaf is locked. An operation compares the
//! leaf's version under the lock: if it is not greater than `v`, the leaf still has the key in its range. A right half
//! can be found by an old table, too, by the link `previous` of its neighbour; it has the greater version as well.
//!
//! Complexity: O(log length) probes, and O(128) steps for an insertion or removal.

mod leaf;
mod meta;

use core::marker::PhantomData;
use core::ptr;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{Mutex, RawTtas};
use archipelago_sync::rcu::{Domain, Reader};

use crate::contender::BenchIndex;
use crate::keys::BenchKey;
use leaf::{Entry, Leaf, WIDTH};
use meta::Table;

/// A map from `K` to `u64`.
pub struct Wormhole<K> {
    first: Box<Leaf>,
    tables: [CachePadded<Table>; 2],
    /// The version of the readers' table, which is `tables[version % 2]`.
    version: CachePadded<AtomicU64>,
    /// Held by a thread that changes tables and links.
    changes: CachePadded<Mutex<RawTtas, ()>>,
    domain: Domain,
    _keys: PhantomData<K>,
}

/// A thread's access to the map.
pub struct Session<'t, K> {
    tree: &'t Wormhole<K>,
    reader: Reader<'t>,
}

impl<K> Default for Wormhole<K> {
    fn default() -> Self {
        let first = Leaf::new(Box::default());
        let tables = [(); 2].map(|()| CachePadded::new(Table::new(&first)));
        let changes = CachePadded::new(Mutex::new(()));
        let version = CachePadded::new(AtomicU64::new(0));
        Wormhole { first, tables, version, changes, domain: Domain::new(), _keys: PhantomData }
    }
}

impl<K> Wormhole<K> {
    fn table(&self, version: u64) -> &Table {
        &self.tables[(version % 2) as usize]
    }

    /// Splits a full leaf, whose lock the caller holds for writing. Releases the lock.
    fn split(&self, left: &Leaf) {
        let changes = self.changes.lock();
        // Only the holder of `changes` changes the version.
        let version = self.version.load(Ordering::Relaxed) + 1;
        let right = left.split(version);
        self.table(version).add(left, right);
        self.version.store(version, Ordering::Release);
        left.lock.unlock_exclusive();
        self.domain.synchronize();
        self.table(version - 1).add(left, right);
        drop(changes);
    }

    /// Checks the whole map. Returns the numbers of leaves and of keys. No thread may use the map meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> (usize, usize) {
        let leaves: Vec<&Leaf> = core::iter::successors(Some(&*self.first), |leaf| leaf.next()).collect();
        assert!(self.first.anchor.is_empty(), "the first leaf has no lower bound");
        let mut keys = 0;
        for (at, leaf) in leaves.iter().enumerate() {
            let next = leaves.get(at + 1);
            keys += leaf.check(next.map(|next| &*next.anchor));
            if let Some(next) = next {
                assert!(ptr::eq(next.previous(), *leaf), "leaves are linked in both directions");
            }
        }
        self.tables.iter().for_each(|table| table.check(&leaves));
        (leaves.len(), keys)
    }
}

impl<'t, K> Session<'t, K> {
    /// Returns the leaf to which a key belongs, with the version of the table that tells so.
    #[inline]
    fn leaf(&self, key: &[u8]) -> (&'t Leaf, u64) {
        let _guard = self.reader.enter();
        let version = self.tree.version.load(Ordering::Acquire);
        (self.tree.table(version).leaf(key), version)
    }

    /// Runs `f` with the key's leaf, locked for reading.
    #[inline]
    fn reading<R>(&self, key: &[u8], mut f: impl FnMut(&'t Leaf) -> R) -> R {
        let backoff = Backoff::new();
        loop {
            let (leaf, version) = self.leaf(key);
            leaf.lock.lock_shared();
            let done = leaf.is_as_at(version).then(|| f(leaf));
            leaf.lock.unlock_shared();
            if let Some(done) = done {
                return done;
            }
            backoff.wait();
        }
    }

    /// Runs `f` with the key's leaf, locked for writing. If `f` returns `None`, the leaf is split, and `f` runs again.
    fn writing<R>(&self, key: &[u8], mut f: impl FnMut(&'t Leaf) -> Option<R>) -> R {
        let backoff = Backoff::new();
        loop {
            let (leaf, version) = self.leaf(key);
            leaf.lock.lock_exclusive();
            if !leaf.is_as_at(version) {
                leaf.lock.unlock_exclusive();
                backoff.wait();
            } else if let Some(done) = f(leaf) {
                leaf.lock.unlock_exclusive();
                return done;
            } else {
                self.tree.split(leaf);
            }
        }
    }

    /// Copies entries of the key's leaf from the key on. A leaf whose keys are not sorted is sorted.
    fn first_page(&self, from: &[u8], page: &mut Page) -> Option<&'t Leaf> {
        let sorted = self.reading(from, |leaf| leaf.is_sorted().then(|| page.copy(leaf, from)));
        sorted.unwrap_or_else(|| {
            self.writing(from, |leaf| {
                leaf.sort();
                Some(page.copy(leaf, from))
            })
        })
    }
}

/// The entries that a scan has copied from a leaf.
struct Page {
    keys: Vec<u8>,
    /// The end of each key in `keys`, and the value.
    entries: Vec<(usize, u64)>,
    wanted: usize,
}

impl Page {
    /// Copies the entries of a leaf from `from` on, as many as are wanted. The caller holds the leaf's lock. Returns the
    /// next leaf.
    fn copy<'t>(&mut self, leaf: &'t Leaf, from: &[u8]) -> Option<&'t Leaf> {
        for (key, value) in leaf.from(from).take(self.wanted) {
            self.keys.extend_from_slice(key);
            self.entries.push((self.keys.len(), value));
        }
        leaf.next()
    }

    /// Copies a leaf's entries.
    fn next<'t>(&mut self, leaf: &'t Leaf) -> Option<&'t Leaf> {
        leaf.lock.lock_shared();
        let sorted = leaf.is_sorted().then(|| self.copy(leaf, &[]));
        leaf.lock.unlock_shared();
        sorted.unwrap_or_else(|| {
            leaf.lock.lock_exclusive();
            leaf.sort();
            let next = self.copy(leaf, &[]);
            leaf.lock.unlock_exclusive();
            next
        })
    }

    /// Shows the entries, and forgets them. Returns how many there were.
    fn show(&mut self, mut visit: impl FnMut(&[u8], &u64)) -> usize {
        let (mut begin, shown) = (0, self.entries.len());
        for (end, value) in self.entries.drain(..) {
            visit(&self.keys[begin..end], &value);
            begin = end;
        }
        self.keys.clear();
        self.wanted -= shown;
        shown
    }
}

impl<K: BenchKey> BenchIndex<K> for Wormhole<K> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for Wormhole<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { tree: self, reader: self.domain.reader() }
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        key.with_raw(|key| self.reading(key, |leaf| leaf.find(key).map(|entry| entry.value())))
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        key.with_raw(|key| {
            self.writing(key, |leaf| match leaf.find(key) {
                Some(entry) => Some(Some(entry.replace(value))),
                None if leaf.len() == WIDTH => None,
                None => {
                    leaf.insert(key, value);
                    Some(None)
                }
            })
        })
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let mut expected = self.get(key)?;
        loop {
            // The caller's code must not run under a lock.
            let new = f(&expected);
            let swap = |entry: Entry| match entry.value() {
                found if found == expected => entry.replace(new),
                found => found,
            };
            let found = key.with_raw(|key| self.writing(key, |leaf| Some(leaf.find(key).map(swap))))?;
            if found == expected {
                return Some(found);
            }
            expected = found;
        }
    }

    fn remove(&self, key: &K) -> Option<u64> {
        key.with_raw(|key| self.writing(key, |leaf| Some(leaf.remove(key))))
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let mut page = Page { keys: Vec::new(), entries: Vec::new(), wanted: limit };
        let mut next = from.with_raw(|from| self.first_page(from, &mut page));
        let mut shown = page.show(|key, value| visit(K::shown_of_raw(key), value));
        while let Some(leaf) = next.filter(|_| page.wanted > 0) {
            next = page.next(leaf);
            shown += page.show(|key, value| visit(K::shown_of_raw(key), value));
        }
        shown
    }
}

impl<K> Drop for Wormhole<K> {
    fn drop(&mut self) {
        let mut next = self.first.next_box();
        while !next.is_null() {
            // SAFETY: no other thread uses the map; every leaf except the first is a box, and is reached once.
            let leaf = unsafe { Box::from_raw(next) };
            next = leaf.next_box();
        }
    }
}

#[cfg(test)]
mod tests;
