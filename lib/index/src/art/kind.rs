//! The four kinds of nodes.

/// A node's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Node4,
    Node16,
    Node48,
    Node256,
}

impl NodeKind {
    pub(super) const ALL: [NodeKind; 4] = [NodeKind::Node4, NodeKind::Node16, NodeKind::Node48, NodeKind::Node256];

    /// Returns how many children a node of this kind can have.
    pub(super) fn capacity(self) -> usize {
        [4, 16, 48, 256][self as usize]
    }

    pub(super) fn larger(self) -> NodeKind {
        NodeKind::ALL[(self as usize + 1).min(3)]
    }

    pub(super) fn smaller(self) -> NodeKind {
        NodeKind::ALL[(self as usize).saturating_sub(1)]
    }

    /// Returns the number of children at or below which the next smaller kind is used. It is somewhat below the smaller
    /// kind's capacity, so that an insertion after a removal does not copy the node again.
    pub(super) fn shrink_at(self) -> usize {
        [0, 3, 12, 37][self as usize]
    }
}
