//! Histories of concurrent threads, checked for anomalies.

use std::sync::mpsc::channel;
use std::thread;

use archipelago_check::adya::{self, Level};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_txn::{
    ClockKind, Database, Error, Hekaton, Isolation, MvRlu, NoWait, Row, Scheme, Silo, TicToc, Tx, WaitDie, on,
};

use crate::book::Book;

fn histories<S: Scheme, M: on::Kind>(isolation: Isolation, level: Level) {
    histories_by::<S, M>(ClockKind::Logical, isolation, level);
}

fn histories_by<S: Scheme, M: on::Kind>(clock: ClockKind, isolation: Isolation, level: Level) {
    for round in 0..8_u64 {
        let book = Book::<S, M>::new(clock);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let book = &book;
                scope.spawn(move || {
                    let state = std::cell::Cell::new((round * 4 + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let random = |bound: u64| {
                        let mut x = state.get();
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        state.set(x);
                        (x >> 20) % bound
                    };
                    for _ in 0..40 {
                        book.transact(isolation, random);
                        if random(4) == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        adya::check(level, &book.finish()).assert_ok();
    }
}

const SERIALIZABLE: Isolation = Isolation::Serializable;

#[test]
fn silo_is_serializable_over_every_map() {
    histories::<Silo, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<Silo, on::HydraList>(SERIALIZABLE, Level::Strict);
    histories::<Silo, on::BLinkTree>(SERIALIZABLE, Level::Strict);
    histories::<Silo, on::EunoBTree>(SERIALIZABLE, Level::Strict);
    histories::<Silo, on::EunoSkipList>(SERIALIZABLE, Level::Strict);
}

#[test]
fn tictoc_is_serializable() {
    histories::<TicToc, on::Art>(SERIALIZABLE, Level::Serializable);
    histories::<TicToc, on::HydraList>(SERIALIZABLE, Level::Serializable);
}

#[test]
fn two_phase_locking_is_serializable() {
    histories::<NoWait, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<NoWait, on::EunoBTree>(SERIALIZABLE, Level::Strict);
    histories::<WaitDie, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<WaitDie, on::BLinkTree>(SERIALIZABLE, Level::Strict);
    histories::<WaitDie, on::HydraList>(SERIALIZABLE, Level::Strict);
}

#[test]
fn hekaton_is_serializable() {
    histories::<Hekaton, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<Hekaton, on::BLinkTree>(SERIALIZABLE, Level::Strict);
    histories::<Hekaton, on::EunoBTree>(SERIALIZABLE, Level::Strict);
}

#[test]
fn mvrlu_is_serializable() {
    histories::<MvRlu, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<MvRlu, on::BLinkTree>(SERIALIZABLE, Level::Strict);
    histories::<MvRlu, on::HydraList>(SERIALIZABLE, Level::Strict);
}

#[test]
fn the_processors_clocks_order_commits_too() {
    histories_by::<Hekaton, on::Art>(ClockKind::Hardware, SERIALIZABLE, Level::Strict);
    histories_by::<MvRlu, on::Art>(ClockKind::Hardware, SERIALIZABLE, Level::Strict);
    histories_by::<MvRlu, on::Art>(ClockKind::Hardware, Isolation::Snapshot, Level::Snapshot);
}

#[test]
fn snapshot_isolation_is_what_it_says() {
    histories::<Silo, on::Art>(Isolation::Snapshot, Level::Snapshot);
    histories::<TicToc, on::Art>(Isolation::Snapshot, Level::Snapshot);
    histories::<NoWait, on::Art>(Isolation::Snapshot, Level::Snapshot);
    histories::<WaitDie, on::Art>(Isolation::Snapshot, Level::Snapshot);
    histories::<Hekaton, on::Art>(Isolation::Snapshot, Level::Snapshot);
    histories::<MvRlu, on::Art>(Isolation::Snapshot, Level::Snapshot);
}

#[derive(Clone)]
struct Letter(u8, u64);

impl Row for Letter {
    type Key = u8;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u8 {
        self.0
    }
}

/// A series of commits with falling stamps, each of which overlaps the next, lasts longer than a grace period. At its
/// end, a transaction finds a key absent whose removed record has been unlinked. The last commit of the series replaces
/// a row that the transaction has read, so the transaction precedes this commit in the serialization order. The first
/// commit of the series precedes the removal. The transaction has seen the removal, so it must get a stamp above the
/// removal's, and the last commit must fail. Otherwise the order would be a circle.
#[test]
fn tictoc_commits_behind_removals_that_are_unlinked() {
    watchdog(USUAL, |_| {
        let db = Database::<TicToc>::new();
        let table = db.table::<Letter>();
        let get = |tx: &mut Tx<'_, TicToc>, key| tx.get(&table, &key).map(|row| row.map(|row| row.1));
        let update = |tx: &mut Tx<'_, TicToc>, key| tx.update(&table, &key, |row| row.1 += 1).map(drop);
        db.transact(|tx| b"pqrzkm".iter().try_for_each(|&key| tx.insert(&table, Letter(key, 0)))).unwrap();
        // The old versions of z, r, q and p are valid until 3, 5, 7 and 9.
        for key in *b"zrqp" {
            (0..2).for_each(|_| db.transact(|tx| update(tx, b'm')).unwrap());
            db.transact(|tx| get(tx, b'm').and(get(tx, key))).unwrap();
        }
        thread::scope(|scope| {
            // Begins a transaction that has read one row, and writes another one when it is told to.
            let begin = |read, write| {
                let ((tell, told), (go, gone)) = (channel(), channel());
                let (db, get, update) = (&db, &get, &update);
                let commit = scope.spawn(move || {
                    db.try_transact(|tx| {
                        get(tx, read)?;
                        tell.send(()).unwrap();
                        gone.recv().unwrap();
                        update(tx, write)
                    })
                });
                told.recv().unwrap();
                move || {
                    go.send(()).unwrap();
                    commit.join().unwrap()
                }
            };
            let third = begin(b'p', b'q');
            db.transact(|tx| tx.remove(&table, &b'k').map(drop).and(update(tx, b'p'))).unwrap();
            db.collect();
            let second = begin(b'q', b'r');
            assert_eq!(third(), Ok(()), "before the removal");
            db.collect();
            let first = begin(b'r', b'z');
            assert_eq!(second(), Ok(()), "before the third");
            db.collect();
            assert_eq!(db.try_transact(|tx| Ok::<_, Error>((get(tx, b'k')?, get(tx, b'z')?))), Ok((None, Some(0))));
            assert_eq!(first(), Err(Error::Conflict), "before the second, and after a transaction after the removal");
        });
    });
}
