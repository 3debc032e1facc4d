//! Ordered walks: lower bounds, predecessors and iteration in both directions, holding no lock.
//!
//! A cursor keeps the path to its position, with the version that each node had when it was entered, and validates the
//! version after each read of a node. If the version has changed, the cursor seeks again from the last leaf that it
//! returned. Both write synchronisations increment versions, so walks are the same under either.
//!
//! Why no entry is missed: a node that is not obsolete contains *all* keys that start with its string (`node.rs`). When
//! a read of a node is validated, no key was between the requested position and the found one at that moment, and the
//! cursor continues from the found one. So no step skips a key that is present throughout the walk. No key is returned
//! twice, because each step advances in key order, and a new seek starts strictly after the last leaf.
//!
//! # How cache misses overlap
//! Nearly all of a walk's time is cache misses, and mispredicted branches, which delay the next cache misses. So a walk
//! works in three steps, each of which prefetches what the next step reads:
//! 1. It reads up to [`BATCH`] edges of one node at once ([`Glance`]), and prefetches the leaves and nodes to which
//!    they lead, and the slots of the next edges, or the next node.
//! 2. It follows these edges. A leaf is added to a [`Batch`]. If a small node has only leaves, all its leaves are
//!    added, without an extension of the path. Any other node becomes the path's last node.
//! 3. The caller uses the batch. Before, it has the next batch filled.
//!
//! Edges are followed some time after they have been validated together. The proof above still holds: an edge that is
//! followed was right at a moment of the walk; if it leads to a node that is not obsolete, the node contains all keys
//! that start with its string. A key in between that is not shown was inserted after the validation.

use super::edge::Edge;
use super::leaf::Leaf;
use super::node::{Node, POSITIONS};
use super::raw::{RawArt, common_prefix, position_of};
use super::sync::Restart;
use super::target::Target;
use crate::structure::Form;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::Version;
use core::cmp::Ordering;
use core::ops::{Bound, ControlFlow};

/// The greatest number of leaves in a batch, and of edges that are read at once. It is enough to use all cache misses
/// that a core can have outstanding.
pub(super) const BATCH: usize = 16;
/// The number of the path's nodes that are stored in the cursor itself; deeper ones are stored in the heap.
const INLINE_DEPTH: usize = 12;

/// A walk's state in one node. In ascending walks, `position` is the next position to read. In descending walks it is
/// one more than the next position to read.
#[derive(Clone, Copy)]
struct Frame<'g> {
    node: Node<'g>,
    version: Version,
    position: usize,
}

/// A walk over the leaves, downwards if `DOWN`.
pub(super) struct Cursor<'g, F: Form, const DOWN: bool> {
    root: Node<'g>,
    path: [Option<Frame<'g>>; INLINE_DEPTH],
    deep: Vec<Frame<'g>>,
    depth: usize,
    seated: bool,
    /// `true` if the walk has not yet compared the first leaf with the bound at which the walk begins.
    doubtful: bool,
    glance: Glance,
    last: Option<Leaf<'g, F>>,
}

/// Leaves that [`Cursor::fill`] returned, in the walk's order.
pub(super) struct Batch<'g, F> {
    leaves: [Option<Leaf<'g, F>>; BATCH],
    taken: usize,
    filled: usize,
}

impl<'g, F: Form> Batch<'g, F> {
    pub(super) fn new() -> Self {
        Batch { leaves: [None; BATCH], taken: 0, filled: 0 }
    }

    /// Adds a leaf. The batch must have room.
    #[inline]
    fn add(&mut self, leaf: Leaf<'g, F>) {
        self.leaves[self.filled] = Some(leaf);
        self.filled += 1;
    }

    /// Returns the next leaf, if one is left.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Leaf<'g, F>> {
        if self.taken == self.filled {
            return None;
        }
        self.taken += 1;
        self.leaves[self.taken - 1]
    }
}

/// Edges of the path's last node with their positions, in a walk's order, which the walk has not followed yet. All lead
/// to leaves and to small nodes, except that the last one may lead to a large node.
#[derive(Default)]
struct Glance {
    edges: [Edge; BATCH],
    positions: [u16; BATCH],
    followed: usize,
    len: usize,
    /// The node has no edges behind these.
    complete: bool,
}

impl Glance {
    /// Forgets all edges.
    #[inline]
    fn clear(&mut self) {
        (self.followed, self.len, self.complete) = (0, 0, false);
    }

    /// Reads at most `limit` of a node's edges from `position` on, and prefetches their targets. The first edge that
    /// leads to a large node is the last one that is read: the walk will read this node before further edges.
    #[inline]
    fn look<const DOWN: bool>(&mut self, node: Node<'_>, position: usize, limit: usize) {
        self.clear();
        let (limit, mut len, mut complete) = (limit.min(BATCH), 0, true);
        node.visit::<DOWN>(position, |position, edge| {
            if len == limit {
                complete = false;
                return ControlFlow::Break(());
            }
            fetch::<DOWN>(edge, limit - len);
            (self.edges[len], self.positions[len]) = (edge, position as u16);
            len += 1;
            complete = !edge.is_large();
            if complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (self.len, self.complete) = (len, complete);
    }

    /// Returns the next edge with its position, if one is left.
    #[inline]
    fn follow(&mut self) -> Option<(usize, Edge)> {
        if self.followed == self.len {
            return None;
        }
        self.followed += 1;
        Some((self.positions[self.followed - 1].into(), self.edges[self.followed - 1]))
    }
}

/// Returns the position from which a walk visits the whole node.
const fn edge_of_node<const DOWN: bool>() -> usize {
    if DOWN { POSITIONS } else { 0 }
}

/// Prefetches an edge's target, and what a walk reads next there for its next `edges` edges.
#[inline]
fn fetch<const DOWN: bool>(edge: Edge, edges: usize) {
    edge.prefetch();
    edge.fetch_slots::<DOWN>(edge_of_node::<DOWN>(), edges);
}

impl<F: Form> RawArt<F> {
    /// Returns the word of the greatest key within an upper bound.
    #[allow(dead_code, reason = "for HydraList's search layer")]
    pub(crate) fn predecessor(&self, upper: Bound<F::Probe<'_>>, guard: &Guard<'_>) -> Option<u64> {
        let within = |upper: Bound<&[u8]>| Cursor::<_, true>::new(self, guard).next(upper).map(Leaf::word);
        match upper {
            Bound::Included(key) => F::with_bytes(key, |key| within(Bound::Included(key))),
            Bound::Excluded(bound) => F::with_bytes(bound, |bound| within(Bound::Excluded(bound))),
            Bound::Unbounded => within(Bound::Unbounded),
        }
    }
}

impl<'g, F: Form, const DOWN: bool> Cursor<'g, F, DOWN> {
    pub(super) fn new(tree: &RawArt<F>, guard: &'g Guard<'_>) -> Self {
        Self::at(tree.root(guard))
    }

    /// Makes a walk over the tree with this root.
    pub(super) fn at(root: Node<'g>) -> Self {
        Cursor {
            root,
            path: [None; INLINE_DEPTH],
            deep: Vec::new(),
            depth: 0,
            seated: false,
            doubtful: false,
            glance: Glance::default(),
            last: None,
        }
    }

    /// Replaces the batch's leaves by some of the walk's next ones, at most `limit`, and returns their number. If
    /// `limit` is not zero, a result of zero means that the walk is over. Leaves behind these are prefetched, up to the
    /// same limit for both together.
    ///
    /// `start` is the bound at which the walk begins; it must be the same in each call.
    pub(super) fn fill(&mut self, start: Bound<&[u8]>, batch: &mut Batch<'g, F>, limit: usize) -> usize {
        (batch.taken, batch.filled) = (0, 0);
        let backoff = Backoff::new();
        while batch.filled == 0 && limit > 0 {
            match self.advance(start, batch, limit) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Restart) => {
                    self.seated = false;
                    backoff.wait();
                }
            }
        }
        batch.filled
    }

    /// Returns the next leaf, without reading leaves after it.
    pub(super) fn next(&mut self, start: Bound<&[u8]>) -> Option<Leaf<'g, F>> {
        let mut batch = Batch::new();
        self.fill(start, &mut batch, 1);
        batch.take()
    }

    /// If the path is not valid, builds it anew to the position of the last returned leaf, or to `start`.
    fn seat(&mut self, start: Bound<&[u8]>, limit: usize) -> Result<(), Restart> {
        if self.seated {
            return Ok(());
        }
        self.deep.clear();
        self.depth = 0;
        self.doubtful = false;
        self.glance.clear();
        match self.bound(start) {
            Bound::Unbounded => self.enter(self.root, edge_of_node::<DOWN>())?,
            Bound::Included(key) | Bound::Excluded(key) => self.seek(key, limit)?,
        }
        self.seated = true;
        Ok(())
    }

    /// Returns the bound behind which the walk's next leaf is.
    fn bound<'a>(&self, start: Bound<&'a [u8]>) -> Bound<&'a [u8]>
    where
        'g: 'a,
    {
        self.last.map_or(start, |leaf| Bound::Excluded(leaf.key()))
    }

    /// Returns whether a key is behind the bound at which the walk was seated.
    fn is_within(&self, key: &[u8], start: Bound<&[u8]>) -> bool {
        let (bound, included) = match self.bound(start) {
            Bound::Unbounded => return true,
            Bound::Included(bound) => (bound, true),
            Bound::Excluded(bound) => (bound, false),
        };
        match key.cmp(bound) {
            Ordering::Equal => included,
            Ordering::Less => DOWN,
            Ordering::Greater => !DOWN,
        }
    }

    /// Returns a position from which a walk continues at `position` (if `include` is true) or just behind it.
    const fn around(position: usize, include: bool) -> usize {
        if DOWN == include { position + 1 } else { position }
    }

    fn enter(&mut self, node: Node<'g>, position: usize) -> Result<(), Restart> {
        let version = node.lock().read_unlocked().ok_or(Restart)?;
        let frame = Frame { node, version, position };
        match self.path.get_mut(self.depth) {
            Some(place) => *place = Some(frame),
            None => self.deep.push(frame),
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.deep.truncate(self.depth.saturating_sub(INLINE_DEPTH));
    }

    /// Returns the state in the path's node at index `place`.
    #[inline]
    fn frame(&mut self, place: usize) -> Option<&mut Frame<'g>> {
        match place.checked_sub(INLINE_DEPTH) {
            None => self.path[place].as_mut(),
            Some(place) => self.deep.get_mut(place),
        }
    }

    #[inline]
    fn top(&mut self) -> Option<&mut Frame<'g>> {
        self.frame(self.depth.checked_sub(1)?)
    }

    /// Builds the path to the position of `key`, or to the position at which `key` would be. The walk continues at this
    /// position. If it has a leaf, this leaf is doubtful: its key is compared when the walk has read further edges, so
    /// that the leaf's cache miss overlaps with others. `limit` is the number of edges for which slots are prefetched.
    fn seek(&mut self, key: &[u8], limit: usize) -> Result<(), Restart> {
        let mut node = self.root;
        let (mut depth, mut level) = (0, 0);
        loop {
            if node.edge().skips() {
                let (rest, gap) = (&key[depth..], node.gap(depth));
                let common = common_prefix(rest, gap);
                if common < gap.len() {
                    // All of the node's keys are on the same side of `key`, so the walk visits all of them or none.
                    let node_is_above = rest.get(common).is_none_or(|byte| *byte < gap[common]);
                    return if node_is_above != DOWN { self.enter(node, edge_of_node::<DOWN>()) } else { Ok(()) };
                }
            }
            let position = position_of(key, level);
            node.edge().fetch_slots::<DOWN>(Self::around(position, true), limit.min(BATCH));
            self.enter(node, Self::around(position, true))?;
            let frame = self.top().expect("just entered");
            let edge = node.get(position);
            if !node.lock().validate(frame.version) {
                return Err(Restart);
            }
            // SAFETY: the edge was loaded under the guard that `'g` borrows.
            match unsafe { edge.target::<F>() } {
                Target::Nothing => return Ok(()),
                Target::Leaf(_) => {
                    self.doubtful = true;
                    return Ok(());
                }
                Target::Node(child) => {
                    frame.position = Self::around(position, false);
                    depth = level + 1;
                    level = child.level_below(level);
                    node = child;
                }
            }
        }
    }

    /// Adds some of the walk's next leaves to the batch, which must be empty: all that the next edges of one node lead
    /// to. Returns `false` if the walk has ended.
    #[inline]
    fn advance(&mut self, start: Bound<&[u8]>, batch: &mut Batch<'g, F>, limit: usize) -> Result<bool, Restart> {
        self.seat(start, limit)?;
        if self.glance.followed == self.glance.len && !self.look(limit)? {
            return Ok(false);
        }
        self.follow(start, batch, limit)?;
        // The next edges are read already now. So the caller uses this batch while their targets are being fetched.
        if batch.filled > 0 && batch.filled < limit && self.glance.followed == self.glance.len {
            self.look(limit - batch.filled)?;
        }
        Ok(true)
    }

    /// Reads the next edges, at most `limit`. All earlier ones must have been followed. Returns `false` if there are
    /// none.
    #[inline]
    fn look(&mut self, limit: usize) -> Result<bool, Restart> {
        if self.glance.complete {
            self.leave();
        }
        self.glance.clear();
        while let Some(&mut Frame { node, version, position }) = self.top() {
            self.glance.look::<DOWN>(node, position, limit.min(BATCH) + usize::from(self.doubtful));
            if !node.lock().validate(version) {
                return Err(Restart);
            }
            if let Some(last) = self.glance.len.checked_sub(1) {
                let behind = Self::around(self.glance.positions[last].into(), false);
                self.top().expect("the node that was read").position = behind;
                self.fetch_further(limit.saturating_sub(self.glance.len).min(BATCH));
                return Ok(true);
            }
            self.leave();
        }
        self.glance.clear();
        Ok(false)
    }

    /// Prefetches what the walk reads when it has followed the edges that were read, for its next `edges` edges. The
    /// versions of nodes are not validated: prefetching what is no longer right does no harm.
    #[inline]
    fn fetch_further(&mut self, edges: usize) {
        let last = self.glance.len.checked_sub(1).map_or(Edge::NULL, |last| self.glance.edges[last]);
        if edges == 0 || last.is_large() {
            // A large node is read before further edges, and has been prefetched.
            return;
        }
        let place = self.depth - 1;
        if !self.glance.complete {
            if let Some(frame) = self.frame(place) {
                frame.node.edge().fetch_slots::<DOWN>(frame.position, edges);
            }
        } else if let Some(parent) = place.checked_sub(1).and_then(|place| self.frame(place)) {
            parent.node.visit::<DOWN>(parent.position, |_, edge| {
                fetch::<DOWN>(edge, edges);
                ControlFlow::Break(())
            });
        }
    }

    /// Follows edges that were read, and adds the leaves to which they lead to the batch, until the batch has `limit`
    /// leaves or the next edge leads to a node that has to be read by itself. Such a node becomes the path's last one.
    #[inline]
    fn follow(&mut self, start: Bound<&[u8]>, batch: &mut Batch<'g, F>, limit: usize) -> Result<(), Restart> {
        let limit = limit.min(BATCH);
        while batch.filled < limit {
            let Some((position, edge)) = self.glance.follow() else { break };
            // SAFETY: the edge was loaded under the guard that `'g` borrows.
            match unsafe { edge.target() } {
                Target::Nothing => unreachable!("empty positions are passed over"),
                Target::Leaf(leaf) => {
                    if !core::mem::take(&mut self.doubtful) || self.is_within(leaf.key(), start) {
                        batch.add(leaf);
                        self.last = Some(leaf);
                    }
                }
                Target::Node(child) => {
                    if edge.is_large() || !self.follow_small(child, batch, limit)? {
                        // Edges that were read behind this one are read again when the walk has left the child.
                        self.top().expect("the node with this edge").position = Self::around(position, false);
                        self.glance.clear();
                        return self.enter(child, edge_of_node::<DOWN>());
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the leaves of a node to the batch, if the node has only leaves, and the batch has room for all of them
    /// within `limit`. Otherwise returns `false`.
    #[inline]
    fn follow_small(&mut self, node: Node<'g>, batch: &mut Batch<'g, F>, limit: usize) -> Result<bool, Restart> {
        let version = node.lock().read_unlocked().ok_or(Restart)?;
        let (mut filled, mut fits) = (batch.filled, true);
        node.visit::<DOWN>(edge_of_node::<DOWN>(), |_, edge| {
            // SAFETY: the edge was loaded under the guard that `'g` borrows.
            match unsafe { edge.target() } {
                Target::Leaf(leaf) if filled < limit => {
                    edge.prefetch();
                    batch.leaves[filled] = Some(leaf);
                    filled += 1;
                    ControlFlow::Continue(())
                }
                _ => {
                    fits = false;
                    ControlFlow::Break(())
                }
            }
        });
        if !node.lock().validate(version) {
            return Err(Restart);
        }
        if fits {
            batch.filled = filled;
            self.last = batch.leaves[filled - 1];
        }
        Ok(fits)
    }
}
