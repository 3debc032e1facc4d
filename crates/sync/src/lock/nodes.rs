//! NUMA nodes as the locks see them: how many, and which one is near.

use archipelago_platform::topology::Topology;

/// Number of nodes. In the model world there are two: the first for a model's first two threads, the other for the rest.
#[inline]
pub(super) fn count() -> usize {
    if cfg!(loom) { 2 } else { Topology::current().nodes().len() }
}

/// The node that the calling thread runs on, below [`count`]. May be stale; nothing right or wrong depends on it.
#[inline]
pub(super) fn here() -> usize {
    if cfg!(loom) { archipelago_platform::thread::slot().index / 2 % 2 } else { Topology::current().node_of_current() }
}
