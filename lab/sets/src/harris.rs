//! The lock-free ordered list of Harris (2001) in the reclaimable form of Michael (2002), with epochs (RCU guards)
//! instead of hazard pointers; and a table of such lists. The list is a baseline for the mechanisms of this crate. None
//! of its operations is atomic over several keys.
//!
//! A link's low bit marks the link's *owner* (the node that contains the link) as removed. A removal first marks the
//! node, then unlinks it. If another thread finds the marked node in `find`, that thread unlinks the node. `get` and
//! the walk of `range` pass marked nodes. The thread that unlinked a node retires it.

use core::marker::PhantomData;
use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::plain::Plain;

use crate::hash::bucket;
use crate::tag::{is_tagged, tagged, untagged};
use crate::{Set, SetSession, Visit};
use archipelago_platform::watch::Watch;
use archipelago_sync::rcu::{Domain, Guard, Reader};

struct Node {
    key: Plain<u64>,
    value: Plain<u64>,
    /// The next node; the pointer is tagged once this node is removed.
    next: AtomicPtr<Node>,
    /// Checks accesses to key and value in tests.
    watch: Watch,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.watch.write();
    }
}

/// One list, or a table of lists.
pub struct HarrisList {
    domain: Domain,
    heads: Box<[AtomicPtr<Node>]>,
    owns: PhantomData<Node>,
}

impl HarrisList {
    /// Makes a table of `buckets` lists (0 counts as 1). Ranges are empty if there is more than one list.
    pub fn with_buckets(buckets: usize) -> Self {
        let heads = (0..buckets.max(1)).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { domain: Domain::new(), heads, owns: PhantomData }
    }
}

impl Default for HarrisList {
    fn default() -> Self {
        Self::with_buckets(1)
    }
}

impl Set for HarrisList {
    type Session<'s> = HarrisSession<'s>;

    fn session(&self) -> HarrisSession<'_> {
        HarrisSession { list: self, reader: self.domain.reader() }
    }
}

impl Drop for HarrisList {
    fn drop(&mut self) {
        for head in &self.heads {
            let mut node = untagged(head.load(Ordering::Relaxed));
            while !node.is_null() {
                // SAFETY: linked nodes are boxes that are not retired; no other thread uses the list.
                node = untagged(unsafe { Box::from_raw(node) }.next.load(Ordering::Relaxed));
            }
        }
    }
}

/// A session on a [`HarrisList`].
pub struct HarrisSession<'s> {
    list: &'s HarrisList,
    reader: Reader<'s>,
}

/// A key's position: the link before it, and the first node that is not below the key.
struct Position<'g> {
    link: &'g AtomicPtr<Node>,
    at: *mut Node,
}

impl Position<'_> {
    /// Returns the node with `key`, if there is one.
    ///
    /// # Safety
    /// The caller is in the guard of the search.
    unsafe fn node_with(&self, key: u64) -> Option<&Node> {
        // SAFETY: the caller's promise: the node was reached in the guard.
        unsafe { self.at.as_ref() }.filter(|node| *node.key == key)
    }
}

impl<'s> HarrisSession<'s> {
    fn head(&self, key: u64) -> &'s AtomicPtr<Node> {
        &self.list.heads[bucket(key, self.list.heads.len())]
    }

    /// Finds a key's position, and unlinks removed nodes on the way.
    fn find<'g>(&self, key: u64, guard: &'g Guard<'_>) -> Position<'g>
    where
        's: 'g,
    {
        'again: loop {
            let mut link: &'g AtomicPtr<Node> = self.head(key);
            let mut at = link.load(Ordering::Acquire);
            loop {
                // SAFETY: the node was reached in the guard, by unmarked links, or by the link of a marked node that
                // was still linked when the exchange succeeded. A marked link does not change, so the node was in the
                // list then.
                let Some(node) = (unsafe { at.as_ref() }) else { return Position { link, at } };
                node.watch.read();
                let next = node.next.load(Ordering::Acquire);
                if is_tagged(next) {
                    let rest = untagged(next);
                    if link.compare_exchange(at, rest, Ordering::AcqRel, Ordering::Acquire).is_err() {
                        continue 'again;
                    }
                    // SAFETY: this exchange unlinked the node, so no other thread did.
                    unsafe { guard.retire_box(at) };
                    at = rest;
                } else if *node.key >= key {
                    return Position { link, at };
                } else {
                    link = &node.next;
                    at = next;
                }
            }
        }
    }
}

impl SetSession for HarrisSession<'_> {
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.reader.give_way();
        let guard = self.reader.enter();
        let (next, watch) = (AtomicPtr::new(ptr::null_mut()), Watch::new());
        let mut new = Box::new(Node { key: Plain::new(key), value: Plain::new(value), next, watch });
        new.watch.write();
        loop {
            let place = self.find(key, &guard);
            // SAFETY: inside the guard.
            if unsafe { place.node_with(key) }.is_some() {
                return false;
            }
            new.next.store(place.at, Ordering::Relaxed);
            let node = Box::into_raw(new);
            // Release: a thread that finds the node sees its content.
            if place.link.compare_exchange(place.at, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                return true;
            }
            // SAFETY: the node is not linked.
            new = unsafe { Box::from_raw(node) };
        }
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        self.reader.give_way();
        let guard = self.reader.enter();
        loop {
            let place = self.find(key, &guard);
            // SAFETY: inside the guard.
            let node = unsafe { place.node_with(key) }?;
            let next = node.next.load(Ordering::Acquire);
            let marked = node.next.compare_exchange(next, tagged(next), Ordering::AcqRel, Ordering::Relaxed);
            if is_tagged(next) || marked.is_err() {
                continue;
            }
            let value = *node.value;
            if place.link.compare_exchange(place.at, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: this exchange unlinked the node, so no other thread did.
                unsafe { guard.retire_box(place.at) };
            }
            return Some(value);
        }
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        let _guard = self.reader.enter();
        let mut at = self.head(key).load(Ordering::Acquire);
        loop {
            // SAFETY: the node was reached in the guard. A marked node's link leads to nodes that are protected by the
            // guard as well.
            let node = unsafe { untagged(at).as_ref() }?;
            node.watch.read();
            let next = node.next.load(Ordering::Acquire);
            let here = *node.key;
            if here >= key {
                return (here == key && !is_tagged(next)).then(|| *node.value);
            }
            at = next;
        }
    }

    fn linger(&mut self, visit: &Visit) {
        let _guard = self.reader.enter();
        visit.stay();
    }

    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        if self.list.heads.len() > 1 {
            return found;
        }
        let guard = self.reader.enter();
        let mut at = self.find(from, &guard).at;
        // SAFETY: as in `get`.
        while let Some(node) = unsafe { untagged(at).as_ref() }.filter(|node| *node.key < to) {
            at = node.next.load(Ordering::Acquire);
            if !is_tagged(at) {
                found.push((*node.key, *node.value));
            }
        }
        found
    }
}
