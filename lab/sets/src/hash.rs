//! A hash table with a fixed number of buckets, each an ordered list.

use archipelago_platform::plain::Plain;

use crate::list;
use crate::mechanism::{Mechanism, Session};
use crate::{Set, SetSession, Visit};

/// A hash table with a fixed number of buckets. See [the crate](crate).
pub struct Hash<M: Mechanism<1>> {
    mechanism: M,
    roots: Box<[Plain<M::Link>]>,
}

/// The default number of buckets, which is that of Mathew's thesis.
const BUCKETS: usize = 1_000;

impl<M: Mechanism<1>> Hash<M> {
    /// Makes an empty table of `buckets` buckets (0 counts as 1).
    pub fn with_buckets(buckets: usize) -> Self {
        Self::over(M::default(), buckets)
    }

    /// Makes an empty table of `buckets` buckets (0 counts as 1) over `mechanism`. If the mechanism has locks, it gets
    /// one lock for each bucket.
    pub fn over(mechanism: M, buckets: usize) -> Self {
        let buckets = buckets.max(1);
        let mechanism = mechanism.for_scopes(buckets);
        Self { roots: (0..buckets).map(|_| Plain::new(mechanism.root())).collect(), mechanism }
    }

    /// Returns the mechanism.
    pub fn mechanism(&self) -> &M {
        &self.mechanism
    }
}

impl<M: Mechanism<1>> Default for Hash<M> {
    fn default() -> Self {
        Self::with_buckets(BUCKETS)
    }
}

impl<M: Mechanism<1>> Set for Hash<M> {
    type Session<'s> = HashSession<'s, M>;

    fn session(&self) -> HashSession<'_, M> {
        HashSession { session: self.mechanism.session(), roots: &self.roots }
    }
}

impl<M: Mechanism<1>> Drop for Hash<M> {
    fn drop(&mut self) {
        let mut session = self.mechanism.session();
        for (scope, root) in self.roots.iter().enumerate() {
            // SAFETY: no other thread uses the table.
            unsafe { list::retire_all(&mut session, scope, **root) };
        }
    }
}

/// A session on a [`Hash`](struct@Hash).
pub struct HashSession<'s, M: Mechanism<1>> {
    session: M::Session<'s>,
    roots: &'s [Plain<M::Link>],
}

/// Returns a key's bucket: the key is multiplied by 2^64 over the golden ratio, and the product's high bits are mapped
/// to the buckets.
#[inline]
pub(crate) fn bucket(key: u64, buckets: usize) -> usize {
    let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed) * buckets as u128) >> 64) as usize
}

impl<M: Mechanism<1>> HashSession<'_, M> {
    #[inline]
    fn bucket(&self, key: u64) -> (usize, M::Link) {
        let bucket = bucket(key, self.roots.len());
        (bucket, *self.roots[bucket])
    }

    fn scopes(&self, keys: &[u64]) -> Vec<usize> {
        let mut scopes: Vec<usize> = keys.iter().map(|key| self.bucket(*key).0).collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }
}

impl<M: Mechanism<1>> SetSession for HashSession<'_, M> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        let (scope, root) = self.bucket(key);
        self.session.update(&[scope], |tx| list::insert(tx, root, key, value))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Option<u64> {
        let (scope, root) = self.bucket(key);
        self.session.update(&[scope], |tx| list::remove(tx, root, key))
    }

    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        let (_, root) = self.bucket(key);
        self.session.read(|view| list::get(view, root, key))
    }

    fn get_many(&mut self, keys: &[u64]) -> Vec<Option<u64>> {
        let (scopes, roots) = (self.scopes(keys), self.roots);
        let root = |key: u64| *roots[bucket(key, roots.len())];
        self.session.read_at_once(&scopes, |view| keys.iter().map(|key| list::get(view, root(*key), *key)).collect())
    }

    fn move_key(&mut self, from: u64, to: u64) -> bool {
        let scopes = self.scopes(&[from, to]);
        let ((_, from_root), (_, to_root)) = (self.bucket(from), self.bucket(to));
        self.session.update(&scopes, |tx| list::move_key(tx, from_root, from, to_root, to))
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
