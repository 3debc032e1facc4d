//! The targets of edges.

use super::edge::{Edge, LEAF};
use super::leaf::Leaf;
use super::node::Node;
use crate::structure::Form;

/// The target of an edge.
pub(super) enum Target<'g, F> {
    Nothing,
    Leaf(Leaf<'g, F>),
    Node(Node<'g>),
}

impl Edge {
    /// Returns the target of the edge.
    ///
    /// # Safety
    /// The edge must have been loaded from a tree with leaves of form `F`. The target must not be freed during `'g`: a
    /// guard taken before the load is held for `'g`, or the caller owns the tree.
    #[inline(always)]
    pub(super) unsafe fn target<'g, F: Form>(self) -> Target<'g, F> {
        if self.is_null() {
            Target::Nothing
        } else if self.0.addr() & LEAF != 0 {
            // SAFETY: tagged as a leaf by `to_leaf`; alive for 'g by this function's contract.
            Target::Leaf(unsafe { Leaf::from_address(self.0.map_addr(|address| address & !LEAF)) })
        } else {
            // SAFETY: not null and not a leaf, so made by `to_node`; alive for 'g by this function's contract.
            Target::Node(unsafe { Node::from_edge(self) })
        }
    }
}
