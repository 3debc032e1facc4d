//! Edges, the content of the tree's slots: one tagged pointer to nothing, a leaf, or a node of one of four kinds.
//!
//! ```text
//! bit 0      1 = leaf (all other bits are its address)
//! bits 1-2   kind of node
//! bit 3      the node skips: it stores a prefix, so its level must be read from its header
//! ```
//! Leaves are 8-aligned and nodes 16-aligned, so the lowest address bits are free for tags. If a node does not skip,
//! the kind in the edge suffices to compute where the slot for the next byte of a key is. So a reader can load the
//! slot's cache line without waiting for the node's header.
//!
//! [`Edge`] is only bits. `Edge::target` (`target.rs`) turns it into a leaf or node that may be dereferenced as long as
//! a guard is held. This conversion is the only unsafe step; everything after it is safe.

use super::kind::NodeKind;
use archipelago_platform::atomic::{AtomicPtr, Ordering};

/// The tag of a leaf.
pub(super) const LEAF: usize = 1;
const KIND_SHIFT: u32 = 1;
/// The tag bit that only the kinds Node48 and Node256 have. Leaves do not have it, since they are 8-aligned.
const LARGE: usize = (NodeKind::Node48 as usize & NodeKind::Node256 as usize) << KIND_SHIFT;
const SKIPS: usize = 1 << 3;
const NODE_TAGS: usize = 15;

/// The value of a [`Slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge(pub(super) *mut ());

impl Default for Edge {
    fn default() -> Edge {
        Edge::NULL
    }
}

impl Edge {
    pub(super) const NULL: Edge = Edge(core::ptr::null_mut());

    pub(super) fn to_leaf(leaf: *mut ()) -> Edge {
        Edge(leaf.map_addr(|address| address | LEAF))
    }

    pub(super) fn to_node(node: *mut (), kind: NodeKind, skips: bool) -> Edge {
        Edge(node.map_addr(|address| address | (kind as usize) << KIND_SHIFT | if skips { SKIPS } else { 0 }))
    }

    #[inline(always)]
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns whether the edge leads to a Node48 or a Node256.
    #[inline(always)]
    pub(super) fn is_large(self) -> bool {
        self.0.addr() & LARGE != 0
    }

    /// Returns the node's kind. The result is meaningless for other edges.
    #[inline(always)]
    pub(super) fn kind(self) -> NodeKind {
        NodeKind::ALL[(self.0.addr() >> KIND_SHIFT) & 3]
    }

    /// Returns whether the node stores a prefix. The result is meaningless for other edges.
    #[inline(always)]
    pub(super) fn skips(self) -> bool {
        self.0.addr() & SKIPS != 0
    }

    /// Returns the node's address without tags. The result is meaningless for other edges.
    #[inline(always)]
    pub(super) fn node_address(self) -> *mut () {
        self.0.map_addr(|address| address & !NODE_TAGS)
    }

    /// Prefetches the edge's target. The edge may be null.
    #[inline(always)]
    pub(super) fn prefetch(self) {
        archipelago_platform::hint::prefetch_read(self.0.cast_const());
    }

    /// Returns the edge as bare bits, for retiring.
    pub(super) fn into_raw(self) -> *mut () {
        self.0
    }

    /// Inverts [`into_raw`](Self::into_raw).
    pub(super) fn from_raw(raw: *mut ()) -> Edge {
        Edge(raw)
    }
}

/// A slot in a node, which contains an edge.
///
/// Writers store with `Release` after they have initialised the edge's target. Readers load with `Acquire`, so
/// they see the target initialised.
pub(super) struct Slot(AtomicPtr<()>);

impl Slot {
    #[inline(always)]
    pub(super) fn load(&self) -> Edge {
        Edge(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn store(&self, edge: Edge) {
        self.0.store(edge.0, Ordering::Release);
    }
}

impl Slot {
    pub(super) const fn empty() -> Slot {
        Slot(AtomicPtr::new(core::ptr::null_mut()))
    }
}
