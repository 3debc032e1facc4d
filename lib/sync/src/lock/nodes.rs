//! NUMA nodes as the locks see them: how many, and which one is near.

use archipelago_platform::topology::Topology;

/// Returns the number of nodes. Under loom there are two.
#[inline]
pub(crate) fn count() -> usize {
    if cfg!(loom) { 2 } else { Topology::current().nodes().len() }
}

/// Returns the node that the calling thread runs on, below [`count`]. The result may be stale; correctness does not
/// depend on it.
#[cfg(not(loom))]
#[inline]
pub(crate) fn here() -> usize {
    Topology::current().node_of_current()
}

#[cfg(loom)]
archipelago_platform::thread::thread_local! {
    static NODE: core::cell::Cell<usize> = core::cell::Cell::new(0);
}

/// Returns the node on which the model has put the calling thread; by default the first.
#[cfg(loom)]
pub(crate) fn here() -> usize {
    NODE.with(core::cell::Cell::get)
}

/// Puts the calling thread on a node.
#[cfg(loom)]
pub fn be_on_node(node: usize) {
    assert!(node < count());
    NODE.with(|cell| cell.set(node));
}
