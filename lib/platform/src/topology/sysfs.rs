//! Reads the topology from Linux's `/sys/devices/system`.
//!
//! The root is a parameter, so that tests can use fixtures. If a node's `distance` or `meminfo`, or a CPU's
//! `thread_siblings_list`, is missing or unreadable, this file is skipped. [`read`] fails if the list of nodes or a
//! node's list of CPUs cannot be read, or if no allowed CPU is found.

use std::fs;
use std::path::Path;

use super::{Builder, CpuId, Topology};

/// Reads the topology under `root` (normally `/sys`), restricted to the `allowed` CPUs. Returns `None` if no usable
/// topology can be read.
pub(super) fn read(root: &Path, allowed: Option<&[CpuId]>) -> Option<Topology> {
    let nodes = root.join("devices/system/node");
    let cpus = root.join("devices/system/cpu");
    let usable = |cpu: &usize| allowed.is_none_or(|allowed| allowed.contains(&CpuId(*cpu)));

    let mut builder = Builder::default().real();
    let mut rows = Vec::new();
    let os_ids = read_list(&nodes.join("online"))?;
    for &os_id in &os_ids {
        let node = nodes.join(format!("node{os_id}"));
        let of_node: Vec<usize> = read_list(&node.join("cpulist"))?.into_iter().filter(usable).collect();
        for &cpu in &of_node {
            if let Some(siblings) = read_list(&cpus.join(format!("cpu{cpu}/topology/thread_siblings_list"))) {
                builder = builder.core(siblings);
            }
        }
        builder = builder.node(os_id, of_node).memory_bytes(read_memory(&node.join("meminfo")));
        rows.push(read_numbers(&node.join("distance")));
    }
    // A row contains one number per online node. If any row does not, the default distances are used.
    if rows.iter().all(|row| row.len() == os_ids.len()) {
        builder = builder.distances(rows);
    }
    builder.build().ok()
}

/// Returns the CPUs or nodes listed in a file, in a format such as `0-3,8`.
fn read_list(file: &Path) -> Option<Vec<usize>> {
    parse_list(fs::read_to_string(file).ok()?.trim())
}

fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut list = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        list.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(list)
}

fn read_numbers(file: &Path) -> Vec<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Returns a node's memory in bytes, from the line `Node 0 MemTotal: 123 kB`.
fn read_memory(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

// Miri's isolation does not permit fixtures in the file system.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::topology::NodeId;

    /// A directory of sysfs files, removed when dropped.
    struct Fixture(PathBuf);

    impl Fixture {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("archipelago-sysfs-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            for (path, text) in files {
                let path = root.join("devices/system").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Fixture(root)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_node() {
        let files = [
            ("node/online", "0\n"),
            ("node/node0/cpulist", "0-1\n"),
            ("node/node0/distance", "10\n"),
            ("node/node0/meminfo", "Node 0 MemTotal:       24684092 kB\nNode 0 MemFree: 1 kB\n"),
        ];
        let topology = read(&Fixture::new("one", &files).0, None).unwrap();
        assert_eq!(topology.nodes().len(), 1);
        assert_eq!(topology.nodes()[0].cpus, [CpuId(0), CpuId(1)]);
        assert_eq!(topology.nodes()[0].memory_bytes, Some(24684092 << 10));
        assert!(!topology.is_synthetic());
    }

    #[test]
    fn two_nodes_with_distances_and_an_affinity_mask() {
        let files = [
            ("node/online", "0-1\n"),
            ("node/node0/cpulist", "0,2\n"),
            ("node/node0/distance", "10 21\n"),
            ("node/node1/cpulist", "1,3\n"),
            ("node/node1/distance", "22 10\n"),
        ];
        let fixture = Fixture::new("two", &files);
        let topology = read(&fixture.0, None).unwrap();
        assert_eq!(topology.distance(NodeId(0), NodeId(1)), 21);
        assert_eq!(topology.distance(NodeId(1), NodeId(0)), 22);
        assert_eq!(topology.node_of(CpuId(3)), Some(NodeId(1)));
        let half = read(&fixture.0, Some(&[CpuId(3)])).unwrap();
        assert_eq!((half.nodes().len(), half.cpus().len(), half.nodes()[0].os_id), (1, 1, 1));
    }

    #[test]
    fn four_nodes_with_smt() {
        let mut files = vec![("node/online".to_string(), "0-3".to_string())];
        for node in 0..4 {
            files.push((format!("node/node{node}/cpulist"), format!("{node},{}", node + 4)));
            for cpu in [node, node + 4] {
                let siblings = format!("{node},{}\n", node + 4);
                files.push((format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings));
            }
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let topology = read(&Fixture::new("four", &files).0, None).unwrap();
        assert_eq!((topology.nodes().len(), topology.core_count(), topology.threads_per_core()), (4, 4, 2));
        assert_eq!(topology.siblings(CpuId(6)).collect::<Vec<_>>(), [CpuId(2), CpuId(6)]);
        assert_eq!(topology.distance(NodeId(0), NodeId(3)), 20, "the default where none are told");
    }

    #[test]
    fn nodes_without_memory_stay_and_nodes_without_cpus_go() {
        let files = [
            ("node/online", "0-2"),
            ("node/node0/cpulist", "0\n"),
            ("node/node0/meminfo", "Node 0 MemTotal: 0 kB"),
            ("node/node0/distance", "10 20 30"),
            ("node/node1/cpulist", "\n"),
            ("node/node1/meminfo", "Node 1 MemTotal: 64 kB"),
            ("node/node1/distance", "20 10 30"),
            ("node/node2/cpulist", "1\n"),
            ("node/node2/meminfo", "Node 2 MemTotal: 64 kB"),
            ("node/node2/distance", "30 31 10"),
        ];
        let topology = read(&Fixture::new("memoryless", &files).0, None).unwrap();
        assert_eq!(topology.nodes().len(), 2);
        assert_eq!(topology.nodes()[0].memory_bytes, Some(0));
        assert_eq!(topology.nodes()[1].os_id, 2);
        assert_eq!(topology.distance(NodeId(1), NodeId(0)), 30);
    }

    #[test]
    fn nothing_to_read() {
        assert_eq!(read(&Fixture::new("none", &[]).0, None), None);
        assert_eq!(read(&Fixture::new("garbage", &[("node/online", "zero")]).0, None), None);
    }

    #[test]
    fn this_machine() {
        let topology = Topology::from_os();
        assert!(!topology.cpus().is_empty());
    }
}
