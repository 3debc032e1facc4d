//! The machines that come with the crate.
//!
//! They were fixed before any structure was run on them, and no number was changed because of a structure's result. On
//! 2026-11-28 some were changed because of publications: `docs/virtual-machine.md`, *Machines*. Every number has its
//! source below; "estimate" means that no measurement is known. The beginning of a source tells the
//! number's [`Origin`](super::Origin).

use super::{Cache, Caches, Latency, Machine, Occupancy, Os, Transactions, some_overlap};

/// The names of all presets.
pub const PRESETS: [&str; 8] = [
    "xeon-e7-4850v3-4s",
    "xeon-e7-8870v3-4s",
    "xeon-8180-8s",
    "xeon-8180-4s",
    "xeon-e5-4620-4s",
    "xeon-e5-2650v3-2s",
    "epyc-2s-chiplets",
    "this-host",
];

/// The source of numbers for which no measurement is known.
const ESTIMATE: &str = "estimate";

/// Pairs of the beginning of a field's name and a source. A field has the source of the first pair that fits its name.
type Sources = &'static [(&'static str, &'static str)];

impl Machine {
    /// Returns the preset with this name (see [`PRESETS`]).
    pub fn preset(name: &str) -> Option<Machine> {
        let (machine, sources) = match name {
            "xeon-e7-4850v3-4s" => (haswell_ex(name, 14, 2.2), HASWELL_EX),
            "xeon-e7-8870v3-4s" => (haswell_ex(name, 18, 2.1), HASWELL_EX),
            "xeon-8180-8s" => (skylake_sp(name, 8, cube()), SKYLAKE_SP),
            "xeon-8180-4s" => (skylake_sp(name, 4, mesh(4)), SKYLAKE_SP),
            "xeon-e5-4620-4s" => (sandy_bridge_ep(name), SANDY_BRIDGE_EP),
            "xeon-e5-2650v3-2s" => (haswell_ep(name), HASWELL_EP),
            "epyc-2s-chiplets" => (rome(name), ROME),
            "this-host" => (this_host(name), THIS_HOST),
            _ => return None,
        };
        Some(with_sources(machine, sources))
    }
}

fn with_sources(mut machine: Machine, sources: Sources) -> Machine {
    for number in machine.numbers() {
        let found = sources.iter().find(|(field, _)| number.field.starts_with(field));
        machine.sources.insert(number.field, found.map_or(ESTIMATE, |found| found.1).to_string());
    }
    machine
}

/// Returns the distances of sockets that are all linked to each other.
fn mesh(sockets: usize) -> Vec<Vec<u8>> {
    (0..sockets).map(|a| (0..sockets).map(|b| u8::from(a != b)).collect()).collect()
}

/// Returns the distances of sockets on a ring.
fn ring(sockets: usize) -> Vec<Vec<u8>> {
    let distance = |a: usize, b: usize| a.abs_diff(b).min(sockets - a.abs_diff(b)) as u8;
    (0..sockets).map(|a| (0..sockets).map(|b| distance(a, b)).collect()).collect()
}

/// Returns the distances of eight sockets with three links each, along the edges of a cube. Sockets at opposite
/// corners of a face or of the cube count as two links apart.
fn cube() -> Vec<Vec<u8>> {
    let hops = |a: usize, b: usize| (a ^ b).count_ones().min(2) as u8;
    (0..8).map(|a| (0..8).map(|b| hops(a, b)).collect()).collect()
}

/// The costs of RTM (Intel's hardware transactions), measured on a machine that has it. They were fixed before any
/// structure used transactions.
const TX_COST: [(&str, &str); 3] = [
    ("transactions.begin", "measured: Sapphire Rapids, an empty transaction takes 12.4-17.6 ns in all"),
    ("transactions.commit", "measured: Sapphire Rapids, an empty transaction takes 12.4-17.6 ns in all"),
    ("transactions.abort", "measured: Sapphire Rapids, beginning and an explicit abort take 57.9-62.3 ns in all"),
];
const TX_TIMER: (&str, &str) =
    ("transactions.timer", "published: Linux, CONFIG_HZ=250, the default of its x86 configuration");
const TX_SPURIOUS: (&str, &str) = (
    "transactions.spurious",
    "measured: Sapphire Rapids, virtual machine: status 0 once per 1.2-1.4 ms of transaction, timer included",
);

/// How many misses of a stream a core overlaps.
const OVERLAP: (&str, &str) = (
    "overlap",
    "published: LPD-EPFL/mctop, Haswell-EX: one core reads 8.2 GB/s at 126 ns a line, 16 lines at a time; other \
     servers 10 to 20, a Cascade Lake without prefetchers 11",
);
const MLC_HASWELL: &str = "published: FD.io CSIT, MLC, two 18-core Haswell-EP: 47 ns within a socket, 107-108 ns \
     beyond, memory 99-101 and 132-141 ns, 57.9 GB/s";

const HASWELL_EX: Sources = &[
    OVERLAP,
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("sockets", "published: the paper's machine"),
    ("cores_per_socket", "published: Intel ARK"),
    ("threads_per_core", "published: Intel ARK"),
    ("caches.l1", "published: Intel Optimization Reference Manual, Haswell: 32 KiB, 8 ways"),
    ("caches.l2", "published: Intel Optimization Reference Manual, Haswell: 256 KiB, 8 ways"),
    ("caches.l3", "published: Intel ARK: 2.5 MiB per core; 20 ways: CPUID of Haswell-EX"),
    ("latency.l1", "published: Intel Optimization Reference Manual, Haswell: 4 cycles, at nominal frequency"),
    ("latency.l2", "published: Intel Optimization Reference Manual, Haswell: 12 cycles, at nominal frequency"),
    ("latency.core_to_core", MLC_HASWELL),
    (
        "latency.dirty_remote.1",
        "published: LPD-EPFL/mctop, 4-socket Haswell-EX: compare-and-exchange at most 161 ns, here without the \
         locked instruction's 8",
    ),
    ("latency.memory.0", "published: Intel blog 2014: MLC, E7-4800: 135-136 ns"),
    ("latency.memory.1", "published: Intel blog 2014: MLC, E7-4800: 194-202 ns"),
    TX_COST[0],
    TX_COST[1],
    TX_COST[2],
    TX_TIMER,
    TX_SPURIOUS,
    (
        "occupancy.link",
        "published: LPD-EPFL/mctop, 4-socket Haswell-EX: 12.5-12.8 GB/s over one link, 8.0 GT/s (14 cores); Intel \
         community 1082670: 30.3-30.6 GB/s over two links of 9.6 GT/s (18 cores)",
    ),
    (
        "transactions.read_lines",
        "measured: on Sapphire Rapids reads leave with the second level (half of it holds, all never); here: 1 MiB",
    ),
];

/// Returns a machine of 4 sockets, fully connected by QPI. With 14 cores it is the machine of the NR paper, and with
/// 18 cores that of the RCX authors.
fn haswell_ex(name: &str, cores: usize, ghz: f64) -> Machine {
    Machine {
        name: name.to_string(),
        sockets: 4,
        cores_per_socket: cores,
        threads_per_core: 2,
        hops: mesh(4),
        smt_slowdown: 1.5,
        overlap: some_overlap(),
        caches: Caches {
            l1: Cache { sets: 64, ways: 8 },
            l2: Cache { sets: 512, ways: 8 },
            l3: Cache { sets: 2048 * cores, ways: 20 },
            l3_inclusive: true,
        },
        latency: Latency {
            l1: 4.0 / ghz,
            l2: 12.0 / ghz,
            l3: 25.0,
            core_to_core: 48.0,
            dirty_remote: vec![0.0, 153.0],
            clean_remote: vec![0.0, 135.0],
            memory: vec![135.0, 198.0],
            locked: 8.0,
            fence: 15.0,
            pause: 4.5,
            clock: 11.0,
        },
        occupancy: Occupancy {
            transfer: 1.0,
            hold: 0.0,
            shared_read: 6.0,
            memory: 1.1,
            link: if cores == 18 { 4.2 } else { 5.0 },
            local_bypass: 4,
            miss_buffers: 10,
        },
        transactions: Some(Transactions {
            begin: 11.0,
            commit: 7.0,
            abort: 50.0,
            read_lines: 65536,
            timer: 4e6,
            spurious: 2e6,
        }),
        os: Os { call: 300.0, wake: 4000.0 },
        sources: Default::default(),
    }
}

const HASWELL_EP: Sources = &[
    OVERLAP,
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("sockets", "published: the paper's machine"),
    ("cores_per_socket", "published: the paper's machine"),
    ("threads_per_core", "published: Intel ARK"),
    ("caches.l1", "published: Intel Optimization Reference Manual, Haswell: 32 KiB, 8 ways"),
    ("caches.l2", "published: Intel Optimization Reference Manual, Haswell: 256 KiB, 8 ways"),
    ("caches.l3", "published: the paper: 25 MB; 20 ways: as Haswell-EX"),
    ("latency.l1", "published: Intel Optimization Reference Manual, Haswell: 4 cycles, at nominal frequency"),
    ("latency.l2", "published: Intel Optimization Reference Manual, Haswell: 12 cycles, at nominal frequency"),
    ("latency.l3", MOLKA_READ),
    ("latency.core_to_core", MOLKA_READ),
    ("latency.dirty_remote", MLC_HASWELL),
    ("latency.clean_remote", MOLKA),
    ("latency.memory", MLC_HASWELL),
    ("occupancy.memory", MLC_HASWELL),
    ("occupancy.link", "published: Intel community 1082670: 30.3-30.6 GB/s over both links"),
    TX_COST[0],
    TX_COST[1],
    TX_COST[2],
    TX_TIMER,
    TX_SPURIOUS,
    ("transactions.read_lines", "published: Nakaike et al., ISCA 2015: Haswell holds 4 MB of transactional loads"),
];
const MOLKA_READ: &str =
    "published: Molka et al., ICPP 2015, E5-2680 v3, as quoted in issue 735 of snabbco/snabb: 21.2 and 49-53 ns";
const MOLKA: &str =
    "Molka et al., ICPP 2015, E5-2680 v3 (12 cores), source snoop; recalled and rounded, not read again";

/// Returns a machine of 2 sockets of 10 cores with two QPI links between them: the machine of the Eunomia paper.
fn haswell_ep(name: &str) -> Machine {
    let machine = haswell_ex(name, 10, 2.3);
    Machine {
        sockets: 2,
        hops: mesh(2),
        latency: Latency {
            l3: 21.0,
            core_to_core: 49.0,
            dirty_remote: vec![0.0, 113.0],
            clean_remote: vec![0.0, 104.0],
            memory: vec![96.0, 146.0],
            ..machine.latency.clone()
        },
        occupancy: Occupancy { link: 2.0, ..machine.occupancy },
        ..machine
    }
}

const MLC_SKYLAKE: &str = "published: FD.io CSIT, MLC, two Xeon 8180: 50.3-53.7 ns within a socket, memory 81 ns, \
     107.9 GB/s from it, 50.95 GB/s over three links";

const SECOND_LINK: &str =
    "guess: 1.4 times the first link's, as on Westmere-EX (LPD-EPFL/mctop: 1.34 times; David et al., SOSP 2013: 1.38)";

const SKYLAKE_SP: Sources = &[
    OVERLAP,
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("sockets", "published: the paper's machine"),
    ("cores_per_socket", "published: Intel ARK"),
    ("threads_per_core", "published: Intel ARK"),
    ("caches.l1", "published: Intel Optimization Reference Manual, Skylake-SP: 32 KiB, 8 ways"),
    ("caches.l2", "published: Intel Optimization Reference Manual, Skylake-SP: 1 MiB, 16 ways"),
    (
        "caches.l3",
        "published: Intel Optimization Reference Manual, Skylake-SP: 1.375 MiB per core, 11 ways, not inclusive",
    ),
    ("latency.l1", "published: AnandTech 14694, Xeon 8280: 4 cycles; at 2.5 GHz"),
    ("latency.l2", "published: AnandTech 14694, Xeon 8280: 14 cycles; at 2.5 GHz"),
    ("latency.l3", "published: AnandTech 14694, Xeon 8280: 46 cycles; at 2.5 GHz"),
    ("latency.core_to_core", MLC_SKYLAKE),
    (
        "latency.dirty_remote.1",
        "FD.io CSIT, MLC, two Xeon 8180: 109-114 ns or 171-178 ns, by the line's home; guess for more sockets",
    ),
    ("latency.memory.0", MLC_SKYLAKE),
    ("latency.memory.1", "FD.io CSIT, MLC, two Xeon 8180: 131-145 ns; guess for more sockets"),
    ("occupancy.memory", MLC_SKYLAKE),
    ("occupancy.link", MLC_SKYLAKE),
    ("latency.dirty_remote.2", SECOND_LINK),
    ("latency.clean_remote.2", SECOND_LINK),
    ("latency.memory.2", "guess: a second link costs about what the first one does (LPD-EPFL/mctop, Westmere-EX)"),
    ("latency.pause", "published: Intel Optimization Reference Manual, Skylake: up to 140 cycles"),
    ("transactions.read_lines", "published: Nakaike et al., ISCA 2015: Haswell holds 4 MB of transactional loads"),
];

/// Returns a machine of 4 sockets, fully connected by UPI, or 8 sockets in a cube: the machine of the HydraList and
/// MV-RLU papers.
fn skylake_sp(name: &str, sockets: usize, hops: Vec<Vec<u8>>) -> Machine {
    let ghz = 2.5;
    Machine {
        sockets,
        hops,
        caches: Caches {
            l1: Cache { sets: 64, ways: 8 },
            l2: Cache { sets: 1024, ways: 16 },
            l3: Cache { sets: 2048 * 28, ways: 11 },
            l3_inclusive: false,
        },
        latency: Latency {
            l1: 4.0 / ghz,
            l2: 14.0 / ghz,
            l3: 46.0 / ghz,
            core_to_core: 50.0,
            dirty_remote: vec![0.0, 130.0, 185.0],
            clean_remote: vec![0.0, 115.0, 170.0],
            memory: vec![85.0, 145.0, 205.0],
            locked: 7.2,
            fence: 13.0,
            pause: 56.0,
            clock: 10.0,
        },
        occupancy: Occupancy {
            transfer: 1.0,
            hold: 0.0,
            shared_read: 6.0,
            memory: 0.6,
            link: 3.75,
            local_bypass: 4,
            miss_buffers: 12,
        },
        transactions: skylake_tx(),
        ..haswell_ex(name, 28, ghz)
    }
}

/// Returns transactions as on Haswell, but with at most as many read lines as the second level has. The third level is
/// not inclusive, so read lines are tracked in the second level.
fn skylake_tx() -> Option<Transactions> {
    haswell_ex("", 28, 2.5).transactions.map(|tx| Transactions { read_lines: 16384, ..tx })
}

const SANDY_BRIDGE_EP: Sources = &[
    (
        "occupancy.link",
        "guess: of 7.2 GT/s as large a part as Haswell's links carry; Ivy Bridge's carry somewhat less (LPD-EPFL/mctop)",
    ),
    (
        "latency.core_to_core",
        "nviennot/core-to-core-latency: compare-and-exchange 32.4 ns at 2.9 GHz; LPD-EPFL/mctop: 40.0 ns, Ivy Bridge",
    ),
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("sockets", "published: the paper's machine"),
    ("cores_per_socket", "published: Intel ARK"),
    ("threads_per_core", "published: Intel ARK"),
    ("hops", "two QPI links per socket: a ring"),
    ("caches.l1", "published: Intel Optimization Reference Manual, Sandy Bridge: 32 KiB, 8 ways"),
    ("caches.l2", "published: Intel Optimization Reference Manual, Sandy Bridge: 256 KiB, 8 ways"),
    ("caches.l3", "published: Intel ARK: 16 MiB"),
    ("latency.l1", "published: Intel Optimization Reference Manual, Sandy Bridge: 4 cycles; at 2.2 GHz"),
    ("latency.l2", "published: Intel Optimization Reference Manual, Sandy Bridge: 12 cycles; at 2.2 GHz"),
];

/// Returns a machine of 4 sockets on a ring, without transactions.
fn sandy_bridge_ep(name: &str) -> Machine {
    let machine = haswell_ex(name, 8, 2.2);
    Machine {
        hops: ring(4),
        caches: Caches { l3: Cache { sets: 16384, ways: 16 }, ..machine.caches },
        latency: Latency {
            l3: 18.0,
            core_to_core: 40.0,
            dirty_remote: vec![0.0, 180.0, 270.0],
            clean_remote: vec![0.0, 150.0, 240.0],
            memory: vec![75.0, 200.0, 290.0],
            ..machine.latency.clone()
        },
        occupancy: Occupancy { memory: 1.8, link: 5.6, ..machine.occupancy },
        transactions: None,
        ..machine
    }
}

const ROME: Sources = &[
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("caches.l1", "published: AnandTech 14694, EPYC 7742: 32 KiB"),
    ("caches.l2", "published: AnandTech 14694, EPYC 7742: 512 KiB"),
    ("caches.l3", "published: AnandTech 14694, EPYC 7742: 16 MiB per group of 4 cores"),
    ("latency.l1", "published: AnandTech 14694, EPYC 7742: 4 cycles at 3.4 GHz"),
    ("latency.l2", "published: AnandTech 14694, EPYC 7742: 13 cycles at 3.4 GHz"),
    ("latency.l3", "published: AnandTech 14694, EPYC 7742: 10.27 ns"),
    ("latency.memory.0", "published: AnandTech 14694, EPYC 7742: 113 ns, four nodes per socket"),
    ("latency.memory.1", "published: AnandTech 14694, EPYC 7742: 122 ns, one node per socket"),
];

/// Returns a machine of 2 packages, each with 8 core groups of 4 cores. A core group is a socket of the model.
/// Another group of the same package is one hop away, and a group of the other package two hops.
fn rome(name: &str) -> Machine {
    let groups = 16_usize;
    let hops = |a: usize, b: usize| if a == b { 0 } else { 1 + u8::from(a / 8 != b / 8) };
    let machine = haswell_ex(name, 4, 3.4);
    Machine {
        sockets: groups,
        hops: (0..groups).map(|a| (0..groups).map(|b| hops(a, b)).collect()).collect(),
        caches: Caches {
            l1: Cache { sets: 64, ways: 8 },
            l2: Cache { sets: 1024, ways: 8 },
            l3: Cache { sets: 16384, ways: 16 },
            l3_inclusive: false,
        },
        latency: Latency {
            l1: 4.0 / 3.4,
            l2: 13.0 / 3.4,
            l3: 10.27,
            core_to_core: 25.0,
            dirty_remote: vec![0.0, 105.0, 220.0],
            clean_remote: vec![0.0, 105.0, 220.0],
            memory: vec![113.0, 122.0, 200.0],
            locked: 3.0,
            fence: 10.0,
            pause: 19.0,
            clock: 11.0,
        },
        occupancy: Occupancy { memory: 1.6, link: 2.0, ..machine.occupancy },
        transactions: None,
        ..machine
    }
}

const THIS_HOST: Sources = &[
    ("occupancy.transfer", "calibrated: a compare-and-exchange ping-pong takes one transfer each way"),
    ("sockets", "measured: lscpu"),
    ("cores_per_socket", "measured: lscpu"),
    ("threads_per_core", "measured: lscpu"),
    ("caches", "measured: lscpu; AMD Zen 3"),
    ("latency.l1", "measured: chain of dependent loads over 16 KiB"),
    ("latency.l2", "measured: chain of dependent loads over 256 KiB"),
    ("latency.l3", "measured: chain of dependent loads over 4 MiB"),
    ("latency.core_to_core", "measured: compare-and-exchange ping-pong, one way, 116-148 ns"),
    ("latency.memory.0", "measured: chain of dependent loads over 256 MiB"),
    ("latency.locked", "measured: private fetch_add, 2.36 ns, less the first-level hit"),
    ("latency.fence", "measured: store and fence, 2.35 ns"),
    ("latency.pause", "measured: one turn"),
    ("latency.clock", "measured: rdtsc"),
    ("occupancy.hold", "measured: fetch_add contended by two, 5-7 ns each, while a transfer takes 120 ns"),
];

/// Returns the two virtual processors of an EPYC (Zen 3), on which the model is compared with native runs.
fn this_host(name: &str) -> Machine {
    let machine = rome(name);
    Machine {
        sockets: 1,
        cores_per_socket: 2,
        threads_per_core: 1,
        hops: mesh(1),
        caches: Caches { l3: Cache { sets: 32768, ways: 16 }, ..machine.caches },
        latency: Latency {
            l1: 2.05,
            l2: 4.34,
            l3: 20.2,
            core_to_core: 120.0,
            dirty_remote: vec![0.0],
            clean_remote: vec![0.0],
            memory: vec![213.0],
            locked: 0.3,
            fence: 2.0,
            pause: 24.3,
            clock: 11.2,
        },
        occupancy: Occupancy { hold: 85.0, ..machine.occupancy },
        ..machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_every_number_has_a_source() {
        for name in PRESETS {
            let machine = Machine::preset(name).unwrap();
            assert_eq!(machine.name, name);
            machine.check().unwrap();
            for number in machine.numbers() {
                assert!(!machine.sources[&number.field].is_empty(), "{name}: {}", number.field);
            }
        }
        assert!(Machine::preset("pdp-11").is_none());
    }

    #[test]
    fn presets_have_the_sizes_of_the_papers() {
        let cpus = PRESETS.map(|name| Machine::preset(name).unwrap().cpus());
        assert_eq!(cpus, [112, 144, 448, 224, 64, 40, 128, 2]);
        let l3 = Machine::preset("xeon-e7-4850v3-4s").unwrap().caches.l3.bytes();
        assert_eq!(l3, 35 << 20);
    }

    #[test]
    fn every_source_names_a_field() {
        for (machine, sources) in [
            ("xeon-e7-4850v3-4s", HASWELL_EX),
            ("xeon-8180-8s", SKYLAKE_SP),
            ("xeon-e5-2650v3-2s", HASWELL_EP),
            ("epyc-2s-chiplets", ROME),
            ("this-host", THIS_HOST),
        ] {
            let numbers = Machine::preset(machine).unwrap().numbers();
            for (field, _) in sources {
                assert!(numbers.iter().any(|number| number.field.starts_with(field)), "{machine}: {field}");
            }
        }
    }
}
