//! A snapshot that stays open costs one version of each row and index entry, whatever is written meanwhile, and however
//! long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_check::hostile::{alone, duration_or, limit};
use archipelago_check::watchdog::watchdog;
use archipelago_txn::{Database, Error, Index, Row, Scheme, Snapshot, Table, on};

use super::{HEAP, settled};

/// A row of about 1 KiB.
#[derive(Clone)]
struct Heavy {
    key: u64,
    value: u64,
    _ballast: [u64; 120],
}

impl Heavy {
    fn new(key: u64, value: u64) -> Self {
        Self { key, value, _ballast: [key; 120] }
    }
}

impl Row for Heavy {
    type Key = u64;
    type Map = on::Art;
    type Indexes = (ByValue,);
    fn key(&self) -> u64 {
        self.key
    }
}

/// An index whose entry changes at each update.
struct ByValue;

impl Index for ByValue {
    type Row = Heavy;
    type Key = u64;
    type Map = on::BLinkTree;
    fn key(row: &Heavy) -> u64 {
        row.value
    }
}

const ROWS: u64 = 304;
const THREADS: u64 = 4;
/// What each thread that uses the database may add, in bytes; the main thread is one of them.
const SLACK: usize = (THREADS as usize + 1) * (64 << 10);

super::by_every_scheme! {
    replaced_and_removed_rows_are_freed: all_writes_in_turns;
    a_snapshot_costs_one_version_of_each_row: free_updates;
}

/// Returns a database with the rows, and the memory of both in bytes.
fn filled<S: Scheme>() -> (Database<S>, Table<Heavy, S>, usize) {
    let before = HEAP.bytes();
    let db = Database::new();
    let table = db.table();
    let filled = db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, Heavy::new(key, 0))));
    filled.expect("keys are different");
    let live = settled(&db) - before;
    (db, table, live)
}

/// Checks that the snapshot contains each row as it was at first, also by the index.
fn is_as_at_first<S: Scheme>(view: &Snapshot<'_, S>, table: &Table<Heavy, S>) {
    assert!(view.range(table, ..).map(|row| (row.key, row.value)).eq((0..ROWS).map(|key| (key, 0))));
    let mut by_value: Vec<u64> = view.range_by::<ByValue>(table, ..).map(|row| row.key).collect();
    by_value.sort_unstable();
    assert!(by_value.into_iter().eq(0..ROWS));
}

/// Returns whether a short snapshot is open while a row is written. In schemes with one version per row only snapshots
/// advance the clock, and without them all versions would belong to one epoch.
fn is_beside(key: u64) -> bool {
    key.is_multiple_of(8)
}

/// Changes a row in one of three ways, depending on the number of the round: two updates, a removal, an insertion.
fn write<S: Scheme>(db: &Database<S>, table: &Table<Heavy, S>, key: u64, round: u64) {
    let done = match round % 4 {
        0 | 1 => db.transact(|tx| tx.update(table, &key, |row| row.value = round + 1)),
        2 => db.transact(|tx| tx.remove(table, &key).map(|row| row.is_some())),
        _ => db.transact(|tx| tx.insert(table, Heavy::new(key, round + 1)).map(|()| true)),
    };
    assert_eq!(done, Ok(true));
}

/// Updates, removals and insertions. (A thread that is descheduled in a transaction delays the garbage of all threads,
/// so the threads take turns.)
fn all_writes_in_turns<S: Scheme>() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let (db, table, live) = filled::<S>();
        let view = db.snapshot();
        let before = HEAP.bytes();
        let (end, turn) = (Instant::now() + duration_or(Duration::from_millis(300)), Mutex::new(()));
        let part = |thread: u64| {
            let mut round = 0_u64;
            while !round.is_multiple_of(4) || Instant::now() < end {
                for key in (0..ROWS).filter(|key| key % THREADS == thread) {
                    let _turn = turn.lock().expect("no panic");
                    let _short = is_beside(key).then(|| db.snapshot());
                    write(&db, &table, key, round);
                }
                round += 1;
            }
            round
        };
        let (most, rounds) = HEAP.most(|| {
            thread::scope(|scope| {
                let parts: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
                parts.into_iter().map(|part| part.join().expect("no panic")).sum::<u64>()
            })
        });
        println!("{}: {live} bytes live, {most} more at most, in {} writes", S::NAME, rounds * ROWS / THREADS);
        is_as_at_first(&view, &table);
        drop(view);
        let after = settled(&db);
        println!("{}: {} bytes more in the end", S::NAME, after as isize - before as isize);
        // A version of each row for the snapshot; and garbage, as much as the rows.
        assert!(most <= 2 * live + SLACK, "{most} bytes beside {live} live ones");
        assert!(after <= before + SLACK, "{before} bytes at first, {after} in the end");
    });
}

/// Updates by threads that run freely, and write the same rows. Between two rounds of updates no thread is in a
/// transaction, and the memory is measured.
fn free_updates<S: Scheme>() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let (db, table, live) = filled::<S>();
        let view = db.snapshot();
        let before = HEAP.bytes();
        let end = Instant::now() + duration_or(Duration::from_millis(300));
        let (all, is_over) = (Barrier::new(THREADS as usize), AtomicBool::new(false));
        let (most, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let part = |thread: u64| {
            while !is_over.load(Ordering::Relaxed) {
                for step in 0..ROWS {
                    let key = (step + thread * ROWS / THREADS) % ROWS;
                    let _short = is_beside(key).then(|| db.snapshot());
                    let updated = db.transact(|tx| tx.update(&table, &key, |row| row.value += 1));
                    assert_eq!(updated, Ok(true));
                }
                if all.wait().is_leader() {
                    most.fetch_max(settled(&db).saturating_sub(before), Ordering::Relaxed);
                    let rounds = rounds.fetch_add(1, Ordering::Relaxed);
                    is_over.store(rounds >= 4 && Instant::now() >= end, Ordering::Relaxed);
                }
                all.wait();
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|thread| _ = scope.spawn(move || part(thread))));
        let (most, updates) = (most.into_inner(), rounds.into_inner() as u64 * THREADS);
        println!("{}: {live} bytes live, {most} more at most, in {} updates", S::NAME, updates * ROWS);
        is_as_at_first(&view, &table);
        let sum =
            db.transact(|tx| tx.range(&table, ..).map(|row| row.map(|row| row.value)).sum::<Result<u64, Error>>());
        assert_eq!(sum, Ok(updates * ROWS), "no update is lost");
        assert!(most <= live + SLACK, "{most} bytes beside {live} live ones");
    });
}
