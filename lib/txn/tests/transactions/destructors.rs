//! Rows whose destructors use the database.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{Database, Error, Row, Scheme, Table, on};

/// A row whose destructor calls a function, if the row has one.
#[derive(Clone)]
struct Parting {
    key: u64,
    last: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Drop for Parting {
    fn drop(&mut self) {
        self.last.take().into_iter().for_each(|last| last());
    }
}

impl Row for Parting {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

fn plain(key: u64) -> Parting {
    Parting { key, last: None }
}

/// A database, its rows, and how many destructors have begun and how many have reached their end.
struct House<S: Scheme> {
    db: Database<S>,
    rows: Table<Parting, S>,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl<S: Scheme> House<S> {
    fn new() -> Arc<Self> {
        let db = Database::new();
        let rows = db.table();
        let house = Arc::new(Self { db, rows, begun: AtomicUsize::new(0), ended: AtomicUsize::new(0) });
        house.db.transact(|tx| (0..4).try_for_each(|key| tx.insert(&house.rows, plain(key)))).unwrap();
        house
    }

    /// Writes rows 0 and 1. Conflicts with any transaction that has written them and has not ended.
    fn write(&self) -> Result<(), Error> {
        self.db.try_transact(|tx| (0..2).try_for_each(|key| tx.upsert(&self.rows, plain(key)).map(drop)))
    }
}

/// Returns a row whose destructor writes to the database, in its own thread and in another one.
fn writer<S: Scheme>(house: &Arc<House<S>>, key: u64) -> Parting {
    let house: Weak<House<S>> = Arc::downgrade(house);
    let last = move || {
        let Some(house) = house.upgrade() else { return };
        house.begun.fetch_add(1, Ordering::Relaxed);
        let in_another = thread::scope(|scope| scope.spawn(|| house.write()).join().unwrap());
        assert_eq!((in_another, house.write()), (Ok(()), Ok(())), "{}", S::NAME);
        house.ended.fetch_add(1, Ordering::Relaxed);
    };
    Parting { key, last: Some(Arc::new(last)) }
}

super::by_every_scheme! {
    rows_that_were_never_committed_may_write: uncommitted_rows_write;
    rows_that_were_replaced_may_write: replaced_rows_write;
}

/// A transaction ends with rows that it has replaced itself, taken back, or not committed.
fn uncommitted_rows_write<S: Scheme>() {
    watchdog(USUAL, |_| {
        let house = House::<S>::new();
        for round in 0..3 {
            let told = house.db.try_transact(|tx| {
                // The first version of a row that the transaction writes again.
                tx.upsert(&house.rows, writer(&house, 0))?;
                tx.upsert(&house.rows, plain(0))?;
                // An insertion that is taken back.
                let part = tx.savepoint(|tx| {
                    tx.insert(&house.rows, writer(&house, 9))?;
                    Err::<(), _>(Error::KeyChanged)
                });
                assert_eq!(part, Err(Error::KeyChanged), "{}", S::NAME);
                tx.upsert(&house.rows, plain(1))?;
                if round == 0 {
                    return Ok(());
                }
                tx.upsert(&house.rows, writer(&house, 2))?;
                Err(Error::KeyChanged)
            });
            assert_eq!(told, if round == 0 { Ok(()) } else { Err(Error::KeyChanged) }, "{}", S::NAME);
            let dropped = 2 + 3 * round;
            let counts = (house.begun.load(Ordering::Relaxed), house.ended.load(Ordering::Relaxed));
            assert_eq!(counts, (dropped, dropped), "{}", S::NAME);
        }
    });
}

/// Committed rows are replaced, and freed by the ends of later transactions.
fn replaced_rows_write<S: Scheme>() {
    watchdog(USUAL, |_| {
        let house = House::<S>::new();
        let freed = || house.begun.load(Ordering::Relaxed);
        while freed() < 20 {
            // Conflicts with destructors that run in other threads' transactions are possible.
            house
                .db
                .transact(|tx| {
                    (0..2).try_for_each(|key| tx.upsert(&house.rows, plain(key)).map(drop))?;
                    tx.upsert(&house.rows, writer(&house, 3)).map(drop)
                })
                .unwrap();
        }
        assert_eq!(house.ended.load(Ordering::Relaxed), freed(), "{}", S::NAME);
    });
}
