//! What can go wrong with a database on a disk.

use core::fmt;

use archipelago_journal as journal;

/// Why a database could not be opened, or is not durable. The text of each failure tells the user what to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A failure of the log, a checkpoint, or their files.
    Log(journal::Error),
    /// The directory has rows of a table that the program does not declare.
    Undeclared {
        /// The table's name.
        table: String,
    },
    /// The bytes of a row or key cannot be read as the declared type: another type has written them.
    Unreadable {
        /// The table's name.
        table: String,
    },
    /// Two rows have the same key of a unique index. When the rows were written, the index did not exist, or computed
    /// other keys.
    Taken {
        /// The table's name.
        table: String,
        /// The name of the index's type.
        index: &'static str,
    },
    /// The database is in memory only.
    Volatile,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Undeclared { table } => {
                write!(f, "there are rows of the table {table:?}: declare it before the database is started")
            }
            Self::Unreadable { table } => write!(
                f,
                "a row or key of the table {table:?} was written by another type: open the database with that one, and \
                 copy the rows to another table"
            ),
            Self::Taken { table, index } => write!(
                f,
                "two rows of the table {table:?} have the same key of the unique index {index}: open the database with an \
                 index that is not unique, and change one of them"
            ),
            Self::Volatile => f.write_str("the database is in memory only: make it by Database::open"),
        }
    }
}

impl core::error::Error for Failure {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            _ => None,
        }
    }
}

impl From<journal::Error> for Failure {
    fn from(error: journal::Error) -> Self {
        Self::Log(error)
    }
}
