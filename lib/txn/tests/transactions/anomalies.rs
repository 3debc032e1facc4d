//! The known anomalies (Adya: Weak Consistency, 1999; as Hermitage tests them on databases; P4 of Berenson et al.,
//! 1995). Each has a test, with every scheme and isolation. One transaction runs in another thread, between two steps
//! of the other transaction.
//!
//! | | serializable | snapshot isolation |
//! |---|---|---|
//! | G0, G1a, G1b, G1c, OTV, PMP, P4, G-single | no | no |
//! | G2-item (write skew), G2 (by a predicate) | no | possible |
//!
//! Each transaction is tried once. What it has read counts only if it commits. At least one of the two must commit.

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
