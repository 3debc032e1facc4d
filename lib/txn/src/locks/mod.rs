//! The words of rows' locks. They know nothing of rows and transactions, so loom can try them.
//!
//! *Orderings.* A lock is released by a read-modify-write with Release, and taken by one with Acquire: who takes it sees all
//! that its last holders did before they released it, their loads of the clock included (claim 3 of `epochs.rs`). Readers that
//! release one after another are one release sequence, so that the writer after them sees all of them.

#[cfg(all(test, loom))]
mod model;
pub(crate) mod no_wait;
pub(crate) mod wait_die;

/// Another transaction is in the way: this one begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// What a transaction does with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It reads it.
    Share,
    /// It writes it, too.
    Exclude,
}
