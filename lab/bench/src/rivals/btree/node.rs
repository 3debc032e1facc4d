//! A node of eight cache lines, or of 4 KiB if the keys are byte strings. It is either a leaf or an inner node. The tree
//! in hardware transactions also has smaller nodes.
//!
//! | | keys | values |
//! |---|---|---|
//! | leaf | `count` keys, ascending | the value of each |
//! | inner | `count` separators, ascending | `count + 1` children: the keys below the first separator, then the keys from each separator on |
//!
//! All words are atomics that are read and written relaxed: a reader validates the lock's version before it uses what
//! it read, and a writer holds the lock. `level` never changes. A reader never sees a count above that of a full node,
//! since writers store complete counts only.

use core::marker::PhantomData;
use core::ptr;

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use archipelago_sync::version_lock::VersionLock;

use super::keys::{Body, InPlace};

/// Another thread changed the node meanwhile: start again from the root.
#[derive(Clone, Copy, Debug)]
pub struct Retry;

/// A node; see the module. An inner node has one value more than keys.
#[repr(C, align(64))]
pub struct Node<K: InPlace, B = <K as InPlace>::Body> {
    pub lock: VersionLock,
    count: AtomicU32,
    level: u32,
    /// Of a leaf: the address of the next leaf to the right; 0 for none.
    next: AtomicU64,
    /// The keys' words, then the values.
    body: B,
    _keys: PhantomData<K>,
}

/// Returns a node's address as a word.
pub fn address<N>(node: *const N) -> u64 {
    node.expose_provenance() as u64
}

/// Returns the node whose address a word is.
pub fn pointer<N>(word: u64) -> *mut N {
    ptr::with_exposed_provenance_mut(word as usize)
}

impl<K: InPlace, B: Body> Node<K, B> {
    /// The most keys of a node.
    pub const KEYS: usize = (B::WORDS - 1) / (K::WORDS + 1);

    /// Makes an empty node, a leaf if the level is 0.
    pub fn new(level: u32) -> Box<Self> {
        Box::new(Node {
            lock: VersionLock::new(),
            count: AtomicU32::new(0),
            level,
            next: AtomicU64::new(0),
            body: B::zero(),
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
        debug_assert!(count <= Self::KEYS);
        self.count.store(count as u32, Ordering::Relaxed);
    }

    #[inline]
    fn words_of_key(&self, at: usize) -> &[AtomicU64] {
        &self.body.as_ref()[at * K::WORDS..(at + 1) * K::WORDS]
    }

    #[inline]
    fn word_of_value(&self, at: usize) -> &AtomicU64 {
        &self.body.as_ref()[Self::KEYS * K::WORDS + at]
    }

    #[inline]
    pub fn key(&self, at: usize) -> K {
        K::load(self.words_of_key(at))
    }

    #[inline]
    pub fn value(&self, at: usize) -> u64 {
        self.word_of_value(at).load(Ordering::Relaxed)
    }

    pub fn set_key(&self, at: usize, key: K) {
        key.store(self.words_of_key(at));
    }

    pub fn set_value(&self, at: usize, value: u64) {
        self.word_of_value(at).store(value, Ordering::Relaxed);
    }

    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub fn set_next(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns the first position whose key is not below `key`, and whether that key is equal. The caller holds the
    /// lock, or validates the version that it read before.
    #[inline]
    pub fn find(&self, key: &K) -> (usize, bool) {
        let (mut from, mut to) = (0, self.count());
        let mut equal = false;
        while from < to {
            let middle = (from + to) / 2;
            match key.compare(self.words_of_key(middle)) {
                core::cmp::Ordering::Greater => from = middle + 1,
                order => {
                    equal |= order.is_eq();
                    to = middle;
                }
            }
        }
        (from, equal)
    }

    /// Returns, for an inner node, the position of the child to which `key` belongs. The caller does as for
    /// [`find`](Self::find).
    #[inline]
    pub fn child_of(&self, key: &K) -> usize {
        // A key equal to a separator belongs to the child at its right.
        let (at, equal) = self.find(key);
        at + usize::from(equal)
    }

    /// Inserts a key, and a value at `value_at`. The caller holds the lock, and the node is not full.
    pub fn insert(&self, at: usize, key: K, value_at: usize, value: u64) {
        let count = self.count();
        (at..count).rev().for_each(|from| self.set_key(from + 1, self.key(from)));
        (value_at..count + usize::from(!self.is_leaf()))
            .rev()
            .for_each(|from| self.set_value(from + 1, self.value(from)));
        self.set_key(at, key);
        self.set_value(value_at, value);
        self.set_count(count + 1);
    }

    /// Removes a key and a value. The caller holds the lock.
    pub fn remove(&self, at: usize, value_at: usize) -> (K, u64) {
        let (count, gone) = (self.count(), (self.key(at), self.value(value_at)));
        (at + 1..count).for_each(|from| self.set_key(from - 1, self.key(from)));
        (value_at + 1..count + usize::from(!self.is_leaf()))
            .for_each(|from| self.set_value(from - 1, self.value(from)));
        self.set_count(count - 1);
        gone
    }

    /// Moves the upper half to a new node. Returns the new node, and the separator between the two. The caller holds
    /// the lock.
    pub fn split(&self) -> (Box<Self>, K) {
        let right = Self::new(self.level);
        let separator = self.split_into(&right);
        (right, separator)
    }

    /// Does the same as [`split`](Self::split) to an empty node of the same level that no other thread sees.
    pub fn split_into(&self, right: &Self) -> K {
        let count = self.count();
        let half = count / 2;
        // An inner node's middle key moves to the parent and stays in neither node.
        let first = if self.is_leaf() { half } else { half + 1 };
        (first..count).for_each(|at| right.set_key(at - first, self.key(at)));
        let values = count + usize::from(!self.is_leaf());
        (first..values).for_each(|at| right.set_value(at - first, self.value(at)));
        right.set_count(count - first);
        let separator = self.key(half);
        self.set_count(half);
        if self.is_leaf() {
            right.set_next(self.next());
            self.set_next(address(right));
        }
        separator
    }

    /// Returns whether the right neighbour's content, and the separator between, would fit in this node with some room
    /// left.
    pub fn takes(&self, right: &Self) -> bool {
        let sum = self.count() + right.count() + usize::from(!self.is_leaf());
        // Some room is left so that the next insertion does not split the node again. An empty node is merged in any
        // case.
        sum <= Self::KEYS * 3 / 4 || self.count().min(right.count()) == 0 && sum <= Self::KEYS
    }

    /// Appends the right neighbour's content. The caller holds both locks. A leaf does not use the separator.
    pub fn absorb(&self, right: &Self, separator: K) {
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
