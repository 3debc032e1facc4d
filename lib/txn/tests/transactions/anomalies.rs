//! The known anomalies (Adya: Weak Consistency, 1999; as Hermitage tests them on databases; P4 of Berenson et al.,
//! 1995). Each has a test, with every scheme and isolation. One transaction runs in another thread, between two steps
//! of the other transaction.
//!
//! | | serializable | snapshot isolation |
//! |---|---|---|
//! | G0, G1a, G1b, G1c, OTV, PMP, P4, G-single | no | no |
//! | long fork (Sovran et al.: Transactional storage for geo-replicated systems, SOSP 2011) | no | no |
//! | G2-item (write skew), G2 (by a predicate) | no | possible |
//! | read-only (Fekete, O'Neil, O'Neil: A read-only transaction anomaly under snapshot isolation, 2004) | no | possible |
//! | internal reads (a transaction does not see its own writes) | no | no |
//!
//! Each transaction is tried once. What it has read counts only if it commits. At least one of them must commit.

use std::collections::BTreeMap;
use std::mem::take;
use std::thread;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{Database, Error, Index, Isolation, Row, Scheme, Table, Tx, on};

#[derive(Clone)]
struct Item {
    key: u64,
    value: i64,
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
    type Key = i64;
    type Map = on::BLinkTree;
    fn key(row: &Item) -> i64 {
        row.value
    }
}

/// Why a transaction did not commit: the closure ended it, or it conflicted with another transaction.
struct Stop;

impl From<Error> for Stop {
    fn from(_: Error) -> Self {
        Self
    }
}

type Step<T> = Result<T, Stop>;

/// Two rows: row 1 has the value 10, and row 2 has the value 20.
struct World<S: Scheme> {
    db: Database<S>,
    table: Table<Item, S>,
    isolation: Isolation,
}

impl<S: Scheme> World<S> {
    fn new(isolation: Isolation) -> Self {
        let db = Database::new();
        let table = db.table();
        let rows = [Item { key: 1, value: 10 }, Item { key: 2, value: 20 }];
        db.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&table, row.clone()))).unwrap();
        Self { db, table, isolation }
    }

    fn get(&self, tx: &mut Tx<'_, S>, key: u64) -> Step<i64> {
        Ok(tx.get(&self.table, &key)?.ok_or(Stop)?.value)
    }

    fn put(&self, tx: &mut Tx<'_, S>, key: u64, value: i64) -> Step<()> {
        tx.upsert(&self.table, Item { key, value })?;
        Ok(())
    }

    /// Returns the number of rows with this value, by the index and by a scan.
    fn count(&self, tx: &mut Tx<'_, S>, value: i64) -> Step<(usize, usize)> {
        let by_index = tx.range_by::<ByValue>(&self.table, value..=value).collect::<Result<Vec<_>, _>>()?.len();
        let rows = tx.range(&self.table, ..).collect::<Result<Vec<_>, _>>()?;
        Ok((by_index, rows.iter().filter(|row| row.value == value).count()))
    }

    /// Tries a transaction once. Returns the closure's result if the transaction commits.
    fn once<T>(&self, mut body: impl FnMut(&mut Tx<'_, S>) -> Step<T>) -> Option<T> {
        let mut first = true;
        let tried = |tx: &mut Tx<'_, S>| if take(&mut first) { body(tx) } else { Err(Stop) };
        self.db.transact_at(self.isolation, tried).ok()
    }

    /// Tries a transaction once in another thread.
    fn beside<T: Send>(&self, body: impl FnMut(&mut Tx<'_, S>) -> Step<T> + Send) -> Option<T> {
        thread::scope(|scope| scope.spawn(|| self.once(body)).join().unwrap())
    }

    /// Returns the values of both rows.
    fn values(&self) -> (i64, i64) {
        let view = self.db.snapshot();
        (view.get(&self.table, &1).unwrap().value, view.get(&self.table, &2).unwrap().value)
    }
}

fn each<S: Scheme>(test: impl Fn(World<S>) + Send + Sync + 'static) {
    watchdog(USUAL, move |_| {
        [Isolation::Serializable, Isolation::Snapshot].map(World::new).into_iter().for_each(&test)
    });
}

super::by_every_scheme! {
    g0_dirty_write: dirty_write;
    g1a_aborted_read: aborted_read;
    g1b_intermediate_read: intermediate_read;
    g1c_circular_information_flow: circular_flow;
    otv_observed_transaction_vanishes: vanishing;
    pmp_predicate_many_preceders: preceders;
    p4_lost_update: lost_update;
    g_single_read_skew: read_skew;
    g2_item_write_skew: item_skew;
    g2_predicate_write_skew: predicate_skew;
    long_fork: fork;
    read_only_anomaly: report_skew;
    internal_reads: own_writes;
}

fn dirty_write<S: Scheme>() {
    each::<S>(|world| {
        let mut inner = None;
        let outer = world.once(|tx| {
            world.put(tx, 1, 11)?;
            inner = world.beside(|tx| world.put(tx, 1, 12).and_then(|()| world.put(tx, 2, 12)));
            world.put(tx, 2, 11)
        });
        assert!(inner.is_some() || outer.is_some());
        assert!([(11, 11), (12, 12)].contains(&world.values()), "{:?}", world.values());
    });
}

fn aborted_read<S: Scheme>() {
    each::<S>(|world| {
        let mut seen = None;
        let outer = world.once(|tx| {
            world.put(tx, 1, 101)?;
            seen = world.beside(|tx| world.get(tx, 1));
            Err::<(), _>(Stop)
        });
        assert!(outer.is_none() && seen.is_none_or(|seen| seen == 10), "{seen:?}");
        assert_eq!(world.once(|tx| world.get(tx, 1)), Some(10));
    });
}

fn intermediate_read<S: Scheme>() {
    each::<S>(|world| {
        let mut seen = None;
        let outer = world.once(|tx| {
            world.put(tx, 1, 101)?;
            seen = world.beside(|tx| world.get(tx, 1));
            world.put(tx, 1, 11)
        });
        assert!(outer.is_some() && seen.is_none_or(|seen| seen == 10), "{seen:?}");
        assert_eq!(world.values(), (11, 20));
    });
}

fn circular_flow<S: Scheme>() {
    each::<S>(|world| {
        let mut inner = None;
        let outer = world.once(|tx| {
            world.put(tx, 1, 11)?;
            inner = world.beside(|tx| world.put(tx, 2, 22).and_then(|()| world.get(tx, 1)));
            world.get(tx, 2)
        });
        assert!(inner.is_some() || outer.is_some());
        assert!((inner, outer) != (Some(11), Some(22)), "each has seen the other");
    });
}

fn vanishing<S: Scheme>() {
    each::<S>(|world| {
        let both = |one, two| world.beside(|tx| world.put(tx, 1, one).and_then(|()| world.put(tx, 2, two))).is_some();
        let mut inner = [false; 2];
        let outer = world.once(|tx| {
            let before = world.get(tx, 1)?;
            inner[0] = both(11, 19);
            let seen = world.get(tx, 2)?;
            inner[1] = both(12, 18);
            Ok((before, seen, world.get(tx, 1)?, world.get(tx, 2)?))
        });
        assert!(inner.contains(&true) || outer.is_some());
        let whole = [(10, 20, 10, 20), (11, 19, 11, 19), (12, 18, 12, 18)];
        assert!(outer.is_none_or(|seen| whole.contains(&seen)), "{outer:?}");
    });
}

fn preceders<S: Scheme>() {
    each::<S>(|world| {
        let mut inner = None;
        let outer = world.once(|tx| {
            let before = world.count(tx, 30)?;
            inner = world.beside(|tx| world.put(tx, 3, 30));
            Ok((before, world.count(tx, 30)?))
        });
        assert!(inner.is_some() || outer.is_some());
        assert!(outer.is_none_or(|(before, after)| before == after && before.0 == before.1), "{outer:?}");
    });
}

fn lost_update<S: Scheme>() {
    each::<S>(|world| {
        let add = |tx: &mut Tx<'_, S>, before: i64| world.put(tx, 1, before + 1);
        let mut inner = None;
        let outer = world.once(|tx| {
            let before = world.get(tx, 1)?;
            inner = world.beside(|tx| world.get(tx, 1).and_then(|before| add(tx, before)));
            add(tx, before)
        });
        let added = i64::from(inner.is_some()) + i64::from(outer.is_some());
        assert!(added > 0);
        assert_eq!(world.values().0, 10 + added);
    });
}

fn read_skew<S: Scheme>() {
    each::<S>(|world| {
        let mut inner = None;
        let outer = world.once(|tx| {
            let one = world.get(tx, 1)?;
            inner = world.beside(|tx| world.put(tx, 1, 12).and_then(|()| world.put(tx, 2, 18)));
            Ok((one, world.get(tx, 2)?))
        });
        assert!(inner.is_some() || outer.is_some());
        assert!(outer.is_none_or(|seen| [(10, 20), (12, 18)].contains(&seen)), "{outer:?}");
    });
}

/// Checks two transactions that each read what the other writes: both commit with snapshot isolation only.
fn judge_skew<S: Scheme>(world: &World<S>, inner: Option<()>, outer: Option<()>) {
    assert!(inner.is_some() || outer.is_some());
    assert_eq!(inner.and(outer).is_some(), world.isolation == Isolation::Snapshot);
}

fn item_skew<S: Scheme>() {
    each::<S>(|world| {
        let read = |tx: &mut Tx<'_, S>| Ok(world.get(tx, 1)? + world.get(tx, 2)?);
        let mut inner = None;
        let outer = world.once(|tx| {
            let sum = read(tx)?;
            inner = world.beside(|tx| read(tx).and_then(|sum| world.put(tx, 2, -sum)));
            world.put(tx, 1, -sum)
        });
        judge_skew(&world, inner, outer);
    });
}

fn predicate_skew<S: Scheme>() {
    each::<S>(|world| {
        let join = |tx: &mut Tx<'_, S>, key: u64, there: (usize, usize)| match there {
            (0, 0) => world.put(tx, key, 30),
            _ => Err(Stop),
        };
        let mut inner = None;
        let outer = world.once(|tx| {
            let there = world.count(tx, 30)?;
            inner = world.beside(|tx| world.count(tx, 30).and_then(|there| join(tx, 4, there)));
            join(tx, 3, there)
        });
        judge_skew(&world, inner, outer);
    });
}

/// Two rows are written by a transaction each. Of two readers, each has read one of the rows before: none of them sees
/// only the row's write that the other one does not see.
fn fork<S: Scheme>() {
    each::<S>(|world| {
        let (mut other, mut wrote) = (None, [None; 2]);
        let one = world.once(|tx| {
            let second = world.get(tx, 2)?;
            other = world.beside(|tx| {
                let first = world.get(tx, 1)?;
                wrote = [(1, 11), (2, 21)].map(|(key, value)| world.beside(|tx| world.put(tx, key, value)));
                Ok((first, world.get(tx, 2)?))
            });
            Ok((world.get(tx, 1)?, second))
        });
        assert!(one.is_some() || other.is_some() || wrote.contains(&Some(())));
        assert!((one, other) != (Some((11, 20)), Some((10, 21))), "each has seen one of the writes");
    });
}

/// A withdrawal that does not see a deposit writes the other account. The report between them sees the deposit without
/// the withdrawal. So the deposit precedes the report, the report precedes the withdrawal, and the withdrawal precedes
/// the deposit. Without the report, the withdrawal would precede the deposit.
fn report_skew<S: Scheme>() {
    each::<S>(|world| {
        let (mut deposit, mut report) = (None, None);
        let withdrawal = world.once(|tx| {
            let sum = world.get(tx, 1)? + world.get(tx, 2)?;
            deposit = world.beside(|tx| world.get(tx, 2).and_then(|before| world.put(tx, 2, before + 20)));
            report = world.beside(|tx| Ok((world.get(tx, 1)?, world.get(tx, 2)?)));
            world.put(tx, 1, 10 - sum)
        });
        assert!(deposit.is_some() || report.is_some() || withdrawal.is_some());
        let skewed = (deposit, report, withdrawal) == (Some(()), Some((10, 40)), Some(()));
        assert_eq!(skewed, world.isolation == Isolation::Snapshot, "{deposit:?} {report:?} {withdrawal:?}");
    });
}

type Rows = Vec<(u64, i64)>;

/// Returns the rows with keys below 6 that the transaction sees: in two ways by their keys, by scans in both
/// directions, and by the index in both directions and by single values.
fn looks<S: Scheme>(world: &World<S>, tx: &mut Tx<'_, S>) -> Step<[Rows; 7]> {
    fn rows<'t>(found: impl Iterator<Item = Result<&'t Item, Error>>) -> Step<Rows> {
        let mut rows = found.map(|row| row.map(|row| (row.key, row.value))).collect::<Result<Rows, _>>()?;
        rows.sort_unstable();
        Ok(rows)
    }
    let (table, keys) = (&world.table, [0, 1, 2, 3, 4, 5]);
    let (mut single, mut by_value) = (Rows::new(), Rows::new());
    for key in keys {
        single.extend(tx.get(table, &key)?.map(|row| (row.key, row.value)));
    }
    for value in VALUES {
        by_value.append(&mut rows(tx.range_by::<ByValue>(table, value..=value))?);
    }
    by_value.sort_unstable();
    Ok([
        single,
        rows(tx.get_many(table, &keys)?.into_iter().flatten().map(Ok))?,
        rows(tx.range(table, ..))?,
        rows(tx.range_rev(table, ..))?,
        rows(tx.range_by::<ByValue>(table, ..))?,
        rows(tx.range_by_rev::<ByValue>(table, ..))?,
        by_value,
    ])
}

/// The values of the rows of [`OWN`].
const VALUES: [i64; 6] = [10, 11, 20, 22, 30, 31];

/// Writes of one transaction: keys with their new values, or removals. Rows are inserted, updated and removed, with
/// rows among them that the transaction itself has inserted or removed.
const OWN: [(u64, Option<i64>); 9] = [
    (3, Some(30)),
    (3, Some(31)),
    (1, Some(11)),
    (2, None),
    (2, Some(22)),
    (3, None),
    (1, Some(22)),
    (3, Some(30)),
    (1, None),
];

/// After each write, all ways of reading return the transaction's own rows: without other transactions, and when
/// another transaction has written the same rows after one of the writes.
fn own_writes<S: Scheme>() {
    each::<S>(|world| {
        for turn in 0..=OWN.len() {
            let world = World::<S>::new(world.isolation);
            let mut rows = BTreeMap::from([(1, 10), (2, 20)]);
            let mut inner = None;
            let outer = world.once(|tx| {
                let mut wrong = Vec::new();
                for (step, &(key, value)) in OWN.iter().enumerate() {
                    match value {
                        Some(value) => world.put(tx, key, value)?,
                        None => drop(tx.remove(&world.table, &key)?),
                    }
                    match value {
                        Some(value) => rows.insert(key, value),
                        None => rows.remove(&key),
                    };
                    if step == turn {
                        let keys = OWN[..=step].iter().map(|&(key, _)| key);
                        inner = world.beside(|tx| keys.clone().try_for_each(|key| world.put(tx, key, 90)));
                    }
                    let own: Rows = rows.iter().map(|(&key, &value)| (key, value)).collect();
                    wrong.extend(looks(&world, tx)?.into_iter().filter(|seen| *seen != own).map(|seen| (step, seen)));
                }
                Ok(wrong)
            });
            assert!(outer.is_some() || inner.is_some(), "neither commits");
            assert!(outer.is_some() || turn < OWN.len(), "alone it commits");
            assert_eq!(outer.unwrap_or_default(), [], "(step, rows that were seen)");
        }
    });
}
