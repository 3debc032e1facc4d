//! The tree itself, a concurrent map from byte strings to words. `Art`, HydraList's shortcuts, and one kind of
//! HydraList's search layer are built on it.
//!
//! Every operation descends from the root. The root is a Node256 that is never replaced; below it nodes are replaced
//! by larger and smaller copies. Writers lock the node whose slot they change. If they replace this node, they also
//! lock its parent; if they copy its only remaining child, they also lock the child. See `node.rs` for the invariants
//! and `sync.rs` for the two write synchronizations.
//!
//! Words are opaque here: replacing or removing a word returns it, and the caller then owns it.
//!
//! Why a look-up without checks (ROWEX) is linearizable: it compares whole keys at the leaf, so a hit is a leaf that
//! was in the tree during the call. A miss is proven by the first slot on its path that is empty, leads to another
//! key's leaf, or leads to a node whose string is not a beginning of the key. (The look-up may read further nodes,
//! since it skips prefixes.) If the slot's node was live when the slot was read, the key was absent at that moment. If
//! the node had been replaced, it has not changed since the replacement, and the replacement was during the call. The
//! key was absent at the moment of the replacement.

use super::edge::Edge;
use super::kind::NodeKind;
use super::leaf::Leaf;
use super::node::Node;
use super::reclaim;
use super::sync::{Locked, Protocol, Restart, Seen, WriteSync};
use super::target::Target;
use super::write_olc::OptimisticLockCoupling;
use super::write_rowex::Rowex;
use crate::structure::Form;
use crate::tally::{Growth, Tally};
use archipelago_platform::plain::Plain;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::marker::PhantomData;

/// A concurrent adaptive radix tree from byte strings to words, its leaves laid out for keys of form `F`.
pub(crate) struct RawArt<F: Form> {
    // These two never change, but share a cache line with words that do.
    root: Plain<Edge>,
    sync: Plain<WriteSync>,
    tally: Tally,
    _leaves: PhantomData<F>,
}

// SAFETY: nodes and leaves are atomics and immutable bytes, and belong to the tree.
unsafe impl<F: Form> Send for RawArt<F> {}
// SAFETY: as above; all changes follow `sync.rs`.
unsafe impl<F: Form> Sync for RawArt<F> {}

/// The position of a key's leaf in the tree.
struct Position<'g, P: Protocol, F> {
    parent: Option<Seen<'g, P>>,
    holder: Seen<'g, P>,
    position: usize,
    leaf: Leaf<'g, F>,
}

/// Returns the position at which a node of level `level` continues with `key`, which is at least that long.
#[inline(always)]
pub(super) fn position_of(key: &[u8], level: usize) -> usize {
    key.get(level).map_or(0, |&byte| 1 + byte as usize)
}

/// Returns the length of the longest common prefix.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn until_done<T>(mut attempt: impl FnMut() -> Result<T, Restart>) -> T {
    let backoff = Backoff::new();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(Restart) => backoff.wait(),
        }
    }
}

/// Runs `attempt` with the protocol of the tree, until it succeeds.
macro_rules! with_protocol {
    ($tree:expr, $attempt:ident($($argument:expr),*)) => {
        match *$tree.sync {
            WriteSync::OptimisticLockCoupling => {
                until_done(|| $tree.$attempt::<OptimisticLockCoupling>($($argument),*))
            }
            WriteSync::Rowex => until_done(|| $tree.$attempt::<Rowex>($($argument),*)),
        }
    };
}

impl<F: Form> RawArt<F> {
    /// Makes an empty tree.
    ///
    /// # Safety
    /// All guards that are passed to the tree's methods must be of one domain.
    pub(crate) unsafe fn new(sync: WriteSync) -> Self {
        let root = Node::create(NodeKind::Node256, 0, &[]);
        let tally = Tally::new();
        tally.add(Growth::default().node(root.bytes()));
        RawArt { root: Plain::new(root.edge()), sync: Plain::new(sync), tally, _leaves: PhantomData }
    }

    /// Returns the number of entries, which is exact while no thread changes the tree.
    pub(super) fn len(&self) -> usize {
        self.tally.entries()
    }

    /// Returns the number of nodes, which is exact under the same condition.
    pub(super) fn nodes(&self) -> usize {
        self.tally.sum().nodes.max(0) as usize
    }

    /// Returns the number of bytes that nodes and leaves take, which is exact under the same condition.
    pub(crate) fn bytes(&self) -> usize {
        self.tally.sum().bytes.max(0) as usize
    }

    pub(super) fn root<'g>(&self, _: &'g Guard<'_>) -> Node<'g> {
        // SAFETY: the root lives as long as the tree, and no caller uses a node after the tree has been dropped.
        unsafe { Node::from_edge(*self.root) }
    }

    /// Returns the write synchronization with which the tree was made.
    pub(super) fn write_sync(&self) -> &WriteSync {
        &self.sync
    }

    /// Returns the leaf of `key`.
    #[inline]
    pub(super) fn get<'g>(&self, key: &[u8], guard: &'g Guard<'_>) -> Option<Leaf<'g, F>> {
        with_protocol!(self, find_once(key, guard))
    }

    /// Inserts or replaces. Returns the replaced word.
    pub(crate) fn insert(&self, key: &[u8], word: u64, guard: &Guard<'_>) -> Option<u64> {
        with_protocol!(self, insert_once(key, word, true, guard))
    }

    /// Inserts if the key is absent. Otherwise returns the key's word.
    pub(crate) fn insert_if_absent(&self, key: &[u8], word: u64, guard: &Guard<'_>) -> Option<u64> {
        with_protocol!(self, insert_once(key, word, false, guard))
    }

    /// Replaces the word of `key` if the key is present. Returns the replaced word.
    pub(crate) fn exchange(&self, key: &[u8], word: u64, guard: &Guard<'_>) -> Option<u64> {
        with_protocol!(self, exchange_once(key, word, guard))
    }

    /// Replaces the word of `key` if the key is present and its word is `old`. Returns whether the word was replaced.
    pub(crate) fn replace(&self, key: &[u8], old: u64, new: u64, guard: &Guard<'_>) -> bool {
        with_protocol!(self, replace_once(key, old, new, guard))
    }

    /// Removes `key`. Returns its word.
    pub(crate) fn remove(&self, key: &[u8], guard: &Guard<'_>) -> Option<u64> {
        with_protocol!(self, remove_once(key, None, guard))
    }

    /// Removes `key` if it is present and its word is `word`. Returns whether the key was removed.
    pub(crate) fn remove_if(&self, key: &[u8], word: u64, guard: &Guard<'_>) -> bool {
        with_protocol!(self, remove_once(key, Some(word), guard)).is_some()
    }

    /// Finds the leaf for operations that need a present key. The search skips prefixes, since the whole key is
    /// compared at the leaf. With `LOCKS`, for operations that will lock the found node, it also prefetches headers.
    #[inline(always)]
    fn locate<'g, P: Protocol, const LOCKS: bool>(
        &self,
        key: &[u8],
        guard: &'g Guard<'_>,
    ) -> Result<Option<Position<'g, P, F>>, Restart> {
        let mut parent = None;
        let mut node = self.root(guard);
        let mut level = 0;
        loop {
            if LOCKS {
                node.fetch_header();
            }
            let holder = Seen::<P>::enter(node)?;
            let position = position_of(key, level);
            let edge = node.get(position);
            holder.check()?;
            // SAFETY: the edge was loaded under `guard`.
            match unsafe { edge.target() } {
                Target::Nothing => return Ok(None),
                Target::Leaf(leaf) => {
                    return Ok((leaf.key() == key).then_some(Position { parent, holder, position, leaf }));
                }
                Target::Node(child) => {
                    level = child.level_below(level);
                    if level > key.len() {
                        return Ok(None);
                    }
                    (parent, node) = (Some(holder), child);
                }
            }
        }
    }

    #[inline(always)]
    fn find_once<'g, P: Protocol>(&self, key: &[u8], guard: &'g Guard<'_>) -> Result<Option<Leaf<'g, F>>, Restart> {
        Ok(self.locate::<P, false>(key, guard)?.map(|place| place.leaf))
    }

    fn insert_once<P: Protocol>(
        &self,
        key: &[u8],
        word: u64,
        overwrite: bool,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>, Restart> {
        let mut parent = None;
        let mut node = self.root(guard);
        let mut level = 0;
        loop {
            node.fetch_header();
            let holder = Seen::<P>::enter(node)?;
            let position = position_of(key, level);
            let edge = node.get(position);
            holder.check()?;
            // SAFETY: the edge was loaded under `guard`.
            match unsafe { edge.target::<F>() } {
                Target::Nothing => {
                    let growth = match parent {
                        Some(parent) if !node.has_room(position) => {
                            add_growing::<P, F>(parent, holder, position, key, word, guard)?
                        }
                        _ => add::<P, F>(holder, position, key, word)?,
                    };
                    self.tally.add(growth);
                    return Ok(None);
                }
                Target::Leaf(leaf) if leaf.key() != key => {
                    self.tally.add(branch_below::<P, F>(holder, position, leaf, key, word)?);
                    return Ok(None);
                }
                Target::Leaf(leaf) if overwrite => {
                    let locked = holder.lock()?;
                    if node.get(position) != edge {
                        return Err(Restart);
                    }
                    let old = leaf.swap(word);
                    drop(locked);
                    return Ok(Some(old));
                }
                Target::Leaf(leaf) => return Ok(Some(leaf.word())),
                Target::Node(child) => {
                    let depth = level + 1;
                    level = child.level_below(level);
                    if level > depth {
                        let gap = child.gap(depth);
                        let common = common_prefix(&key[depth..], gap);
                        if common < gap.len() {
                            self.tally.add(branch_above::<P, F>(holder, child, depth + common, key, word)?);
                            return Ok(None);
                        }
                    }
                    (parent, node) = (Some(holder), child);
                }
            }
        }
    }

    fn exchange_once<P: Protocol>(&self, key: &[u8], word: u64, guard: &Guard<'_>) -> Result<Option<u64>, Restart> {
        let Some(Position { holder, position, leaf, .. }) = self.locate::<P, true>(key, guard)? else {
            return Ok(None);
        };
        let _locked = holder.lock()?;
        if holder.node.get(position) != leaf.edge() {
            return Err(Restart);
        }
        Ok(Some(leaf.swap(word)))
    }

    fn replace_once<P: Protocol>(&self, key: &[u8], old: u64, new: u64, guard: &Guard<'_>) -> Result<bool, Restart> {
        let Some(Position { holder, position, leaf, .. }) = self.locate::<P, true>(key, guard)? else {
            return Ok(false);
        };
        let _locked = holder.lock()?;
        if holder.node.get(position) != leaf.edge() {
            return Err(Restart);
        }
        if leaf.word() != old {
            return Ok(false);
        }
        leaf.swap(new);
        Ok(true)
    }

    fn remove_once<P: Protocol>(
        &self,
        key: &[u8],
        expected: Option<u64>,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>, Restart> {
        let Some(Position { parent, holder, position, leaf }) = self.locate::<P, true>(key, guard)? else {
            return Ok(None);
        };
        let node = holder.node;
        let parent = parent.filter(|_| becomes_too_small(node, position));
        // Locks are taken from the root downwards.
        let parent_locked = parent.map(Seen::lock).transpose()?;
        let locked = holder.lock()?;
        if node.get(position) != leaf.edge() {
            return Err(Restart);
        }
        let word = leaf.word();
        if expected.is_some_and(|expected| expected != word) {
            return Ok(None);
        }
        let parent = parent.zip(parent_locked).map(|(parent, locked)| (parent.node, locked));
        self.unlink::<P>(parent, locked, node, position, leaf, guard)?;
        Ok(Some(word))
    }

    /// Returns whether a node is replaced when it loses the edge at `position`.
    pub(super) fn becomes_too_small(&self, node: Node<'_>, position: usize) -> bool {
        node.edge() != *self.root && becomes_too_small(node, position)
    }

    /// Removes a leaf from its locked node, and retires it. If this makes the node too small, the caller must have
    /// locked the node's parent, too, and pass it. Otherwise nothing is changed, and the operation has to restart.
    pub(super) fn unlink<P: Protocol>(
        &self,
        parent: Option<(Node<'_>, Locked<'_>)>,
        locked: Locked<'_>,
        node: Node<'_>,
        position: usize,
        leaf: Leaf<'_, F>,
        guard: &Guard<'_>,
    ) -> Result<(), Restart> {
        let mut growth = Growth::default();
        match parent {
            None if node.edge() != *self.root && becomes_too_small(node, position) => return Err(Restart),
            None => {
                node.clear(position);
                locked.changed();
            }
            Some((parent, parent_locked)) => {
                let node_position = position_of(leaf.key(), parent.level());
                if parent.get(node_position) != node.edge() || !becomes_too_small(node, position) {
                    return Err(Restart);
                }
                let (smaller, made, merged) = smaller::<P, F>(parent, node, position)?;
                growth += made;
                parent.replace(node_position, smaller);
                let replaced = [Some(locked.replaced()), merged.map(Locked::replaced)];
                parent_locked.changed();
                for node in replaced.into_iter().flatten() {
                    growth = growth.node_gone(node.bytes());
                    reclaim::retire_node(node, guard);
                }
            }
        }
        self.tally.add(growth.entry_gone(leaf.bytes()));
        reclaim::retire_leaf(leaf, guard);
        Ok(())
    }

    /// Calls `visit` with each word. The caller must have exclusive access to the tree.
    pub(super) fn show_words(&self, guard: &Guard<'_>, mut visit: impl FnMut(u64)) {
        // An explicit stack, since a tree of long keys may be too deep for recursion on the thread's stack.
        let mut nodes = vec![self.root(guard)];
        while let Some(node) = nodes.pop() {
            for (_, edge) in node.entries() {
                // SAFETY: the edge was loaded under `guard`.
                match unsafe { edge.target::<F>() } {
                    Target::Nothing => {}
                    Target::Node(child) => nodes.push(child),
                    Target::Leaf(leaf) => visit(leaf.word()),
                }
            }
        }
    }
}

impl<F: Form> Drop for RawArt<F> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no other thread uses the tree, and no thread will.
        unsafe { reclaim::free_tree::<F>(Node::from_edge(*self.root)) };
    }
}

/// Adds a leaf to a node that has room.
fn add<P: Protocol, F: Form>(holder: Seen<'_, P>, position: usize, key: &[u8], word: u64) -> Result<Growth, Restart> {
    let locked = holder.lock()?;
    if !holder.node.get(position).is_null() || !holder.node.has_room(position) {
        return Err(Restart);
    }
    holder.node.add(position, Leaf::<F>::create(key, word));
    locked.changed();
    Ok(Growth::entry(Leaf::<F>::bytes_for(key)))
}

/// Adds a leaf to a full node by replacing the node by a larger copy.
fn add_growing<P: Protocol, F: Form>(
    parent: Seen<'_, P>,
    holder: Seen<'_, P>,
    position: usize,
    key: &[u8],
    word: u64,
    guard: &Guard<'_>,
) -> Result<Growth, Restart> {
    let (parent_locked, locked) = (parent.lock()?, holder.lock()?);
    let (parent, node) = (parent.node, holder.node);
    let node_position = position_of(key, parent.level());
    let unchanged = parent.get(node_position) == node.edge() && node.get(position).is_null();
    if !unchanged || node.has_room(position) {
        return Err(Restart);
    }
    let larger = node.copy(node.kind().larger(), node.gap(parent.level() + 1), None);
    larger.add(position, Leaf::<F>::create(key, word));
    parent.replace(node_position, larger.edge());
    let replaced = locked.replaced();
    parent_locked.changed();
    let growth = Growth::entry(Leaf::<F>::bytes_for(key)).node(larger.bytes()).node_gone(replaced.bytes());
    reclaim::retire_node(replaced, guard);
    Ok(growth)
}

/// Adds a leaf whose key differs from the string of `node` at `level`, before the string's end: inserts a node for the
/// common part of the two between `node` and its parent. `node` itself does not change.
fn branch_above<P: Protocol, F: Form>(
    parent: Seen<'_, P>,
    node: Node<'_>,
    level: usize,
    key: &[u8],
    word: u64,
) -> Result<Growth, Restart> {
    let locked = parent.lock()?;
    let parent = parent.node;
    let node_position = position_of(key, parent.level());
    if parent.get(node_position) != node.edge() {
        return Err(Restart);
    }
    let gap = node.gap(parent.level() + 1);
    let common = level - parent.level() - 1;
    let branch = Node::create(NodeKind::Node4, level, &gap[..common]);
    branch.add(1 + gap[common] as usize, node.edge());
    branch.add(position_of(key, level), Leaf::<F>::create(key, word));
    parent.replace(node_position, branch.edge());
    locked.changed();
    Ok(Growth::entry(Leaf::<F>::bytes_for(key)).node(branch.bytes()))
}

/// Adds a leaf at a position that has another key's leaf: replaces the other leaf by a node with both leaves.
fn branch_below<P: Protocol, F: Form>(
    holder: Seen<'_, P>,
    position: usize,
    other: Leaf<'_, F>,
    key: &[u8],
    word: u64,
) -> Result<Growth, Restart> {
    let locked = holder.lock()?;
    let node = holder.node;
    if node.get(position) != other.edge() {
        return Err(Restart);
    }
    // Only one key leads to the terminal: the node's string. So the other leaf is a child, and both keys contain the
    // child's byte.
    let depth = node.level() + 1;
    let level = depth + common_prefix(&key[depth..], &other.key()[depth..]);
    let branch = Node::create(NodeKind::Node4, level, &key[depth..level]);
    branch.add(position_of(other.key(), level), other.edge());
    branch.add(position_of(key, level), Leaf::<F>::create(key, word));
    node.replace(position, branch.edge());
    locked.changed();
    Ok(Growth::entry(Leaf::<F>::bytes_for(key)).node(branch.bytes()))
}

/// Returns whether `node` is replaced when it loses the edge at `position`. (The result does not apply to the root,
/// which is never replaced.)
fn becomes_too_small(node: Node<'_>, position: usize) -> bool {
    match node.kind() {
        NodeKind::Node4 => node.len() <= 2,
        kind => position > 0 && node.children() <= kind.shrink_at() + 1,
    }
}

/// Returns the replacement of `node` when it loses the edge at `position`: a smaller copy, or the only edge that is
/// left. If that edge leads to a child node, the child may have to be copied with a longer prefix. Then the old child
/// is also returned, locked, to be retired. `parent` and `node` must be locked. Also returns the change of the tree's
/// counts.
fn smaller<'g, P: Protocol, F: Form>(
    parent: Node<'_>,
    node: Node<'g>,
    position: usize,
) -> Result<(Edge, Growth, Option<Locked<'g>>), Restart> {
    let depth = parent.level() + 1;
    let made = |node: Node<'_>| (node.edge(), Growth::default().node(node.bytes()));
    if node.kind() != NodeKind::Node4 {
        let (edge, growth) = made(node.copy(node.kind().smaller(), node.gap(depth), Some(position)));
        return Ok((edge, growth, None));
    }
    let (left, edge) = node.entries().into_iter().find(|e| e.0 != position).expect("a node holds at least two edges");
    // SAFETY: loaded under the guard that `'g` borrows.
    let Target::Node(child) = (unsafe { edge.target::<'g, F>() }) else {
        return Ok((edge, Growth::default(), None));
    };
    if child.reaches(depth) {
        return Ok((edge, Growth::default(), None));
    }
    let locked = Seen::<P>::enter(child)?.lock()?;
    let prefix = [node.gap(depth), &[(left - 1) as u8], child.gap(node.level() + 1)].concat();
    let (edge, growth) = made(child.copy(child.kind(), &prefix, None));
    Ok((edge, growth, Some(locked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::Bytes;
    use archipelago_sync::rcu::Domain;
    use core::ops::Bound;

    #[test]
    fn predecessors() {
        let domain = Domain::new();
        let guard = &domain.pin();
        // SAFETY: all guards are of one domain.
        let tree: RawArt<Bytes> = unsafe { RawArt::new(WriteSync::default()) };
        assert!(tree.len() == 0 && tree.predecessor(Bound::Included(b"zzz"), guard).is_none());
        let anchors: [&[u8]; 7] = [b"", b"a", b"abc", b"abcdefgh", b"abd", b"b\0", b"zz"];
        for (word, key) in anchors.iter().enumerate() {
            assert_eq!(tree.insert(key, word as u64, guard), None);
        }
        let probes: [&[u8]; 9] = [b"\0", b"a", b"abcd", b"abcdefghi", b"abce", b"abz", b"b", b"c", b"\xff"];
        for probe in probes {
            let expected = anchors.iter().rposition(|anchor| *anchor <= probe).map(|word| word as u64);
            assert_eq!(tree.predecessor(Bound::Included(probe), guard), expected, "of {probe:?}");
        }
        for (word, key) in (0_u64..).zip(anchors) {
            assert_eq!(tree.predecessor(Bound::Excluded(key), guard), word.checked_sub(1), "below {key:?}");
        }
        assert_eq!(tree.predecessor(Bound::Unbounded, guard), Some(6));
        assert!(!tree.remove_if(b"", 1, guard) && tree.remove_if(b"", 0, guard));
        assert_eq!(tree.predecessor(Bound::Included(b"\0"), guard), None);
    }
}
