//! The memory of transactions, counted by the allocator, with every scheme: beside a snapshot that stays open, of rows
//! that own much memory, and of transactions that are as large as the memory allows.
//!
//! `ARCHIPELAGO_HOSTILE_SECONDS=60` makes each load beside a snapshot last a minute. `ARCHIPELAGO_LARGE_ROWS=1000000`
//! sets the number of rows of the large transactions.
#![cfg(not(archipelago_sim))]

mod large;
mod owned;
#[path = "../common/schemes.rs"]
mod schemes;
mod stays;

use archipelago_check::hostile::Counting;
use archipelago_txn::{Database, Scheme};
use schemes::by_every_scheme;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Frees all garbage that can be freed. Returns the allocated bytes.
fn settled<S: Scheme>(db: &Database<S>) -> usize {
    // A removed record of a multi-version scheme waits for three grace periods.
    (0..4).for_each(|_| db.collect());
    HEAP.bytes()
}
