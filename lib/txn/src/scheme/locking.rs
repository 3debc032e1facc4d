//! Two-phase locking: each row that is read or written is locked from its first access to the transaction's end. The
//! same holds for each entry of a secondary index, and for each absent key that has a record. With
//! `Isolation::Snapshot` only written rows are locked, at the commit.
//!
//! Gaps are not locked: the commit validates that a key still has no record, and that a range has no new ones, as in
//! the optimistic schemes (`tree.rs`).
//!
//! *Serializability, in the order of one moment of each commit*: let the moment lie between the last latch and the
//! validation of gaps (for a transaction that only reads: after the last lock). At this moment all rows are locked. If
//! another transaction has an earlier moment and fills a gap of this transaction, this transaction finds the other's
//! latch or its version. If the other transaction replaces a row that this one reads, one of the two has waited for the
//! other's lock, or was retried.
//!
//! *Orderings* of locks: see `locks.rs`. Rows are published by their heads.
//!
//! # Between attempts
//! A transaction that gives up at a lock releases all its locks and holds, and then *lingers*: it waits until the lock
//! is available, or for [`TURNS`](super::TURNS) turns. Without lingering many losers would retry in a loop before the
//! holder gets the processor once, and each retry would link and unlink the records of absent keys.

mod no_wait;
mod wait_die;

pub use no_wait::NoWait;
pub use wait_die::WaitDie;

use super::{Conflict, Moment, Scheme, linger};
use crate::work::Work;

/// Validates what a transaction has read without a lock.
fn judge<S: Scheme>(work: &Work<'_, S>, moment: Moment) -> Result<u64, Conflict> {
    debug_assert!(work.reads().all(|(record, seen)| core::ptr::eq(record.head().version(), seen)), "locked rows stay");
    if work.gaps_hold(0, moment) { Ok(0) } else { Err(Conflict) }
}
