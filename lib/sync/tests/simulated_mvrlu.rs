//! RLU and MV-RLU in the simulator: many schedules that do not occur naturally, threads that stall anywhere, and a
//! check of every history.
#![cfg(archipelago_sim)]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use archipelago_check::growth::{assert_flat, costs};
use archipelago_check::simulated::{explore, explore_with, stall};
use archipelago_check::snapshot::Level;
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sim::{Client, Config, Machine, SimAlloc, run_with, world};
use archipelago_sync::mvrlu::{self, Abort, ClockKind, Handle, Link, Tuning, Tx, points};
use archipelago_sync::rlu;

#[path = "mvrlu/book.rs"]
mod book;

use book::{Book, OBJECTS, Object, act, once_serializable};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

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

/// An MV-RLU domain that collects at every opportunity.
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

/// Some objects of a domain, and the record of their transactions.
struct Objects {
    domain: Domain,
    links: Vec<Object>,
    book: Book,
    /// The newest value that a thread has seen and published to the others.
    told: AtomicU64,
}

impl Objects {
    fn new(clock: ClockKind, domain: Domain) -> Self {
        let links = (0..OBJECTS).map(|_| domain.alloc()).collect();
        Self { domain, links, book: Book::new(clock), told: AtomicU64::new(0) }
    }

    /// Frees the objects, so that all memory is freed at the end of a run.
    fn retire(&self) {
        let retire = |tx: &mut Tx<'_>| {
            // SAFETY: the links are not used any more.
            self.links.iter().try_for_each(|link| unsafe { tx.retire(*link) })
        };
        self.domain.register().update(retire).unwrap();
    }
}

/// Half of the threads write the same number, which increases with each commit, to all objects. All threads read all
/// objects.
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

/// One thread commits. Others publish the value that they have seen. A snapshot that begins after the publication must
/// not be older than this value.
fn told(objects: &Objects, client: Client) {
    let mut handle = objects.domain.register();
    let link = objects.links[0];
    for _ in 0..12 {
        if client.index == 0 {
            handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
            continue;
        }
        let told = objects.told.load(Ordering::Acquire);
        let seen = *handle.read().get(link);
        assert!(seen >= told, "{seen}, and {told} has been told");
        objects.told.fetch_max(seen, Ordering::AcqRel);
    }
}

#[test]
fn what_one_thread_has_seen_and_told_others_see() {
    each_domain(|objects| explore(150, objects, told, |objects| objects.retire()));
}

/// Stalls threads in the critical windows of the correctness arguments. Each of the threads is stalled, at different
/// passages of a window.
#[test]
fn snapshots_are_never_torn_by_a_stall_in_the_worst_places() {
    for name in [points::ENTERING, points::LINKING, points::LINKED, points::WRITING_BACK] {
        let faults = |seed| {
            let one = stall(seed as usize % 4, name, 1 + seed / 4 % 12);
            vec![one, stall(seed as usize / 2 % 4, name, 2 + seed / 8 % 30)]
        };
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

/// Threads read, in a loop, an object that a serializable transaction writes, and each read takes less time than the
/// validation of all that the transaction has read.
#[test]
fn readers_do_not_delay_a_serializable_commit_for_ever() {
    const READS: usize = 3_000;
    let machine = Machine::preset("xeon-e5-4620-4s").expect("it is a preset");
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        for deferred in [None, Some(0), Some(3)] {
            let setup = || {
                let domain = match deferred {
                    Some(deferred) => Domain::Two(rlu::Domain::new(clock, deferred)),
                    None => Domain::Many(mvrlu::Domain::builder().clock(clock).build()),
                };
                let links: Vec<Link<u64>> = (0..100).map(|_| domain.alloc()).collect();
                (domain, links, AtomicU64::new(0))
            };
            let client = |(domain, links, done): &(Domain, Vec<Link<u64>>, AtomicU64), client: Client| {
                let mut handle = domain.register();
                if client.index == 0 {
                    let sum = |tx: &mut Tx<'_>| {
                        let sum: u64 = links.iter().map(|link| *tx.get(*link)).sum();
                        tx.lock(links[0]).map(|first| *first = sum + 1)
                    };
                    handle.update_serializable(sum).unwrap();
                    done.store(1, Ordering::Release);
                    return;
                }
                let reads = || {
                    handle.read().get(links[0]);
                    done.load(Ordering::Acquire) == 0
                };
                let count = core::iter::repeat_with(reads).take(READS).take_while(|goes_on| *goes_on).count();
                assert!(count < READS, "{clock:?}, {deferred:?}: no commit in {READS} reads");
            };
            let report = run_with(&machine, &Config::seeded(1), 4, setup, client, |_| ()).0;
            report.assert_done();
        }
    }
}

/// A change and a read cost the same however many changes came before, even while a reader holds a snapshot: chains are
/// walked from their newest end.
#[test]
fn costs_grow_with_no_chain() {
    for (name, held) in [("MV-RLU", false), ("MV-RLU beside an old snapshot", true)] {
        let make = |_| {
            let domain = mvrlu::Domain::new();
            let links: Vec<Link<u64>> = (0..4).map(|_| domain.alloc(0)).collect();
            (domain, links)
        };
        let work = |(domain, links): &(mvrlu::Domain, Vec<Link<u64>>), operations| {
            let (mut writer, mut reader, mut old) = (domain.register(), domain.register(), domain.register());
            let snapshot = held.then(|| old.read());
            for number in 0..operations {
                let link = links[number as usize % 4];
                writer.update(|tx| Ok(*tx.lock(link)? = number)).unwrap();
                assert_eq!(*reader.read().get(link), number);
            }
            assert!(snapshot.is_none_or(|tx| *tx.get(links[0]) == 0));
            operations
        };
        assert_flat(name, costs(500, make, work), 0.0);
    }
}
