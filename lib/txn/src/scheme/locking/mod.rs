//! Two-phase locking: each row that is read or written is locked from the first look to the transaction's end, and so is each
//! entry of a secondary index, and each absent key that has a record.
//!
//! Gaps are not locked: that a key without a record, or a range, has got no others is found out at the commit, as in the
//! optimistic schemes (`tree.rs`).
//!
//! *Why that is serializable, in the order of a moment in each commit*: let it be the moment between the last latch and the
//! look at the gaps (of one that only reads: after the last lock). All rows are locked then. If another transaction's moment
//! lies before, and it fills a gap of this one, this one finds its latch or its version. If it replaces what this one reads, one
//! of the two has waited for the other's lock, or begun anew.
//!
//! *Orderings* of locks: `locks/mod.rs`. Rows themselves are published by heads. Between the lock and the look at a head is a
//! SeqCst fence (`Work::lock`), for those that unlink.
//!
//! # Between attempts
//! A transaction that meets a lock and gives up lets go of all that it has, and then *lingers*: it waits, with nothing locked or
//! held, until the lock may be had, or for [`TURNS`](super::TURNS) turns. Without that a crowd of losers begins anew all the time, each time
//! with links and unlinks of the records of absent keys, before the one holder has had the processor once.

mod no_wait;
mod wait_die;

pub use no_wait::NoWait;
pub use wait_die::WaitDie;

use super::{Conflict, Moment, Scheme, linger};
use crate::work::Work;

/// Judges what a transaction has not locked.
fn judge<S: Scheme>(work: &Work<'_, S>, moment: Moment) -> Result<u64, Conflict> {
    debug_assert!(work.reads().all(|(record, seen)| core::ptr::eq(record.head().version(), seen)), "locked rows stay");
    if work.gaps_hold(0, moment) { Ok(0) } else { Err(Conflict) }
}
