//! Memory: when rows are dropped, snapshots that stay open, threads that begin and end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_txn::{Database, Error, Index, Row, Scheme, on};

#[derive(Clone)]
struct Item {
    key: u64,
    group: u64,
    _alive: Counted,
}

impl Row for Item {
    type Key = u64;
    type Map = on::Art;
    type Indexes = (ByGroup,);
    fn key(&self) -> u64 {
        self.key
    }
}

struct ByGroup;

impl Index for ByGroup {
    type Row = Item;
    type Key = u64;
    type Map = on::BLinkTree;
    fn key(row: &Item) -> u64 {
        row.group
    }
}

super::by_every_scheme! {
    all_is_dropped: every_row_is_dropped_once;
    a_snapshot_keeps_one_version: held_snapshots;
    threads_come_and_go: short_threads;
    crowds: more_threads_than_processors;
}

fn every_row_is_dropped_once<S: Scheme>() {
    let drops = DropCounter::new();
    let db = Database::<S>::new();
    let table = db.table::<Item>();
    let item = |key, group| Item { key, group, _alive: drops.value(key) };
    thread::scope(|scope| {
        for thread in 0..3 {
            let (db, table, item) = (&db, &table, &item);
            scope.spawn(move || {
                for round in 0..400_u64 {
                    let key = (round * 7 + thread) % 40;
                    let view = (round % 50 == 0).then(|| db.snapshot());
                    let planned = |tx: &mut archipelago_txn::Tx<'_, S>| {
                        tx.upsert(table, item(key, round % 5))?;
                        tx.update(table, &((key + 1) % 40), |row| row.group += 1)?;
                        tx.remove(table, &((key + 2) % 40))?;
                        assert!(round % 10 != 3, "planned");
                        if round % 10 == 5 { Err(Mine) } else { Ok(()) }
                    };
                    let _ = catch_unwind(AssertUnwindSafe(|| db.transact(planned)));
                    drop(view);
                }
            });
        }
    });
    let rows = db.snapshot().range(&table, ..).count() as i64;
    (0..3).for_each(|_| db.collect());
    assert_eq!(drops.alive(), rows, "what was replaced is freed");
    drop((db, table));
    drops.assert_all_dropped();
}

/// An error of the closure or of the database.
struct Mine;

impl From<Error> for Mine {
    fn from(_: Error) -> Self {
        Self
    }
}

fn held_snapshots<S: Scheme>() {
    const ROWS: u64 = 100;
    let drops = DropCounter::new();
    let db = Database::<S>::new();
    let table = db.table::<Item>();
    let write = |key, group| {
        let row = Item { key, group, _alive: drops.value(key) };
        db.transact(|tx| tx.upsert(&table, row.clone()).map(drop)).unwrap();
    };
    (0..ROWS).for_each(|key| write(key, 0));
    let views = [db.snapshot(), db.snapshot()];
    for round in 1..=50 {
        (0..ROWS).for_each(|key| write(key, round));
        if round == 20 {
            db.transact(|tx| {
                (0..ROWS).try_for_each(|key| tx.remove(&table, &key).map(drop))?;
                Ok::<_, Error>(())
            })
            .unwrap();
        }
        // Opens short snapshots while others stay open.
        assert_eq!(db.snapshot().range(&table, ..).count(), ROWS as usize * usize::from(round != 20));
    }
    db.collect();
    db.collect();
    assert_eq!(drops.alive(), 2 * ROWS as i64, "one row, and one version for both snapshots");
    for view in views {
        assert_eq!(view.range_by::<ByGroup>(&table, ..=0).count(), ROWS as usize);
    }
    db.collect();
    db.collect();
    assert_eq!(drops.alive(), ROWS as i64, "the last snapshot that saw a version frees it");
    (0..ROWS).for_each(|key| db.transact(|tx| tx.remove(&table, &key).map(drop)).unwrap());
    (0..3).for_each(|_| db.collect());
    let stats = db.stats();
    assert_eq!((drops.alive(), stats.garbage, stats.snapshots), (0, 0, 0), "no tombstone stays");
}

fn short_threads<S: Scheme>() {
    let drops = DropCounter::new();
    let db = Database::<S>::new();
    let table = db.table::<Item>();
    for round in 0..60_u64 {
        thread::scope(|scope| {
            for thread in 0..2 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let key = (round + thread) % 10;
                    let row = Item { key, group: round, _alive: drops.value(key) };
                    db.transact(|tx| tx.upsert(table, row.clone()).map(drop)).unwrap();
                    drop(row);
                    assert!(db.snapshot().get(table, &key).is_some());
                });
            }
        });
    }
    (0..3).for_each(|_| db.collect());
    assert_eq!(drops.alive(), 10);
    drop((db, table));
    drops.assert_all_dropped();
}

fn more_threads_than_processors<S: Scheme>() {
    let drops = DropCounter::new();
    let db = Database::<S>::new();
    let table = db.table::<Item>();
    thread::scope(|scope| {
        for thread in 0..32_u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for round in 0..40 {
                    db.transact(|tx| {
                        let key = (round + thread) % 5;
                        let group = tx.get(table, &key)?.map_or(0, |row| row.group);
                        tx.upsert(table, Item { key, group: group + 1, _alive: drops.value(key) }).map(drop)
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(db.snapshot().range(&table, ..).map(|row| row.group).sum::<u64>(), 32 * 40);
}
