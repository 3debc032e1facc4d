//! Databases on a disk: opening, and what their handles can do more.

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
    /// Begins to open a database that survives the process: in a directory, which is made if it is not there (its parent has to be).
    /// One process at a time.
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

    /// Waits until all that was committed before the call is durable. In a database in memory there is nothing to wait for.
    ///
    /// # Errors
    /// [`Failure::Log`]: after a failed write or sync always; after a full disk the call may be repeated.
    pub fn flush(&self) -> Result<(), Failure> {
        Ok(self.shared.log().map_or(Ok(()), |log| log.flush(&self.shared))?)
    }

    /// Writes all rows to the disk, as a snapshot has them, and removes the log up to it; returns how many rows these are. Beside
    /// transactions, which it does not stop; each row that they replace meanwhile keeps one version more.
    ///
    /// # Errors
    /// [`Failure::Log`]: the checkpoint and log that were there count. [`Failure::Volatile`].
    ///
    /// # Panics
    /// With what the rows' own methods panic with.
    pub fn checkpoint(&self) -> Result<u64, Failure> {
        let log = self.shared.log().ok_or(Failure::Volatile)?;
        log::locked(&log.checkpoints).make(&self.shared, log)
    }

    /// What was found when the database was opened; nothing, for a database in memory.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.shared.log().map(|log| &log.recovered)
    }

    /// Makes all durable that was committed, and lets the directory go when the last [`Table`](crate::Table) handle has been dropped
    /// too. Dropping the database does the same and tells no errors.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<(), Failure> {
        self.flush()
    }
}
