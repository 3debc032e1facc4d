//! A database of ours with a log: group commit that nobody waits for. What was committed is durable some milliseconds later.

use std::path::PathBuf;

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::{Mutex, OnceLock};
use archipelago_platform::time::Duration;
use archipelago_txn::on::Kind;
use archipelago_txn::{Acknowledge, Database, Opening, Scheme, Table};

use crate::record::{At, Record};

/// Between two groups.
const EVERY: Duration = Duration::from_millis(10);

/// Log files side by side.
const LANES: usize = 2;

/// The database, which is opened when its tables have been declared.
pub(crate) struct Disk<S: Scheme> {
    opening: Mutex<(Option<Opening<S>>, usize)>,
    db: OnceLock<Database<S>>,
    directory: PathBuf,
}

impl<S: Scheme> Disk<S> {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: a number, no more.
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

    /// The database; from here on there are no new tables.
    pub(crate) fn db(&self) -> &Database<S> {
        self.db.get_or_init(|| {
            let opening = self.opening.lock().expect("no declaration panics").0.take().expect("it is opened once");
            opening.start().unwrap_or_else(|failure| panic!("{}: {failure}", self.directory.display()))
        })
    }
}

impl<S: Scheme> Drop for Disk<S> {
    fn drop(&mut self) {
        // It writes its last before its files go.
        drop(self.db.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
