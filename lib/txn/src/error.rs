//! The errors of transactions.

use core::fmt;

use crate::scheme::Conflict;

/// Why a transaction, or a step of one, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The transaction conflicts with another one. The closure should return the error (`?`): then
    /// [`transact`](crate::Database::transact) retries, and [`try_transact`](crate::Database::try_transact) returns the
    /// error. After one step has failed with this error, all later steps of the transaction fail with it.
    Conflict,
    /// A row with this primary key, or with this key of a unique index, already exists. The step has changed nothing,
    /// and the transaction may continue.
    Duplicate {
        /// `"primary"`, or the name of the index's type.
        index: &'static str,
    },
    /// An update has changed the row's primary key. The step has changed nothing: remove the row and insert another.
    KeyChanged,
    /// The log on the disk accepts no more records: it has failed, or its disk is full. The transaction was
    /// rolled back. [`Database::flush`](crate::Database::flush) says why.
    Refused,
    /// The transaction is committed, and other transactions see it. But the log has failed, or its disk is full, so the
    /// transaction may be lost when the process ends. [`Database::flush`](crate::Database::flush) returns the reason.
    /// If the disk was full and has room again, it also makes the transaction durable. With more than one lane, threads
    /// in the background write the lanes again; until they have, a call still returns the reason, so repeat it.
    NotDurable,
    /// The transaction's log record is longer than the log's queue. The transaction was rolled back: write less in one
    /// transaction, or open the database with a longer queue (`Opening::queue`).
    TooLarge,
    /// The database has reached its limit on memory: see [`Database::limited`](crate::Database::limited). The step has
    /// changed nothing, and the transaction may continue. Removals never fail with this error. Open snapshots and long
    /// transactions keep versions that others replace and remove. This memory is freed when they end. Beside other
    /// writers the error may also pass by itself, when replaced rows have been freed: try again.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another transaction is in the way: begin this one anew"),
            Self::Duplicate { index } => write!(f, "the key is taken in the index {index}"),
            Self::KeyChanged => {
                f.write_str("an update must not change the primary key: remove the row and insert another")
            }
            Self::Refused => {
                f.write_str("rolled back: the log has failed or its disk is full; Database::flush says why")
            }
            Self::NotDurable => f.write_str(
                "committed, but perhaps not for good: the log has failed or its disk is full; Database::flush says why",
            ),
            Self::Full => f.write_str(
                "the database has as much as its limit allows: remove rows, or end the snapshots and transactions that keep old ones",
            ),
            Self::TooLarge => f.write_str("rolled back: a transaction of this length needs a longer queue of the log"),
        }
    }
}

impl core::error::Error for Error {}

impl From<Conflict> for Error {
    fn from(_: Conflict) -> Self {
        Self::Conflict
    }
}
