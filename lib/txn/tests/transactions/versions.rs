//! The additional guarantees of multi-version schemes: reads that no writer delays or makes retry.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_txn::{ClockKind, Database, Error, Hekaton, Isolation, MvRlu, Row, Scheme, Silo, Table, on};

#[derive(Clone)]
struct Item {
    key: u64,
    value: u64,
}

impl Row for Item {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

const ROWS: u64 = 300;

const CLOCKS: [ClockKind; 2] = [ClockKind::Logical, ClockKind::Hardware];

fn filled<S: Scheme>(clock: ClockKind) -> (Database<S>, Table<Item, S>) {
    let db = Database::new().with_clock(clock);
    let table = db.table();
    let filled = db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, Item { key, value: 0 })));
    filled.expect("keys are different");
    (db, table)
}

/// Increments each row by one, with one transaction for each row, in a thread of its own.
fn update_all<S: Scheme>(db: &Database<S>, table: &Table<Item, S>) {
    let update =
        || (0..ROWS).try_for_each(|key| db.transact(|tx| tx.update(table, &key, |row| row.value += 1)).map(drop));
    thread::scope(|scope| scope.spawn(update).join()).expect("no panic").expect("only conflicts are in the way");
}

/// Scans all rows. At the first attempt, all rows are updated after half of the scan. Returns the number of attempts.
fn scan_beside_updates<S: Scheme>(isolation: Isolation, clock: ClockKind) -> u64 {
    let (db, table) = filled::<S>(clock);
    let begun = Cell::new(0);
    let values = db.transact_at(isolation, |tx| {
        begun.set(begun.get() + 1);
        let mut values =
            tx.range(&table, ..ROWS / 2).map(|row| row.map(|row| row.value)).collect::<Result<Vec<_>, _>>()?;
        if begun.get() == 1 {
            update_all(&db, &table);
        }
        values.extend(tx.range(&table, ROWS / 2..).map(|row| row.map(|row| row.value)).collect::<Result<Vec<_>, _>>()?);
        Ok::<_, Error>(values)
    });
    let values = values.expect("only conflicts are in the way");
    assert!(values.iter().all(|value| *value == values[0]), "one moment");
    begun.get()
}

#[test]
fn scans_beside_updates_are_never_begun_anew() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for clock in CLOCKS {
            assert_eq!(scan_beside_updates::<MvRlu>(isolation, clock), 1);
            assert_eq!(scan_beside_updates::<Hekaton>(isolation, clock), 1);
        }
    }
    assert_eq!(
        scan_beside_updates::<Silo>(Isolation::Serializable, ClockKind::Logical),
        2,
        "its first attempt saw two moments"
    );
}

/// A transaction that has read rows which were replaced later may end, but must not write.
fn no_skew_with_the_past<S: Scheme>(clock: ClockKind) {
    let (db, table) = filled::<S>(clock);
    let result = db.try_transact(|tx| {
        // The transaction has read nothing yet, so none of its reads is out of date.
        update_all(&db, &table);
        let value = tx.get(&table, &1)?.expect("rows stay").value;
        assert_eq!(value, 0, "what was there when it began");
        tx.insert(&table, Item { key: ROWS, value })
    });
    assert_eq!(result, Err(Error::Conflict));
    assert!(db.snapshot().get(&table, &ROWS).is_none());
}

/// If two concurrent transactions write a row, the first one commits, and the second one fails without waiting.
fn the_first_writer_wins<S: Scheme>(clock: ClockKind) {
    let (db, table) = filled::<S>(clock);
    let won = db.try_transact(|tx| {
        tx.update(&table, &0, |row| row.value = 7)?;
        let other = thread::scope(|scope| {
            scope.spawn(|| db.try_transact(|tx| tx.update(&table, &0, |row| row.value = 8))).join()
        });
        assert_eq!(other.expect("no panic"), Err(Error::Conflict));
        Ok::<_, Error>(())
    });
    assert_eq!(won, Ok(()));
    // A transaction that began before another one's commit does not overwrite the committed version, even if nothing
    // else is validated.
    let begun = Cell::new(0);
    let late = db.transact_at(Isolation::Snapshot, |tx| {
        begun.set(begun.get() + 1);
        if begun.get() == 1 {
            update_all(&db, &table);
        }
        tx.update(&table, &0, |row| row.value *= 10)
    });
    assert_eq!((late, begun.get()), (Ok(true), 2));
    assert_eq!(db.snapshot().get(&table, &0).map(|row| row.value), Some(80));
}

/// The rows get long chains of versions before the transaction, which began earlier, reads them.
fn long_chains<S: Scheme>(clock: ClockKind) {
    let (db, table) = filled::<S>(clock);
    update_all(&db, &table);
    let sum = db.try_transact(|tx| {
        let first = tx.get(&table, &0)?.expect("rows stay").value;
        (0..20).for_each(|_| update_all(&db, &table));
        let rows = tx.range(&table, ..).map(|row| row.map(|row| row.value)).sum::<Result<u64, _>>()?;
        Ok::<_, Error>((first, rows))
    });
    assert_eq!(sum, Ok((1, ROWS)), "one moment, at the first attempt");
}

/// A row of about 1 KiB.
#[derive(Clone)]
struct Heavy {
    key: u64,
    value: u64,
    _ballast: [u64; 120],
    _alive: Counted,
}

impl Row for Heavy {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

const THREADS: u64 = 4;
/// The number of rows in 64 KiB.
const SLACK: i64 = (64 << 10) / size_of::<Heavy>() as i64;

fn filled_heavily<S: Scheme>(drops: &DropCounter, clock: ClockKind) -> (Database<S>, Table<Heavy, S>) {
    let db = Database::new().with_clock(clock);
    let table = db.table();
    let row = |key| Heavy { key, value: 0, _ballast: [key; 120], _alive: drops.value(key) };
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, row(key)))).expect("keys are different");
    (db, table)
}

/// Increments each row by one, with several threads and one transaction for each row. Returns the number of attempts.
fn weigh_on_all<S: Scheme>(db: &Database<S>, table: &Table<Heavy, S>) -> u64 {
    let begun = AtomicU64::new(0);
    let update = |key| {
        db.transact(|tx| {
            begun.fetch_add(1, Ordering::Relaxed);
            tx.update(table, &key, |row| row.value += 1)
        })
    };
    let part = |thread| (0..ROWS).filter(|key| key % THREADS == thread).try_for_each(|key| update(key).map(drop));
    let part = |thread| part(thread).expect("only conflicts are in the way");
    thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || part(thread))));
    begun.into_inner()
}

/// Replaced versions are freed continuously. The garbage is at most as large as the rows, plus 64 KiB for each thread.
/// (A thread that is descheduled in a transaction may delay more garbage, so the threads of this test take turns.)
fn updates_need_little<S: Scheme>(clock: ClockKind) {
    let drops = DropCounter::new();
    let (db, table) = filled_heavily::<S>(&drops, clock);
    let turn = Mutex::new(());
    let update = |key| {
        let _turn = turn.lock().expect("no panic");
        db.transact(|tx| tx.update(&table, &key, |row| row.value += 1)).map(drop).expect("none is in the way");
        let alive = drops.alive();
        assert!(alive <= 2 * ROWS as i64 + SLACK * THREADS as i64, "{alive}");
    };
    let part = |thread: u64| (0..10_000).for_each(|round| update((round * THREADS + thread) % ROWS));
    thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || part(thread))));
}

/// An open snapshot costs one version for each row, however often the rows are replaced, and causes no retries of
/// writers.
fn snapshots_keep_little<S: Scheme>(clock: ClockKind) {
    let drops = DropCounter::new();
    let (db, table) = filled_heavily::<S>(&drops, clock);
    weigh_on_all(&db, &table);
    let view = db.snapshot();
    for _ in 0..40 {
        assert_eq!(weigh_on_all(&db, &table), ROWS, "no writer is in another's way, nor is the snapshot");
        assert!(view.range(&table, ..).all(|row| row.value == 1));
    }
    (0..3).for_each(|_| db.collect());
    assert_eq!(drops.alive(), 2 * ROWS as i64);
    drop(view);
    (0..3).for_each(|_| db.collect());
    assert_eq!(drops.alive(), ROWS as i64);
}

/// Chains that became long during a transaction are short after its end.
fn chains_are_cut<S: Scheme>(clock: ClockKind) {
    let drops = DropCounter::new();
    let (db, table) = filled_heavily::<S>(&drops, clock);
    let seen = db.try_transact(|tx| {
        (0..20).for_each(|_| _ = weigh_on_all(&db, &table));
        Ok::<_, Error>(tx.get(&table, &0)?.expect("rows stay").value)
    });
    assert_eq!(seen, Ok(0));
    (0..4).for_each(|_| db.collect());
    assert_eq!(drops.alive(), ROWS as i64);
}

/// Runs a function that is generic over the scheme, for both multi-version schemes and with both clocks.
macro_rules! on_both_clocks {
    ($($name:ident: $run:ident;)*) => { $(
        #[test]
        fn $name() {
            for clock in CLOCKS {
                $run::<Hekaton>(clock);
                $run::<MvRlu>(clock);
            }
        }
    )* };
}

on_both_clocks! {
    the_past_is_not_written_from: no_skew_with_the_past;
    first_writers_win: the_first_writer_wins;
    long_chains_have_what_is_read: long_chains;
    updates_are_bounded: updates_need_little;
    chains_end_with_their_readers: chains_are_cut;
    a_snapshot_that_stays_keeps_little: snapshots_keep_little;
}

#[test]
#[should_panic(expected = "the clock is chosen first")]
fn the_clock_is_chosen_before_tables() {
    let (db, _table) = filled::<MvRlu>(ClockKind::Logical);
    let _ = db.with_clock(ClockKind::Hardware);
}

#[test]
#[should_panic(expected = "the clock is chosen first")]
fn the_clock_is_chosen_before_tables_without_handles() {
    let (db, table) = filled::<MvRlu>(ClockKind::Hardware);
    drop(table);
    let _ = db.with_clock(ClockKind::Logical);
}
