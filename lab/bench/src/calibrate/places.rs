//! Where the machine's cores are: in groups that share a third level, which are the model's sockets.

use std::fs;
use std::path::PathBuf;

use archipelago_platform::topology::{CpuId, NodeId, Topology};
use archipelago_sim::machine::Cache;

use crate::failure::Failure;

/// A hardware thread, and the node whose memory is nearest to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The core's first hardware thread.
    pub cpu: CpuId,
    /// The node that it is in.
    pub node: NodeId,
}

/// The groups, and how far they are from each other.
#[derive(Clone, Debug)]
pub struct Places {
    /// The cores of each group.
    pub groups: Vec<Vec<Core>>,
    /// The model's links between two groups: none within one, one between those of a node, more between nodes.
    pub hops: Vec<Vec<u8>>,
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// Two hardware threads of one core.
    pub siblings: Option<[CpuId; 2]>,
}

/// What the model has room for.
const MOST_GROUPS: usize = 16;
const MOST_CORES: usize = 256;

impl Places {
    /// Those that this process may use.
    ///
    /// # Errors
    /// If the topology in force is an imagined one, or has more nodes than the model.
    pub fn here() -> Result<Places, Failure> {
        let topology = Topology::current();
        if topology.is_synthetic() {
            return Err(Failure::new("only a real machine can be measured: unset ARCHIPELAGO_TOPOLOGY"));
        }
        Places::of(topology, third_level_of)
    }

    /// Those of a topology, where `third_level` names a CPU's third level by any one number.
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

    /// Cores that each group of the model can have: all groups have as many, and the model has room for a number of them.
    pub fn cores_per_group(&self) -> usize {
        let least = self.groups.iter().map(Vec::len).min().unwrap_or(1);
        least.min(MOST_CORES / self.groups.len())
    }

    /// Two groups that are so many links from each other.
    pub fn pair(&self, hops: u8) -> Option<(usize, usize)> {
        let mut all = (0..self.groups.len()).flat_map(|from| (0..self.groups.len()).map(move |to| (from, to)));
        all.find(|(from, to)| self.hops[*from][*to] == hops && from != to)
    }

    /// The most links between two groups.
    pub fn farthest(&self) -> u8 {
        self.hops.iter().flatten().copied().max().unwrap_or(0)
    }

    /// The CPUs of all cores that fulfil a condition.
    pub fn cpus(&self, is: impl Fn(Core) -> bool) -> Vec<CpuId> {
        self.groups.iter().flatten().filter(|core| is(**core)).map(|core| core.cpu).collect()
    }
}

/// The cores in groups of the same key, in the order of their first CPUs.
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

/// Links between groups: nodes are the farther the greater their distance, which is a rank here and no time.
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

/// A file that describes a CPU's caches, for each of them.
fn described(cpu: CpuId) -> impl Iterator<Item = impl Fn(&str) -> Option<String>> {
    let folder = move |index| PathBuf::from(format!("/sys/devices/system/cpu/cpu{}/cache/index{index}", cpu.0));
    (0..16)
        .map(folder)
        .take_while(|folder| folder.is_dir())
        .map(|folder| move |file: &str| Some(fs::read_to_string(folder.join(file)).ok()?.trim().to_owned()))
}

/// The first CPU of those that share a CPU's third level.
fn third_level_of(cpu: CpuId) -> Option<usize> {
    let level = described(cpu).find(|read| read("level").as_deref() == Some("3"))?;
    let list = level("shared_cpu_list")?;
    list.split(['-', ',']).next()?.parse().ok()
}

/// A CPU's cache for data of a level, if the kernel describes it.
pub fn cache(cpu: CpuId, level: &str) -> Option<Cache> {
    let is = |read: &dyn Fn(&str) -> Option<String>| {
        read("level").as_deref() == Some(level) && read("type").as_deref() != Some("Instruction")
    };
    let read = described(cpu).find(|read| is(read))?;
    let (sets, ways) = (read("number_of_sets")?.parse().ok()?, read("ways_of_associativity")?.parse().ok()?);
    // Private caches' sets are picked by bits of the address.
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
        // Caches across nodes, as with clusters within a processor, make no group of two nodes.
        assert_eq!(places("2x2", 4).groups.len(), 2);
        // Uneven ones, and more than the model has, are one group a node.
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
