//! Node replication and combining in the simulator: schedules that do not occur naturally, combiners and replicas that
//! stall at the worst points, panics, short-lived handles. Each run's history is checked.
#![cfg(archipelago_sim)]

mod common;

use archipelago_check::growth::{assert_flat, costs};
use archipelago_check::history::Recorder;
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_replicate::{Builder, Closures, Combined, CombinedHandle, FromFns, Handle, Replicated};
use archipelago_sim::{Client, Config, Fault, Machine, Point, SimAlloc, hunt, run_with, world};
use common::{Answer, Change, KEYS, Ledger, Op, check, check_poisoned, work, work_until_panic};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Runs a program under many schedules of both kinds that look for bugs: random schedules, and probabilistic
/// concurrency testing. `end` checks each run.
fn explore<S>(
    seeds: u64,
    threads: usize,
    faults: &[Fault],
    make: impl Fn() -> S,
    body: impl Fn(&S, Client),
    end: impl Fn(S),
) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 300 * threads as u64, faults: faults.to_vec(), ..config };
        run_with(&machine, &config, threads, &make, &body, &end).0
    });
}

type History<A = Answer> = Recorder<Op, A>;

fn judge((structure, recorder): (Replicated<Ledger>, History)) {
    check(recorder.finish());
    let contents = |at| structure.inspect(at, Ledger::content).unwrap();
    assert!((1..structure.replicas()).all(|at| contents(at) == contents(0)), "replicas are equal in the end");
}

/// Checks histories of a replicated structure. `changes` percent of the operations are changes, some of them in
/// batches.
fn replicated(seeds: u64, threads: usize, changes: u64, faults: &[Fault], builder: impl Fn() -> Builder<Ledger>) {
    let body = |(structure, recorder): &(Replicated<Ledger>, History), client: Client| {
        let operations = if threads > 8 { 3 } else { 8 };
        work(&mut structure.handle(), &mut recorder.log(), world::random() ^ client.index as u64, operations, changes);
    };
    explore(seeds, threads, faults, || (builder().build(Ledger::numbered()), Recorder::new()), body, judge);
}

/// Returns a builder with a log of `capacity` entries, which may grow to `largest` entries.
fn tiny(replicas: usize, capacity: usize, largest: usize) -> Builder<Ledger> {
    Replicated::builder().replicas(replicas).log_capacity(capacity).largest_log(largest).slots(3)
}

fn stall(thread: usize, name: &str, nth: u64) -> Fault {
    Fault::Stall { thread: Some(thread), at: Point::Named { name: name.to_owned(), nth }, for_ns: 200_000 }
}

#[test]
fn replicated_is_linearizable_in_many_schedules() {
    for replicas in [1, 2, 3, 8] {
        replicated(400, 4, 60, &[], || tiny(replicas, 1 << 10, 1 << 10));
    }
    replicated(240, 4, 60, &[], || Replicated::builder().topology(Topology::current().clone()));
    replicated(12, 64, 50, &[], || tiny(8, 16, 1 << 20));
}

#[test]
fn logs_wrap_and_grow_in_many_schedules() {
    for (capacity, largest) in [(4, 4), (8, 8), (2, 1 << 20), (4, 16)] {
        replicated(480, 4, 90, &[], || tiny(3, capacity, largest));
    }
}

/// Wherever a combiner stalls, its own threads and those of other replicas continue as far as they can. All threads end
/// and the history is correct.
#[test]
fn combiners_and_replicas_may_stand_still() {
    for place in ["a combiner has reserved", "a replica is being changed"] {
        for replicas in [1, 2] {
            let faults = [stall(0, place, 1), stall(1, place, 2), stall(2, place, 1)];
            replicated(240, 5, 80, &faults, || tiny(replicas, 4, 64));
        }
    }
    let anywhere = Fault::Stall { thread: None, at: Point::OneIn(300), for_ns: 100_000 };
    replicated(240, 5, 70, &[anywhere], || tiny(2, 4, 4).min_batch(3));
    let node = Fault::StallNode { node: 1, at_ns: 3_000, for_ns: 200_000 };
    replicated(240, 8, 70, &[node], || Replicated::builder().topology(Topology::current().clone()).log_capacity(4));
}

/// Helpers work all the time, stall, or have stalled nodes.
#[test]
fn helpers_work_in_many_schedules() {
    let helped = |replicas, interval| tiny(replicas, 4, 64).helper(Duration::from_nanos(interval));
    for interval in [300, 5_000, 1_000_000] {
        replicated(160, 4, 70, &[], || helped(3, interval));
    }
    replicated(160, 4, 70, &[], || helped(2, 1_000).dedicated_combiners());
    let anywhere = Fault::Stall { thread: None, at: Point::OneIn(100), for_ns: 100_000 };
    replicated(160, 4, 70, &[anywhere], || helped(3, 1_000));
    let node = Fault::StallNode { node: 1, at_ns: 3_000, for_ns: 200_000 };
    let on_nodes = || Replicated::builder().topology(Topology::current().clone()).log_capacity(4);
    replicated(160, 8, 70, &[node], || on_nodes().helper(Duration::from_micros(1)));
}

#[test]
fn a_panic_ends_many_schedules() {
    let bare = |replicas| tiny(replicas, 4, 64);
    let helped = |replicas| bare(replicas).helper(Duration::from_nanos(500));
    let [reserved, changed] = ["a combiner has reserved", "a replica is being changed"].map(Some);
    let cases: [(usize, _, &dyn Fn(usize) -> Builder<Ledger>); 6] = [
        (1, None, &bare),
        (2, None, &bare),
        (2, reserved, &bare),
        (3, None, &bare),
        (3, None, &helped),
        (2, changed, &helped),
    ];
    for (replicas, place, builder) in cases {
        let faults: Vec<Fault> = place.map(|place| stall(1, place, 1)).into_iter().collect();
        let make = || (builder(replicas).build(Ledger::numbered()), Recorder::new());
        let body = |(structure, recorder): &(Replicated<Ledger>, History<Option<Answer>>), client: Client| {
            let panics_at = (client.index == 0).then(|| world::random() as usize % 6);
            work_until_panic(&mut structure.handle(), &mut recorder.log(), world::random(), 8, panics_at);
        };
        explore(240, 4, &faults, make, body, |(_, recorder)| check_poisoned(recorder.finish()));
    }
}

#[test]
fn handles_come_and_go_in_many_schedules() {
    let body = |(structure, recorder): &(Replicated<Ledger>, History), _: Client| {
        for _ in 0..4 {
            work(&mut structure.handle(), &mut recorder.log(), world::random(), 2, 70);
        }
    };
    for builder in [|| tiny(2, 4, 1 << 10), || tiny(2, 4, 1 << 10).helper(Duration::from_micros(1))] {
        explore(400, 6, &[], || (builder().build(Ledger::numbered()), Recorder::new()), body, judge);
    }
}

#[test]
fn combined_is_linearizable_in_many_schedules() {
    let operation = |handle: &mut CombinedHandle<Ledger>, op: &Op| match (op, op.change()) {
        (_, Some(change)) => handle.write(change).unwrap(),
        (Op::Get(key), _) => handle.read(key).unwrap(),
        _ => unreachable!(),
    };
    let body = |(structure, recorder): &(Combined<Ledger>, History), _: Client| {
        let (mut handle, mut log) = (structure.handle(), recorder.log());
        for _ in 0..8 {
            let key = world::random() % KEYS;
            let op = match world::random() % 4 {
                0 | 1 => Op::Get(key),
                2 => Op::Insert(key, world::random()),
                _ => Op::Remove(key),
            };
            log.record(op, |op| operation(&mut handle, op));
        }
    };
    let collected = stall(0, "a combiner has collected", 2);
    for make in [Combined::flat, Combined::new] {
        for (seeds, threads, faults) in [(600, 4, &[][..]), (20, 40, &[]), (300, 5, &[collected.clone()])] {
            let make = || (make(Ledger::default()), Recorder::new());
            explore(seeds, threads, faults, make, body, |(_, recorder)| check(recorder.finish()));
        }
    }
}

/// A reader stays in replica 0 until all writers of replica 1 have finished. Their changes fill the log several times.
#[test]
fn a_reader_that_stays_stops_no_other_replica() {
    let threads = 4;
    let body = |(structure, recorder, through): &(Replicated<Ledger>, History, AtomicUsize), client: Client| {
        if client.index > 0 {
            work(&mut structure.handle_on(1), &mut recorder.log(), world::random(), 8, 90);
            through.fetch_add(1, Ordering::AcqRel);
            return;
        }
        let stay = |_: &Ledger| {
            while through.load(Ordering::Acquire) < threads - 1 {
                thread::yield_now();
            }
        };
        structure.inspect(0, stay).unwrap();
    };
    for builder in [|| tiny(2, 4, 1 << 10), || tiny(2, 4, 1 << 10).helper(Duration::from_micros(1))] {
        let make = || (builder().build(Ledger::numbered()), Recorder::new(), AtomicUsize::new(0));
        explore(200, threads, &[], make, body, |(structure, recorder, _)| judge((structure, recorder)));
    }
}

/// No thread posts to replica 1. The threads of the other replicas help it, in small steps, before the log is full.
#[test]
fn an_idle_replica_stops_nobody() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let config = Config { until_ns: Some(1_000_000), ..Config::seeded(1) };
    let make = || Replicated::builder().replicas(2).log_capacity(256).largest_log(256).build(Ledger::numbered());
    let body = |structure: &Replicated<Ledger>, client: Client| {
        let mut handle: Handle<Ledger> = structure.handle_on(0);
        while client.running() {
            handle.write(Change::Insert(client.index as u64, 1)).unwrap();
        }
    };
    let end = |structure: Replicated<Ledger>| structure.stats();
    let stats = run_with(&machine, &config, 4, make, body, end).1.expect("the run ends well");
    assert!(stats.writes > 1000 && stats.room_waits == 0, "{stats:?}");
    assert!(stats.applied > 2 * stats.writes - 256 && stats.combiner_helps > 10, "{stats:?}");
}

/// The clients run on one of four nodes. The helpers of the other nodes are woken, keep their replicas up to date so
/// that no client has to, and run on their replicas' nodes. At the interval they also apply the last changes, whose
/// memory then becomes free. They end with the structure: otherwise its drop would not end, nor would the run.
#[test]
fn helpers_keep_the_replicas_of_idle_nodes_up_to_date() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let config = Config { until_ns: Some(1_000_000), ..Config::seeded(1) };
    let make = || {
        let (by_helpers, next) = (Arc::new([const { CachePadded::new(AtomicUsize::new(0)) }; 4]), AtomicUsize::new(0));
        let counts = by_helpers.clone();
        let write = move |replica: &mut usize, (): &()| {
            let thread = world::current().expect("the test runs in the simulator");
            if thread.daemon {
                assert_eq!(thread.node, *replica, "a helper runs on its replica's node");
                counts[*replica].fetch_add(1, Ordering::Relaxed);
            }
        };
        let init = || FromFns::new(next.fetch_add(1, Ordering::Relaxed), |_: &usize, (): &()| (), write.clone());
        let builder = Replicated::builder().log_capacity(1 << 10).largest_log(1 << 10).helper(Duration::from_millis(5));
        (builder.build(init), by_helpers)
    };
    let body = |(structure, _): &(Replicated<_>, Arc<[CachePadded<AtomicUsize>; 4]>), client: Client| {
        let mut handle = structure.handle();
        while client.running() {
            handle.write(()).unwrap();
        }
        assert_eq!(handle.replica(), Some(0));
    };
    let end = |(structure, by_helpers): (Replicated<_>, Arc<[CachePadded<AtomicUsize>; 4]>)| {
        let stats = structure.stats();
        thread::sleep(Duration::from_millis(12));
        (stats, structure.stats(), by_helpers.each_ref().map(|count| count.load(Ordering::Relaxed) as u64))
    };
    let (report, ended) = run_with(&machine, &config, 4, make, body, end);
    let (stats, later, by_helpers) = ended.unwrap_or_else(|| panic!("{:?}", report.outcome));
    assert!(stats.writes > 3_000 && stats.room_waits == 0 && stats.helper_runs > 10, "{stats:?}");
    assert!(stats.combiner_helps == 0 && stats.log_in_use <= 512, "{stats:?}");
    assert_eq!((later.applied, later.log_in_use), (4 * later.writes, 0), "{later:?}");
    assert_eq!(by_helpers[1..], [later.writes; 3], "each idle replica is changed by its helper alone");
}

/// An operation costs the same however many operations came before it. This is checked on the replica that changes, on
/// a replica with occasional reads, and, at the end, on a replica that was never read.
#[test]
fn costs_grow_with_no_log() {
    for (replicas, looks) in [(1, 1), (2, 1), (2, 100), (4, 1_000)] {
        let make = |_| Replicated::builder().replicas(replicas).build(|| Closures::new(0_u64));
        let work = |numbers: &Replicated<Closures<u64>>, operations| {
            let (mut writer, mut reader) = (numbers.handle_on(0), numbers.handle_on(replicas - 1));
            for number in 0..operations {
                writer.update(|sum| *sum += 1).unwrap();
                if number % looks == 0 {
                    assert_eq!(reader.view(|sum| *sum), Ok(number + 1));
                }
            }
            assert_eq!(reader.view(|sum| *sum), Ok(operations));
            operations
        };
        assert_flat(&format!("{replicas} replicas, looked at every {looks} changes"), costs(1_000, make, work), 0.0);
    }
}
