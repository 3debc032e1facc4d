//! Removing the outermost entry, and dividing a tree into parts.
//!
//! Why the removal is linearizable: the path to the outermost leaf is found with a version of each node on it, and
//! validated node by node. Then the node that has the leaf is locked *at the version that was seen*. If the node is to
//! be replaced, its parent is locked before it, in the same way. After that, the versions of all other nodes on the
//! path are validated again. If the versions hold, the path was unchanged at the moment of the (last) lock, and the
//! leaf was in the tree. An entry farther out would be in one of the path's nodes, or below an edge of such a node that
//! is farther out than the path. Inserting such an entry changes a node of the path, or adds a node between two of them
//! and so changes the upper one. Under both protocols this changes the node's version. If the tree has no entries, the
//! root has no edges, which one read shows.

use super::edge::Edge;
use super::leaf::Leaf;
use super::node::{Node, POSITIONS};
use super::raw::RawArt;
use super::sync::{Locked, Restart, WriteSync};
use super::target::Target;
use super::write_olc::OptimisticLockCoupling;
use super::write_rowex::Rowex;
use crate::structure::Form;
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::Version;
use core::ops::ControlFlow;

/// The path to an outermost leaf: nodes from the root downwards, each with the version that was read.
struct Outermost<'g, F> {
    path: Vec<(Node<'g>, Version)>,
    position: usize,
    leaf: Leaf<'g, F>,
}

/// Returns the first edge of a node, or the last if `DOWN`.
fn outermost_edge<const DOWN: bool>(node: Node<'_>) -> Option<(usize, Edge)> {
    let mut first = None;
    node.visit::<DOWN>(if DOWN { POSITIONS } else { 0 }, |position, edge| {
        first = Some((position, edge));
        ControlFlow::Break(())
    });
    first
}

/// Returns the first leaf at or below a target.
fn first_leaf<'g, F: Form>(mut target: Target<'g, F>) -> Option<Leaf<'g, F>> {
    loop {
        match target {
            Target::Nothing => return None,
            Target::Leaf(leaf) => return Some(leaf),
            // SAFETY: loaded from a node that is not freed during 'g, by the guard that keeps this node.
            Target::Node(node) => target = unsafe { outermost_edge::<false>(node)?.1.target() },
        }
    }
}

fn lock((node, version): (Node<'_>, Version)) -> Result<Locked<'_>, Restart> {
    if node.lock().try_lock_at(version) { Ok(Locked::held(node)) } else { Err(Restart) }
}

impl<F: Form> RawArt<F> {
    /// Removes the entry with the least key, or with `DOWN` the entry with the greatest. The module's documentation
    /// shows that this is linearizable.
    pub(super) fn take_outermost<'g, const DOWN: bool>(&self, guard: &'g Guard<'_>) -> Option<(Leaf<'g, F>, u64)> {
        let backoff = Backoff::new();
        loop {
            let taken = self.find_outermost::<DOWN>(guard).and_then(|found| match found {
                Some(found) => self.take_found(&found, guard).map(|word| Some((found.leaf, word))),
                None => Ok(None),
            });
            match taken {
                Ok(taken) => return taken,
                Err(Restart) => backoff.wait(),
            }
        }
    }

    fn find_outermost<'g, const DOWN: bool>(&self, guard: &'g Guard<'_>) -> Result<Option<Outermost<'g, F>>, Restart> {
        let mut path = Vec::new();
        let mut node = self.root(guard);
        loop {
            let version = node.lock().read_unlocked().ok_or(Restart)?;
            let edge = outermost_edge::<DOWN>(node);
            if !node.lock().validate(version) {
                return Err(Restart);
            }
            path.push((node, version));
            // Nodes below the root are never empty.
            let Some((position, edge)) = edge else { return Ok(None) };
            // SAFETY: loaded under `guard`.
            match unsafe { edge.target() } {
                Target::Nothing => unreachable!("empty positions are passed over"),
                Target::Node(child) => node = child,
                Target::Leaf(leaf) => return Ok(Some(Outermost { path, position, leaf })),
            }
        }
    }

    fn take_found(&self, found: &Outermost<'_, F>, guard: &Guard<'_>) -> Result<u64, Restart> {
        point(crate::points::OUTERMOST);
        let Outermost { path, position, leaf } = found;
        let (&(node, version), above) = path.split_last().ok_or(Restart)?;
        let shrinks = self.becomes_too_small(node, *position);
        let (parent, seen) = match above.split_last() {
            Some((&parent, seen)) if shrinks => (Some((parent.0, lock(parent)?)), seen),
            _ => (None, above),
        };
        let locked = lock((node, version))?;
        if !seen.iter().all(|(node, version)| node.lock().validate(*version)) {
            return Err(Restart);
        }
        let word = leaf.word();
        match *self.write_sync() {
            WriteSync::OptimisticLockCoupling => {
                self.unlink::<OptimisticLockCoupling>(parent, locked, node, *position, *leaf, guard)?;
            }
            WriteSync::Rowex => self.unlink::<Rowex>(parent, locked, node, *position, *leaf, guard)?,
        }
        Ok(word)
    }

    /// Divides the tree into up to `parts` parts with about equally many leaves, and calls `show` with the first leaf
    /// of each, in ascending order. The call looks at O(`parts`) edges, and at those of the last level.
    ///
    /// Subtrees are divided down to the [level](Self::level) on which they are small. If O(`parts`) edges do not lead
    /// to this level, since each node has few children, a part may have more leaves than the others, and there may be
    /// fewer parts.
    pub(crate) fn cut<'g>(&self, guard: &'g Guard<'_>, parts: usize, mut show: impl FnMut(&'g [u8], u64)) {
        let parts = parts.min(self.len()).max(1);
        let level = self.level(guard, parts);
        let mut edges = vec![(self.root(guard).edge(), 0)];
        let (mut leaves_before, mut shown) = (0, 0);
        while let Some((edge, depth)) = edges.pop() {
            // SAFETY: loaded under `guard`.
            let target = unsafe { edge.target::<F>() };
            let leaves = match &target {
                Target::Nothing => continue,
                Target::Leaf(_) => 1,
                Target::Node(_) if depth == level.depth => level.leaves_in_node,
                Target::Node(node) => {
                    node.visit::<true>(POSITIONS, |_, edge| {
                        edges.push((edge, depth + 1));
                        ControlFlow::Continue(())
                    });
                    continue;
                }
            };
            let part = (leaves_before as u128 * parts as u128 / level.leaves as u128) as usize;
            if part >= shown && part < parts {
                if let Some(leaf) = first_leaf(target) {
                    show(leaf.key(), leaf.word());
                }
                shown = part + 1;
            }
            leaves_before += leaves;
        }
    }

    /// Returns the first level on which a node has, on average, a small fraction of the leaves of a part, or the last
    /// level that is found by looking at O(`parts`) edges.
    fn level(&self, guard: &Guard<'_>, parts: usize) -> Level {
        let all = self.len();
        let (mut nodes, mut below) = (vec![self.root(guard)], Vec::new());
        let (mut depth, mut leaves, mut edges) = (0, 0_usize, 0_usize);
        let nodes_for = |leaves: usize| leaves as u128 * SUBTREES as u128 * parts as u128 / all.max(1) as u128;
        while !nodes.is_empty()
            && edges < EDGES.saturating_mul(parts)
            && (nodes.len() as u128) < nodes_for(all.saturating_sub(leaves))
        {
            for node in nodes.drain(..) {
                node.visit::<false>(0, |_, edge| {
                    edges += 1;
                    // SAFETY: loaded under `guard`.
                    match unsafe { edge.target::<F>() } {
                        Target::Nothing => {}
                        Target::Leaf(_) => leaves += 1,
                        Target::Node(node) => below.push(node),
                    }
                    ControlFlow::Continue(())
                });
            }
            core::mem::swap(&mut nodes, &mut below);
            depth += 1;
        }
        let leaves_in_node = (all.saturating_sub(leaves) / nodes.len().max(1)).max(1);
        Level { depth, leaves_in_node, leaves: (leaves + leaves_in_node * nodes.len()).max(1) }
    }
}

/// A level of nodes on which a tree is cut.
struct Level {
    depth: usize,
    /// An estimate of the number of leaves below each node of the level.
    leaves_in_node: usize,
    /// The number of the tree's leaves by this estimate; at least 1.
    leaves: usize,
}

/// The least number of subtrees of a part, on average. A part has several subtrees, since subtrees differ in size.
const SUBTREES: usize = 16;

/// The greatest number of edges, for each part, that are looked at before the last level.
const EDGES: usize = 64;
