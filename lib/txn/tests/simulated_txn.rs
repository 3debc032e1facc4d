//! Histories of transactions under many schedules, with threads that lose their processors anywhere.
#![cfg(archipelago_sim)]

#[path = "common/book.rs"]
mod book;

use archipelago_check::adya::{self, Level};
use archipelago_check::simulated::explore;
use archipelago_sim::{Client, SimAlloc, world};
use archipelago_txn::{Isolation, Scheme, Silo, TicToc, on};
use book::Book;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

fn histories<S: Scheme, M: on::Kind>(schedules: u64, isolation: Isolation, level: Level) {
    let client = |book: &Book<S, M>, _: Client| {
        for _ in 0..3 {
            book.transact(isolation, |bound| world::random() % bound);
        }
    };
    let end = |book: Book<S, M>| adya::check(level, &book.finish()).assert_ok();
    explore(schedules, Book::<S, M>::new, client, end);
}

const SERIALIZABLE: Isolation = Isolation::Serializable;

#[test]
fn silo() {
    histories::<Silo, on::Art>(800, SERIALIZABLE, Level::Strict);
    histories::<Silo, on::BLinkTree>(300, SERIALIZABLE, Level::Strict);
}

#[test]
fn tictoc() {
    histories::<TicToc, on::Art>(800, SERIALIZABLE, Level::Serializable);
}

#[test]
fn snapshots() {
    histories::<Silo, on::Art>(400, Isolation::Snapshot, Level::Snapshot);
    histories::<TicToc, on::Art>(200, Isolation::Snapshot, Level::Snapshot);
}
