//! Tests of indexes in the simulator, which chooses the threads' schedules: many schedules that hardly ever occur
//! natively, stalled threads and paused maintenance. The history of each run is checked.
#![cfg(archipelago_sim)]

#[path = "simulated/blink.rs"]
mod blink;
#[path = "simulated/euno.rs"]
mod euno;
#[path = "simulated/euno_stalls.rs"]
mod euno_stalls;
#[path = "simulated/shortcuts.rs"]
mod shortcuts;
#[path = "simulated/stalls.rs"]
mod stalls;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_index::art::WriteSync;
use archipelago_index::hydra::{Experiment, Maintainers, SearchLayerKind};
use archipelago_index::{Art, HydraList, OrderedIndex, OrderedSession};
use archipelago_platform::thread;
use archipelago_platform::topology::Topology;
use archipelago_sim::{Client, Config, Fault, Machine, Outcome, Placement, Point, SimAlloc, hunt, run_with, world};
use archipelago_sync::version_lock::VersionLock;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

const THREADS: usize = 4;
const OPS: u64 = 12;

/// An index, its history so far, and its initial content.
struct Shared<I> {
    index: I,
    recorder: Recorder<MapOp<u64, u64>, MapRet<u64, u64>>,
    before: BTreeMap<u64, u64>,
}

/// Maps a number to one of the keys of a run. The keys are few enough for conflicts, and enough to fill the page or
/// node that they share.
fn key(number: u64) -> u64 {
    number % 60 * 3
}

fn shared<I: OrderedIndex<u64, u64>>(index: I) -> Shared<I> {
    let before: BTreeMap<u64, u64> = (0..44).map(|number| (key(number), 1_000_000 + number)).collect();
    let session = index.pin();
    for (key, value) in &before {
        session.insert(key, *value);
    }
    drop(session);
    Shared { index, recorder: Recorder::new(), before }
}

fn client<I: OrderedIndex<u64, u64>>(shared: &Shared<I>, client: Client) {
    let map = shared.index.pin();
    let mut log = shared.recorder.log();
    for i in 0..OPS {
        let (key, value) = (key(40 + world::random() % 24), client.index as u64 * 1000 + i);
        let limit = 1 + world::random() as usize % 8;
        match world::random() % 12 {
            0..3 => log.record(MapOp::Insert(key, value), |_| MapRet::Value(map.insert(&key, value))),
            3..6 => log.record(MapOp::Remove(key), |_| MapRet::Value(map.remove(&key))),
            6 => log.record(MapOp::Update(key, value), |_| MapRet::Value(map.update(&key, |_| value))),
            7 => log.record(MapOp::Update(key, value), |_| MapRet::Value(map.replace(&key, value))),
            8..11 => log.record(MapOp::Get(key), |_| MapRet::Value(map.get(&key))),
            _ => log.record(MapOp::Scan(key, limit), |_| {
                let mut seen = Vec::new();
                map.scan(&key, limit, |key, value| seen.push((key, *value)));
                MapRet::Entries(seen)
            }),
        };
    }
}

fn judge<I>(shared: Shared<I>, check: impl FnOnce(&I)) {
    check(&shared.index);
    check_map(&shared.before, &shared.recorder.finish(), DEFAULT_STEPS).assert_ok();
}

/// Runs a map under many schedules: random ones, and those of PCT (probabilistic concurrency testing), which changes
/// the threads' priorities at a few random points.
fn explore<I: OrderedIndex<u64, u64>>(seeds: u64, faults: &[Fault], make: impl Fn() -> I, check: impl Fn(&I)) {
    explore_clients(seeds, faults, make, check, client);
}

/// Runs a map as [`explore`] does, but each thread runs `client`.
fn explore_clients<I: OrderedIndex<u64, u64>>(
    seeds: u64,
    faults: &[Fault],
    make: impl Fn() -> I,
    check: impl Fn(&I),
    client: impl Fn(&Shared<I>, Client),
) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 2_000, faults: faults.to_vec(), ..config };
        run_with(&machine, &config, THREADS, || shared(make()), &client, |shared| judge(shared, &check)).0
    });
}

fn hydralist(kind: SearchLayerKind, maintainers: Maintainers, nodes: usize) -> HydraList<u64, u64> {
    HydraList::builder().topology(Topology::synthetic(nodes, 4)).search_layer(kind).maintainers(maintainers).build()
}

#[test]
fn hydralist_is_linearizable_in_many_schedules() {
    for (kind, nodes) in [(SearchLayerKind::Snapshot, 1), (SearchLayerKind::Snapshot, 4), (SearchLayerKind::Art, 2)] {
        for maintainers in [Maintainers::Background, Maintainers::Clients] {
            explore(600, &[], || hydralist(kind, maintainers, nodes), HydraList::check_invariants);
        }
    }
}

/// The experiments that switch parts of the design off leave a right map.
#[test]
fn hydralist_is_linearizable_in_experiments() {
    use Experiment::*;
    for experiment in [NoTags, NoBackoff, LockedUpdates, LockedUpdatesNoBackoff, Synchronous] {
        let make = || HydraList::builder().topology(Topology::synthetic(2, 4)).experiment(experiment).build();
        explore(300, &[], make, HydraList::check_invariants);
    }
}

#[test]
fn hydralist_survives_a_stalled_lock_holder() {
    let name = VersionLock::HELD.to_owned();
    let stall = |thread| Fault::Stall {
        thread: Some(thread),
        at: Point::Named { name: name.clone(), nth: 1 + thread as u64 },
        for_ns: 50_000,
    };
    explore(100, &[stall(0), stall(1)], HydraList::<u64, u64>::new, HydraList::check_invariants);
}

#[test]
fn hydralist_answers_right_while_its_layers_are_stale() {
    let make = || {
        let map = HydraList::<u64, u64>::new();
        map.pause_maintenance(true);
        map
    };
    let check = |map: &HydraList<u64, u64>| {
        map.pause_maintenance(false);
        map.check_invariants();
    };
    explore(100, &[], make, check);
}

/// One thread moves pages to other blocks of memory, four times, while the other threads use them.
#[test]
fn hydralist_is_linearizable_while_its_pages_move() {
    let clients = |shared: &Shared<HydraList<u64, u64>>, it: Client| match it.index {
        0 => (0..4).for_each(|_| shared.index.move_pages()),
        _ => client(shared, it),
    };
    let check = |map: &HydraList<u64, u64>| {
        assert!(map.maintenance_stats().moved > 0, "nothing was moved");
        map.check_invariants();
    };
    for (kind, nodes) in [(SearchLayerKind::Snapshot, 1), (SearchLayerKind::Snapshot, 4), (SearchLayerKind::Art, 2)] {
        // There are two pages at first, since the first page is never moved.
        let make = || {
            let map = hydralist(kind, Maintainers::Background, nodes);
            let session = map.pin();
            (0..60).for_each(|number| _ = session.insert(key(number), 0));
            (44..60).for_each(|number| _ = session.remove(&key(number)));
            drop(session);
            map
        };
        explore_clients(600, &[], make, check, clients);
    }
}

/// If a run fails while a map with background threads is in use, the run reports its failure, and does not fail again
/// in the map's destructor.
#[test]
fn a_map_does_not_hide_why_a_run_failed() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let setup = || {
        let map = hydralist(SearchLayerKind::Snapshot, Maintainers::Background, 4);
        map.pin().extend((0..40_000).map(|number| (number, number)));
        assert_eq!(map.maintenance_stats().threads, 4);
        map
    };
    let run = |body: fn(&HydraList<u64, u64>, Client)| {
        run_with(&machine, &Config::default(), THREADS, setup, body, drop).0.outcome
    };
    let panicked = run(|map, client| {
        let session = map.pin();
        (0..200).for_each(|number| _ = session.remove(&(number * 100 + client.index as u64)));
        assert!(client.index != 2, "as planned");
        (0..2_000).for_each(|number| _ = session.remove(&(number * 10 + client.index as u64)));
    });
    assert!(matches!(&panicked, Outcome::Panicked { message, .. } if message == "as planned"), "{panicked}");
    let waits = run(|map, client| {
        map.pin().remove(&(client.index as u64));
        thread::park();
    });
    assert!(matches!(&waits, Outcome::Deadlock { waiting } if waiting.len() == THREADS), "{waits}");
}

#[test]
fn art_is_linearizable_in_many_schedules() {
    for sync in [WriteSync::OptimisticLockCoupling, WriteSync::Rowex] {
        explore(600, &[], || Art::<u64, u64>::with_write_sync(sync), Art::check_invariants);
    }
}

/// Returns the search layer's remote accesses per look-up, on a machine whose third-level cache is much smaller than
/// the layer.
fn remote_in_search_layer(nodes: usize) -> f64 {
    const LOOKUPS: usize = 200;
    const KEYS: u64 = 20_000;
    let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    machine.caches.l2.sets = 16;
    machine.caches.l3.sets = 16;
    let threads = 2 * machine.sockets;
    let setup = || {
        let map: HydraList<u64, u64> = HydraList::builder().topology(Topology::synthetic(nodes, 8)).build();
        let session = map.pin();
        (0..KEYS).for_each(|number| _ = session.insert(spread(number), number));
        drop(session);
        map.sync();
        map
    };
    let body = |map: &HydraList<u64, u64>, _: Client| {
        let session = map.pin();
        for _ in 0..LOOKUPS {
            session.get(&spread(world::random() % KEYS));
        }
    };
    let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
    let report = run_with(&machine, &config, threads, setup, body, drop).0.assert_done();
    assert_eq!(report.parts, ["search layer"]);
    report.stats.remote_in[1] as f64 / (threads * LOOKUPS) as f64
}

#[test]
fn a_search_layer_per_node_makes_its_accesses_local() {
    let (one, each) = (remote_in_search_layer(1), remote_in_search_layer(4));
    assert!(one > 0.2, "with one layer three of four look-ups go to another node's memory: {one}");
    assert!(each * 3.0 <= one, "{each} remote accesses with a layer per node, {one} with a single one");
}

/// Returns the average virtual nanoseconds of look-ups of a kind.
fn cost(look: impl Fn(&HydraList<u64, u64>, u64) + Sync) -> u64 {
    const WALKS: u64 = 40;
    let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let setup = || {
        let map: HydraList<u64, u64> = HydraList::builder().maintainers(Maintainers::Clients).build();
        map.pin().extend((0..20_000).map(|number| (spread(number), number)));
        map.sync();
        (map, AtomicU64::new(0))
    };
    let body = |(map, took): &(HydraList<u64, u64>, AtomicU64), _: Client| {
        let start = world::now();
        (0..WALKS).for_each(|_| look(map, world::random()));
        took.store((world::now() - start) / WALKS, Ordering::Relaxed);
    };
    let machine = Machine::preset("xeon-8180-4s").unwrap();
    let (report, took) = run_with(&machine, &Config::seeded(1), 1, setup, body, |(_, took)| took.into_inner());
    report.assert_done();
    took.expect("the run has ended")
}

/// If a walk has no limit and its caller ends it early, the walk has prefetched in proportion to the shown entries, and
/// not up to the end of the map.
#[test]
fn a_walk_that_its_caller_ends_costs_what_it_showed() {
    let limited = cost(|map, from| _ = map.pin().scan(&from, 1, |_, _| ()));
    let ended = cost(|map, from| _ = map.pin().scan_range::<u64, _, ()>(from.., |_, _| ControlFlow::Break(())));
    assert!(ended <= 4 * limited, "{ended} ns without a limit, {limited} ns with");
}
