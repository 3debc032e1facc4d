//! A database of this library with a log. Commits are grouped, and no transaction waits for its group: a committed
//! transaction is durable some milliseconds later.

use std::path::PathBuf;

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::{Mutex, OnceLock};
use archipelago_platform::time::Duration;
use archipelago_txn::on::Kind;
use archipelago_txn::{Acknowledge, Database, Opening, Scheme, Table};

use crate::record::{At, Record};

/// The time between two group commits.
const EVERY: Duration = Duration::from_millis(10);

/// The number of log files that are written in parallel.
const LANES: usize = 2;

/// The database. It is opened when its tables have been declared.
pub(crate) struct Disk<S: Scheme> {
    opening: Mutex<(Option<Opening<S>>, usize)>,
    db: OnceLock<Database<S>>,
    directory: PathBuf,
}

impl<S: Scheme> Disk<S> {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: the counter carries no data.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("archipelago-log-{}-{number}", std::process::id()));
        let opening = Database::open(&directory).lanes(LANES).acknowledge(Acknowledge::Committed { every: EVERY });
        Self { opening: Mutex::new((Some(opening), 0)), db: OnceLock::new(), directory }
    }

    /// Declares a table.
    pub(crate) fn table<M: Kind, R: Record>(&self) -> Table<At<M, R>, S> {
        let mut opening = self.opening.lock().expect("no declaration panics");
        let (opening, tables) = &mut *opening;
        *tables += 1;
        opening.as_mut().expect("tables are declared before the first transaction").table(&tables.to_string())
    }

    /// Returns the database, and opens it on the first call. After that, no tables can be declared.
    pub(crate) fn db(&self) -> &Database<S> {
        self.db.get_or_init(|| {
            let opening = self.opening.lock().expect("no declaration panics").0.take().expect("it is opened once");
            opening.start().unwrap_or_else(|failure| panic!("{}: {failure}", self.directory.display()))
        })
    }
}

impl<S: Scheme> Drop for Disk<S> {
    fn drop(&mut self) {
        // Dropping the database writes the end of the log; the files are removed after that.
        drop(self.db.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
