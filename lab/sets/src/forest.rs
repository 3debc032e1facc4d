//! A hash table of trees: a fixed number of buckets, each a binary search tree, as in Kyoto Cabinet's CacheDB.

use archipelago_platform::plain::Plain;

use crate::hash::bucket;
use crate::mechanism::{Mechanism, Session};
use crate::tree;
use crate::{Set, SetSession, Visit};

/// A hash table with a fixed number of buckets, each a tree. See [the crate](crate).
pub struct Forest<M: Mechanism<2>> {
    mechanism: M,
    roots: Box<[Plain<M::Link>]>,
}

impl<M: Mechanism<2>> Forest<M> {
    /// Makes an empty table of `buckets` trees (0 counts as 1) over `mechanism`. If the mechanism has locks, it gets
    /// one lock for each bucket.
    pub fn over(mechanism: M, buckets: usize) -> Self {
        let buckets = buckets.max(1);
        let mechanism = mechanism.for_scopes(buckets);
        Self { roots: (0..buckets).map(|_| Plain::new(mechanism.root())).collect(), mechanism }
    }
}

impl<M: Mechanism<2>> Set for Forest<M> {
    type Session<'s> = ForestSession<'s, M>;

    fn session(&self) -> ForestSession<'_, M> {
        ForestSession { session: self.mechanism.session(), roots: &self.roots }
    }
}

impl<M: Mechanism<2>> Drop for Forest<M> {
    fn drop(&mut self) {
        let mut session = self.mechanism.session();
        for (scope, root) in self.roots.iter().enumerate() {
            // SAFETY: no other thread uses the table now or later.
            unsafe { tree::retire_all(&mut session, scope, **root) };
        }
    }
}

/// A session on a [`Forest`].
pub struct ForestSession<'s, M: Mechanism<2>> {
    session: M::Session<'s>,
    roots: &'s [Plain<M::Link>],
}

impl<M: Mechanism<2>> ForestSession<'_, M> {
    #[inline]
    fn bucket(&self, key: u64) -> (usize, M::Link) {
        let bucket = bucket(key, self.roots.len());
        (bucket, *self.roots[bucket])
    }

    /// Inserts a key or replaces its value. Returns the old value.
    #[inline]
    pub fn put(&mut self, key: u64, value: u64) -> Option<u64> {
        let (scope, root) = self.bucket(key);
        self.session.update(&[scope], |tx| tree::put(tx, root, key, value))
    }
}

/// Operations on one key at a time; ranges are empty.
impl<M: Mechanism<2>> SetSession for ForestSession<'_, M> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        let (scope, root) = self.bucket(key);
        self.session.update(&[scope], |tx| tree::insert(tx, root, key, value))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Option<u64> {
        let (scope, root) = self.bucket(key);
        self.session.update(&[scope], |tx| tree::remove(tx, root, key))
    }

    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        let (_, root) = self.bucket(key);
        self.session.read(|view| tree::get(view, root, key))
    }

    fn range(&mut self, _: u64, _: u64) -> Vec<(u64, u64)> {
        Vec::new()
    }

    fn linger(&mut self, visit: &Visit) {
        self.session.read(|_| visit.stay());
    }

    fn aborts(&self) -> u64 {
        self.session.aborts()
    }
}
