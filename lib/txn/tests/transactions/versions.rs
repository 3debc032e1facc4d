//! What schemes of many versions promise beyond the others: reads that no writer is in the way of.

use std::cell::Cell;
use std::thread;

use archipelago_txn::{Database, Error, Hekaton, Isolation, MvRlu, Row, Scheme, Silo, Table, on};

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

fn filled<S: Scheme>() -> (Database<S>, Table<Item, S>) {
    let db = Database::new();
    let table = db.table();
    let filled = db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, Item { key, value: 0 })));
    filled.expect("keys are different");
    (db, table)
}

/// Adds one to each row, a transaction each, in a thread of its own.
fn update_all<S: Scheme>(db: &Database<S>, table: &Table<Item, S>) {
    let update =
        || (0..ROWS).try_for_each(|key| db.transact(|tx| tx.update(table, &key, |row| row.value += 1)).map(drop));
    thread::scope(|scope| scope.spawn(update).join()).expect("no panic").expect("only conflicts are in the way");
}

/// Scans all rows, half of them before all are updated, the first time; returns how often it began.
fn scan_beside_updates<S: Scheme>(isolation: Isolation) -> u64 {
    let (db, table) = filled::<S>();
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
        assert_eq!(scan_beside_updates::<MvRlu>(isolation), 1);
        assert_eq!(scan_beside_updates::<Hekaton>(isolation), 1);
    }
    assert_eq!(scan_beside_updates::<Silo>(Isolation::Serializable), 2, "its first attempt saw two moments");
}

/// A transaction that has read what was replaced since may end, but not write.
fn no_skew_with_the_past<S: Scheme>() {
    let (db, table) = filled::<S>();
    let result = db.try_transact(|tx| {
        let value = tx.get(&table, &0)?.expect("rows stay").value;
        update_all(&db, &table);
        assert_eq!(tx.get(&table, &1)?.expect("rows stay").value, value);
        tx.insert(&table, Item { key: ROWS, value })
    });
    assert_eq!(result, Err(Error::Conflict));
    assert!(db.snapshot().get(&table, &ROWS).is_none());
}

/// Of two that write a row the first one wins, and the second one does not wait.
fn the_first_writer_wins<S: Scheme>() {
    let (db, table) = filled::<S>();
    let won = db.try_transact(|tx| {
        tx.update(&table, &0, |row| row.value = 7)?;
        let other = thread::scope(|scope| {
            scope.spawn(|| db.try_transact(|tx| tx.update(&table, &0, |row| row.value = 8))).join()
        });
        assert_eq!(other.expect("no panic"), Err(Error::Conflict));
        Ok::<_, Error>(())
    });
    assert_eq!(won, Ok(()));
    // And one that began before the last commit does not overwrite it.
    let late = db.try_transact(|tx| {
        tx.get(&table, &1)?;
        update_all(&db, &table);
        tx.update(&table, &0, |row| row.value = 9)
    });
    assert_eq!(late, Err(Error::Conflict));
    assert_eq!(db.snapshot().get(&table, &0).map(|row| row.value), Some(8));
}

/// What waits to be freed does not grow with the history of a row beside a snapshot that stays.
fn snapshots_keep_little<S: Scheme>() {
    let (db, table) = filled::<S>();
    let view = db.snapshot();
    for _ in 0..40 {
        update_all(&db, &table);
    }
    (0..3).for_each(|_| db.collect());
    let garbage = db.stats().garbage;
    assert!(garbage < ROWS as usize, "{garbage}");
    assert!(view.range(&table, ..).all(|row| row.value == 0));
}

#[test]
fn the_past_is_not_written_from() {
    no_skew_with_the_past::<Hekaton>();
    no_skew_with_the_past::<MvRlu>();
}

#[test]
fn first_writers_win() {
    the_first_writer_wins::<Hekaton>();
    the_first_writer_wins::<MvRlu>();
}

#[test]
fn a_snapshot_that_stays_keeps_little() {
    snapshots_keep_little::<Hekaton>();
    snapshots_keep_little::<MvRlu>();
}
