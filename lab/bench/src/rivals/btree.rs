//! A B+tree with optimistic lock coupling (Leis, Haubenschild, Neumann: Optimistic Lock Coupling, IEEE Data Eng. Bull. 2019):
//! the rival of every index here that keeps order.
//!
//! # Invariants
//! - Keys ascend; what a child holds lies between the separators around it: from the left one on, below the right one.
//! - Leaves are linked from left to right. Merging moves the right node's content left, and splitting the upper half
//!   right: so **a node's lower bound never changes while it is in the tree**, and who goes from a leaf to the next one
//!   misses nothing that was there throughout.
//! - Nodes that are full are split on the way down, by insertions; nodes that are nearly empty are merged on the way down
//!   that follows a removal. So the thread that locks a node never needs more than its parent, and a neighbour.
//!
//! # Why a walk is right
//! A walk holds a version of each node that was seen free ([`Version`]). It reads a child's address, *validates* the node
//! (so the address was there, and the guard keeps what it points to), reads the child's version, and validates the node
//! *again*: the child was this node's child when its version was current, so its bounds were those that the walk chose
//! it for. A leaf's answer counts if the leaf's version still holds afterwards. What fails starts again from the root.
//!
//! Writers lock the leaf at the version at which they decided, and so find it as they read it. A split or merge locks
//! the parent, then the node, then the neighbour, each at the version at which it was looked at, and none of these waits:
//! there is no deadlock. Nodes and keys that leave the tree are marked obsolete, if they are nodes, and retired to RCU.
//!
//! Complexity: O(log n) nodes of eight lines; a scan reads each leaf once and copies it before it shows anything.

mod check;
mod keys;
pub(super) mod node;

use core::marker::PhantomData;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};
use archipelago_sync::version_lock::{Version, VersionLock};

use crate::contender::BenchIndex;
pub(super) use check::check_nodes;
pub use keys::TreeKey;
use node::{FANOUT, Node, Retry, address, pointer};

/// Nodes with at most this many keys are merged, if a neighbour takes them.
const SPARSE: usize = FANOUT / 4;

/// A map from `K` to words.
pub struct BTreeOlc<K: TreeKey> {
    /// Of the address of the root.
    anchor: CachePadded<(VersionLock, AtomicU64)>,
    _nodes: PhantomData<Box<Node<K>>>,
    // Last: it frees what was retired from the tree.
    domain: Domain,
}

/// A thread's way in.
pub struct Session<'t, K: TreeKey> {
    tree: &'t BTreeOlc<K>,
    reader: Reader<'t>,
}

/// A node of a walk, and the version at which it was met.
struct Met<'g, K> {
    node: &'g Node<K>,
    version: Version,
}

impl<K> Clone for Met<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Met<'_, K> {}

/// What stands above a node of a walk: the anchor, or its parent with the child's place.
enum Above<'g, K> {
    Anchor(Version),
    Parent(Met<'g, K>, usize),
}

impl<K: TreeKey> Default for BTreeOlc<K> {
    fn default() -> Self {
        let root = address(Box::into_raw(Node::<K>::new(0)));
        let anchor = CachePadded::new((VersionLock::new(), AtomicU64::new(root)));
        BTreeOlc { anchor, _nodes: PhantomData, domain: Domain::new() }
    }
}

impl<K: TreeKey> BTreeOlc<K> {
    /// The root, as of a version of the anchor.
    fn root<'g>(&'g self, _: &'g Guard<'_>) -> Result<(Met<'g, K>, Version), Retry> {
        let (lock, root) = &*self.anchor;
        let anchor = lock.read_unlocked().ok_or(Retry)?;
        let word = root.load(Ordering::Relaxed);
        // SAFETY: the address was there at the version, and the guard keeps the node.
        let root = unsafe { met(word, || lock.validate(anchor)) }?;
        Ok((root, anchor))
    }

    /// From an inner node to the child at a place.
    fn step<'g>(&'g self, from: Met<'g, K>, at: usize) -> Result<Met<'g, K>, Retry> {
        let word = from.node.value(at);
        // SAFETY: as in `root`.
        unsafe { met(word, || from.node.lock.validate(from.version)) }
    }

    /// The leaf where `key` is, or would be.
    #[inline]
    fn leaf<'g>(&'g self, key: &K, guard: &'g Guard<'_>) -> Result<Met<'g, K>, Retry> {
        let (mut met, _) = self.root(guard)?;
        while !met.node.is_leaf() {
            // SAFETY: in the guard.
            let at = unsafe { met.node.child_of(key, Some(met.version)) }?;
            met = self.step(met, at)?;
        }
        Ok(met)
    }

    fn try_get(&self, key: &K, guard: &Guard<'_>) -> Result<Option<u64>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        // SAFETY: in the guard.
        let (at, found) = unsafe { node.find(key, Some(version)) }?;
        let value = found.then(|| node.value(at));
        if node.lock.validate(version) { Ok(value) } else { Err(Retry) }
    }

    fn try_insert(&self, key: &K, value: u64, guard: &Guard<'_>) -> Result<Option<u64>, Retry> {
        let (mut met, anchor) = self.root(guard)?;
        let mut above = Above::Anchor(anchor);
        loop {
            if met.node.count() == FANOUT {
                self.split(&above, met)?;
                return Err(Retry);
            }
            if met.node.is_leaf() {
                break;
            }
            // SAFETY: in the guard.
            let at = unsafe { met.node.child_of(key, Some(met.version)) }?;
            let child = self.step(met, at)?;
            above = Above::Parent(met, at);
            met = child;
        }
        let Met { node, version } = met;
        // SAFETY: in the guard.
        let (at, found) = unsafe { node.find(key, Some(version)) }?;
        // Made before the lock is taken, and lost if it is not to be had.
        let word = (!found).then(|| key.word());
        if !node.lock.try_lock_at(version) {
            // SAFETY: it went into no node.
            word.into_iter().for_each(|word| unsafe { K::free(word) });
            return Err(Retry);
        }
        let old = found.then(|| node.value(at));
        match word {
            None => node.set_value(at, value),
            Some(word) => node.insert(at, word, at, value),
        }
        node.lock.unlock();
        Ok(old)
    }

    fn try_update(&self, key: &K, f: &mut impl FnMut(&u64) -> u64, guard: &Guard<'_>) -> Result<Option<u64>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        // SAFETY: in the guard.
        let (at, found) = unsafe { node.find(key, Some(version)) }?;
        if !found {
            return if node.lock.validate(version) { Ok(None) } else { Err(Retry) };
        }
        let old = node.value(at);
        // The old value belongs to the version, or the lock is not to be had: users' code runs under no lock.
        if !node.lock.validate(version) {
            return Err(Retry);
        }
        let new = f(&old);
        if !node.lock.try_lock_at(version) {
            return Err(Retry);
        }
        node.set_value(at, new);
        node.lock.unlock();
        Ok(Some(old))
    }

    /// The value removed, and whether the leaf is sparse now.
    fn try_remove(&self, key: &K, guard: &Guard<'_>) -> Result<Option<(u64, bool)>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        // SAFETY: in the guard.
        let (at, found) = unsafe { node.find(key, Some(version)) }?;
        if !found {
            return if node.lock.validate(version) { Ok(None) } else { Err(Retry) };
        }
        if !node.lock.try_lock_at(version) {
            return Err(Retry);
        }
        let (word, value) = node.remove(at, at);
        let sparse = node.count() <= SPARSE;
        node.lock.unlock();
        // SAFETY: it was alive in the leaf and is there no more.
        unsafe { K::retire(word, guard) };
        Ok(Some((value, sparse)))
    }

    /// Splits a full node.
    fn split(&self, above: &Above<'_, K>, met: Met<'_, K>) -> Result<(), Retry> {
        let Met { node, version } = met;
        self.lock_above(above)?;
        if !node.lock.try_lock_at(version) {
            self.unlock_above(above, false);
            return Err(Retry);
        }
        let (right, separator) = node.split();
        let right = address(Box::into_raw(right));
        match above {
            Above::Parent(parent, at) => parent.node.insert(*at, separator, at + 1, right),
            Above::Anchor(_) => {
                let root = Node::<K>::new(node.level() + 1);
                root.set_value(0, address(node));
                root.insert(0, separator, 1, right);
                self.anchor.1.store(address(Box::into_raw(root)), Ordering::Relaxed);
            }
        }
        node.lock.unlock();
        self.unlock_above(above, true);
        Ok(())
    }

    fn lock_above(&self, above: &Above<'_, K>) -> Result<(), Retry> {
        let locked = match above {
            Above::Anchor(version) => self.anchor.0.try_lock_at(*version),
            Above::Parent(parent, _) => parent.node.lock.try_lock_at(parent.version),
        };
        if locked { Ok(()) } else { Err(Retry) }
    }

    fn unlock_above(&self, above: &Above<'_, K>, changed: bool) {
        let lock = match above {
            Above::Anchor(_) => &self.anchor.0,
            Above::Parent(parent, _) => &parent.node.lock,
        };
        if changed { lock.unlock() } else { lock.unlock_unchanged() }
    }

    /// Walks to `key` and merges what is sparse on the way. `Ok`: nothing was left to do.
    fn try_tidy(&self, key: &K, guard: &Guard<'_>) -> Result<(), Retry> {
        let (mut met, anchor) = self.root(guard)?;
        if !met.node.is_leaf() && met.node.count() == 0 {
            self.lower_root(anchor, met, guard)?;
            return Err(Retry);
        }
        while !met.node.is_leaf() {
            // SAFETY: in the guard.
            let at = unsafe { met.node.child_of(key, Some(met.version)) }?;
            let child = self.step(met, at)?;
            if child.node.count() <= SPARSE && self.merge(met, at, guard)? {
                return Err(Retry);
            }
            met = child;
        }
        Ok(())
    }

    /// The root has one child only, which takes its place.
    fn lower_root(&self, anchor: Version, met: Met<'_, K>, guard: &Guard<'_>) -> Result<(), Retry> {
        let Met { node, version } = met;
        let above = Above::Anchor(anchor);
        self.lock_above(&above)?;
        if !node.lock.try_lock_at(version) {
            self.unlock_above(&above, false);
            return Err(Retry);
        }
        self.anchor.1.store(node.value(0), Ordering::Relaxed);
        node.lock.unlock_obsolete();
        self.unlock_above(&above, true);
        // SAFETY: the anchor led to it, and does so no more; it was locked, so no other thread retires it.
        unsafe { retire(node, guard) };
        Ok(())
    }

    /// Merges the child at a place with its right neighbour, or the last child with its left one, if they fit; whether
    /// they did.
    fn merge(&self, parent: Met<'_, K>, at: usize, guard: &Guard<'_>) -> Result<bool, Retry> {
        let count = parent.node.count();
        if count == 0 {
            return if parent.node.lock.validate(parent.version) { Ok(false) } else { Err(Retry) };
        }
        let at = at.min(count - 1);
        let (left, right) = (self.step(parent, at)?, self.step(parent, at + 1)?);
        if !left.node.takes(right.node) {
            return Ok(false);
        }
        if !parent.node.lock.try_lock_at(parent.version) {
            return Err(Retry);
        }
        if !left.node.lock.try_lock_at(left.version) {
            parent.node.lock.unlock_unchanged();
            return Err(Retry);
        }
        if !right.node.lock.try_lock_at(right.version) {
            left.node.lock.unlock_unchanged();
            parent.node.lock.unlock_unchanged();
            return Err(Retry);
        }
        let (separator, _) = parent.node.remove(at, at + 1);
        left.node.absorb(right.node, separator);
        right.node.lock.unlock_obsolete();
        left.node.lock.unlock();
        parent.node.lock.unlock();
        // SAFETY: the parent and the left neighbour led to it, and do so no more; a leaf's separator is nowhere any
        // more, an inner node's went into the left one.
        unsafe {
            if left.node.is_leaf() {
                K::retire(separator, guard);
            }
            retire(right.node, guard);
        }
        Ok(true)
    }

    /// Copies what a leaf has from `from` on, at most `limit` entries, and where the next leaf is.
    fn copy<'g>(
        &self,
        leaf: Met<'g, K>,
        from: Option<&K>,
        limit: usize,
        page: &mut Page,
    ) -> Result<Option<&'g Node<K>>, Retry> {
        let Met { node, version } = leaf;
        let start = match from {
            // SAFETY: in the guard.
            Some(key) => unsafe { node.find(key, Some(version)) }?.0,
            None => 0,
        };
        page.len = 0;
        for at in (start..node.count()).take(limit) {
            page.entries[page.len] = (node.key(at), node.value(at));
            page.len += 1;
        }
        let next = node.next();
        if !node.lock.validate(version) {
            return Err(Retry);
        }
        // SAFETY: the address was there at the version, and the guard keeps the node.
        Ok(unsafe { pointer::<Node<K>>(next).as_ref() })
    }
}

/// A leaf's content.
struct Page {
    entries: [(u64, u64); FANOUT],
    len: usize,
}

/// The node at an address that was read from a node (or the anchor), which `validate` says still is as it was then.
///
/// # Safety
/// The read was inside a guard of the domain that lasts for `'g`, and `validate` tells the truth.
#[inline]
unsafe fn met<'g, K: TreeKey>(word: u64, validate: impl Fn() -> bool) -> Result<Met<'g, K>, Retry> {
    // Before the address is followed: it might have been half of a change.
    if !validate() {
        return Err(Retry);
    }
    // SAFETY: it was there, so the node was in the tree inside the guard, and is not freed before its end.
    let node = unsafe { &*pointer::<Node<K>>(word) };
    let version = node.lock.read_unlocked().ok_or(Retry)?;
    // And after its version was read: only so is it the version of a child.
    if validate() { Ok(Met { node, version }) } else { Err(Retry) }
}

/// # Safety
/// The node has left the tree, and no other thread retires it.
unsafe fn retire<K>(node: &Node<K>, guard: &Guard<'_>) {
    let node = (&raw const *node).cast_mut();
    // SAFETY: passed on; nodes are boxes.
    unsafe { guard.retire_box(node) };
}

/// Repeats what other threads came across.
#[inline]
fn until_done<R>(mut attempt: impl FnMut() -> Result<R, Retry>) -> R {
    if let Ok(done) = attempt() {
        return done;
    }
    let backoff = Backoff::new();
    loop {
        if let Ok(done) = attempt() {
            return done;
        }
        backoff.wait();
    }
}

impl<K: TreeKey> BenchIndex<K> for BTreeOlc<K> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: TreeKey> OrderedIndex<K, u64> for BTreeOlc<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { tree: self, reader: self.domain.reader() }
    }
}

impl<K: TreeKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        until_done(|| self.tree.try_get(key, &guard))
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        let guard = self.reader.enter();
        until_done(|| self.tree.try_insert(key, value, &guard))
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let guard = self.reader.enter();
        until_done(|| self.tree.try_update(key, &mut f, &guard))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        let (value, sparse) = until_done(|| self.tree.try_remove(key, &guard))?;
        if sparse {
            until_done(|| self.tree.try_tidy(key, &guard));
        }
        Some(value)
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = self.reader.enter();
        let mut page = Page { entries: [(0, 0); FANOUT], len: 0 };
        let (mut seen, mut last): (usize, Option<u64>) = (0, None);
        // A leaf by the walk, then leaf by leaf; by the walk again, to behind the last key shown, if one was gone.
        let mut next: Option<&Node<K>> = None;
        let backoff = Backoff::new();
        loop {
            let copied = match (next, last) {
                (Some(node), _) => node
                    .lock
                    .read_unlocked()
                    .ok_or(Retry)
                    .and_then(|version| self.tree.copy(Met { node, version }, None, limit - seen, &mut page)),
                (None, None) => self
                    .tree
                    .leaf(from, &guard)
                    .and_then(|leaf| self.tree.copy(leaf, Some(from), limit - seen, &mut page)),
                (None, Some(word)) => {
                    // SAFETY: it was alive in the guard.
                    let behind = K::from_shown(unsafe { K::show(word) });
                    let wanted = limit.saturating_sub(seen).saturating_add(1);
                    self.tree.leaf(&behind, &guard).and_then(|leaf| {
                        let next = self.tree.copy(leaf, Some(&behind), wanted, &mut page)?;
                        // SAFETY: in the guard, and validated.
                        page.skip(|word| unsafe { behind.compare(word) }.is_eq());
                        Ok(next)
                    })
                }
            };
            let Ok(following) = copied else {
                next = None;
                backoff.wait();
                continue;
            };
            for (word, value) in &page.entries[..page.len.min(limit - seen)] {
                // SAFETY: it was in the leaf at a version that held, in the guard.
                visit(unsafe { K::show(*word) }, value);
                seen += 1;
                last = Some(*word);
            }
            next = following;
            if seen == limit || next.is_none() {
                return seen;
            }
        }
    }
}

impl Page {
    /// Drops the first entry, if its key is one that was shown already.
    fn skip(&mut self, shown: impl Fn(u64) -> bool) {
        if self.len > 0 && shown(self.entries[0].0) {
            self.entries.copy_within(1..self.len, 0);
            self.len -= 1;
        }
    }
}

impl<K: TreeKey> Drop for BTreeOlc<K> {
    fn drop(&mut self) {
        fn free<K: TreeKey>(word: u64) {
            // SAFETY: no other thread uses the tree; every node is a box and reached once.
            let node = unsafe { Box::from_raw(pointer::<Node<K>>(word)) };
            if !node.is_leaf() {
                (0..=node.count()).for_each(|at| free::<K>(node.value(at)));
            }
            // SAFETY: each word is in one node.
            (0..node.count()).for_each(|at| unsafe { K::free(node.key(at)) });
        }
        free::<K>(self.anchor.1.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
