//! The tree's invariants, checked node by node while no thread writes.

use super::kind::NodeKind;
use super::node::{Node, POSITIONS};
use super::raw::RawArt;
use super::target::Target;
use crate::structure::Form;
use crate::tally::Growth;
use archipelago_sync::rcu::Guard;

/// Checks the whole tree, and panics at the first broken invariant. Returns the tree's counts.
///
/// No thread may write meanwhile.
pub(super) fn check<F: Form>(tree: &RawArt<F>, guard: &Guard<'_>) -> Growth {
    let root = tree.root(guard);
    assert_eq!((root.kind(), root.level()), (NodeKind::Node256, 0), "the root is a Node256 for the empty string");
    let mut held = Growth::default();
    let mut last: Option<&[u8]> = None;
    // The edges to visit, each with the bytes of the path to it. The last element pushed is the first in key order.
    let mut open = vec![(root.edge(), Vec::new())];
    while let Some((edge, path)) = open.pop() {
        // SAFETY: loaded under `guard`.
        match unsafe { edge.target::<F>() } {
            Target::Nothing => unreachable!("a node shows no empty positions"),
            Target::Leaf(leaf) => {
                assert!(leaf.key().starts_with(&path), "a leaf's key starts with its path");
                assert!(last.is_none_or(|last| last < leaf.key()), "leaves are in key order");
                last = Some(leaf.key());
                held += Growth::entry(leaf.bytes());
            }
            Target::Node(node) => {
                held = held.node(node.bytes());
                let path = check_node(node, path, node == root);
                let below = node.entries();
                for (position, edge) in below.into_iter().rev() {
                    let mut path = path.clone();
                    path.extend(position.checked_sub(1).map(|byte| byte as u8));
                    // SAFETY: loaded under `guard`.
                    if let (0, Target::Leaf(leaf)) = (position, unsafe { edge.target::<F>() }) {
                        assert_eq!(leaf.key(), path, "a terminal's key ends at its node");
                    }
                    open.push((edge, path));
                }
            }
        }
    }
    held
}

/// Checks one node that is reached by `path`. Returns the node's string.
fn check_node(node: Node<'_>, mut path: Vec<u8>, is_root: bool) -> Vec<u8> {
    assert!(node.lock().read().is_some(), "no node in the tree is locked or obsolete");
    let entries = node.entries();
    let children = entries.iter().filter(|e| e.0 > 0).count();
    let found = (0..POSITIONS).map(|position| (position, node.get(position))).filter(|e| !e.1.is_null());
    assert!(entries.into_iter().eq(found), "walks see the edges that look-ups find, in order");
    assert_eq!(children, node.children(), "the count is that of the children");
    assert!(children <= node.kind().capacity());
    assert!(is_root || node.len() >= 2, "a node holds at least two edges");
    assert!(is_root || node.kind() == NodeKind::Node4 || children > node.kind().shrink_at(), "no node is too large");
    assert!(node.reaches(path.len()), "the stored prefix reaches back to the parent");
    assert_eq!(node.edge().skips() || is_root, node.level() > path.len() || node.edge().skips() || is_root);
    path.extend(node.gap(path.len()));
    assert_eq!(path.len(), node.level(), "the path's length is the level");
    path
}
