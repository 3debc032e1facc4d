//! The machines every structure is tested on: imagined topologies of several sizes.
//!
//! On a small machine a synthetic topology spreads the threads over nodes that are not there, so that code for several
//! nodes (replicas, search layers, node-local queues) runs in every test, with one node as the simplest case.

use archipelago_platform::topology::Topology;

/// Topologies of 1, 2, 4 and 8 nodes with two CPUs each.
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
