//! What can go wrong.

use core::fmt;

use crate::scheme::Conflict;

/// Why a transaction, or a step of one, did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction was in the way. Pass it on (`?`): [`transact`](crate::Database::transact) begins anew, and from
    /// [`try_transact`](crate::Database::try_transact) it comes out. Once a step has failed so, all that follow do.
    Conflict,
    /// A row with this primary key, or with this key of a unique index, is there already. The step has changed nothing, and the
    /// transaction may go on.
    Duplicate {
        /// `"primary"`, or the name of the index's type.
        index: &'static str,
    },
    /// An update has changed the row's primary key. The step has changed nothing: remove the row and insert another.
    KeyChanged,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another transaction is in the way: begin this one anew"),
            Self::Duplicate { index } => write!(f, "the key is taken in the index {index}"),
            Self::KeyChanged => {
                f.write_str("an update must not change the primary key: remove the row and insert another")
            }
        }
    }
}

impl core::error::Error for Error {}

impl From<Conflict> for Error {
    fn from(_: Conflict) -> Self {
        Self::Conflict
    }
}
