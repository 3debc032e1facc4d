//! A node: eight cache lines, a leaf or an inner node. The tree in transactions has smaller ones, too.
//!
//! | | keys | values |
//! |---|---|---|
//! | leaf | `count` keys, ascending | the value of each |
//! | inner | `count` separators, ascending | `count + 1` children: all below the first separator, then from each on |
//!
//! All words are atomics, read and written relaxed: readers validate the lock's version before they use what they read,
//! writers hold the lock. `level` never changes. A count that a reader meets is at most that of a full node, since only counts of
//! whole nodes are stored.

use core::marker::PhantomData;
use core::ptr;

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use archipelago_sync::version_lock::{Version, VersionLock};

use super::keys::TreeKey;

/// Keys of a node.
pub const FANOUT: usize = 30;

/// Another thread was here: start again from the root.
#[derive(Clone, Copy, Debug)]
pub struct Retry;

/// See the module. One value more than keys.
#[repr(C, align(64))]
pub struct Node<K, const KEYS: usize = FANOUT, const VALUES: usize = { FANOUT + 1 }> {
    pub lock: VersionLock,
    count: AtomicU32,
    level: u32,
    /// Of a leaf: the next one to the right, as an address; 0 for none.
    next: AtomicU64,
    keys: [AtomicU64; KEYS],
    values: [AtomicU64; VALUES],
    _keys: PhantomData<K>,
}

/// A node's address as a word.
pub fn address<N>(node: *const N) -> u64 {
    node.expose_provenance() as u64
}

/// The node that a word is the address of.
pub fn pointer<N>(word: u64) -> *mut N {
    ptr::with_exposed_provenance_mut(word as usize)
}

impl<K: TreeKey, const KEYS: usize, const VALUES: usize> Node<K, KEYS, VALUES> {
    /// An empty node, leaf if the level is 0.
    pub fn new(level: u32) -> Box<Self> {
        Box::new(Node {
            lock: VersionLock::new(),
            count: AtomicU32::new(0),
            level,
            next: AtomicU64::new(0),
            keys: core::array::from_fn(|_| AtomicU64::new(0)),
            values: core::array::from_fn(|_| AtomicU64::new(0)),
            _keys: PhantomData,
        })
    }

    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.level == 0
    }

    pub fn level(&self) -> u32 {
        self.level
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    pub fn set_count(&self, count: usize) {
        debug_assert!(count <= KEYS && VALUES == KEYS + 1);
        self.count.store(count as u32, Ordering::Relaxed);
    }

    #[inline]
    pub fn key(&self, at: usize) -> u64 {
        self.keys[at].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn value(&self, at: usize) -> u64 {
        self.values[at].load(Ordering::Relaxed)
    }

    pub fn set_key(&self, at: usize, key: u64) {
        self.keys[at].store(key, Ordering::Relaxed);
    }

    pub fn set_value(&self, at: usize, value: u64) {
        self.values[at].store(value, Ordering::Relaxed);
    }

    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub fn set_next(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// The first place whose key is not below `key`, and whether it is equal: what was read at `version`.
    ///
    /// # Errors
    /// If the version does not hold any more. If it does now, that still says nothing about later.
    ///
    /// # Safety
    /// Inside a guard of the tree's domain that began before `version` was read; or the caller holds the lock, and
    /// `version` is `None`.
    #[inline]
    pub unsafe fn find(&self, key: &K, version: Option<Version>) -> Result<(usize, bool), Retry> {
        let (mut from, mut to) = (0, self.count());
        let mut equal = false;
        while from < to {
            let middle = (from + to) / 2;
            let word = self.key(middle);
            // A word that is a pointer is followed only if it was there at the version.
            if !K::PLAIN && version.is_some_and(|version| !self.lock.validate(version)) {
                return Err(Retry);
            }
            // SAFETY: plain, or alive: the caller's promise and the validation.
            match unsafe { key.compare(word) } {
                core::cmp::Ordering::Greater => from = middle + 1,
                order => {
                    equal |= order.is_eq();
                    to = middle;
                }
            }
        }
        Ok((from, equal))
    }

    /// Of an inner node: the place of the child that `key` belongs to.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// # Safety
    /// As [`find`](Self::find).
    #[inline]
    pub unsafe fn child_of(&self, key: &K, version: Option<Version>) -> Result<usize, Retry> {
        // SAFETY: the caller's promise. A separator's own key lies to its right.
        unsafe { self.find(key, version) }.map(|(at, equal)| at + usize::from(equal))
    }

    /// Opens a place for a key, and one for the value at `value_at`. The caller holds the lock; the node is not full.
    pub fn insert(&self, at: usize, key: u64, value_at: usize, value: u64) {
        let count = self.count();
        (at..count).rev().for_each(|from| self.set_key(from + 1, self.key(from)));
        (value_at..count + usize::from(!self.is_leaf()))
            .rev()
            .for_each(|from| self.set_value(from + 1, self.value(from)));
        self.set_key(at, key);
        self.set_value(value_at, value);
        self.set_count(count + 1);
    }

    /// Takes a key and a value out. The caller holds the lock.
    pub fn remove(&self, at: usize, value_at: usize) -> (u64, u64) {
        let (count, gone) = (self.count(), (self.key(at), self.value(value_at)));
        (at + 1..count).for_each(|from| self.set_key(from - 1, self.key(from)));
        (value_at + 1..count + usize::from(!self.is_leaf()))
            .for_each(|from| self.set_value(from - 1, self.value(from)));
        self.set_count(count - 1);
        gone
    }

    /// Moves the upper half to a new node; the new node, and the separator between the two. The caller holds the lock.
    pub fn split(&self) -> (Box<Self>, u64) {
        let right = Self::new(self.level);
        let separator = self.split_into(&right);
        (right, separator)
    }

    /// As [`split`](Self::split), to an empty node of the same level that no other thread sees.
    pub fn split_into(&self, right: &Self) -> u64 {
        let count = self.count();
        let half = count / 2;
        // An inner node's middle key goes up and stays in neither.
        let first = if self.is_leaf() { half } else { half + 1 };
        (first..count).for_each(|at| right.set_key(at - first, self.key(at)));
        let values = count + usize::from(!self.is_leaf());
        (first..values).for_each(|at| right.set_value(at - first, self.value(at)));
        right.set_count(count - first);
        // SAFETY: the caller holds the lock.
        let separator = if self.is_leaf() { unsafe { K::copy(self.key(half)) } } else { self.key(half) };
        self.set_count(half);
        if self.is_leaf() {
            right.set_next(self.next());
            self.set_next(address(right));
        }
        separator
    }

    /// Whether the right neighbour's content, and the separator between, would fit here, with room to spare.
    pub fn takes(&self, right: &Self) -> bool {
        let sum = self.count() + right.count() + usize::from(!self.is_leaf());
        // Room, lest the next insertion split it again; but what is empty goes in any case.
        sum <= KEYS * 3 / 4 || self.count().min(right.count()) == 0 && sum <= KEYS
    }

    /// Takes the right neighbour's content. The caller holds both locks. Of a leaf the separator is not used.
    pub fn absorb(&self, right: &Self, separator: u64) {
        let (mut count, more) = (self.count(), right.count());
        let values = count + usize::from(!self.is_leaf());
        if !self.is_leaf() {
            self.set_key(count, separator);
            count += 1;
        }
        (0..more).for_each(|at| self.set_key(count + at, right.key(at)));
        (0..more + usize::from(!self.is_leaf())).for_each(|at| self.set_value(values + at, right.value(at)));
        self.set_count(count + more);
        self.set_next(right.next());
    }
}
