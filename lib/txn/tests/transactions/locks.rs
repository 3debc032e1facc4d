//! Orders of locking in which transactions could deadlock, old transactions among many young ones, and locks that must
//! be released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{Database, Error, Hekaton, MvRlu, NoWait, Row, Scheme, Table, Tx, WaitDie, on};

#[derive(Clone)]
struct Counter {
    key: u64,
    count: u64,
}

impl Row for Counter {
    type Key = u64;
    type Map = on::BLinkTree;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

const ROWS: u64 = 8;

fn counters<S: Scheme>() -> (Database<S>, Table<Counter, S>) {
    let db = Database::new();
    let table = db.table();
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, Counter { key, count: 0 }))).unwrap();
    (db, table)
}

fn add<S: Scheme>(tx: &mut Tx<'_, S>, table: &Table<Counter, S>, key: u64) -> Result<(), Error> {
    tx.update(table, &key, |row| row.count += 1).map(drop)
}

super::by_every_scheme! {
    opposite_orders_end: opposite_orders;
    readers_that_come_to_write_end: upgrades;
    no_lock_is_left: errors_and_panics;
}

/// Half of the threads write the rows in ascending order, the other half in descending order.
fn opposite_orders<S: Scheme>() {
    watchdog(USUAL, |_| {
        let (db, table) = counters::<S>();
        thread::scope(|scope| {
            for thread in 0..12_u64 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for _ in 0..40 {
                        db.transact(|tx| {
                            (0..ROWS).try_for_each(|key| {
                                add(tx, table, if thread % 2 == 0 { key } else { ROWS - 1 - key })?;
                                thread::yield_now();
                                Ok::<_, Error>(())
                            })
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert!(db.snapshot().range(&table, ..).all(|row| row.count == 12 * 40));
    });
}

/// All transactions read all rows, and then write a row that the others have read.
fn upgrades<S: Scheme>() {
    watchdog(USUAL, |_| {
        let (db, table) = counters::<S>();
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for round in 0..40 {
                        db.transact(|tx| {
                            tx.range(table, ..).try_for_each(|row| row.map(drop))?;
                            thread::yield_now();
                            add(tx, table, (thread + round) % ROWS)
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.snapshot().range(&table, ..).map(|row| row.count).sum::<u64>(), 8 * 40);
    });
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Error,
    Panic,
}

/// An error of the closure or of the database.
struct Stop;

impl From<Error> for Stop {
    fn from(_: Error) -> Self {
        Self
    }
}

/// Reads and writes rows, existing and absent ones, and after `steps` steps ends in the way that `ending` names.
fn ends_after<S: Scheme>(
    tx: &mut Tx<'_, S>,
    table: &Table<Counter, S>,
    steps: u64,
    ending: Ending,
) -> Result<(), Stop> {
    let end = |step| match ending {
        _ if step < steps => Ok(()),
        Ending::Error => Err(Stop),
        Ending::Panic => panic!("planned"),
    };
    end(0)?;
    tx.range(table, ..4).try_for_each(|row| row.map(drop))?;
    end(1)?;
    tx.update(table, &1, |row| {
        row.count += 1;
        assert!(steps != 2 || ending != Ending::Panic, "planned");
    })?;
    end(2)?;
    tx.get(table, &99)?;
    end(3)?;
    tx.insert(table, Counter { key: 99, count: 0 })?;
    end(4)?;
    tx.savepoint(|tx| {
        tx.remove(table, &5)?;
        end(5)
    })?;
    end(6)
}

fn errors_and_panics<S: Scheme>() {
    let (db, table) = counters::<S>();
    for ending in [Ending::Error, Ending::Panic] {
        for steps in 0..=6 {
            let ended = catch_unwind(AssertUnwindSafe(|| db.transact(|tx| ends_after(tx, &table, steps, ending))));
            assert!(ended.map_or(ending == Ending::Panic, |result| result.is_err()));
            // One attempt in another thread must succeed.
            let all = |tx: &mut Tx<'_, S>| (0..ROWS).try_for_each(|key| add(tx, &table, key));
            let insert = |tx: &mut Tx<'_, S>| tx.insert(&table, Counter { key: 99, count: 0 });
            let remove = |tx: &mut Tx<'_, S>| tx.remove(&table, &99).map(drop);
            thread::scope(|scope| {
                scope.spawn(|| {
                    db.try_transact(all).unwrap();
                    db.try_transact(insert).unwrap();
                    db.try_transact(remove).unwrap();
                });
            });
        }
    }
    assert!(db.snapshot().range(&table, ..).all(|row| row.count == 14));
}

/// A reader that wants to write gives up if there is another reader, and releases its lock.
#[test]
fn a_reader_does_not_write_beside_another() {
    let (db, table) = counters::<NoWait>();
    let upgrade = |tx: &mut Tx<'_, NoWait>| {
        tx.get(&table, &1)?;
        add(tx, &table, 1)
    };
    let read = db.try_transact(|tx| {
        tx.get(&table, &1)?;
        let other = thread::scope(|scope| scope.spawn(|| db.try_transact(upgrade)).join());
        assert_eq!(other.expect("no panic"), Err(Error::Conflict));
        Ok::<_, Error>(())
    });
    assert_eq!((read, db.try_transact(upgrade)), (Ok(()), Ok(())));
}

/// A transaction that meets an older transaction's lock does not wait for it.
#[test]
fn the_younger_gives_up_at_once() {
    let (db, table) = counters::<WaitDie>();
    let younger = thread::scope(|scope| {
        db.transact(|tx| {
            add(tx, &table, 1)?;
            let (tell, told) = mpsc::channel();
            let (db, table) = (&db, &table);
            scope.spawn(move || tell.send(db.try_transact(|tx| add(tx, table, 1))));
            Ok::<_, Error>(told.recv_timeout(Duration::from_secs(10)))
        })
    });
    assert_eq!(younger, Ok(Ok(Err(Error::Conflict))));
}

/// A transaction that arrived before all others is never retried (never *dies*), however many other transactions run
/// and whatever locks they hold.
#[test]
fn the_oldest_dies_of_no_lock() {
    watchdog(USUAL, |_| {
        let (db, table) = counters::<WaitDie>();
        let (storm, over) = (Barrier::new(9), AtomicBool::new(false));
        let mut attempts = 0;
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (db, table, storm, over) = (&db, &table, &storm, &over);
                scope.spawn(move || {
                    storm.wait();
                    for round in 0.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        db.transact(|tx| {
                            tx.get(table, &((round + 1) % ROWS))?;
                            thread::yield_now();
                            add(tx, table, (thread + round) % ROWS)
                        })
                        .unwrap();
                    }
                });
            }
            db.transact(|tx| {
                attempts += 1;
                if attempts == 1 {
                    storm.wait();
                }
                for key in 0..ROWS {
                    thread::yield_now();
                    tx.get(&table, &key)?;
                    add(tx, &table, key)?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(attempts, 1);
    });
}

/// A transaction that is not the oldest when it begins becomes the oldest after a while, although all other
/// transactions read or write its rows all the time. The test runs 20 such transactions, one after another, and each of
/// them ends.
#[test]
fn all_become_the_oldest() {
    watchdog(USUAL, |_| {
        let (db, table) = counters::<WaitDie>();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (db, table, over) = (&db, &table, &over);
                scope.spawn(move || {
                    for round in 0.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        db.transact(|tx| {
                            tx.range(table, ..).try_for_each(|row| row.map(drop))?;
                            if (round + thread) % 4 == 0 { add(tx, table, round % ROWS) } else { Ok(()) }
                        })
                        .unwrap();
                    }
                });
            }
            for _ in 0..20 {
                let mut attempts = 0_u32;
                db.transact(|tx| {
                    attempts += 1;
                    (0..ROWS).try_for_each(|key| add(tx, &table, ROWS - 1 - key))
                })
                .unwrap();
                assert!(attempts < 5_000, "{attempts} attempts");
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

/// A savepoint that a conflict ends takes back its writes, but the transaction cannot be committed any more.
fn conflicts_outlast_savepoints<S: Scheme>() {
    let (db, table) = counters::<S>();
    let loser = || {
        db.try_transact(|tx| {
            let part = tx.savepoint(|tx| {
                add(tx, &table, 1)?;
                add(tx, &table, 0)
            });
            assert_eq!(part, Err(Error::Conflict), "{}", S::NAME);
            assert_eq!(tx.get(&table, &2).map(drop), Err(Error::Conflict), "{}", S::NAME);
            Ok::<_, Error>(())
        })
    };
    db.transact(|tx| {
        add(tx, &table, 0)?;
        let told = thread::scope(|scope| scope.spawn(loser).join().unwrap());
        assert_eq!(told, Err(Error::Conflict), "{}", S::NAME);
        Ok::<_, Error>(())
    })
    .unwrap();
    let counts: Vec<_> = db.snapshot().range(&table, ..2).map(|row| row.count).collect();
    assert_eq!(counts, [1, 0], "{}", S::NAME);
}

#[test]
fn a_conflict_that_a_closure_catches_ends_its_transaction() {
    conflicts_outlast_savepoints::<NoWait>();
    conflicts_outlast_savepoints::<WaitDie>();
    conflicts_outlast_savepoints::<Hekaton>();
    conflicts_outlast_savepoints::<MvRlu>();
}
