//! Concurrent threads: known anomalies.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{Database, Error, Index, Row, Scheme, on};

#[derive(Clone)]
struct Account {
    id: u64,
    cents: i64,
}

impl Row for Account {
    type Key = u64;
    type Map = on::BLinkTree;
    type Indexes = (ByCents,);
    fn key(&self) -> u64 {
        self.id
    }
}

struct ByCents;

impl Index for ByCents {
    type Row = Account;
    type Key = i64;
    type Map = on::EunoBTree;
    fn key(row: &Account) -> i64 {
        row.cents
    }
}

super::by_every_scheme! {
    only_one_inserts: absent_then_insert;
    ranges_have_no_phantoms: empty_range_then_insert;
    no_write_skew: write_skew;
    sums_stay: bank;
    no_update_is_lost: counters;
    large_ones_get_through: large_beside_small;
}

/// Eight threads each insert a row if its key is absent. In one published engine, all eight insertions succeed.
fn absent_then_insert<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        let start = Barrier::new(8);
        let inserted = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..8 {
                let (db, table, start, inserted) = (&db, &table, &start, &inserted);
                scope.spawn(move || {
                    for id in 0..60 {
                        start.wait();
                        let mine = db.transact(|tx| {
                            if tx.get(table, &id)?.is_some() {
                                return Ok::<_, Error>(0);
                            }
                            tx.upsert(table, Account { id, cents: thread })?;
                            Ok(1)
                        });
                        inserted.fetch_add(mine.unwrap(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(inserted.into_inner(), 60);
        assert_eq!(db.snapshot().range(&table, ..).count(), 60);
    });
}

/// Each thread inserts a key of its own if it finds a range empty. The range is read by one of the indexes.
fn empty_range_then_insert<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        let start = Barrier::new(6);
        thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (db, table, start) = (&db, &table, &start);
                scope.spawn(move || {
                    for round in 0..60_u64 {
                        start.wait();
                        let from = round * 100;
                        db.transact(|tx| {
                            let none = if round % 2 == 0 {
                                tx.range(table, from..from + 100).next().transpose()?.is_none()
                            } else {
                                tx.range_by::<ByCents>(table, from as i64..=from as i64).next().transpose()?.is_none()
                            };
                            if none {
                                tx.insert(table, Account { id: from + thread * 7, cents: from as i64 })?;
                            }
                            Ok::<_, Error>(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.snapshot().range(&table, ..).count(), 60);
        assert_eq!(db.snapshot().range_by::<ByCents>(&table, ..).count(), 60);
    });
}

/// One of two accounts may be overdrawn if the sum of both stays positive or zero. Each thread draws from its own
/// account.
fn write_skew<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        let start = Barrier::new(2);
        for pair in 0..200 {
            db.transact(|tx| {
                tx.insert(&table, Account { id: pair * 2, cents: 60 })?;
                tx.insert(&table, Account { id: pair * 2 + 1, cents: 60 })
            })
            .unwrap();
        }
        thread::scope(|scope| {
            for mine in 0..2 {
                let (db, table, start) = (&db, &table, &start);
                scope.spawn(move || {
                    for pair in 0..200 {
                        start.wait();
                        db.transact(|tx| {
                            let ids = [pair * 2, pair * 2 + 1];
                            let mut sum = 0;
                            for id in ids {
                                sum += tx.get(table, &id)?.unwrap().cents;
                            }
                            if sum >= 100 {
                                tx.update(table, &ids[mine], |row| row.cents -= 100)?;
                            }
                            Ok::<_, Error>(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        let view = db.snapshot();
        let cents: Vec<i64> = view.range(&table, ..).map(|row| row.cents).collect();
        assert!(cents.chunks(2).all(|pair| pair[0] + pair[1] == 20), "{cents:?}");
    });
}

/// Transfers, accounts that are opened and closed, and audits by snapshots and by transactions.
fn bank<S: Scheme>() {
    const ACCOUNTS: u64 = 20;
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        db.transact(|tx| {
            (0..ACCOUNTS).try_for_each(|id| tx.insert(&table, Account { id, cents: 1_000 }))?;
            Ok::<_, Error>(())
        })
        .unwrap();
        let left = AtomicU64::new(3);
        thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (db, table, left) = (&db, &table, &left);
                scope.spawn(move || {
                    for round in 0..700_u64 {
                        let (from, to) = ((round * 7 + thread) % ACCOUNTS, (round * 3 + thread * 5) % ACCOUNTS);
                        db.transact(|tx| transfer(tx, table, from, to, round)).unwrap();
                    }
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            scope.spawn(|| {
                while left.load(Ordering::Acquire) > 0 {
                    let view = db.snapshot();
                    assert_eq!(view.range(&table, ..).map(|row| row.cents).sum::<i64>(), 20_000);
                    assert_eq!(view.range_by::<ByCents>(&table, ..).map(|row| row.cents).sum::<i64>(), 20_000);
                    let sum =
                        db.transact(|tx| tx.range(&table, ..).map(|row| Ok(row?.cents)).sum::<Result<i64, Error>>());
                    assert_eq!(sum, Ok(20_000));
                }
            });
        });
        let view = db.snapshot();
        assert!(view.range_by::<ByCents>(&table, ..).map(|row| row.cents).is_sorted());
    });
}

/// Transfers all of an account's money or a part of it. An account without money is closed, and opened again when it
/// gets money.
fn transfer<S: Scheme>(
    tx: &mut archipelago_txn::Tx<'_, S>,
    table: &archipelago_txn::Table<Account, S>,
    from: u64,
    to: u64,
    round: u64,
) -> Result<(), Error> {
    let Some(cents) = tx.get(table, &from)?.map(|row| row.cents) else { return Ok(()) };
    let amount = if round.is_multiple_of(4) { cents } else { cents / 2 };
    if from == to || amount == 0 {
        return Ok(());
    }
    if amount == cents {
        tx.remove(table, &from)?;
    } else {
        tx.update(table, &from, |row| row.cents -= amount)?;
    }
    if !tx.update(table, &to, |row| row.cents += amount)? {
        tx.insert(table, Account { id: to, cents: amount })?;
    }
    Ok(())
}

fn counters<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..500 {
                        db.transact(|tx| {
                            let id = round % 3;
                            let cents = tx.get(&table, &id)?.map_or(0, |row| row.cents);
                            tx.upsert(&table, Account { id, cents: cents + 1 }).map(drop)
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.snapshot().range(&table, ..).map(|row| row.cents).sum::<i64>(), 2_000);
    });
}

/// Transactions that write all rows run concurrently with transactions that write one row. Each transaction ends.
fn large_beside_small<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let table = db.table::<Account>();
        let change = |ids: std::ops::Range<u64>| {
            db.transact(|tx| {
                for id in ids.clone() {
                    let cents = tx.get(&table, &id)?.map_or(0, |row| row.cents);
                    tx.upsert(&table, Account { id, cents: cents + 1 })?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(|| (0..10).for_each(|_| change(0..100)));
            for thread in 0..2 {
                let change = &change;
                scope.spawn(move || {
                    for round in 0..300 {
                        let id = (round * 11 + thread * 50) % 100;
                        change(id..id + 1);
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(db.snapshot().range(&table, ..).map(|row| row.cents).sum::<i64>(), 1_600);
    });
}
