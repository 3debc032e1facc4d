//! The topology of the machine: NUMA nodes, their CPUs, the distances between nodes, and the CPUs that share a core.
//!
//! A [`Topology`] is plain data. It is made from the operating system's description ([`Topology::from_os`]), from a
//! short text or two numbers ([`Topology::parse`], [`Topology::synthetic`]), or by a [`Builder`]. The process's own
//! topology is [`Topology::current`]: that of the environment variable `ARCHIPELAGO_TOPOLOGY` if it is set, otherwise
//! that of the operating system. With a synthetic topology, code for many nodes can run on a machine with one node:
//! threads are assigned to nodes, but memory is not moved.
//!
//! Only nodes with CPUs that the process may use are listed. They are numbered densely: a [`NodeId`] is an index into
//! [`Topology::nodes`], not the operating system's number ([`Node::os_id`]). CPU numbers are those of the operating
//! system, because they are used for pinning.

mod build;
mod current;
#[cfg(archipelago_sim)]
mod simulated;
#[cfg(all(target_os = "linux", not(loom)))]
mod sysfs;

use core::fmt;

pub use build::{Builder, TopologyError};
pub use current::current_cpu;
#[cfg(not(loom))]
pub(crate) use current::online_cpus;

/// A NUMA node: an index into [`Topology::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A CPU (hardware thread), by the operating system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub usize);

/// One NUMA node that has CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index in [`Topology::nodes`].
    pub id: NodeId,
    /// The operating system's number of the node.
    pub os_id: usize,
    /// The node's CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Memory of the node in bytes: `Some(0)` for a node without memory, `None` if unknown (for a synthetic topology,
    /// unless its [`Builder`] was told).
    pub memory_bytes: Option<u64>,
}

/// One CPU and its position in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The operating system's number.
    pub id: CpuId,
    /// The node to which the CPU belongs.
    pub node: NodeId,
    /// Dense index of its physical core.
    pub core: usize,
    /// The CPU's number among the hardware threads of its core; 0 for the first.
    pub smt_rank: usize,
}

/// Nodes, CPUs, cores and distances of a machine, real or synthetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    /// Ascending by id.
    cpus: Vec<Cpu>,
    /// `distances[a][b]`: relative cost of an access by node `a` to memory of node `b`; 10 is local.
    distances: Vec<Vec<u32>>,
    /// CPUs in the order that spreads threads over the nodes: see [`spread_order`](Self::spread_order).
    spread: Vec<CpuId>,
    synthetic: bool,
}

impl Topology {
    /// Returns the nodes that have CPUs, at least one.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns all CPUs, ascending by number, at least one.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Returns the CPU with this number, if the topology contains it.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        // Numbers are nearly always dense from 0, so the first guess is usually right.
        match self.cpus.get(id.0) {
            Some(cpu) if cpu.id == id => Some(cpu),
            _ => self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|at| &self.cpus[at]),
        }
    }

    /// Returns the node of a CPU.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.cpu(cpu).map(|cpu| cpu.node)
    }

    /// Returns the relative cost of an access by `from` to memory of `to`, in the firmware's units: 10 is local.
    ///
    /// # Panics
    /// If a node is not in this topology.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances[from.0][to.0]
    }

    /// Returns the number of physical cores.
    pub fn core_count(&self) -> usize {
        self.cpus.iter().filter(|cpu| cpu.smt_rank == 0).count()
    }

    /// Returns the largest number of hardware threads on one core: 1 means no SMT.
    pub fn threads_per_core(&self) -> usize {
        1 + self.cpus.iter().map(|cpu| cpu.smt_rank).max().unwrap_or(0)
    }

    /// Returns the CPUs that share `cpu`'s core, including `cpu`.
    pub fn siblings(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        let core = self.cpu(cpu).map(|cpu| cpu.core);
        self.cpus.iter().filter(move |other| Some(other.core) == core).map(|other| other.id)
    }

    /// Returns whether this topology is synthetic, that is, not read from the operating system.
    pub fn is_synthetic(&self) -> bool {
        self.synthetic
    }

    /// Returns the CPUs node by node. Within a node, one hardware thread of every core comes before the second of any
    /// core.
    pub fn fill_order(&self) -> Vec<CpuId> {
        (0..self.nodes.len()).flat_map(|node| self.node_order(NodeId(node))).collect()
    }

    /// Returns one hardware thread of every core, node by node, then the second of every core, and so on.
    pub fn cores_order(&self) -> Vec<CpuId> {
        let mut cpus: Vec<&Cpu> = self.cpus.iter().collect();
        cpus.sort_by_key(|cpu| (cpu.smt_rank, cpu.node, cpu.id));
        cpus.into_iter().map(|cpu| cpu.id).collect()
    }

    /// Returns the CPUs of the nodes in turn: one of each node, then the next of each node. Within a node, the order is
    /// that of [`fill_order`](Self::fill_order).
    pub fn spread_order(&self) -> &[CpuId] {
        &self.spread
    }

    fn node_order(&self, node: NodeId) -> Vec<CpuId> {
        let mut cpus: Vec<&Cpu> = self.cpus.iter().filter(|cpu| cpu.node == node).collect();
        cpus.sort_by_key(|cpu| (cpu.smt_rank, cpu.id));
        cpus.into_iter().map(|cpu| cpu.id).collect()
    }

    fn compute_spread(&self) -> Vec<CpuId> {
        let per_node: Vec<Vec<CpuId>> = self.nodes.iter().map(|node| self.node_order(node.id)).collect();
        let rounds = per_node.iter().map(Vec::len).max().unwrap_or(0);
        (0..rounds).flat_map(|round| per_node.iter().filter_map(move |cpus| cpus.get(round).copied())).collect()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.synthetic { "synthetic" } else { "real" };
        let (nodes, cores, cpus) = (self.nodes.len(), self.core_count(), self.cpus.len());
        write!(f, "{kind}: {nodes} node(s), {cores} core(s), {cpus} CPU(s)")?;
        for node in &self.nodes {
            write!(f, "\n  node {} (OS node {}): CPUs {}", node.id.0, node.os_id, Ranges(&node.cpus))?;
            if let Some(bytes) = node.memory_bytes {
                write!(f, ", {} MiB", bytes >> 20)?;
            }
            if nodes > 1 {
                write!(f, ", distances {:?}", self.distances[node.id.0])?;
            }
        }
        Ok(())
    }
}

/// Displays ascending CPU numbers in Linux's notation: `0-3,8`.
struct Ranges<'a>(&'a [CpuId]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a.0 + 1 == b.0);
        for (at, run) in runs.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match run {
                [one] => write!(f, "{comma}{}", one.0)?,
                [first, .., last] => write!(f, "{comma}{}-{}", first.0, last.0)?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_take_cores_before_siblings() {
        let topology = Topology::parse("2x2x2").unwrap();
        let fill: Vec<usize> = topology.fill_order().iter().map(|cpu| cpu.0).collect();
        assert_eq!(fill, [0, 1, 4, 5, 2, 3, 6, 7]);
        let cores: Vec<usize> = topology.cores_order().iter().map(|cpu| cpu.0).collect();
        assert_eq!(cores, [0, 1, 2, 3, 4, 5, 6, 7]);
        let spread: Vec<usize> = topology.spread_order().iter().map(|cpu| cpu.0).collect();
        assert_eq!(spread, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(topology.siblings(CpuId(5)).collect::<Vec<_>>(), [CpuId(1), CpuId(5)]);
    }

    #[test]
    fn shows_ranges() {
        let cpus = [0, 1, 2, 5, 7, 8].map(CpuId);
        assert_eq!(Ranges(&cpus).to_string(), "0-2,5,7-8");
        let text = Topology::synthetic(2, 4).to_string();
        assert!(
            text.starts_with("synthetic: 2 node(s), 8 core(s), 8 CPU(s)\n  node 0 (OS node 0): CPUs 0-3"),
            "{text}"
        );
    }

    #[test]
    fn finds_cpus_with_sparse_numbers() {
        let topology = Topology::builder().node(0, [2, 3]).node(1, [10, 12]).build().unwrap();
        assert_eq!(topology.node_of(CpuId(12)), Some(NodeId(1)));
        assert_eq!(topology.node_of(CpuId(3)), Some(NodeId(0)));
        assert_eq!(topology.node_of(CpuId(1)), None);
        assert_eq!(topology.distance(NodeId(0), NodeId(1)), 20);
        assert_eq!(topology.distance(NodeId(1), NodeId(1)), 10);
    }
}
