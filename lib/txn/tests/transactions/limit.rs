//! Databases with a limit of memory: which operations are refused, which succeed, and that memory becomes free again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{Database, Error, Index, Row, Scheme, Table, Tx, on};

const ROWS: u64 = 200;
/// The heap memory that a row owns, in bytes: most of the row's memory.
const TEXT: usize = 1_000;

#[derive(Clone)]
struct Note {
    key: u64,
    value: u64,
    text: String,
}

impl Note {
    fn new(key: u64) -> Self {
        Self { key, value: 0, text: "x".repeat(TEXT) }
    }
}

impl Row for Note {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = (ByValue,);
    fn key(&self) -> u64 {
        self.key
    }
    fn heap_bytes(&self) -> usize {
        self.text.capacity()
    }
}

struct ByValue;

impl Index for ByValue {
    type Row = Note;
    type Key = u64;
    type Map = on::Art;
    fn key(row: &Note) -> u64 {
        row.value
    }
}

fn filled_to<S: Scheme>(limit: usize) -> (Database<S>, Table<Note, S>) {
    let db = Database::limited(limit);
    let notes = db.table();
    for key in 0..ROWS {
        db.transact(|tx| tx.insert(&notes, Note::new(key))).expect("there is room for the rows");
    }
    (db, notes)
}

/// Returns a database that contains the rows. Its limit is 1.9 times the memory that the rows use, which is too little
/// for a second version of every row. Also returns the memory of the rows, in bytes.
fn filled<S: Scheme>() -> (Database<S>, Table<Note, S>, usize) {
    let (db, _notes) = filled_to::<S>(usize::MAX / 2);
    let live = counted(&db);
    assert!(live > ROWS as usize * TEXT && live < ROWS as usize * (TEXT + 1_000), "{live} bytes");
    let (db, notes) = filled_to(live * 19 / 10);
    (db, notes, live)
}

fn add<S: Scheme>(tx: &mut Tx<'_, S>, notes: &Table<Note, S>, key: u64) -> Result<(), Error> {
    tx.update(notes, &key, |row| row.value += 1).map(|found| assert!(found))
}

/// Returns the counted bytes, after all garbage has been freed.
fn counted<S: Scheme>(db: &Database<S>) -> usize {
    (0..4).for_each(|_| db.collect());
    db.stats().counted_bytes.expect("there is a limit")
}

super::by_every_scheme! {
    a_snapshot_that_stays_fills_it: snapshot_that_stays;
    what_is_too_large_is_refused: too_large;
    a_transaction_goes_on_with_removals: removals;
    threads_lose_nothing: threads;
    limits_of_any_size_are_limits: sizes;
}

fn sizes<S: Scheme>() {
    for limit in [isize::MAX as usize, isize::MAX as usize + 1, usize::MAX - 1, usize::MAX] {
        let (db, _notes) = filled_to::<S>(limit);
        assert!(counted(&db) > ROWS as usize * TEXT);
    }
    let db = Database::<S>::limited(0);
    let notes = db.table();
    assert_eq!(db.transact(|tx| tx.insert(&notes, Note::new(0))), Err(Error::Full));
}

fn snapshot_that_stays<S: Scheme>() {
    let (db, notes, live) = filled::<S>();
    let before = counted(&db);
    let view = db.snapshot();
    let full = (0..ROWS).find_map(|key| db.transact(|tx| add(tx, &notes, key)).err().map(|error| (key, error)));
    let (updated, error) = full.expect("a version more of each row is more than there is room for");
    assert_eq!(error, Error::Full);
    assert!(updated > ROWS / 2, "room for {updated} versions");
    // Operations are refused again with the same error. Refused operations have changed nothing.
    assert_eq!(db.transact(|tx| tx.insert(&notes, Note::new(ROWS))), Err(Error::Full));
    assert_eq!(db.transact(|tx| tx.upsert(&notes, Note::new(0)).map(drop)), Err(Error::Full));
    let sum = db.transact(|tx| tx.range(&notes, ..).map(|row| row.map(|row| row.value)).sum::<Result<u64, _>>());
    assert_eq!(sum, Ok(updated), "reads go on");
    assert!(db.transact(|tx| tx.remove(&notes, &(ROWS - 1)).map(|row| row.is_some())).expect("removals go on"));
    assert_eq!(view.range(&notes, ..).map(|row| row.value + 1).sum::<u64>(), ROWS, "the snapshot has what it had");
    drop(view);
    for _ in 0..3 {
        (0..ROWS - 1).for_each(|key| db.transact(|tx| add(tx, &notes, key)).expect("there is room again"));
    }
    assert_eq!(db.snapshot().range(&notes, ..).map(|row| row.value).sum::<u64>(), updated + 3 * (ROWS - 1));
    let after = counted(&db);
    assert!(after <= before + live / 50, "{before} bytes counted at first, {after} in the end");
}

fn too_large<S: Scheme>() {
    let (db, notes, live) = filled::<S>();
    let before = counted(&db);
    let begun = Cell::new(0);
    let result = db.transact(|tx| {
        begun.set(begun.get() + 1);
        (ROWS..).try_for_each(|key| tx.insert(&notes, Note::new(key)))
    });
    assert_eq!(result, Err(Error::Full));
    assert!(begun.get() <= 2, "{} attempts", begun.get());
    assert_eq!(db.snapshot().range(&notes, ROWS..).count(), 0);
    let after = counted(&db);
    assert!(after <= before + live / 50, "{before} bytes counted before, {after} after");
}

/// After one update of a transaction has failed (`Full` or `Conflict`), the same transaction can still remove rows and
/// commit.
fn removals<S: Scheme>() {
    let (db, notes, _) = filled::<S>();
    let view = db.snapshot();
    let moved = db.transact(|tx| {
        let full = (0..ROWS).find_map(|key| add(tx, &notes, key).err());
        assert!(matches!(full, Some(Error::Full | Error::Conflict)), "{full:?}");
        tx.remove(&notes, &(ROWS - 1)).map(|row| row.is_some())
    });
    assert_eq!(moved, Ok(true), "its own to say what becomes of it");
    drop(view);
    assert!(db.snapshot().get(&notes, &(ROWS - 1)).is_none());
}

fn threads<S: Scheme>() {
    watchdog(USUAL, |_| {
        let (db, notes, live) = filled::<S>();
        let added = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (db, notes, added) = (&db, &notes, &added);
                scope.spawn(move || {
                    for round in 0..300 {
                        let view = (thread == 0 && round % 3 == 0).then(|| db.snapshot());
                        match db.transact(|tx| {
                            (0..4).try_for_each(|key| add(tx, notes, (thread * 50 + round + key) % ROWS))
                        }) {
                            Ok(()) => _ = added.fetch_add(4, Ordering::Relaxed),
                            Err(error) => assert_eq!(error, Error::Full),
                        }
                        drop(view);
                    }
                });
            }
        });
        let sum = db.snapshot().range(&notes, ..).map(|row| row.value).sum::<u64>();
        assert_eq!(sum, added.into_inner());
        let used = counted(&db);
        assert!(used <= live * 51 / 50, "{used} bytes counted in the end");
    });
}
