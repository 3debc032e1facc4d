//! The machine's cores in groups. The cores of a group share a NUMA node and a third-level cache. Each group is a
//! socket of the model (the simulator's description of a machine).

use std::fs;
use std::path::PathBuf;

use archipelago_platform::topology::{CpuId, NodeId, Topology};
use archipelago_sim::machine::Cache;

use crate::failure::Failure;

/// A physical core, and the NUMA node whose memory is nearest to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The core's first hardware thread.
    pub cpu: CpuId,
    /// The NUMA node that it belongs to.
    pub node: NodeId,
}

/// The groups, and their distances from each other.
#[derive(Clone, Debug)]
pub struct Places {
    /// The cores of each group.
    pub groups: Vec<Vec<Core>>,
    /// The number of the model's links between two groups: 0 from a group to itself, 1 between groups of one node, and
    /// more between nodes. If no node has several groups, the nearest nodes are 1 link apart.
    pub hops: Vec<Vec<u8>>,
    /// The number of hardware threads per core.
    pub threads_per_core: usize,
    /// Two hardware threads of one core, if any core has two.
    pub siblings: Option<[CpuId; 2]>,
}

/// The greatest numbers of groups and of cores that the model allows.
const MOST_GROUPS: usize = 16;
const MOST_CORES: usize = 256;

impl Places {
    /// Returns the groups of the cores that this process may use.
    ///
    /// # Errors
    /// If the current topology is synthetic (set by `ARCHIPELAGO_TOPOLOGY`), or has more nodes than the model allows.
    pub fn here() -> Result<Places, Failure> {
        let topology = Topology::current();
        if topology.is_synthetic() {
            return Err(Failure::new("only a real machine can be measured: unset ARCHIPELAGO_TOPOLOGY"));
        }
        Places::of(topology, third_level_of)
    }

    /// Returns the groups of a topology. `third_level` returns a number that identifies a CPU's third-level cache. If
    /// there are too many groups for the model, or if their sizes differ, each node is one group.
    fn of(topology: &Topology, third_level: impl Fn(CpuId) -> Option<usize>) -> Result<Places, Failure> {
        let nodes = topology.nodes().len();
        if nodes > MOST_GROUPS {
            let what = format!(
                "this machine has {nodes} NUMA nodes, and the model at most {MOST_GROUPS}; run it on fewer (`numactl`)"
            );
            return Err(Failure::new(what));
        }
        let mut groups = grouped(topology, |core| (core.node, third_level(core.cpu)));
        let is_even = groups.iter().all(|group| group.len() == groups[0].len());
        if groups.len() > MOST_GROUPS || !is_even {
            groups = grouped(topology, |core| core.node);
        }
        let hops = hops(topology, &groups);
        let threads_per_core = topology.threads_per_core();
        let siblings = topology.cpus().iter().find_map(|cpu| {
            let mut both = topology.siblings(cpu.id);
            Some([both.next()?, both.next()?])
        });
        Ok(Places { groups, hops, threads_per_core, siblings })
    }

    /// Returns the number of cores that each socket of the model gets. All sockets have equally many cores, so they
    /// have at most as many as the smallest group. The model also limits the cores of all sockets together.
    pub fn cores_per_group(&self) -> usize {
        let least = self.groups.iter().map(Vec::len).min().unwrap_or(1);
        least.min(MOST_CORES / self.groups.len())
    }

    /// Returns two groups that are `hops` links from each other, if there are any.
    pub fn pair(&self, hops: u8) -> Option<(usize, usize)> {
        let mut all = (0..self.groups.len()).flat_map(|from| (0..self.groups.len()).map(move |to| (from, to)));
        all.find(|(from, to)| self.hops[*from][*to] == hops && from != to)
    }

    /// Returns the greatest number of links between two groups.
    pub fn farthest(&self) -> u8 {
        self.hops.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Returns the first hardware threads of all cores for which `is` returns true.
    pub fn cpus(&self, is: impl Fn(Core) -> bool) -> Vec<CpuId> {
        self.groups.iter().flatten().filter(|core| is(**core)).map(|core| core.cpu).collect()
    }
}

/// Groups the cores by their keys. The groups are in the order of their first CPUs.
fn grouped<K: PartialEq>(topology: &Topology, key: impl Fn(Core) -> K) -> Vec<Vec<Core>> {
    let mut groups: Vec<(K, Vec<Core>)> = Vec::new();
    for cpu in topology.cpus().iter().filter(|cpu| cpu.smt_rank == 0) {
        let core = Core { cpu: cpu.id, node: cpu.node };
        let of = key(core);
        match groups.iter_mut().find(|(key, _)| *key == of) {
            Some((_, group)) => group.push(core),
            None => groups.push((of, vec![core])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns the number of links between each two groups. Between nodes it is the rank of their distance among all
/// distances: the kernel's distances give an order, not times.
fn hops(topology: &Topology, groups: &[Vec<Core>]) -> Vec<Vec<u8>> {
    let node = |group: usize| groups[group][0].node;
    let distance = |a: usize, b: usize| topology.distance(node(a), node(b)).max(topology.distance(node(b), node(a)));
    let all = || (0..groups.len()).flat_map(|a| (0..groups.len()).map(move |b| (a, b)));
    let mut distances: Vec<u32> = all().filter(|(a, b)| node(*a) != node(*b)).map(|(a, b)| distance(a, b)).collect();
    distances.sort_unstable();
    distances.dedup();
    let within = u8::from(all().any(|(a, b)| a != b && node(a) == node(b)));
    let links = |a: usize, b: usize| match () {
        () if a == b => 0,
        () if node(a) == node(b) => within,
        () => {
            let rank = distances.iter().position(|known| *known == distance(a, b)).unwrap_or(0);
            (within + 1 + rank.min(7) as u8).min(8)
        }
    };
    (0..groups.len()).map(|a| (0..groups.len()).map(|b| links(a, b)).collect()).collect()
}

/// Returns a function for each of a CPU's caches. The function reads a file by which the kernel describes this cache.
fn described(cpu: CpuId) -> impl Iterator<Item = impl Fn(&str) -> Option<String>> {
    let folder = move |index| PathBuf::from(format!("/sys/devices/system/cpu/cpu{}/cache/index{index}", cpu.0));
    (0..16)
        .map(folder)
        .take_while(|folder| folder.is_dir())
        .map(|folder| move |file: &str| Some(fs::read_to_string(folder.join(file)).ok()?.trim().to_owned()))
}

/// Returns the first of the CPUs that share this CPU's third-level cache, if the kernel describes the cache.
fn third_level_of(cpu: CpuId) -> Option<usize> {
    let level = described(cpu).find(|read| read("level").as_deref() == Some("3"))?;
    let list = level("shared_cpu_list")?;
    list.split(['-', ',']).next()?.parse().ok()
}

/// Returns a CPU's data cache of a level, if the kernel describes it and the model allows its size.
pub fn cache(cpu: CpuId, level: &str) -> Option<Cache> {
    let is = |read: &dyn Fn(&str) -> Option<String>| {
        read("level").as_deref() == Some(level) && read("type").as_deref() != Some("Instruction")
    };
    let read = described(cpu).find(|read| is(read))?;
    let (sets, ways) = (read("number_of_sets")?.parse().ok()?, read("ways_of_associativity")?.parse().ok()?);
    // The model selects the set of a private cache by bits of the address, so the number of sets must be a power of
    // two.
    let is_one = sets > 0 && (1..=64).contains(&ways) && (level == "3" || usize::is_power_of_two(sets));
    is_one.then_some(Cache { sets, ways })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(topology: &str, per_cache: usize) -> Places {
        Places::of(&Topology::parse(topology).unwrap(), |cpu| Some(cpu.0 / per_cache)).unwrap()
    }

    #[test]
    fn groups_share_a_cache_and_a_node() {
        let two = places("2x4", 4);
        assert_eq!((two.groups.len(), two.cores_per_group(), two.farthest()), (2, 4, 1));
        assert_eq!((two.pair(1), two.pair(2), two.siblings), (Some((0, 1)), None, None));
        let chiplets = places("2x4", 2);
        assert_eq!((chiplets.groups.len(), chiplets.cores_per_group(), chiplets.farthest()), (4, 2, 2));
        assert_eq!(chiplets.hops[0], [0, 1, 2, 2]);
        assert_eq!(chiplets.pair(2), Some((0, 2)));
        // A cache may be shared by several nodes (clusters within a processor). Its cores still form one group per
        // node.
        assert_eq!(places("2x2", 4).groups.len(), 2);
        // If groups are of different sizes, or more than the model allows, each node is one group.
        assert_eq!(places("1x5", 2).groups.len(), 1);
        assert_eq!(places("2x20", 2).groups.len(), 2);
    }

    #[test]
    fn hardware_threads_are_no_cores() {
        let places = places("1x2x2", 8);
        assert_eq!((places.groups.len(), places.groups[0].len(), places.threads_per_core), (1, 2, 2));
        assert!(places.siblings.is_some());
    }

    #[test]
    fn the_model_has_room_for_some() {
        assert_eq!(places("1x1", 1).cores_per_group(), 1);
        assert_eq!(places("2x200", 400).cores_per_group(), 128);
        let error = Places::of(&Topology::synthetic(17, 1), |_| None).unwrap_err().to_string();
        assert!(error.contains("17 NUMA nodes"), "{error}");
    }
}
