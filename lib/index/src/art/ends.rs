//! Removing the outermost entry, and dividing a tree into parts.
//!
//! Why the removal is linearizable: the path to the outermost leaf is found with a version of each node on it, and
//! validated node by node. Then the node that has the leaf is locked *at the version that was seen*. If the node is to
//! be replaced, its parent is locked in the same way. After that, the versions of all other nodes on the path are
//! validated again. If the versions hold, the path was unchanged at the moment of the (last) lock, and the leaf was in
//! the tree. An entry farther out would be in one of the path's nodes, or below an edge of such a node that is farther
//! out than the path. Inserting such an entry changes a node of the path, or adds a node between two of them and so
//! changes the upper one. Under both protocols this changes the node's version. If the tree has no entries, the root
//! has no edges, which one read shows.

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

    /// Calls `show` with at least `count` leaves, ascending, or with all if the tree has fewer. Each is the first leaf
    /// of a part of the tree. The parts are the subtrees of the first level that has at least `count` of them, so
    /// there may be many more, and their sizes may differ.
    pub(crate) fn cut<'g>(&self, guard: &'g Guard<'_>, count: usize, mut show: impl FnMut(&'g [u8], u64)) {
        let mut parts = vec![self.root(guard).edge()];
        let mut deeper = true;
        while deeper && parts.len() < count {
            deeper = false;
            let mut below = Vec::with_capacity(4 * parts.len());
            for edge in parts {
                // SAFETY: loaded under `guard`.
                match unsafe { edge.target::<F>() } {
                    Target::Node(node) => {
                        deeper = true;
                        node.visit::<false>(0, |_, edge| {
                            below.push(edge);
                            ControlFlow::Continue(())
                        });
                    }
                    _ => below.push(edge),
                }
            }
            parts = below;
        }
        for edge in parts {
            let mut at = Some(edge);
            while let Some(edge) = at.take() {
                // SAFETY: loaded under `guard`.
                match unsafe { edge.target::<F>() } {
                    Target::Nothing => {}
                    Target::Leaf(leaf) => show(leaf.key(), leaf.word()),
                    Target::Node(node) => at = outermost_edge::<false>(node).map(|(_, edge)| edge),
                }
            }
        }
    }
}
