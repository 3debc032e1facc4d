//! A B+tree with optimistic lock coupling (Leis, Haubenschild, Neumann: Optimistic Lock Coupling, IEEE Data Eng. Bull.
//! 2019): the rival of every ordered index of this library.
//!
//! # Invariants
//! - Keys ascend. A child's keys are between the separators around the child: at or above the left separator, below the
//!   right one.
//! - Leaves are linked from left to right. Merging moves the right node's content to the left, and splitting moves the
//!   upper half to the right. So **a node's lower bound never changes while the node is in the tree**, and a thread
//!   that walks from a leaf to the next one misses no key that was present throughout.
//! - Insertions split full nodes on their way down. If a removal leaves a leaf nearly empty, another walk down merges
//!   nearly empty nodes. So a thread that locks a node never needs more than the node's parent and one neighbour.
//!
//! # Why a walk is right
//! A walk reads each node's version while the node is not locked ([`Version`]). It reads a child's address
//! and *validates* the node: the version still holds, so the address was the child's, and the RCU guard keeps the child
//! allocated. Then the walk reads the child's version and validates the node *again*. So the child was this node's
//! child when the child's version was current, and had the bounds for which the walk chose it. A leaf's answer counts
//! if the leaf's version still holds afterwards. If any validation fails, the walk starts again from the root.
//!
//! A writer reads the leaf at some version, and then locks the leaf only if it still has this version. So the leaf has
//! not changed since the writer read it. A split locks the parent, then the node. A merge locks the parent, then the
//! left child, then the right one. Each is locked only at the version that the thread read. No thread waits for any of
//! these locks, so there is no deadlock. A node that leaves the tree is marked obsolete and is retired to RCU.
//!
//! # Keys
//! A node contains its keys whole (`keys.rs`), so a search reads no memory but the nodes'. Byte strings are stored as in
//! index-microbench, the benchmark program of HydraList's authors: in place, in nodes of 4 KiB. That program has room for
//! 31 bytes of a key, and cuts longer keys off. Some of our e-mail addresses are longer, so a node has room for
//! [`LONGEST`] bytes.
//!
//! Complexity: O(log n) nodes. A scan copies a leaf before it shows the leaf's entries. It reads each leaf once, unless
//! another thread interferes.

mod check;
mod keys;
pub(super) mod node;

use core::cell::Cell;
use core::marker::PhantomData;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};
use archipelago_sync::version_lock::{Version, VersionLock};

use crate::contender::BenchIndex;
pub(super) use check::check_nodes;
pub(super) use keys::{Body, InPlace};
pub use keys::{LONGEST, TreeKey};
use node::{Node, Retry, address, pointer};

/// A map from `K` to `u64`. Byte strings have at most [`LONGEST`] bytes.
pub struct BTreeOlc<K: TreeKey> {
    /// The lock of the root's address, and the address.
    anchor: CachePadded<(VersionLock, AtomicU64)>,
    _nodes: PhantomData<Box<Node<K::InPlace>>>,
    // Dropped last: dropping the domain frees the nodes that were retired from the tree.
    domain: Domain,
}

/// A thread's access to the tree.
pub struct Session<'t, K: TreeKey> {
    tree: &'t BTreeOlc<K>,
    reader: Reader<'t>,
    /// Memory for the leaf that a scan copies. A scan takes it, and puts it back.
    page: Cell<Page<K::InPlace>>,
}

/// A node of a walk, and the version that the walk read.
#[derive(Clone, Copy)]
struct Met<'g, K: InPlace> {
    node: &'g Node<K>,
    version: Version,
}

/// The parent of a node on a walk, with the child's position; or the anchor, if the node is the root.
enum Above<'g, K: InPlace> {
    Anchor(Version),
    Parent(Met<'g, K>, usize),
}

impl<K: TreeKey> Default for BTreeOlc<K> {
    fn default() -> Self {
        let root = address(Box::into_raw(Node::<K::InPlace>::new(0)));
        let anchor = CachePadded::new((VersionLock::new(), AtomicU64::new(root)));
        BTreeOlc { anchor, _nodes: PhantomData, domain: Domain::new() }
    }
}

impl<K: TreeKey> BTreeOlc<K> {
    /// The most keys of a node.
    const KEYS: usize = Node::<K::InPlace>::KEYS;

    /// The most keys of a node that is merged, if a neighbour has room.
    const SPARSE: usize = Self::KEYS / 4;

    /// Returns the root, with the version of the anchor at which it was the root.
    fn root<'g>(&'g self, _: &'g Guard<'_>) -> Result<(Met<'g, K::InPlace>, Version), Retry> {
        let (lock, root) = &*self.anchor;
        let anchor = lock.read_unlocked().ok_or(Retry)?;
        let word = root.load(Ordering::Relaxed);
        // SAFETY: the address was in the anchor at the version, and the guard keeps the node allocated.
        let root = unsafe { met(word, || lock.validate(anchor)) }?;
        Ok((root, anchor))
    }

    /// Walks from an inner node to the child at a position.
    fn step<'g>(&'g self, from: Met<'g, K::InPlace>, at: usize) -> Result<Met<'g, K::InPlace>, Retry> {
        let word = from.node.value(at);
        // SAFETY: as in `root`.
        unsafe { met(word, || from.node.lock.validate(from.version)) }
    }

    /// Returns the leaf that contains `key`, or would contain it.
    #[inline]
    fn leaf<'g>(&'g self, key: &K::InPlace, guard: &'g Guard<'_>) -> Result<Met<'g, K::InPlace>, Retry> {
        let (mut met, _) = self.root(guard)?;
        while !met.node.is_leaf() {
            let at = met.node.child_of(key);
            met = self.step(met, at)?;
        }
        Ok(met)
    }

    fn try_get(&self, key: &K::InPlace, guard: &Guard<'_>) -> Result<Option<u64>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        let (at, found) = node.find(key);
        let value = found.then(|| node.value(at));
        if node.lock.validate(version) { Ok(value) } else { Err(Retry) }
    }

    fn try_insert(&self, key: &K::InPlace, value: u64, guard: &Guard<'_>) -> Result<Option<u64>, Retry> {
        let (mut met, anchor) = self.root(guard)?;
        let mut above = Above::Anchor(anchor);
        loop {
            if met.node.count() == Self::KEYS {
                self.split(&above, met)?;
                return Err(Retry);
            }
            if met.node.is_leaf() {
                break;
            }
            let at = met.node.child_of(key);
            let child = self.step(met, at)?;
            above = Above::Parent(met, at);
            met = child;
        }
        let Met { node, version } = met;
        let (at, found) = node.find(key);
        if !node.lock.try_lock_at(version) {
            return Err(Retry);
        }
        let old = found.then(|| node.value(at));
        match found {
            true => node.set_value(at, value),
            false => node.insert(at, *key, at, value),
        }
        node.lock.unlock();
        Ok(old)
    }

    fn try_update(
        &self,
        key: &K::InPlace,
        f: &mut impl FnMut(&u64) -> u64,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        let (at, found) = node.find(key);
        if !found {
            return if node.lock.validate(version) { Ok(None) } else { Err(Retry) };
        }
        let old = node.value(at);
        // The version is validated before the caller's code runs, so that `old` is the value at that version. The
        // caller's code must not run under a lock, so the lock is tried afterwards, at the same version.
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

    /// Returns the value removed, and whether the leaf is sparse now.
    fn try_remove(&self, key: &K::InPlace, guard: &Guard<'_>) -> Result<Option<(u64, bool)>, Retry> {
        let Met { node, version } = self.leaf(key, guard)?;
        let (at, found) = node.find(key);
        if !found {
            return if node.lock.validate(version) { Ok(None) } else { Err(Retry) };
        }
        if !node.lock.try_lock_at(version) {
            return Err(Retry);
        }
        let (_, value) = node.remove(at, at);
        let sparse = node.count() <= Self::SPARSE;
        node.lock.unlock();
        Ok(Some((value, sparse)))
    }

    /// Splits a full node.
    fn split(&self, above: &Above<'_, K::InPlace>, met: Met<'_, K::InPlace>) -> Result<(), Retry> {
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
                let root = Node::<K::InPlace>::new(node.level() + 1);
                root.set_value(0, address(node));
                root.insert(0, separator, 1, right);
                self.anchor.1.store(address(Box::into_raw(root)), Ordering::Relaxed);
            }
        }
        node.lock.unlock();
        self.unlock_above(above, true);
        Ok(())
    }

    fn lock_above(&self, above: &Above<'_, K::InPlace>) -> Result<(), Retry> {
        let locked = match above {
            Above::Anchor(version) => self.anchor.0.try_lock_at(*version),
            Above::Parent(parent, _) => parent.node.lock.try_lock_at(parent.version),
        };
        if locked { Ok(()) } else { Err(Retry) }
    }

    fn unlock_above(&self, above: &Above<'_, K::InPlace>, changed: bool) {
        let lock = match above {
            Above::Anchor(_) => &self.anchor.0,
            Above::Parent(parent, _) => &parent.node.lock,
        };
        if changed { lock.unlock() } else { lock.unlock_unchanged() }
    }

    /// Walks to `key` and merges sparse nodes on the way. Returns `Ok` if no node on the way can be merged.
    fn try_tidy(&self, key: &K::InPlace, guard: &Guard<'_>) -> Result<(), Retry> {
        let (mut met, anchor) = self.root(guard)?;
        if !met.node.is_leaf() && met.node.count() == 0 {
            self.lower_root(anchor, met, guard)?;
            return Err(Retry);
        }
        while !met.node.is_leaf() {
            let at = met.node.child_of(key);
            let child = self.step(met, at)?;
            if child.node.count() <= Self::SPARSE && self.merge(met, at, guard)? {
                return Err(Retry);
            }
            met = child;
        }
        Ok(())
    }

    /// Makes the only child of the root the new root.
    fn lower_root(&self, anchor: Version, met: Met<'_, K::InPlace>, guard: &Guard<'_>) -> Result<(), Retry> {
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
        // SAFETY: the anchor pointed to the node, and does not any more. The node was locked, so no other thread
        // retires it.
        unsafe { retire(node, guard) };
        Ok(())
    }

    /// Merges the child at a position with its right neighbour, or the last child with its left one, if both fit in one
    /// node with room to spare ([`Node::takes`]). Returns whether it merged them.
    fn merge(&self, parent: Met<'_, K::InPlace>, at: usize, guard: &Guard<'_>) -> Result<bool, Retry> {
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
        // SAFETY: the parent and the left neighbour pointed to the node, and do not any more. The node was locked, so no
        // other thread retires it.
        unsafe { retire(right.node, guard) };
        Ok(true)
    }

    /// Copies a leaf's entries from `from` on, at most `limit` of them. Returns the next leaf.
    fn copy<'g>(
        &self,
        leaf: Met<'g, K::InPlace>,
        from: Option<&K::InPlace>,
        limit: usize,
        page: &mut Page<K::InPlace>,
    ) -> Result<Option<&'g Node<K::InPlace>>, Retry> {
        let Met { node, version } = leaf;
        let start = from.map_or(0, |key| node.find(key).0);
        page.clear();
        page.extend((start..node.count()).take(limit).map(|at| (node.key(at), node.value(at))));
        let next = node.next();
        if !node.lock.validate(version) {
            return Err(Retry);
        }
        // SAFETY: the address was in the leaf at the version, and the guard keeps the node allocated.
        Ok(unsafe { pointer::<Node<K::InPlace>>(next).as_ref() })
    }
}

/// A copy of a leaf's content.
type Page<K> = Vec<(K, u64)>;

/// Returns the node at an address that was read from a node or the anchor. `validate` returns whether the node or the
/// anchor still contained the address.
///
/// # Safety
/// The read was inside a guard of the domain that lasts for `'g`, and `validate` returns the truth.
#[inline]
unsafe fn met<'g, K: InPlace>(word: u64, validate: impl Fn() -> bool) -> Result<Met<'g, K>, Retry> {
    // The version is validated before the address is followed, since the address might be from an incomplete change.
    if !validate() {
        return Err(Retry);
    }
    // SAFETY: the address was valid, so the node was in the tree inside the guard, and is not freed before the guard's
    // end.
    let node = unsafe { &*pointer::<Node<K>>(word) };
    let version = node.lock.read_unlocked().ok_or(Retry)?;
    // The parent, or the anchor, is validated again after the child's version was read. This proves that the node was
    // still the child when the node had this version.
    if validate() { Ok(Met { node, version }) } else { Err(Retry) }
}

/// # Safety
/// The node has left the tree, and no other thread retires it.
unsafe fn retire<K: InPlace>(node: &Node<K>, guard: &Guard<'_>) {
    // The box's own pointer: one from the reference may not be used to free the node.
    let node = pointer::<Node<K>>(address(node));
    // SAFETY: the caller's promise; nodes are boxes.
    unsafe { guard.retire_box(node) };
}

/// Repeats an attempt until it succeeds.
#[inline]
pub(super) fn until_done<R>(mut attempt: impl FnMut() -> Result<R, Retry>) -> R {
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
        Session { tree: self, reader: self.domain.reader(), page: Cell::default() }
    }
}

impl<K: TreeKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        let key = key.in_place();
        until_done(|| self.tree.try_get(&key, &guard))
    }

    /// # Panics
    /// If the key has more than [`LONGEST`] bytes.
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        assert!(key.with_raw(<[u8]>::len) <= LONGEST, "a key of the tree has at most {LONGEST} bytes");
        let guard = self.reader.enter();
        let key = key.in_place();
        until_done(|| self.tree.try_insert(&key, value, &guard))
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let guard = self.reader.enter();
        let key = key.in_place();
        until_done(|| self.tree.try_update(&key, &mut f, &guard))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        let key = key.in_place();
        let (value, sparse) = until_done(|| self.tree.try_remove(&key, &guard))?;
        if sparse {
            until_done(|| self.tree.try_tidy(&key, &guard));
        }
        Some(value)
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = self.reader.enter();
        let from = from.in_place();
        let mut page = self.page.take();
        let (mut seen, mut last): (usize, Option<K::InPlace>) = (0, None);
        // A walk finds the first leaf; then the scan goes from leaf to leaf. If the next leaf is locked or obsolete,
        // another walk goes to the leaf of the last key shown, and the scan continues behind that key.
        let mut next: Option<&Node<K::InPlace>> = None;
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
                    .leaf(&from, &guard)
                    .and_then(|leaf| self.tree.copy(leaf, Some(&from), limit - seen, &mut page)),
                (None, Some(behind)) => {
                    let wanted = limit.saturating_sub(seen).saturating_add(1);
                    self.tree.leaf(&behind, &guard).and_then(|leaf| {
                        let next = self.tree.copy(leaf, Some(&behind), wanted, &mut page)?;
                        if page.first().is_some_and(|(key, _)| *key == behind) {
                            page.remove(0);
                        }
                        Ok(next)
                    })
                }
            };
            let Ok(following) = copied else {
                next = None;
                backoff.wait();
                continue;
            };
            for (key, value) in page.iter().take(limit - seen) {
                K::show(*key, |shown| visit(shown, value));
                seen += 1;
                last = Some(*key);
            }
            next = following;
            if seen == limit || next.is_none() {
                break;
            }
        }
        self.page.set(page);
        seen
    }
}

impl<K: TreeKey> Drop for BTreeOlc<K> {
    fn drop(&mut self) {
        fn free<K: TreeKey>(word: u64) {
            // SAFETY: no other thread uses the tree; every node is a box and is reached once.
            let node = unsafe { Box::from_raw(pointer::<Node<K::InPlace>>(word)) };
            if !node.is_leaf() {
                (0..=node.count()).for_each(|at| free::<K>(node.value(at)));
            }
        }
        free::<K>(self.anchor.1.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
