//! Histories of concurrent threads, checked for anomalies.

use archipelago_check::adya::{self, Level};
use archipelago_txn::{ClockKind, Hekaton, Isolation, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie, on};

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
}

#[test]
fn two_phase_locking_is_serializable() {
    histories::<NoWait, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<WaitDie, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<WaitDie, on::BLinkTree>(SERIALIZABLE, Level::Strict);
}

#[test]
fn hekaton_is_serializable() {
    histories::<Hekaton, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<Hekaton, on::BLinkTree>(SERIALIZABLE, Level::Strict);
}

#[test]
fn mvrlu_is_serializable() {
    histories::<MvRlu, on::Art>(SERIALIZABLE, Level::Strict);
    histories::<MvRlu, on::BLinkTree>(SERIALIZABLE, Level::Strict);
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
