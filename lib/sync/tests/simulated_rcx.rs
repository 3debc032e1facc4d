//! RCX (two-level locks for the writers of RCU-protected data) in the simulator. Threads call `lock` and `try_lock` on
//! sets of objects, with and without hand-over, while transactions abort and threads stall. No two threads hold an
//! object at the same time, every thread ends, and at the end no object is locked.
//!
//! `ARCHIPELAGO_SCHEDULES=100000` sets a larger number of schedules. `ARCHIPELAGO_SIM_SEED` selects one schedule, or
//! the first of several.
#![cfg(archipelago_sim)]

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::{hint, thread};
use archipelago_sim::{Client, Config, Fault, Machine, Placement, Point, Schedule, SimAlloc, run_with, world};
use archipelago_sync::rcx::{Embedded, InOrder, Locks, Padding, Rcx, Striped, points};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

const ROUNDS: u64 = 6;

/// The default number of schedules of a test.
const SCHEDULES: u64 = 1_500;

/// Objects, each with two words. In `explore`, only the object's holder changes the words, and they are equal whenever
/// no thread holds the object.
struct Objects<L: Locks> {
    rcx: Rcx<L>,
    objects: Vec<L::Object>,
    words: Vec<[AtomicU64; 2]>,
    /// In `explore`: the number of threads that have finished their rounds. The other tests use it as a phase or as a
    /// counter of turns.
    done: AtomicUsize,
}

impl<L: Locks> Objects<L> {
    fn new(rcx: Rcx<L>, count: usize) -> Self {
        let objects = (0..count).map(|_| rcx.object()).collect();
        Self { rcx, objects, words: (0..count).map(|_| <_>::default()).collect(), done: AtomicUsize::new(0) }
    }

    /// Adds one to both words, in separate steps between which other threads could run. The caller holds the object.
    fn change(&self, which: usize) {
        let [first, second] = &self.words[which];
        let before = first.load(Ordering::Relaxed);
        first.store(before + 1, Ordering::Relaxed);
        assert_eq!(second.load(Ordering::Relaxed), before, "two threads hold object {which}");
        second.store(before + 1, Ordering::Relaxed);
    }

    /// Calls `lock` (if `wait` is true) or `try_lock` for the objects whose bits are set in `set`. If it gets them,
    /// changes them.
    fn round(&self, set: u64, wait: bool) {
        let chosen = (0..self.objects.len()).filter(|which| set >> which & 1 == 1);
        let mut handles = chosen.clone().map(|which| self.rcx.handle(&self.objects[which])).collect();
        let handles = self.rcx.order(&mut handles);
        let held = if wait { Some(self.rcx.lock(handles)) } else { self.rcx.try_lock(handles) };
        if held.is_some() {
            chosen.for_each(|which| self.change(which));
        }
    }

    /// Waits until all threads have finished, then checks that each object can be locked from the caller's node.
    fn look(&self, threads: usize) {
        self.done.fetch_add(1, Ordering::AcqRel);
        while self.done.load(Ordering::Acquire) < threads {
            hint::spin_loop();
        }
        for object in &self.objects {
            drop(self.rcx.lock(InOrder::one(&self.rcx.handle(object))));
            thread::yield_now();
        }
    }
}

/// The parameters of a schedule, derived from its seed.
struct Shape {
    objects: usize,
    threads: usize,
    passes: u32,
    nodes: usize,
    faults: Vec<Fault>,
}

impl Shape {
    fn of(seed: u64) -> Self {
        let pick = |every: u64, of: u64| seed / every % of;
        let stall = |at| Fault::Stall { thread: None, at, for_ns: 30_000 };
        let named = |name: &str| Point::Named { name: name.to_owned(), nth: 1 + pick(7, 4) };
        let faults = match pick(2, 6) {
            0 | 1 => vec![],
            2 => vec![Fault::AbortTransactions { probability: 0.3 }],
            3 => vec![Fault::AbortTransactions { probability: 1.0 }, stall(Point::OneIn(200))],
            4 => vec![Fault::TransactionCapacity { read_lines: 2, write_lines: 1 }, stall(named(points::HELD))],
            _ => vec![stall(named(points::ADMITTED))],
        };
        let (objects, threads) = (2 + pick(36, 3) as usize, 4 + pick(108, 5) as usize);
        Self { objects, threads, passes: [1, 3, 0][pick(12, 3) as usize], nodes: 2 + pick(540, 2) as usize, faults }
    }

    /// Distributes the threads over the first nodes, of 18 cores each.
    fn placement(&self) -> Placement {
        Placement::Cpus((0..self.threads).map(|thread| thread % self.nodes * 18 + thread / self.nodes).collect())
    }
}

fn explore<L: Locks>(make: impl Fn(u32) -> Rcx<L>) {
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let replay = archipelago_sim::replay_seed();
    let asked = std::env::var("ARCHIPELAGO_SCHEDULES").ok().and_then(|most| most.parse().ok());
    let first = replay.unwrap_or(0);
    let count = asked.unwrap_or(if replay.is_some() { 1 } else { SCHEDULES });
    for seed in first..first + count {
        let kind = Shape::of(seed);
        let config = Config {
            schedule: if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth: 3 } },
            placement: kind.placement(),
            faults: kind.faults.clone(),
            expected_accesses: 2_000,
            limit_accesses: 300_000,
            ..Config::seeded(seed)
        };
        let setup = || Objects::new(make(kind.passes), kind.objects);
        let client = |objects: &Objects<L>, _: Client| {
            for _ in 0..ROUNDS {
                let (set, wait) = (1 + world::random() % ((1 << kind.objects) - 1), world::random() % 2 == 0);
                objects.round(set, wait);
                world::work(world::random() % 200);
            }
            objects.look(kind.threads);
        };
        let end = |objects: Objects<L>| objects.rcx.check_invariants(&objects.objects);
        run_with(&machine, &config, kind.threads, setup, client, end).0.assert_done();
    }
}

#[test]
fn padded_locks_are_left_to_no_one() {
    explore(|passes| Rcx::builder().padding(Padding::Lines).passes(passes).build());
}

#[test]
fn padded_locks_without_transactions_are_left_to_no_one() {
    explore(|passes| Rcx::builder().without_transactions().passes(passes).build());
}

#[test]
fn packed_and_striped_locks_are_left_to_no_one() {
    explore(|_| Rcx::builder().padding(Padding::Compact).build());
    explore(|_| Rcx::builder().build_with(|nodes, _| Striped::with_stripes(nodes, 3)));
}

/// With this test's schedule, a simulated thread runs until it waits or yields. During an attempt that fails, no other
/// thread takes a step, and the attempt takes less than 10 µs of virtual time.
#[test]
fn an_attempt_gives_the_processor_to_no_one() {
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    for (nodes, passes) in [(1, 0), (2, 0), (2, 3)] {
        for holder in [0, 18] {
            let rcx = || Rcx::builder().nodes(nodes).padding(Padding::Lines).passes(passes).build();
            let client = |objects: &Objects<Embedded>, client: Client| {
                let mut handles = objects.objects.iter().map(|object| objects.rcx.handle(object)).collect();
                let handles = objects.rcx.order(&mut handles);
                match client.index {
                    0 => {
                        let held = objects.rcx.lock(handles);
                        objects.done.store(1, Ordering::Release);
                        while objects.done.load(Ordering::Acquire) == 1 {
                            hint::spin_loop();
                        }
                        drop(held);
                    }
                    1 => {
                        while objects.done.load(Ordering::Acquire) == 0 {
                            hint::spin_loop();
                        }
                        for _ in 0..20 {
                            let (steps, begun) = (objects.words[0][0].load(Ordering::Relaxed), world::now());
                            assert!(objects.rcx.try_lock(handles).is_none());
                            let took = world::now() - begun;
                            assert!(took < 10_000, "refused after {took} ns");
                            assert_eq!(objects.words[0][0].load(Ordering::Relaxed), steps, "it yielded");
                        }
                        objects.done.store(2, Ordering::Release);
                    }
                    _ => {
                        while objects.done.load(Ordering::Acquire) < 2 {
                            objects.words[0][0].fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                        }
                    }
                }
            };
            let placement = Placement::Cpus(vec![holder, 0, 1, 2]);
            let config =
                Config { schedule: Schedule::Chosen, placement, limit_accesses: 1_000_000, ..Config::seeded(1) };
            let setup = || Objects::new(rcx(), 4);
            run_with(&machine, &config, 4, setup, client, drop).0.assert_done();
        }
    }
}

/// The purpose of hand-over: an object stays on its node for several turns, in which threads of the node hold it one
/// after the other.
#[test]
fn hand_over_keeps_an_object_on_its_node() {
    const TURNS: usize = 40;
    const THREADS: usize = 8;
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let changes_of_node = |passes: u32| {
        let setup = || {
            let rcx = Rcx::builder().padding(Padding::Lines).passes(passes).build();
            (Objects::<Embedded>::new(rcx, 1), (0..TURNS * THREADS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>())
        };
        let client = |(objects, holders): &(Objects<Embedded>, Vec<AtomicU64>), client: Client| {
            for _ in 0..TURNS {
                let handle = objects.rcx.handle(&objects.objects[0]);
                let held = objects.rcx.lock(InOrder::one(&handle));
                let turn = objects.done.fetch_add(1, Ordering::Relaxed);
                holders[turn].store(client.index as u64 % 2, Ordering::Relaxed);
                world::work(100);
                drop(held);
                world::work(world::random() % 100);
            }
        };
        let end = |(_, holders): (_, Vec<AtomicU64>)| {
            holders.windows(2).filter(|pair| pair[0].load(Ordering::Relaxed) != pair[1].load(Ordering::Relaxed)).count()
        };
        let cpus = (0..THREADS).map(|thread| thread % 2 * 18 + thread / 2).collect();
        let config = Config { placement: Placement::Cpus(cpus), ..Config::seeded(3) };
        let (report, changes) = run_with(&machine, &config, THREADS, setup, client, end);
        report.assert_done();
        changes.expect("it is done")
    };
    let (without, with) = (changes_of_node(0), changes_of_node(16));
    assert!(3 * with < without, "{with} changes of node with hand-over, {without} without");
}
