//! A tree like Masstree (Mao, Kohler, Morris: Cache Craftiness for Fast Multicore Key-Value Storage, EuroSys 2012). It
//! is a trie whose every node is a B+tree, called a *layer*, over eight bytes of the keys, called a *slice*.
//!
//! As in the paper:
//!
//! - slices are compared as numbers;
//! - a border node (a leaf) has 15 slots whose order is a permutation in one word, so that an insertion moves no slot
//!   and readers need not start again;
//! - all cache lines of a node are fetched together;
//! - readers are optimistic, and each node has a lock for its writers; a writer passes the layers above that of its
//!   key's last part as a reader does, and locks nothing there;
//! - a second key with the same slice and further bytes makes a new layer for both keys.
//!
//! Different from the paper:
//!
//! - a layer's root keeps its address: when the root is split, it moves its content to two new nodes, so that nodes
//!   need no pointer to their parent;
//! - full inner nodes are split on the way down;
//! - a removal makes the node's readers start again (in the paper, the reuse of the removed entry's slot does);
//! - empty nodes and layers stay until the tree is dropped.
//!
//! # Invariants
//! - A border node's order lists its slots by ascending key. A child's keys are between the separators around the
//!   child.
//! - Border nodes of a layer are linked from left to right. A split moves the upper half to the right, so **a node's
//!   lower bound never changes**, and a scan that goes from a node to the next one misses no entry that was present
//!   throughout.
//! - A node stays in the tree until the tree is dropped, and a layer's root stays its root.
//! - The version of a node covers everything that readers find in the node, except free slots and values. Free slots
//!   and values change under `writer` alone; each change becomes visible by one store.
//!
//! # Why a look-up is right
//! A walk reads each node's version while the node is not locked. It reads a child's address, then the child's version,
//! and validates the node: so the child was this node's child when the child's version was read. In the border node the
//! walk reads the order, then the slot. If the version still holds afterwards, no slot that the order listed has been
//! removed or reused meanwhile, so the slot has the meaning that it had when the order was read. A key that the order
//! does not list was absent when the order was read. The suffix of a long key (the bytes after the slice) is read after
//! the suffix's address was validated; the RCU guard keeps its block allocated.
//!
//! A writer of a border node takes the lock `writer`, which readers ignore. Then it compares the version: if it is
//! unchanged, the node is still the right one for the key. To split the node, the writer tries to lock the parent at
//! the version that its walk read. If this fails, the writer starts again; so it does not wait for the parent's lock.
//! Only the holder of `writer` locks a border node's `version`. So there is no deadlock.
//!
//! Complexity: O(length / 8 + log n) nodes. A key of more than [`LONGEST`] bytes has so many layers that a thread's
//! stack may be too small for the recursion.

pub(super) mod check;
pub(super) mod node;
mod scan;

use core::marker::PhantomData;

use archipelago_index::map::When;
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};
use archipelago_sync::version_lock::Version;

use super::bytes::{self, bytes, free, stored};
use super::indexes::{Points, stores};
use crate::contender::BenchIndex;
use crate::keys::BenchKey;
use node::{LAYER, LONG, Node, Order, Part, Retry, SLICE, WIDTH, address, pointer};

/// Bytes of the longest key for which the layers are meant.
pub const LONGEST: usize = 4096;

/// A map from `K` to `u64`.
pub struct Masstree<K> {
    /// The root of the first layer.
    root: Box<Node>,
    _keys: PhantomData<K>,
    // Dropped last: dropping the domain frees what was retired from the tree.
    domain: Domain,
}

/// A thread's access to the tree.
pub struct Session<'t, K> {
    tree: &'t Masstree<K>,
    reader: Reader<'t>,
}

/// A node of a walk, and the version that the walk read.
#[derive(Clone, Copy)]
pub(super) struct Met<'t> {
    pub(super) node: &'t Node,
    version: Version,
}

/// The parent of a node on a walk with the child's position, or none for a layer's root.
#[derive(Clone, Copy)]
pub(super) enum Above<'t> {
    Root,
    Parent(Met<'t>, usize),
}

/// Where splits get new nodes from.
pub(super) trait Nodes {
    /// Returns empty nodes, which the caller puts into the tree. The tree owns their boxes from then on.
    ///
    /// # Errors
    /// If there are too few. Then none is taken.
    fn take<const N: usize>(&self) -> Result<[&Node; N], Retry>;
}

/// The heap.
struct Heap;

impl Nodes for Heap {
    fn take<const N: usize>(&self) -> Result<[&Node; N], Retry> {
        Ok(core::array::from_fn(|_| &*Box::leak(Node::new(0))))
    }
}

/// The result of an operation on one layer.
enum Step<'t> {
    /// The key's value now, or before a change.
    Done(Option<u64>),
    /// The operation continues in the next layer.
    Down(&'t Node),
}

impl<K> Default for Masstree<K> {
    fn default() -> Self {
        Masstree { root: Node::new(0), _keys: PhantomData, domain: Domain::new() }
    }
}

impl<'t> Met<'t> {
    #[inline]
    pub(super) fn new(node: &'t Node) -> Self {
        Node::prefetch(node);
        let version = node.version.read_unlocked().expect("no node leaves the tree");
        Met { node, version }
    }

    /// Returns the child at a position.
    #[inline]
    fn child(self, at: usize) -> Result<Met<'t>, Retry> {
        let word = self.node.value(at);
        // The version is validated before the address is followed, since the address might be from an incomplete
        // change.
        self.validate()?;
        // SAFETY: the word was a child's address, and nodes live as long as the tree.
        let child = Met::new(unsafe { &*pointer(word) });
        // The parent is validated again after the child's version was read: only then is it the version of a node that
        // is still the child.
        self.validate()?;
        Ok(child)
    }

    #[inline]
    pub(super) fn validate(self) -> Result<(), Retry> {
        if self.node.version.validate(self.version) { Ok(()) } else { Err(Retry) }
    }

    /// Returns the layer to which a slot points.
    fn layer(self, slot: usize) -> Result<&'t Node, Retry> {
        let word = self.node.value(slot);
        self.validate()?;
        // SAFETY: the word was a layer's address, and nodes live as long as the tree.
        Ok(unsafe { &*pointer(word) })
    }

    /// Returns whether `rest` is the suffix of a slot's key.
    fn goes_on_with(self, slot: usize, rest: &[u8], _: &Guard<'_>) -> Result<bool, Retry> {
        let word = self.node.rest(slot);
        self.validate()?;
        // SAFETY: the block was in the node at the version, so inside the guard, and the guard keeps it allocated.
        Ok(unsafe { bytes(word) } == rest)
    }
}

/// Returns the border node of a layer that contains `slice`, or would contain it.
#[inline]
pub(super) fn border(layer: &Node, slice: u64) -> Result<Met<'_>, Retry> {
    let mut met = Met::new(layer);
    while met.node.level() > 0 {
        met = met.child(met.node.child_of(slice))?;
    }
    Ok(met)
}

/// Finds the border node as [`border`] does, for an insertion. Splits full inner nodes on the way.
pub(super) fn border_with_room<'t>(
    layer: &'t Node,
    slice: u64,
    nodes: &impl Nodes,
) -> Result<(Met<'t>, Above<'t>), Retry> {
    let (mut met, mut above) = (Met::new(layer), Above::Root);
    while met.node.level() > 0 {
        if met.node.count() == WIDTH {
            split_inner(met, above, nodes)?;
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

/// Returns the layer to which a border node leads a writer, who needs no lock of this node then. Otherwise the writer
/// finds under the lock what the key's slot has.
fn below<'t>(met: Met<'t>, part: Part) -> Result<Option<&'t Node>, Retry> {
    // Keys without further bytes are not looked for twice.
    if part.rank != LONG {
        return Ok(None);
    }
    let order = met.node.order();
    let slot = met.node.find(order, part).map(|at| order.slot(at));
    let leads = slot.ok().filter(|slot| met.node.kind(*slot) == LAYER);
    leads.map(|slot| met.layer(slot)).transpose()
}

/// Stores the value, if `when` permits for the old value. Returns the old value in `Done`.
fn try_put<'t>(layer: &'t Node, key: &[u8], (value, when): (u64, When), guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    let (met, above) = border_with_room(layer, part.slice, &Heap)?;
    if let Some(next) = below(met, part)? {
        return Ok(Step::Down(next));
    }
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
            split_border(met, above, &Heap)?;
            Err(Retry)
        }
    })
}

/// Replaces the value, if it is `old`. Returns the value that was found in `Done`.
fn try_swap<'t>(layer: &'t Node, key: &[u8], (old, new): (u64, u64), guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    let met = border(layer, part.slice)?;
    if let Some(next) = below(met, part)? {
        return Ok(Step::Down(next));
    }
    locked(met, |node, order| {
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

/// Removes the key, if its value is `expected` or if `expected` is `None`. Returns the value that was found in `Done`.
fn try_remove<'t>(layer: &'t Node, key: &[u8], expected: Option<u64>, guard: &Guard<'_>) -> Result<Step<'t>, Retry> {
    let part = Part::of(key);
    let met = border(layer, part.slice)?;
    if let Some(next) = below(met, part)? {
        return Ok(Step::Down(next));
    }
    locked(met, |node, order| {
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

/// Returns what a slot with the key's part says about the key: its value or the next layer; `None` if the slot has
/// another key. The caller holds `writer`.
fn held<'t>(node: &Node, slot: usize, key: &[u8], _: &Guard<'_>) -> Option<Step<'t>> {
    match node.kind(slot) {
        // SAFETY: the word is a layer's address; nodes live as long as the tree.
        LAYER => Some(Step::Down(unsafe { &*pointer(node.value(slot)) })),
        // SAFETY: the block is in the node, which is locked.
        LONG if unsafe { bytes(node.rest(slot)) } != &key[SLICE..] => None,
        _ => Some(Step::Done(Some(node.value(slot)))),
    }
}

/// Returns the layer for a key with this suffix: the slot's layer, or a layer that is made now because the slot has
/// another key. Returns `None` if the slot has this very key. The caller holds `writer`.
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
    // SAFETY: the word is a layer's address; nodes live as long as the tree.
    (node.kind(slot) == LAYER).then(|| unsafe { &*pointer(node.value(slot)) })
}

/// Retires a suffix's block that has left the tree: frees it when no thread can see it any more.
fn retire(rest: u64, guard: &Guard<'_>) {
    // SAFETY: the block was in a slot, and is not any more. The holder of `writer` removed it, so no other thread
    // retires it.
    unsafe { bytes::retire(rest, guard) }
}

/// Runs `f` with `writer` of a border node locked. Fails if the node has changed since its version was read.
fn locked<'t>(met: Met<'t>, f: impl FnOnce(&'t Node, Order) -> Result<Step<'t>, Retry>) -> Result<Step<'t>, Retry> {
    let alive = met.node.writer.lock();
    debug_assert!(alive, "no node leaves the tree");
    let step = met.validate().and_then(|()| f(met.node, met.node.order()));
    // The version of `writer` stays as it is, because readers validate the other lock, `version`.
    met.node.writer.unlock_unchanged();
    step
}

/// Makes a change that readers must notice. The caller holds `writer`.
pub(super) fn changing(node: &Node, change: impl FnOnce()) {
    let alone = node.version.try_lock();
    assert!(alone, "a border node's version is locked by the holder of its writers' lock only");
    change();
    node.version.unlock();
}

/// Splits a full border node. The caller holds `writer`. If this fails, nothing has changed.
pub(super) fn split_border(met: Met<'_>, above: Above<'_>, nodes: &impl Nodes) -> Result<(), Retry> {
    let Met { node, .. } = met;
    let order = node.order();
    let middle = node.middle();
    let separator = node.slice(order.slot(middle));
    let fill = |right: &Node| {
        node.copy_slots(middle..WIDTH, right);
        right.set_next(node.next());
    };
    match above {
        Above::Root => {
            let [left, right] = nodes.take()?;
            changing(node, || {
                node.copy_slots(0..middle, left);
                fill(right);
                left.set_next(address(right));
                become_inner(node, 1, separator, [left, right]);
                node.set_next(0);
            });
        }
        Above::Parent(parent, at) => {
            lock_at(parent)?;
            let [right] = nodes.take().inspect_err(|_| parent.node.version.unlock_unchanged())?;
            changing(node, || {
                fill(right);
                node.set_next(address(right));
                node.set_order(order.truncate(middle));
                parent.node.insert_child(at, separator, address(right));
            });
            parent.node.version.unlock();
        }
    }
    Ok(())
}

/// Splits a full inner node. If this fails, nothing has changed.
fn split_inner(met: Met<'_>, above: Above<'_>, nodes: &impl Nodes) -> Result<(), Retry> {
    const HALF: usize = WIDTH / 2;
    let node = met.node;
    if let Above::Parent(parent, _) = above {
        lock_at(parent)?;
    }
    let given_up = |_: &Retry| {
        if let Above::Parent(parent, _) = above {
            parent.node.version.unlock_unchanged();
        }
    };
    lock_at(met).inspect_err(given_up)?;
    let given_up = |retry: &Retry| {
        node.version.unlock_unchanged();
        given_up(retry);
    };
    // The middle separator moves to the parent and stays in neither node.
    let separator = node.slice(HALF);
    match above {
        Above::Root => {
            let [left, right] = nodes.take().inspect_err(given_up)?;
            node.copy_children(0..=HALF, left);
            node.copy_children(HALF + 1..=WIDTH, right);
            become_inner(node, node.level() + 1, separator, [left, right]);
        }
        Above::Parent(parent, at) => {
            let [right] = nodes.take().inspect_err(given_up)?;
            node.copy_children(HALF + 1..=WIDTH, right);
            node.set_order(Order::first(HALF));
            parent.node.insert_child(at, separator, address(right));
            parent.node.version.unlock();
        }
    }
    node.version.unlock();
    Ok(())
}

fn lock_at(met: Met<'_>) -> Result<(), Retry> {
    if met.node.version.try_lock_at(met.version) { Ok(()) } else { Err(Retry) }
}

/// Turns a layer's root, whose content has moved to two nodes, into the inner node above these nodes. The caller has
/// the root's version locked.
fn become_inner(root: &Node, level: u32, separator: u64, [left, right]: [&Node; 2]) {
    root.set_level(level);
    root.set_slice(0, separator);
    root.set_value(0, address(left));
    root.set_value(1, address(right));
    root.set_order(Order::first(1));
}

/// Repeats an attempt until no other thread interferes.
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
    /// Walks from layer to layer, to the layer with the key's last part.
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
                // The caller's code must not run under a lock.
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

/// A border node's content, descending, and the node's lower bound.
type Back = (Vec<(u64, u64)>, u64);

/// Copies the entries up to `slice` from its border node, in a layer of keys of eight bytes.
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

/// Keys of eight bytes have one layer and no suffix blocks, so these operations need no protection by the guard.
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

/// Frees all nodes below a node.
pub(super) fn clear(node: &Node) {
    let order = node.order();
    let child = |word: u64| {
        // SAFETY: no other thread uses the tree; every node except the first root is a box and is reached once.
        let node = unsafe { Box::from_raw(pointer(word)) };
        clear(&node);
    };
    if node.level() > 0 {
        return (0..=order.count()).for_each(|at| child(node.value(at)));
    }
    for slot in (0..order.count()).map(|at| order.slot(at)) {
        match node.kind(slot) {
            LAYER => child(node.value(slot)),
            // SAFETY: no other thread uses the tree, and each block is in one slot.
            LONG => unsafe { free(node.rest(slot)) },
            _ => {}
        }
    }
}

impl<K> Drop for Masstree<K> {
    fn drop(&mut self) {
        clear(&self.root);
    }
}

#[cfg(test)]
mod tests;
