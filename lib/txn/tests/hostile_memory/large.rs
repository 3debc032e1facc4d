//! Transactions that are as large as the memory allows: they commit as a whole, or nothing of them remains.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use archipelago_check::hostile::{alone, limit};
use archipelago_check::watchdog::watchdog;
use archipelago_txn::{Database, Error, Index, Row, Scheme, Table, Tx, on};

use super::settled;

#[derive(Clone)]
struct Item {
    key: u64,
    value: u64,
}

impl Row for Item {
    type Key = u64;
    type Map = on::Art;
    type Indexes = (ByValue,);
    fn key(&self) -> u64 {
        self.key
    }
}

struct ByValue;

impl Index for ByValue {
    type Row = Item;
    type Key = u64;
    type Map = on::BLinkTree;
    const UNIQUE: bool = true;
    fn key(row: &Item) -> u64 {
        row.value
    }
}

/// Rows that are in the table before the large transaction.
const FEW: u64 = 10;
/// The value of a row that the test inserts is its key plus this number.
const ABOVE: u64 = 1_000;

super::by_every_scheme! {
    large_transactions_commit_as_a_whole_or_leave_nothing: large_writes;
    large_reads_beside_writers_see_one_moment: large_reads;
}

/// Returns the number of rows of a large transaction.
///
/// # Panics
/// If the variable `ARCHIPELAGO_LARGE_ROWS` is not a number.
fn many() -> u64 {
    let chosen = std::env::var("ARCHIPELAGO_LARGE_ROWS").ok();
    chosen.map_or(20_000, |text| text.parse().expect("a number of rows"))
}

fn insert<S: Scheme>(tx: &mut Tx<'_, S>, items: &Table<Item, S>, mut keys: std::ops::Range<u64>) -> Result<(), Error> {
    keys.try_for_each(|key| tx.insert(items, Item { key, value: key + ABOVE }))
}

/// Returns a database with a few rows and a limit.
fn filled<S: Scheme>(bytes: usize) -> (Database<S>, Table<Item, S>) {
    let db = Database::limited(bytes);
    let items = db.table();
    db.transact(|tx| insert(tx, &items, 0..FEW)).expect("there is room for a few rows");
    (db, items)
}

/// Checks that the table has the rows `0..count`, and the index has the same.
fn has<S: Scheme>(db: &Database<S>, items: &Table<Item, S>, count: u64) {
    let view = db.snapshot();
    let rows = || (0..count).map(|key| (key, key + ABOVE));
    assert!(view.range(items, ..).map(|row| (row.key, row.value)).eq(rows()), "the rows 0..{count}");
    assert!(view.range_by::<ByValue>(items, ..).map(|row| (row.key, row.value)).eq(rows()), "the index's 0..{count}");
}

/// An error of the closure or of the database.
#[derive(Debug, PartialEq)]
enum Stop {
    Wanted,
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

fn large_writes<S: Scheme>() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let (many, whole) = (many(), FEW + many());
        let (db, items) = filled::<S>(usize::MAX);
        db.transact(|tx| insert(tx, &items, FEW..whole)).expect("there is room");
        has(&db, &items, whole);
        let needed = db.stats().counted_bytes.expect("there is a limit");
        drop((db, items));

        let (db, items) = filled::<S>(needed / 2);
        let before = settled(&db);
        let counted = db.stats().counted_bytes;
        // Nothing of a transaction remains that does not fit, nor of one that is rolled back at its end.
        let unchanged = |what: &str| {
            let after = settled(&db);
            println!("{}: {needed} bytes needed, {before} before, {after} after {what}", S::NAME);
            has(&db, &items, FEW);
            assert_eq!(db.stats().counted_bytes, counted, "{what}");
            // The maps keep some pages, and garbage of their own.
            assert!(after <= before + needed / 8, "{before} bytes before, {after} after {what}");
        };
        assert_eq!(db.transact(|tx| insert(tx, &items, FEW..whole)), Err(Error::Full));
        unchanged("what does not fit");
        let most = FEW + many / 3;
        let undone =
            db.transact(|tx| insert(tx, &items, FEW..most).map_err(Stop::from).and(Err::<(), _>(Stop::Wanted)));
        assert_eq!(undone, Err(Stop::Wanted));
        unchanged("what is rolled back");
        db.transact(|tx| insert(tx, &items, FEW..most)).expect("a third fits into a half");
        has(&db, &items, most);
    });
}

/// Writers move value between rows. A transaction that reads all rows sees an unchanged sum.
fn large_reads<S: Scheme>() {
    const WRITERS: u64 = 2;
    let _alone = alone();
    watchdog(limit(), |_| {
        let many = many();
        let db = Database::<S>::new();
        let items = db.table::<Item>();
        let spaced = |key| Item { key, value: key << 32 };
        for part in 0..many.div_ceil(1_000) {
            let keys = part * 1_000..many.min((part + 1) * 1_000);
            db.transact(|tx| keys.clone().try_for_each(|key| tx.insert(&items, spaced(key)))).expect("keys differ");
        }
        let (moves, is_begun, is_over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        // The writers write rows of the upper half, so a reader of the lower half locks none of theirs. They end after
        // some moves: an optimistic reader may be retried as long as writers write.
        let work = |writer: u64| {
            while !is_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            for round in 0..2_000 {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // From the third quarter to the fourth: a reader between the two would see half of the move.
                let from = many / 2 + (round * WRITERS + writer) * 7919 % (many / 4);
                let moved = db.transact(|tx| {
                    tx.update(&items, &from, |row| row.value -= 1)?;
                    tx.update(&items, &(from + many / 4), |row| row.value += 1)
                });
                assert_eq!(moved, Ok(true));
                moves.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (begun, beside) = (Cell::new(0), Cell::new(0));
        thread::scope(|scope| {
            (0..WRITERS).for_each(|writer| _ = scope.spawn(move || work(writer)));
            let read = db.transact(|tx| {
                begun.set(begun.get() + 1);
                let before = moves.load(Ordering::Relaxed);
                is_begun.store(true, Ordering::Relaxed);
                let (mut rows, mut sum) = (0, 0_u128);
                for row in tx.range(&items, ..) {
                    let row = row?;
                    (rows, sum) = (rows + 1, sum + u128::from(row.value));
                    // The first attempt waits for the writers, so that at least one attempt is beside them.
                    while begun.get() == 1 && rows == many / 4 && moves.load(Ordering::Relaxed) < before + 10 {
                        thread::yield_now();
                    }
                }
                beside.set(moves.load(Ordering::Relaxed) - before);
                Ok::<_, Error>((rows, sum))
            });
            is_over.store(true, Ordering::Relaxed);
            let sum = (u128::from(many) * u128::from(many - 1) / 2) << 32;
            println!("{}: {} attempts, the last beside {} moves", S::NAME, begun.get(), beside.get());
            assert_eq!(read, Ok((many, sum)));
        });
    });
}
