//! RLU, MV-RLU and the sets on the virtual machine: many schedules that natural ones never take, threads that are stalled
//! anywhere, and every history checked.
#![cfg(archipelago_sim)]
// `Ok(*tx.lock(link)? = value)` says in one line what a body of three would.
#![allow(clippy::unit_arg)]

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::snapshot::Level;
use archipelago_sim::{Client, Config, Fault, Machine, Point, SimAlloc, hunt, run_with, world};
use archipelago_sync::mvrlu::{self, Abort, ClockKind, Handle, Link, Tuning, Tx, points};
use archipelago_sync::rlu;
use archipelago_sync::set::{
    CitrusTree, FraserSkipList, HarrisList, Hash, List, Mechanism, OverMvRlu, OverRcu, OverRlu, Set, SetSession, Tree,
    points as set_points,
};

#[path = "mvrlu/book.rs"]
mod book;
#[path = "set/promised.rs"]
mod promised;

use book::{Book, OBJECTS, Object, act, once_serializable};
use promised::{Op, Promise, Promised, Ret, draw, perform};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

const THREADS: usize = 4;

/// Runs a program under many schedules of both kinds that look for bugs, every other pair of them with threads that lose
/// their processor now and then.
fn explore<S>(seeds: u64, setup: impl Fn() -> S, client: impl Fn(&S, Client), end: impl Fn(S)) {
    let stall = Fault::Stall { thread: None, at: Point::OneIn(300), for_ns: 20_000 };
    let faults = |seed| if seed % 4 < 2 { Vec::new() } else { vec![stall.clone()] };
    explore_with(seeds, faults, setup, client, end);
}

fn explore_with<S>(
    seeds: u64,
    faults: impl Fn(u64) -> Vec<Fault>,
    setup: impl Fn() -> S,
    client: impl Fn(&S, Client),
    end: impl Fn(S),
) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(seeds, |config| {
        let config = Config {
            faults: faults(config.seed),
            clock_skew_ns: vec![0, 900, -600, 300],
            expected_accesses: 2_000,
            limit_accesses: 1_000_000,
            ..config
        };
        run_with(&machine, &config, THREADS, &setup, &client, &end).0
    });
}

/// A domain of either kind.
enum Domain {
    Two(rlu::Domain),
    Many(mvrlu::Domain),
}

impl Domain {
    fn alloc(&self) -> Link<u64> {
        match self {
            Domain::Two(domain) => domain.alloc(0),
            Domain::Many(domain) => domain.alloc(0),
        }
    }

    fn register(&self) -> Handle {
        match self {
            Domain::Two(domain) => domain.register(),
            Domain::Many(domain) => domain.register(),
        }
    }
}

/// An MV-RLU domain that collects at every occasion.
fn eager(clock: ClockKind) -> mvrlu::Builder {
    let tuning = Tuning { low_watermark: 1, dereference_watermark: 4, concurrent: true };
    mvrlu::Domain::builder().clock(clock).tuning(tuning)
}

fn each_domain(mut test: impl FnMut(&dyn Fn() -> Objects)) {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        for deferred in [0, 1, 3] {
            test(&|| Objects::new(clock, Domain::Two(rlu::Domain::new(clock, deferred))));
        }
        test(&|| Objects::new(clock, Domain::Many(eager(clock).build())));
    }
}

/// Some objects of a domain, and what happened to them.
struct Objects {
    domain: Domain,
    links: Vec<Object>,
    book: Book,
}

impl Objects {
    fn new(clock: ClockKind, domain: Domain) -> Self {
        let links = (0..OBJECTS).map(|_| domain.alloc()).collect();
        Self { domain, links, book: Book::new(clock) }
    }

    /// Frees the objects, so that a run ends with all memory given back.
    fn retire(&self) {
        let retire = |tx: &mut Tx<'_>| {
            // SAFETY: not used any more.
            self.links.iter().try_for_each(|link| unsafe { tx.retire(*link) })
        };
        self.domain.register().update(retire).unwrap();
    }
}

/// Half of the threads write one number to all objects, which grows from commit to commit, and all read them.
fn all_or_none(objects: &Objects, client: Client) {
    let mut handle = objects.domain.register();
    let mut latest = 0;
    for _ in 0..8 {
        if client.index < 2 {
            let write = |tx: &mut Tx<'_>| {
                let value = *tx.lock(objects.links[0])? + 1;
                objects.links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = value))?;
                Ok(value)
            };
            latest = handle.update(write).unwrap();
        }
        let snapshot = handle.read();
        let seen: Vec<u64> = objects.links.iter().map(|link| *snapshot.get(*link)).collect();
        assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
        assert!(seen[0] >= latest, "{} after {latest}", seen[0]);
        latest = seen[0];
    }
}

#[test]
fn snapshots_are_never_torn_nor_old() {
    each_domain(|objects| explore(150, objects, all_or_none, |objects| objects.retire()));
}

/// In the windows that the arguments are about: each thread, at several passages.
#[test]
fn snapshots_are_never_torn_by_a_stall_in_the_worst_places() {
    for name in [points::ENTERING, points::LINKING, points::LINKED, points::WRITING_BACK] {
        let stall = |thread, nth| {
            let at = Point::Named { name: name.to_owned(), nth };
            Fault::Stall { thread: Some(thread), at, for_ns: 100_000 }
        };
        let faults =
            |seed| vec![stall(seed as usize % 4, 1 + seed / 4 % 12), stall(seed as usize / 2 % 4, 2 + seed / 8 % 30)];
        each_domain(|objects| explore_with(100, faults, objects, all_or_none, |objects| objects.retire()));
    }
}

fn transactions(level: Level) {
    let client = |objects: &Objects, client: Client| {
        let mut handle = objects.domain.register();
        for number in 1..=8 {
            let unique = (client.index as u64 + 1) << 32 | number << 8;
            let attempt = |body: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>| match level {
                Level::Snapshot => handle.try_update(body).is_ok(),
                Level::Serializable => once_serializable(&mut handle, body),
            };
            let below = |bound| world::random() % bound;
            let act = |tx: &mut Tx<'_>, actions: &mut Vec<_>| act(tx, &objects.links, actions, below, unique);
            objects.book.record(client.index, attempt, act);
        }
    };
    let end = |objects: Objects| {
        objects.retire();
        objects.book.judge(level).assert_ok();
    };
    each_domain(|objects| explore(150, objects, client, end));
}

#[test]
fn transactions_are_snapshot_isolated_in_many_schedules() {
    transactions(Level::Snapshot);
}

#[test]
fn serializable_transactions_are_serializable_in_many_schedules() {
    transactions(Level::Serializable);
}

fn linearizable<S: Set>(promise: Promise, make: impl Fn() -> S) {
    let setup = || (make(), Recorder::<Op, Ret>::new());
    let client = |(set, recorder): &(S, Recorder<Op, Ret>), client: Client| {
        let (mut session, mut log) = (set.session(), recorder.log());
        for number in 0..10 {
            let unique = (client.index as u64) << 32 | number;
            let op = draw(|bound| world::random() % bound, promise, unique);
            log.record(op, |op| perform(&mut session, op));
        }
    };
    let end = |(set, recorder): (S, Recorder<Op, Ret>)| {
        drop(set);
        linear::check(&Promised, recorder.finish().entries()).assert_ok();
    };
    explore(100, setup, client, end);
}

fn each_structure<M: Mechanism<1> + Mechanism<2>>(make: impl Fn(usize) -> M) {
    linearizable(Promise::Ordered, || List::over(make(1)));
    linearizable(Promise::Hashed, || Hash::over(make(3), 3));
    linearizable(Promise::Ordered, || Tree::over(make(1)));
}

#[test]
fn sets_over_mvrlu_are_linearizable_in_many_schedules() {
    each_structure(|_| OverMvRlu::with(eager(ClockKind::Logical)));
    each_structure(|_| OverMvRlu::with(eager(ClockKind::Hardware)));
}

#[test]
fn sets_over_rlu_are_linearizable_in_many_schedules() {
    each_structure(|_| OverRlu::with(ClockKind::Logical, 0));
    each_structure(|_| OverRlu::with(ClockKind::Hardware, 2));
}

#[test]
fn sets_over_rcu_are_linearizable_in_many_schedules() {
    linearizable(Promise::Ordered, List::<OverRcu>::default);
    linearizable(Promise::Hashed, || Hash::<OverRcu>::with_buckets(3));
    linearizable(Promise::Ordered, Tree::<OverRcu>::default);
}

#[test]
fn rivals_are_linearizable_in_many_schedules() {
    linearizable(Promise::Rival, HarrisList::default);
    linearizable(Promise::Rival, || HarrisList::with_buckets(3));
    linearizable(Promise::Rival, CitrusTree::default);
    linearizable(Promise::Rival, FraserSkipList::default);
}

/// All threads at one key, some nodes with several levels: what the list asserts before it retires a node.
#[test]
fn a_skip_list_retires_no_node_that_is_linked() {
    let client = |list: &FraserSkipList, client: Client| {
        let mut session = list.session();
        for _ in 0..12 {
            if (world::random() + client.index as u64).is_multiple_of(2) {
                session.insert(7, 0);
            } else {
                session.remove(7);
            }
        }
    };
    explore(3_000, FraserSkipList::default, client, drop);
}

fn stall(thread: usize, name: &str) -> Vec<Fault> {
    vec![Fault::Stall { thread: Some(thread), at: Point::Named { name: name.to_owned(), nth: 1 }, for_ns: 100_000 }]
}

/// An insertion has found a null link and stands still. Meanwhile the link holds the successor of a node above, and is null
/// again once that node is removed; but the key belongs elsewhere then.
#[test]
fn an_insertion_into_a_citrus_tree_ends_where_its_key_is_looked_for() {
    let setup = || {
        let tree = CitrusTree::default();
        assert!([50, 20, 90].iter().all(|key| tree.session().insert(*key, *key)));
        tree
    };
    let client = |tree: &CitrusTree, client: Client| {
        let mut session = tree.session();
        match client.index {
            0 => assert!(session.insert(60, 60)),
            1 => {
                world::work(2_000);
                assert!(session.insert(70, 70));
                assert_eq!(session.remove(50), Some(50));
            }
            _ => {}
        }
    };
    let end = |tree: CitrusTree| {
        let mut session = tree.session();
        assert_eq!([20, 50, 60, 70, 90].map(|key| session.get(key)), [Some(20), None, Some(60), Some(70), Some(90)]);
        assert_eq!(session.range(0, 100).len(), 4);
    };
    explore_with(200, |_| stall(0, set_points::FOUND), setup, client, end);
}
