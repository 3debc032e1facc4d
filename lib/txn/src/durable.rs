//! Databases on a disk: how one is opened, and the methods that only such databases have.

mod checkpoint;
mod failure;
mod log;
mod opening;
mod persist;
mod stored;

use std::path::Path;

pub use failure::Failure;
pub(crate) use log::Log;
pub use opening::{Acknowledge, Opening, Recovered};
pub use persist::Persist;

use crate::database::Database;
use crate::scheme::Scheme;

impl<S: Scheme> Database<S> {
    /// Begins to open a database that survives the process. The database is stored in this directory, which is created
    /// if it does not exist; the parent directory must exist. Only one process at a time can open the database.
    ///
    /// ```
    /// use archipelago_txn::{Database, Error, Row, Silo, on};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Clone, Serialize, Deserialize)]
    /// struct Account {
    ///     number: u64,
    ///     cents: i64,
    /// }
    ///
    /// impl Row for Account {
    ///     type Key = u64;
    ///     type Map = on::HydraList;
    ///     type Indexes = ();
    ///     fn key(&self) -> u64 {
    ///         self.number
    ///     }
    /// }
    ///
    /// # let directory = std::env::temp_dir().join(format!("txn-example-{}", std::process::id()));
    /// # let directory = directory.as_path();
    /// for life in 0..3 {
    ///     let mut opening = Database::<Silo>::open(directory);
    ///     let accounts = opening.table::<Account>("accounts");
    ///     let db = opening.start()?;
    ///     db.transact(|tx| {
    ///         let cents = tx.get(&accounts, &1)?.map_or(0, |account| account.cents);
    ///         assert_eq!(cents, life * 100);
    ///         tx.upsert(&accounts, Account { number: 1, cents: cents + 100 }).map(drop)
    ///     })?; // durable
    ///     db.close()?;
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Opening<S> {
        Opening::new(directory.as_ref())
    }

    /// Waits until all commits before the call are durable. In a database in memory the call does nothing.
    ///
    /// # Errors
    /// [`Failure::Log`]. If the disk was full, the call may be repeated: also when the disk has room, since with more
    /// than one lane a call returns before the lanes have been written again. After any other failed write or sync all later
    /// calls fail, too.
    pub fn flush(&self) -> Result<(), Failure> {
        Ok(self.shared.log().map_or(Ok(()), |log| log.flush(&self.shared))?)
    }

    /// Writes all rows of a snapshot to the disk, and removes the log files that are no longer needed then. Returns the
    /// number of rows. Transactions continue during the call; each row that they replace keeps one more version until
    /// the call's end.
    ///
    /// # Errors
    /// [`Failure::Log`]: the previous checkpoint with its log, or the new one, is valid. [`Failure::Volatile`].
    ///
    /// # Panics
    /// If a row's own methods panic.
    pub fn checkpoint(&self) -> Result<u64, Failure> {
        let log = self.shared.log().ok_or(Failure::Volatile)?;
        log::locked(&log.checkpoints).make(&self.shared, log)
    }

    /// Returns what the opening found on the disk; `None` for a database in memory.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.shared.log().map(|log| &log.recovered)
    }

    /// Makes all commits durable. The directory is unlocked when the last [`Table`](crate::Table) handle has been
    /// dropped too. Dropping the database does the same, but reports no errors.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<(), Failure> {
        self.flush()
    }
}
