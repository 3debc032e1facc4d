//! The machines on which every structure is tested: synthetic topologies of several sizes.
//!
//! On a small machine, a synthetic topology distributes the threads over nodes that do not exist. So code for several
//! nodes (replicas, search layers, node-local queues) runs in every test. One node is the simplest case.

use archipelago_platform::topology::Topology;

/// Returns topologies of 1, 2, 4 and 8 nodes with two CPUs each.
pub fn topologies() -> impl Iterator<Item = Topology> {
    [1, 2, 4, 8].into_iter().map(|nodes| Topology::synthetic(nodes, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_sizes_promised() {
        let sizes: Vec<_> = topologies().map(|t| (t.nodes().len(), t.cpus().len(), t.is_synthetic())).collect();
        assert_eq!(sizes, [(1, 2, true), (2, 4, true), (4, 8, true), (8, 16, true)]);
    }
}
