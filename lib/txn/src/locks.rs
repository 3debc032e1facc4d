//! The words of rows' locks. They do not depend on rows and transactions, so loom can check them.
//!
//! *Orderings.* A lock is released by a read-modify-write with Release, and taken by one with Acquire. So the new
//! holder sees all that previous holders did before they released it, including their loads of the clock (claim 3 of
//! `epochs.rs`). Releases by several readers form one release sequence, so the next writer synchronizes with all of
//! them.
//!
//! *Unlinking.* A transaction takes a lock, passes a SeqCst fence and loads the record's head. A thread that unlinks
//! the record latches it, passes a SeqCst fence and loads the lock. So at least one of the two notices the other
//! (`tree.rs`).

use archipelago_platform::atomic::{Ordering, fence};

#[cfg(all(test, loom))]
mod model;
pub(crate) mod no_wait;
pub(crate) mod wait_die;

/// The transaction conflicts with another one and has to be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// The mode in which a transaction uses a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The transaction reads the record.
    Share,
    /// The transaction writes the record, and may read it.
    Exclude,
}

/// Passes on the answer to a request for a lock. After a grant the holder's later loads follow a SeqCst fence: see the
/// module's text.
#[inline]
fn shown(taken: Result<(), Conflict>) -> Result<(), Conflict> {
    if taken.is_ok() {
        fence(Ordering::SeqCst);
    }
    taken
}
