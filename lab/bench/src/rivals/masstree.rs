//! A tree like Masstree (Mao, Kohler, Morris: Cache Craftiness for Fast Multicore Key-Value Storage, EuroSys 2012): a trie
//! whose every node is a B+tree, a *layer*, over eight bytes of the keys.
//!
//! From the paper: layers over slices that are compared as numbers; border nodes of 15 slots whose order is a permutation
//! in one word, so that an insertion moves nothing and readers need not start again; all lines of a node fetched together;
//! optimistic readers and a lock for each node's writers; a layer made when a second key with the same slice goes on behind
//! it. Not from it: a layer's root keeps its address (it passes its content on when it is split, so that nodes need no
//! parent), full inner nodes are split on the way down, a removal makes the node's readers start again (there the reuse of a
//! slot does), and what is empty stays until the tree is dropped.
//!
//! # Invariants
//! - Slots of a border node ascend in their order; what a child holds lies between the separators around it.
//! - Border nodes of a layer are linked from left to right. A split moves the upper half right: **a node's lower bound never
//!   changes**, and a scan that goes from a node to the next one misses nothing that was there throughout.
//! - A node, once in the tree, is in it until the tree is dropped; a layer's root stays its root.
//! - The version of a node stands for all that readers find in it but for slots that were free, and values: these change under
//!   `writer` alone, with one store that readers see all of.
//!
//! # Why a look-up is right
//! A walk holds the version of each node, seen free. It reads a child's address, takes the child's version, and validates the
//! node: the child was this node's child when its version was taken. In the border node it reads the order, then the slot;
//! if the version holds afterwards, no slot that was listed has been taken out, or got another meaning, meanwhile: the slot
//! says what it said when the order was read. A key that is not listed in an order was not there when that was read.
//! The rest of a long key is read after its address was validated; the guard keeps the block.
//!
//! Writers of a border node take `writer`, which no reader looks at, and then see by the version whether the node still is
//! the one that they chose. To split it they lock the parent at the version at which they saw it, which does not wait;
//! `version` of a border node is locked by the holder of `writer` only. So there is no deadlock.
//!
//! Complexity: O(length / 8 + log n) nodes. Keys of more than [`LONGEST`] bytes have layers for which a thread's stack may be
//! too small.

mod check;
mod node;
mod scan;

use core::marker::PhantomData;

use archipelago_index::map::When;
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};
use archipelago_sync::version_lock::Version;

use super::btree::TreeKey;
use super::bytes::{bytes, free, stored};
use super::indexes::{Points, stores};
use crate::contender::BenchIndex;
use crate::keys::BenchKey;
use node::{LAYER, LONG, Node, Order, Part, Retry, SLICE, WIDTH, address, pointer};

/// Bytes of the longest key that the layers are meant for.
pub const LONGEST: usize = 4096;

/// A map from `K` to words.
pub struct Masstree<K> {
    /// Of the first layer.
    root: Box<Node>,
    _keys: PhantomData<K>,
    // Last: it frees what was retired from the tree.
    domain: Domain,
}

/// A thread's way in.
pub struct Session<'t, K> {
    tree: &'t Masstree<K>,
    reader: Reader<'t>,
}

/// A node of a walk, and the version at which it was met.
#[derive(Clone, Copy)]
struct Met<'t> {
    node: &'t Node,
    version: Version,
}

/// What stands above a node of a walk: its parent with the child's place, or nothing.
#[derive(Clone, Copy)]
enum Above<'t> {
    Root,
    Parent(Met<'t>, usize),
}

/// What a layer says about a key.
enum Step<'t> {
    /// The value that is, or was, there.
    Done(Option<u64>),
    /// The next layer knows.
    Down(&'t Node),
}

impl<K> Default for Masstree<K> {
    fn default() -> Self {
        Masstree { root: Node::new(0), _keys: PhantomData, domain: Domain::new() }
    }
}

impl<'t> Met<'t> {
    #[inline]
    fn new(node: &'t Node) -> Self {
        Node::prefetch(node);
        let version = node.version.read_unlocked().expect("no node leaves the tree");
        Met { node, version }
    }

    /// The child at a place.
    #[inline]
    fn child(self, at: usize) -> Result<Met<'t>, Retry> {
        let word = self.node.value(at);
        // Before the address is followed: it might have been half of a change.
        self.validate()?;
        // SAFETY: it was a child's address, and nodes live as long as the tree.
        let child = Met::new(unsafe { &*pointer(word) });
        // And after its version was read: only so is it the version of a child.
        self.validate()?;
        Ok(child)
    }

    #[inline]
    fn validate(self) -> Result<(), Retry> {
        if self.node.version.validate(self.version) { Ok(()) } else { Err(Retry) }
    }

    /// The layer that a slot leads to.
    fn layer(self, slot: usize) -> Result<&'t Node, Retry> {
        let word = self.node.value(slot);
        self.validate()?;
        // SAFETY: it was a layer's address, and nodes live as long as the tree.
        Ok(unsafe { &*pointer(word) })
    }

    /// Whether a slot's key goes on with `rest`.
    fn goes_on_with(self, slot: usize, rest: &[u8], _: &Guard<'_>) -> Result<bool, Retry> {
        let word = self.node.rest(slot);
        self.validate()?;
        // SAFETY: the block was in the node at the version, so inside the guard, which keeps it.
        Ok(unsafe { bytes(word) } == rest)
    }
}

/// The border node of a layer where `slice` is, or would be.
#[inline]
fn border(layer: &Node, slice: u64) -> Result<Met<'_>, Retry> {
    let mut met = Met::new(layer);
    while met.node.level() > 0 {
        met = met.child(met.node.child_of(slice))?;
    }
    Ok(met)
}

/// As [`border`], for an insertion: what is full on the way is split.
fn border_with_room<'t>(layer: &'t Node, slice: u64) -> Result<(Met<'t>, Above<'t>), Retry> {
    let (mut met, mut above) = (Met::new(layer), Above::Root);
    while met.node.level() > 0 {
        if met.node.count() == WIDTH {
            split_inner(met, above)?;
            return Err(Retry);
        }
        let at = met.node.child_of(slice);
        let child = met.child(at)?;
        above = Above::Parent(met, at);
        met = child;
    }
    Ok((met, above))
}

#[inline]
fn try_get<'t>(layer: &'t Node, key: &[u8], guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    let met = border(layer, part.slice)?;
    let order = met.node.order();
    let Ok(at) = met.node.find(order, part) else {
        met.validate()?;
        return Ok(Step::Done(None));
    };
    let slot = order.slot(at);
    let kind = met.node.kind(slot);
    if kind == LAYER {
        return met.layer(slot).map(Step::Down);
    }
    let value = met.node.value(slot);
    if kind == LONG && !met.goes_on_with(slot, &key[SLICE..], guard)? {
        return Ok(Step::Done(None));
    }
    met.validate()?;
    Ok(Step::Done(Some(value)))
}

/// Stores the value, if `when` says so of what is there. `Done`: of what was there.
fn try_put<'t>(layer: &'t Node, key: &[u8], (value, when): (u64, When), guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    let (met, above) = border_with_room(layer, part.slice)?;
    locked(met, |node, order| match node.find(order, part) {
        Ok(at) => {
            let slot = order.slot(at);
            if let Some(next) = next_layer(node, slot, &key[key.len().min(SLICE)..], guard) {
                return Ok(Step::Down(next));
            }
            let old = node.value(slot);
            if stores(when, Some(old)) {
                node.set_value(slot, value);
            }
            Ok(Step::Done(Some(old)))
        }
        Err(_) if !stores(when, None) => Ok(Step::Done(None)),
        Err(at) if order.count() < WIDTH => {
            let rest = if part.rank == LONG { stored(&key[SLICE..]) } else { 0 };
            node.put(at, part, value, rest);
            Ok(Step::Done(None))
        }
        Err(_) => {
            split_border(met, above)?;
            Err(Retry)
        }
    })
}

/// Replaces the value, if it is `old`. `Done`: of what is there then.
fn try_swap<'t>(layer: &'t Node, key: &[u8], (old, new): (u64, u64), guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    locked(border(layer, part.slice)?, |node, order| {
        let Ok(at) = node.find(order, part) else { return Ok(Step::Done(None)) };
        let slot = order.slot(at);
        match held(node, slot, key, guard) {
            Some(Step::Done(found)) if found == Some(old) => {
                node.set_value(slot, new);
                Ok(Step::Done(found))
            }
            Some(step) => Ok(step),
            None => Ok(Step::Done(None)),
        }
    })
}

/// Takes the key out, if its value is the one expected or none is. `Done`: of what was there.
fn try_remove<'t>(layer: &'t Node, key: &[u8], expected: Option<u64>, guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    locked(border(layer, part.slice)?, |node, order| {
        let Ok(at) = node.find(order, part) else { return Ok(Step::Done(None)) };
        let slot = order.slot(at);
        match held(node, slot, key, guard) {
            Some(Step::Done(found)) if expected.is_some() && found != expected => Ok(Step::Done(found)),
            Some(Step::Done(found)) => {
                let rest = (part.rank == LONG).then(|| node.rest(slot));
                changing(node, || node.set_order(order.remove(at)));
                rest.into_iter().for_each(|rest| retire(rest, guard));
                Ok(Step::Done(found))
            }
            Some(step) => Ok(step),
            None => Ok(Step::Done(None)),
        }
    })
}

/// What a slot of the key's part says of the key: its value, the next layer, or that it is another key's. The caller holds
/// `writer`.
fn held<'t>(node: &Node, slot: usize, key: &[u8], _: &Guard<'_>) -> Option<Step<'t>> {
    match node.kind(slot) {
        // SAFETY: a layer's address; nodes live as long as the tree.
        LAYER => Some(Step::Down(unsafe { &*pointer(node.value(slot)) })),
        // SAFETY: the block is in the node, which is locked.
        LONG if unsafe { bytes(node.rest(slot)) } != &key[SLICE..] => None,
        _ => Some(Step::Done(Some(node.value(slot)))),
    }
}

/// The layer that a key with this rest belongs to: the slot's, or one that is made now, since the slot is of another key.
/// `None`: the slot is this key's. The caller holds `writer`.
fn next_layer<'t>(node: &Node, slot: usize, rest: &[u8], guard: &Guard<'_>) -> Option<&'t Node> {
    if node.kind(slot) == LONG {
        let word = node.rest(slot);
        // SAFETY: the block is in the node, which is locked.
        let theirs = unsafe { bytes(word) };
        if theirs == rest {
            return None;
        }
        let (layer, part) = (Node::new(0), Part::of(theirs));
        let behind = if part.rank == LONG { stored(&theirs[SLICE..]) } else { 0 };
        layer.put(0, part, node.value(slot), behind);
        changing(node, || {
            node.set_value(slot, address(Box::into_raw(layer)));
            node.set_kind(slot, LAYER);
        });
        retire(word, guard);
    }
    // SAFETY: a layer's address; nodes live as long as the tree.
    (node.kind(slot) == LAYER).then(|| unsafe { &*pointer(node.value(slot)) })
}

/// Frees a block that has left the tree when no thread can see it any more.
fn retire(rest: u64, guard: &Guard<'_>) {
    // SAFETY: it was in a slot, and is there no more; the holder of `writer` took it out, so no other thread retires it.
    unsafe { <Vec<u8> as TreeKey>::retire(rest, guard) }
}

/// With `writer` of a border node that still is what it was when it was met.
fn locked<'t>(met: Met<'t>, f: impl FnOnce(&'t Node, Order) -> Result<Step<'t>, Retry>) -> Result<Step<'t>, Retry> {
    let alive = met.node.writer.lock();
    debug_assert!(alive, "no node leaves the tree");
    let step = met.validate().and_then(|()| f(met.node, met.node.order()));
    // The version beside it tells what has changed.
    met.node.writer.unlock_unchanged();
    step
}

/// Changes what readers validate. The caller holds `writer`.
fn changing(node: &Node, change: impl FnOnce()) {
    let alone = node.version.try_lock();
    assert!(alone, "a border node's version is locked by the holder of its writers' lock only");
    change();
    node.version.unlock();
}

/// Splits a full border node. The caller holds `writer`.
fn split_border(met: Met<'_>, above: Above<'_>) -> Result<(), Retry> {
    let Met { node, .. } = met;
    let order = node.order();
    let middle = node.middle();
    let separator = node.slice(order.slot(middle));
    let right = || {
        let right = node.slots(middle..WIDTH);
        right.set_next(node.next());
        address(Box::into_raw(right))
    };
    match above {
        Above::Root => changing(node, || {
            let (left, right) = (node.slots(0..middle), right());
            left.set_next(right);
            become_inner(node, 1, separator, [address(Box::into_raw(left)), right]);
            node.set_next(0);
        }),
        Above::Parent(parent, at) => {
            lock_at(parent)?;
            changing(node, || {
                let right = right();
                node.set_next(right);
                node.set_order(order.truncate(middle));
                parent.node.insert_child(at, separator, right);
            });
            parent.node.version.unlock();
        }
    }
    Ok(())
}

/// Splits a full inner node.
fn split_inner(met: Met<'_>, above: Above<'_>) -> Result<(), Retry> {
    const HALF: usize = WIDTH / 2;
    let node = met.node;
    if let Above::Parent(parent, _) = above {
        lock_at(parent)?;
    }
    if let Err(retry) = lock_at(met) {
        if let Above::Parent(parent, _) = above {
            parent.node.version.unlock_unchanged();
        }
        return Err(retry);
    }
    // The middle separator goes up and stays in neither.
    let separator = node.slice(HALF);
    let right = address(Box::into_raw(node.children(HALF + 1..=WIDTH)));
    match above {
        Above::Root => {
            let left = address(Box::into_raw(node.children(0..=HALF)));
            become_inner(node, node.level() + 1, separator, [left, right]);
        }
        Above::Parent(parent, at) => {
            node.set_order(Order::first(HALF));
            parent.node.insert_child(at, separator, right);
            parent.node.version.unlock();
        }
    }
    node.version.unlock();
    Ok(())
}

fn lock_at(met: Met<'_>) -> Result<(), Retry> {
    if met.node.version.try_lock_at(met.version) { Ok(()) } else { Err(Retry) }
}

/// A layer's root that has passed its content on becomes the inner node above it. The caller has its version locked.
fn become_inner(root: &Node, level: u32, separator: u64, [left, right]: [u64; 2]) {
    root.set_level(level);
    root.set_slice(0, separator);
    root.set_value(0, left);
    root.set_value(1, right);
    root.set_order(Order::first(1));
}

/// Repeats what other threads came across.
#[inline]
fn until_done<R>(mut attempt: impl FnMut() -> Result<R, Retry>) -> R {
    let backoff = Backoff::new();
    loop {
        if let Ok(done) = attempt() {
            return done;
        }
        backoff.wait();
    }
}

impl<K> Masstree<K> {
    /// From layer to layer, until one is that of the whole key.
    #[inline]
    fn walk<'t>(
        &'t self,
        mut key: &[u8],
        mut attempt: impl FnMut(&'t Node, &[u8]) -> Result<Step<'t>, Retry>,
    ) -> Option<u64> {
        let mut layer: &Node = &self.root;
        loop {
            match until_done(|| attempt(layer, key)) {
                Step::Done(value) => return value,
                Step::Down(next) => (layer, key) = (next, &key[SLICE..]),
            }
        }
    }
}

impl<K: BenchKey> BenchIndex<K> for Masstree<K> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for Masstree<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { tree: self, reader: self.domain.reader() }
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        key.with_raw(|key| self.tree.walk(key, |layer, key| try_get(layer, key, &guard)))
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        let guard = self.reader.enter();
        key.with_raw(|key| self.tree.walk(key, |layer, key| try_put(layer, key, (value, When::Always), &guard)))
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let guard = self.reader.enter();
        key.with_raw(|key| {
            let mut old = self.tree.walk(key, |layer, key| try_get(layer, key, &guard))?;
            loop {
                // Users' code runs under no lock.
                let new = f(&old);
                let found = self.tree.walk(key, |layer, key| try_swap(layer, key, (old, new), &guard))?;
                if found == old {
                    return Some(old);
                }
                old = found;
            }
        })
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let guard = self.reader.enter();
        key.with_raw(|key| self.tree.walk(key, |layer, key| try_remove(layer, key, None, &guard)))
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let guard = self.reader.enter();
        let root = &self.tree.root;
        from.with_raw(|from| scan::scan(root, from, limit, &guard, |key, value| visit(K::shown_of_raw(key), value)))
    }
}

/// What a border node has, descending, and where it begins.
type Back = (Vec<(u64, u64)>, u64);

/// The entries up to `slice` of its border node in a layer of keys of eight bytes.
fn try_back(layer: &Node, slice: u64) -> Result<Back, Retry> {
    let (mut met, mut begin) = (Met::new(layer), 0);
    while met.node.level() > 0 {
        let at = met.node.child_of(slice);
        if at > 0 {
            begin = met.node.slice(at - 1);
        }
        met = met.child(at)?;
    }
    let order = met.node.order();
    let slots = (0..order.count()).rev().map(|at| order.slot(at));
    let entries = slots.map(|slot| (met.node.slice(slot), met.node.value(slot))).filter(|entry| entry.0 <= slice);
    let entries = entries.collect();
    met.validate()?;
    Ok((entries, begin))
}

/// Keys of eight bytes: one layer. Of the caller's guard nothing is asked: blocks of such keys there are none.
impl Points for Masstree<u64> {
    fn get(&self, key: u64, guard: &Guard<'_>) -> Option<u64> {
        self.walk(&key.to_be_bytes(), |layer, key| try_get(layer, key, guard))
    }

    fn put(&self, key: u64, word: u64, when: When, guard: &Guard<'_>) -> Option<u64> {
        self.walk(&key.to_be_bytes(), |layer, key| try_put(layer, key, (word, when), guard))
    }

    fn take(&self, key: u64, expected: Option<u64>, guard: &Guard<'_>) -> Option<u64> {
        self.walk(&key.to_be_bytes(), |layer, key| try_remove(layer, key, expected, guard))
    }

    fn ahead(&self, from: u64, limit: usize, guard: &Guard<'_>, to: &mut Vec<(u64, u64)>) {
        let show = |key: &[u8], word: &u64| to.push((Part::of(key).slice, *word));
        scan::scan(&self.root, &from.to_be_bytes(), limit, guard, show);
    }

    fn behind(&self, key: u64, _: &Guard<'_>, to: &mut Vec<(u64, u64)>) -> u64 {
        let (entries, begin) = until_done(|| try_back(&self.root, key));
        to.extend(entries);
        begin
    }
}

impl<K> Drop for Masstree<K> {
    fn drop(&mut self) {
        fn clear(node: &Node) {
            let order = node.order();
            if node.level() > 0 {
                return (0..=order.count()).for_each(|at| clear_child(node.value(at)));
            }
            for slot in (0..order.count()).map(|at| order.slot(at)) {
                match node.kind(slot) {
                    LAYER => clear_child(node.value(slot)),
                    // SAFETY: no other thread uses the tree, and each block is in one slot.
                    LONG => unsafe { free(node.rest(slot)) },
                    _ => {}
                }
            }
        }
        fn clear_child(word: u64) {
            // SAFETY: no other thread uses the tree; every node but the first root is a box and reached once.
            let node = unsafe { Box::from_raw(pointer(word)) };
            clear(&node);
        }
        clear(&self.root);
    }
}

#[cfg(test)]
mod tests;
