//! The machines that come with the crate.

use std::collections::BTreeMap;

use super::{Cache, Caches, Latency, Machine, Occupancy, Os, Transactions};

/// The names of all presets.
pub const PRESETS: [&str; 7] = [
    "xeon-e7-4850v3-4s",
    "xeon-e7-8870v3-4s",
    "xeon-8180-8s",
    "xeon-8180-4s",
    "xeon-e5-4620-4s",
    "epyc-2s-chiplets",
    "this-host",
];

impl Machine {
    /// The preset of this name (see [`PRESETS`]).
    pub fn preset(name: &str) -> Option<Machine> {
        PRESETS.contains(&name).then(|| haswell(name, 14))
    }
}

fn haswell(name: &str, cores: usize) -> Machine {
    Machine {
        name: name.to_string(),
        sockets: 4,
        cores_per_socket: cores,
        threads_per_core: 2,
        hops: (0..4).map(|a| (0..4).map(|b| u8::from(a != b)).collect()).collect(),
        smt_slowdown: 1.5,
        caches: Caches {
            l1: Cache { sets: 64, ways: 8 },
            l2: Cache { sets: 512, ways: 8 },
            l3: Cache { sets: 2048 * cores, ways: 20 },
            l3_inclusive: true,
        },
        latency: Latency {
            l1: 1.8,
            l2: 5.5,
            l3: 25.0,
            core_to_core: 48.0,
            dirty_remote: vec![0.0, 190.0],
            clean_remote: vec![0.0, 150.0],
            memory: vec![135.0, 198.0],
            locked: 8.0,
            fence: 15.0,
            pause: 5.0,
            clock: 10.0,
        },
        occupancy: Occupancy {
            transfer: 0.7,
            shared_read: 6.0,
            memory: 1.2,
            link: 4.0,
            local_bypass: 8,
            miss_buffers: 10,
        },
        transactions: Some(Transactions { begin: 15.0, commit: 10.0, abort: 70.0, read_lines: 4096, spurious: 0.0002 }),
        os: Os { call: 300.0, wake: 4000.0 },
        sources: BTreeMap::new(),
    }
}
