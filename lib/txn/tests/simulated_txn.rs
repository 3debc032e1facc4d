//! Histories of transactions under many simulated schedules. In a schedule, a thread may lose its processor at any
//! point.
#![cfg(archipelago_sim)]

#[path = "common/book.rs"]
mod book;

use archipelago_check::adya::{self, Level};
use archipelago_check::simulated::{THREADS, explore, explore_transactions, explore_with, stall};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sim::{Client, Config, Fault, Machine, Placement, Point, SimAlloc, run_with, world};
use archipelago_txn::{
    ClockKind, Database, Error, Hekaton, Isolation, MvRlu, NoWait, Row, Scheme, Silo, Table, TicToc, WaitDie, on,
};
use book::Book;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

fn histories<S: Scheme, M: on::Kind>(schedules: u64, isolation: Isolation, level: Level) {
    histories_by::<S, M>(ClockKind::Logical, schedules, isolation, level);
}

fn histories_by<S: Scheme, M: on::Kind>(clock: ClockKind, schedules: u64, isolation: Isolation, level: Level) {
    let client = |book: &Book<S, M>, _: Client| transact(book, isolation);
    explore(schedules, || Book::<S, M>::new(clock), client, |book| judge(book, level));
}

/// Records histories on a machine with hardware transactions, most of which abort in some schedules.
fn histories_in_hardware<S: Scheme, M: on::Kind>(schedules: u64, level: Level) {
    let stalls = |seed: u64| match seed % 2 {
        0 => vec![],
        _ => vec![Fault::Stall { thread: None, at: Point::OneIn(300), for_ns: 20_000 }],
    };
    let client = |book: &Book<S, M>, _: Client| transact(book, SERIALIZABLE);
    let setup = || Book::<S, M>::new(ClockKind::Logical);
    explore_transactions(schedules, stalls, setup, client, |book| judge(book, level));
}

fn transact<S: Scheme, M: on::Kind>(book: &Book<S, M>, isolation: Isolation) {
    (0..3).for_each(|_| book.transact(isolation, |bound| world::random() % bound));
}

fn judge<S: Scheme, M: on::Kind>(book: Book<S, M>, level: Level) {
    adya::check(level, &book.finish()).assert_ok();
}

const SERIALIZABLE: Isolation = Isolation::Serializable;

#[test]
fn silo() {
    histories::<Silo, on::Art>(800, SERIALIZABLE, Level::Strict);
    histories::<Silo, on::BLinkTree>(300, SERIALIZABLE, Level::Strict);
    histories::<Silo, on::HydraList>(300, SERIALIZABLE, Level::Strict);
}

#[test]
fn tictoc() {
    histories::<TicToc, on::Art>(800, SERIALIZABLE, Level::Serializable);
}

#[test]
fn no_wait() {
    histories::<NoWait, on::Art>(400, SERIALIZABLE, Level::Strict);
}

#[test]
fn wait_die() {
    histories::<WaitDie, on::Art>(400, SERIALIZABLE, Level::Strict);
}

#[test]
fn hekaton() {
    histories::<Hekaton, on::Art>(400, SERIALIZABLE, Level::Strict);
}

#[test]
fn mvrlu() {
    histories::<MvRlu, on::Art>(800, SERIALIZABLE, Level::Strict);
}

/// Over Eunomia's maps, whose changes are hardware transactions.
#[test]
fn maps_in_hardware_transactions() {
    histories_in_hardware::<Silo, on::EunoBTree>(480, Level::Strict);
    histories_in_hardware::<Silo, on::EunoSkipList>(240, Level::Strict);
    histories_in_hardware::<TicToc, on::EunoBTree>(480, Level::Serializable);
    histories_in_hardware::<TicToc, on::EunoSkipList>(240, Level::Serializable);
    histories_in_hardware::<MvRlu, on::EunoBTree>(480, Level::Strict);
    histories_in_hardware::<MvRlu, on::EunoSkipList>(240, Level::Strict);
}

/// With the hardware clock: the simulated sockets' clocks differ.
#[test]
fn the_processors_clocks() {
    histories_by::<Hekaton, on::Art>(ClockKind::Hardware, 400, SERIALIZABLE, Level::Strict);
    histories_by::<MvRlu, on::Art>(ClockKind::Hardware, 800, SERIALIZABLE, Level::Strict);
    histories_by::<Hekaton, on::Art>(ClockKind::Hardware, 200, Isolation::Snapshot, Level::Snapshot);
    histories_by::<MvRlu, on::Art>(ClockKind::Hardware, 400, Isolation::Snapshot, Level::Snapshot);
}

#[test]
fn snapshots() {
    histories::<Silo, on::Art>(400, Isolation::Snapshot, Level::Snapshot);
    histories::<TicToc, on::Art>(200, Isolation::Snapshot, Level::Snapshot);
    histories::<NoWait, on::Art>(100, Isolation::Snapshot, Level::Snapshot);
    histories::<WaitDie, on::Art>(100, Isolation::Snapshot, Level::Snapshot);
    histories::<Hekaton, on::Art>(200, Isolation::Snapshot, Level::Snapshot);
    histories::<MvRlu, on::Art>(400, Isolation::Snapshot, Level::Snapshot);
}

/// Equal runs are equal, wherever their memory is.
fn run_repeats<S: Scheme>() {
    let machine = Machine::preset("xeon-e5-4620-4s").expect("it is a preset");
    let config = Config { placement: Placement::Spread, ..Config::seeded(5) };
    let client = |book: &Book<S, on::Art>, _: Client| (0..8).for_each(|_| transact(book, SERIALIZABLE));
    let run = || {
        let (report, book) =
            run_with(&machine, &config, THREADS, || Book::new(ClockKind::Logical), client, |book| book);
        (report.assert_done().hash, book)
    };
    // The first run initializes statics, so it is not compared.
    run();
    // The book of this run stays alive, so the next run has its memory at other addresses.
    let (hash, _book) = run();
    assert_eq!(hash, run().0);
}

#[test]
fn runs_repeat_at_other_addresses() {
    run_repeats::<Silo>();
    run_repeats::<TicToc>();
    run_repeats::<NoWait>();
    run_repeats::<WaitDie>();
    run_repeats::<Hekaton>();
    run_repeats::<MvRlu>();
}

#[derive(Clone)]
struct Twin {
    key: u64,
    value: u64,
}

impl Row for Twin {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

/// The error of a closure.
#[derive(Debug)]
enum Stop {
    /// The two rows, which every commit leaves with the same value, were read with different values.
    Torn,
    /// An error of the database.
    Other,
}

impl From<Error> for Stop {
    fn from(_: Error) -> Self {
        Self::Other
    }
}

/// Increments both rows, in a random order. The first row is written before the second one is read.
fn add_to_both<S: Scheme>((db, table): &Twins<S>) -> Result<(), Stop> {
    let first = world::random() % 2;
    db.transact(|tx| {
        let one = tx.get(table, &first)?.expect("rows stay").value;
        tx.update(table, &first, |row| row.value += 1)?;
        let other = tx.get(table, &(1 - first))?.expect("rows stay").value;
        if one != other {
            return Err(Stop::Torn);
        }
        tx.update(table, &(1 - first), |row| row.value += 1)?;
        Ok(())
    })
}

type Twins<S> = (Database<S>, Table<Twin, S>);

/// A database of two rows with the same value.
fn twins<S: Scheme>() -> Twins<S> {
    twins_by(ClockKind::Logical)
}

fn twins_by<S: Scheme>(clock: ClockKind) -> Twins<S> {
    let db = Database::<S>::new().with_clock(clock);
    assert!(db.clock() == clock);
    let table = db.table::<Twin>();
    let made = db.transact(|tx| (0..2).try_for_each(|key| tx.insert(&table, Twin { key, value: 0 })));
    made.expect("keys are different");
    (db, table)
}

/// Replaces both rows without reading them, so no validation of the commit can fail.
fn replace_both<S: Scheme>((db, table): &Twins<S>) {
    let value = world::random();
    let replaced = db.transact(|tx| (0..2).try_for_each(|key| tx.upsert(table, Twin { key, value }).map(drop)));
    replaced.expect("only conflicts are in the way");
}

/// Reads both rows repeatedly in one snapshot.
fn look_at_both<S: Scheme>((db, table): &Twins<S>) {
    let view = db.snapshot();
    let value = |key| view.get(table, &key).expect("rows stay").value;
    let first = value(world::random() % 2);
    assert!((0..12).all(|key| value(key % 2) == first), "one moment");
}

/// A snapshot sees all of a commit or nothing of it, now and later. The commit's thread may be descheduled at any
/// point, also right after drawing its stamp.
fn commits_are_whole<S: Scheme>(clock: ClockKind) {
    let client = |space: &Twins<S>, _: Client| {
        (0..4).for_each(|_| if world::random() % 2 == 0 { replace_both(space) } else { look_at_both(space) });
    };
    let faults = |seed: u64| vec![stall(seed as usize % 4, "txn::drawn", 1 + seed / 4 % 3)];
    explore_with(200, faults, || twins_by::<S>(clock), client, drop);
    explore(200, || twins_by::<S>(clock), client, drop);
}

#[test]
fn commits_of_many_versions_are_whole() {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        commits_are_whole::<Hekaton>(clock);
        commits_are_whole::<MvRlu>(clock);
    }
}

/// An error of the closure is returned only if the rows that it read are consistent. A committing transaction that has
/// installed one row still holds the latch of the other row. A transaction that reads both rows must notice this latch,
/// even if it will write the latched row itself.
fn errors_are_sound<S: Scheme>() {
    let client = |space: &Twins<S>, _: Client| {
        (0..3).for_each(|_| add_to_both(space).expect("rows have one value at any moment"));
    };
    let end = |(db, table): Twins<S>| {
        let view = db.snapshot();
        let values: Vec<u64> = view.range(&table, ..).map(|row| row.value).collect();
        assert!(values[0] == values[1] && values[0] > 0 && values[0].is_multiple_of(3), "{values:?}");
    };
    explore(600, twins::<S>, client, end);
}

#[test]
fn errors_of_closures_are_sound() {
    errors_are_sound::<Silo>();
    errors_are_sound::<TicToc>();
    errors_are_sound::<NoWait>();
    errors_are_sound::<WaitDie>();
    errors_are_sound::<Hekaton>();
    errors_are_sound::<MvRlu>();
}

/// A pair of rows that one thread replaces repeatedly, and the newest value that any thread has announced.
struct Rumour<S: Scheme> {
    twins: Twins<S>,
    known: AtomicU64,
}

fn rumour<S: Scheme>() -> Rumour<S> {
    Rumour { twins: twins_by(ClockKind::Hardware), known: AtomicU64::new(0) }
}

/// A thread sees each value that was announced before its read, by the committing thread or by a reader, whatever its
/// own clock shows.
fn what_is_told_is_seen<S: Scheme>() {
    let client = |Rumour { twins: (db, table), known }: &Rumour<S>, client: Client| {
        for value in 1..=8 {
            if client.index == 0 {
                let replaced = db.transact(|tx| tx.upsert(table, Twin { key: 0, value }).map(drop));
                replaced.expect("only conflicts are in the way");
                known.fetch_max(value, Ordering::AcqRel);
                continue;
            }
            let told = known.load(Ordering::Acquire);
            let seen = db.transact(|tx| Ok::<_, Error>(tx.get(table, &0)?.expect("rows stay").value));
            let seen = seen.expect("only conflicts are in the way");
            assert!(seen >= told, "{seen} after {told}");
            known.fetch_max(seen, Ordering::AcqRel);
        }
    };
    explore(300, rumour::<S>, client, drop);
}

#[test]
fn clocks_that_differ_tell_one_story() {
    what_is_told_is_seen::<Hekaton>();
    what_is_told_is_seen::<MvRlu>();
}

/// Readers find the values of their snapshots' moments in chains of versions, while writers and the ends of other
/// snapshots remove old versions from these chains.
fn moments_are_kept<S: Scheme>(clock: ClockKind) {
    let client = |space: &Twins<S>, client: Client| {
        let (db, table) = space;
        for _ in 0..24 {
            if client.index < 2 {
                replace_both(space);
                continue;
            }
            if world::random() % 2 == 0 {
                look_at_both(space);
                continue;
            }
            let seen = db.transact(|tx| {
                let mut value = |key| Ok::<_, Error>(tx.get(table, &key)?.expect("rows stay").value);
                Ok::<_, Error>((value(0)?, value(1)?))
            });
            let (one, other) = seen.expect("only conflicts are in the way");
            assert_eq!(one, other, "one moment");
        }
    };
    explore(300, || twins_by::<S>(clock), client, drop);
}

#[test]
fn readers_find_their_moment() {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        moments_are_kept::<Hekaton>(clock);
        moments_are_kept::<MvRlu>(clock);
    }
}
