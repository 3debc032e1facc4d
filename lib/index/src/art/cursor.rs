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
//! Leaves are returned in batches and prefetched, so that their cache misses overlap.

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

/// The number of leaves in a batch. It is enough to use all cache misses that a core can have outstanding.
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

/// Edges of one node with their positions, in a walk's order. All lead to leaves, except that the last one may lead to
/// a node.
#[derive(Default)]
struct Glance {
    edges: [(usize, Edge); BATCH],
    len: usize,
}

impl Glance {
    /// Reads at most `limit` of a node's edges from `position` on, and prefetches their targets. The first edge that
    /// leads to a node is the last one that is read. Returns `true` if the node has no further edges; after an edge to
    /// a node, always returns `false`.
    #[inline]
    fn look<const DOWN: bool>(&mut self, node: Node<'_>, position: usize, limit: usize) -> bool {
        let mut complete = true;
        node.visit::<DOWN>(position, |position, edge| {
            if self.len == limit {
                complete = false;
                return ControlFlow::Break(());
            }
            edge.prefetch();
            self.edges[self.len] = (position, edge);
            self.len += 1;
            complete = !edge.is_node();
            if complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        complete
    }
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
        Cursor { root, path: [None; INLINE_DEPTH], deep: Vec::new(), depth: 0, seated: false, last: None }
    }

    /// Replaces the batch's leaves by the walk's next ones, at most `limit` and at most [`BATCH`], and returns their
    /// number. If `limit` is not zero, a result of zero means that the walk is over.
    ///
    /// `start` is the bound at which the walk begins; it must be the same in each call.
    pub(super) fn fill(&mut self, start: Bound<&[u8]>, batch: &mut Batch<'g, F>, limit: usize) -> usize {
        (batch.taken, batch.filled) = (0, 0);
        let backoff = Backoff::new();
        while batch.filled < limit.min(BATCH) {
            match self.seat(start).and_then(|()| self.step(batch, limit.min(BATCH))) {
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
    fn seat(&mut self, start: Bound<&[u8]>) -> Result<(), Restart> {
        if self.seated {
            return Ok(());
        }
        self.deep.clear();
        self.depth = 0;
        match self.last.map_or(start, |leaf| Bound::Excluded(leaf.key())) {
            Bound::Unbounded => self.enter(self.root, Self::edge_of_node())?,
            Bound::Included(key) => self.seek(key, true)?,
            Bound::Excluded(key) => self.seek(key, false)?,
        }
        self.seated = true;
        Ok(())
    }

    /// Returns the position from which a walk visits the whole node.
    const fn edge_of_node() -> usize {
        if DOWN { POSITIONS } else { 0 }
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

    #[inline]
    fn top(&mut self) -> Option<&mut Frame<'g>> {
        let top = self.depth.checked_sub(1)?;
        if top < INLINE_DEPTH { self.path[top].as_mut() } else { self.deep.last_mut() }
    }

    /// Builds the path to the position of `key`, or to the position at which `key` would be.
    fn seek(&mut self, key: &[u8], include: bool) -> Result<(), Restart> {
        let mut node = self.root;
        let mut depth = 0;
        loop {
            let (rest, gap) = (&key[depth..], node.gap(depth));
            let common = common_prefix(rest, gap);
            if common < gap.len() {
                // All of the node's keys are on the same side of `key`, so the walk visits all of them or none.
                let node_is_above = rest.get(common).is_none_or(|byte| *byte < gap[common]);
                return if node_is_above != DOWN { self.enter(node, Self::edge_of_node()) } else { Ok(()) };
            }
            let position = position_of(key, node.level());
            self.enter(node, Self::around(position, false))?;
            let frame = self.top().expect("just entered");
            let edge = node.get(position);
            if !node.lock().validate(frame.version) {
                return Err(Restart);
            }
            // SAFETY: the edge was loaded under the guard that `'g` borrows.
            match unsafe { edge.target::<F>() } {
                Target::Nothing => return Ok(()),
                Target::Leaf(leaf) => {
                    let wanted = match leaf.key().cmp(key) {
                        Ordering::Equal => include,
                        Ordering::Less => DOWN,
                        Ordering::Greater => !DOWN,
                    };
                    frame.position = Self::around(position, wanted);
                    return Ok(());
                }
                Target::Node(child) => {
                    depth = node.level() + 1;
                    node = child;
                }
            }
        }
    }

    /// Reads the walk's node once, adds the found leaves to the batch until the batch has `limit`, and advances the
    /// walk. Returns `false` if the walk has ended.
    #[inline]
    fn step(&mut self, batch: &mut Batch<'g, F>, limit: usize) -> Result<bool, Restart> {
        let Some(frame) = self.top() else { return Ok(false) };
        let mut seen = Glance::default();
        let complete = seen.look::<DOWN>(frame.node, frame.position, limit - batch.filled);
        if !frame.node.lock().validate(frame.version) {
            return Err(Restart);
        }
        let mut below = None;
        for &(position, edge) in &seen.edges[..seen.len] {
            frame.position = Self::around(position, false);
            // SAFETY: the edge was loaded under the guard that `'g` borrows.
            match unsafe { edge.target() } {
                Target::Nothing => unreachable!("empty positions are passed over"),
                Target::Leaf(leaf) => batch.add(leaf),
                Target::Node(child) => below = Some(child),
            }
        }
        if batch.filled > 0 {
            self.last = batch.leaves[batch.filled - 1];
        }
        match below {
            Some(child) => self.enter(child, Self::edge_of_node())?,
            None if complete => self.leave(),
            None => {}
        }
        Ok(true)
    }
}
