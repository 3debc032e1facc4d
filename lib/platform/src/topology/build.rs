//! Construction of topologies: the [`Builder`], which checks each of them, and the short texts for synthetic ones.

use core::fmt;

use super::{Cpu, CpuId, Node, NodeId, Topology};

/// Distance of a node to itself and to other nodes if no distances are known: the firmware's convention.
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// The largest number of CPUs of a synthetic topology: a guard against typing errors.
const MAX_CPUS: usize = 1 << 16;

/// The reason why a topology was refused, as a sentence that tells what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError(String);

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TopologyError {}

/// Describes a topology piece by piece; made by [`Topology::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    nodes: Vec<RawNode>,
    cores: Vec<Vec<usize>>,
    distances: Option<Vec<Vec<u32>>>,
    real: bool,
}

#[derive(Clone, Debug)]
struct RawNode {
    os_id: usize,
    cpus: Vec<usize>,
    memory_bytes: Option<u64>,
}

impl Builder {
    /// Adds a node with the operating system's numbers of the node and of its CPUs. Nodes without CPUs are left out of
    /// the topology, since no thread runs on them.
    #[must_use]
    pub fn node(mut self, os_id: usize, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.nodes.push(RawNode { os_id, cpus: cpus.into_iter().collect(), memory_bytes: None });
        self
    }

    /// Sets the memory of the node that was added last.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: Option<u64>) -> Self {
        if let Some(node) = self.nodes.last_mut() {
            node.memory_bytes = bytes;
        }
        self
    }

    /// Declares that these CPUs are the hardware threads of one core. CPUs that are never mentioned have a core of
    /// their own.
    #[must_use]
    pub fn core(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cores.push(cpus.into_iter().collect());
        self
    }

    /// Sets the distances: one row per node, in the order in which the nodes were added, with one entry per node.
    /// Without this call, the distance of a node to itself is 10, and to every other node 20.
    #[must_use]
    pub fn distances(mut self, rows: impl IntoIterator<Item = Vec<u32>>) -> Self {
        self.distances = Some(rows.into_iter().collect());
        self
    }

    /// Marks the topology as read from the operating system.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn real(mut self) -> Self {
        self.real = true;
        self
    }

    /// Checks the description and makes the topology.
    ///
    /// # Errors
    /// If there is no CPU, if a CPU or a node occurs twice, or if the distances have the wrong shape.
    pub fn build(self) -> Result<Topology, TopologyError> {
        self.check()?;
        let kept: Vec<usize> = (0..self.nodes.len()).filter(|&at| !self.nodes[at].cpus.is_empty()).collect();
        let nodes: Vec<Node> = kept.iter().enumerate().map(|(id, &at)| self.nodes[at].named(NodeId(id))).collect();
        let distance = |a: usize, b: usize| match &self.distances {
            Some(rows) => rows[a][b],
            None if a == b => LOCAL,
            None => REMOTE,
        };
        let distances = kept.iter().map(|&a| kept.iter().map(|&b| distance(a, b)).collect()).collect();
        let cpus = self.place_cpus(&nodes);
        let mut topology = Topology { nodes, cpus, distances, spread: Vec::new(), synthetic: !self.real };
        topology.spread = topology.compute_spread();
        Ok(topology)
    }

    fn check(&self) -> Result<(), TopologyError> {
        let mut cpus: Vec<usize> = self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let mut os_ids: Vec<usize> = self.nodes.iter().map(|node| node.os_id).collect();
        cpus.sort_unstable();
        os_ids.sort_unstable();
        if cpus.is_empty() {
            return Err(TopologyError("The topology has no CPU; give at least one node at least one.".into()));
        }
        if let Some(twice) = cpus.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TopologyError(format!("CPU {} is named twice; name each CPU on one node only.", twice[0])));
        }
        if let Some(twice) = os_ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TopologyError(format!("Node {} is named twice; name each node once.", twice[0])));
        }
        let square = |rows: &Vec<Vec<u32>>| rows.iter().chain([&vec![0; rows.len()]]).all(|r| r.len() == os_ids.len());
        if self.distances.as_ref().is_some_and(|rows| !square(rows)) {
            let n = os_ids.len();
            return Err(TopologyError(format!("The distances must be {n} rows of {n} numbers, one per node.")));
        }
        Ok(())
    }

    /// Assigns every CPU its node, its core and its rank in the core, ascending by CPU number.
    fn place_cpus(&self, nodes: &[Node]) -> Vec<Cpu> {
        let mut placed: Vec<(CpuId, NodeId)> =
            nodes.iter().flat_map(|node| node.cpus.iter().map(|&cpu| (cpu, node.id))).collect();
        placed.sort_unstable();
        // A core is identified by its lowest CPU. Cores are numbered in the order of their lowest CPUs.
        let mut leader_of = own_leaders(&placed);
        for core in &self.cores {
            let lowest = core.iter().copied().filter(|cpu| leader_of.contains_key(cpu)).min();
            for cpu in core {
                if let (Some(leader), Some(lowest)) = (leader_of.get_mut(cpu), lowest) {
                    *leader = lowest;
                }
            }
        }
        // For each leader (the lowest CPU of a core): the core's index and the number of its hardware threads assigned
        // so far.
        let mut cores = std::collections::BTreeMap::<usize, (usize, usize)>::new();
        let place = |(id, node): (CpuId, NodeId)| {
            let fresh = cores.len();
            let (core, threads) = cores.entry(leader_of[&id.0]).or_insert((fresh, 0));
            *threads += 1;
            Cpu { id, node, core: *core, smt_rank: *threads - 1 }
        };
        placed.into_iter().map(place).collect()
    }
}

/// Makes every CPU the leader of its own core.
fn own_leaders(placed: &[(CpuId, NodeId)]) -> std::collections::BTreeMap<usize, usize> {
    placed.iter().map(|&(cpu, _)| (cpu.0, cpu.0)).collect()
}

impl RawNode {
    fn named(&self, id: NodeId) -> Node {
        let mut cpus: Vec<CpuId> = self.cpus.iter().copied().map(CpuId).collect();
        cpus.sort_unstable();
        Node { id, os_id: self.os_id, cpus, memory_bytes: self.memory_bytes }
    }
}

impl Topology {
    /// Returns an empty builder of a synthetic topology.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes a topology of `nodes` nodes with `cpus_per_node` CPUs each, without SMT. Node 0 has the first CPUs, node 1
    /// the next, and so on.
    ///
    /// # Panics
    /// If either number is 0, or there would be more than 65 536 CPUs.
    pub fn synthetic(nodes: usize, cpus_per_node: usize) -> Topology {
        Self::parse(&format!("{nodes}x{cpus_per_node}")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Parses a synthetic topology: `4x28` is 4 nodes with 28 CPUs each; `4x28x2` is 4 nodes with 28 cores each, and 2
    /// hardware threads on every core. CPUs are numbered as by Linux on most servers: first one hardware thread of
    /// every core, node by node, then the second ones.
    ///
    /// # Errors
    /// If the text has another form, a number is 0, or there would be more than 65 536 CPUs.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let wrong = |why: &str| {
            TopologyError(format!(
                "The topology \"{text}\" {why}; write NODESxCPUS such as 4x28, or NODESxCORESxTHREADS such as 4x28x2."
            ))
        };
        let parts = text.trim().split('x').map(|part| part.trim().parse::<usize>());
        let parts = parts.collect::<Result<Vec<_>, _>>().map_err(|_| wrong("is not numbers joined by \"x\""))?;
        let (nodes, cores, threads) = match parts[..] {
            [nodes, cores] => (nodes, cores, 1),
            [nodes, cores, threads] => (nodes, cores, threads),
            _ => return Err(wrong("does not have two or three numbers")),
        };
        let total = nodes.checked_mul(cores).and_then(|cores| cores.checked_mul(threads));
        match total {
            Some(0) => return Err(wrong("has a zero in it")),
            Some(1..=MAX_CPUS) => {}
            _ => return Err(wrong("has more than 65536 CPUs")),
        }
        let all_cores = nodes * cores;
        let mut builder = Topology::builder();
        for node in 0..nodes {
            let of_node = move |rank: usize| (0..cores).map(move |core| rank * all_cores + node * cores + core);
            builder = builder.node(node, (0..threads).flat_map(of_node));
        }
        for core in 0..all_cores {
            builder = builder.core((0..threads).map(|rank| rank * all_cores + core));
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_two_and_three_numbers() {
        let topology = Topology::parse(" 4x2 ").unwrap();
        assert_eq!((topology.nodes().len(), topology.cpus().len(), topology.threads_per_core()), (4, 8, 1));
        assert_eq!(topology.nodes()[3].cpus, [CpuId(6), CpuId(7)]);
        let topology = Topology::parse("4x2x2").unwrap();
        assert_eq!((topology.cpus().len(), topology.core_count(), topology.threads_per_core()), (16, 8, 2));
        assert_eq!(topology.nodes()[1].cpus, [2, 3, 10, 11].map(CpuId));
        assert!(topology.is_synthetic());
    }

    #[test]
    fn refuses_bad_texts_with_a_sentence() {
        for bad in ["", "4", "4x", "x", "4x0", "0x4", "4x2x2x2", "-1x2", "four", "99999x99999", "4X2"] {
            let sentence = Topology::parse(bad).unwrap_err().to_string();
            assert!(sentence.contains(&format!("\"{bad}\"")) && sentence.contains("write NODESxCPUS"), "{sentence}");
        }
    }

    #[test]
    fn refuses_contradictions() {
        let error = |builder: Builder| builder.build().unwrap_err().to_string();
        assert!(error(Topology::builder()).contains("no CPU"));
        assert!(error(Topology::builder().node(0, [])).contains("no CPU"));
        assert!(error(Topology::builder().node(0, [1]).node(1, [1])).contains("CPU 1 is named twice"));
        assert!(error(Topology::builder().node(3, [1]).node(3, [2])).contains("Node 3 is named twice"));
        let lame = Topology::builder().node(0, [0]).node(1, [1]).distances([vec![10, 20]]);
        assert!(error(lame).contains("2 rows of 2 numbers"));
    }

    #[test]
    fn leaves_out_nodes_without_cpus() {
        let rows = [vec![10, 17, 28], vec![17, 10, 28], vec![28, 29, 10]];
        let topology = Topology::builder().node(0, [0]).node(1, []).node(2, [1]).distances(rows).build().unwrap();
        assert_eq!(topology.nodes().len(), 2);
        assert_eq!(topology.nodes()[1].os_id, 2);
        assert_eq!(topology.distance(NodeId(1), NodeId(0)), 28);
    }
}
