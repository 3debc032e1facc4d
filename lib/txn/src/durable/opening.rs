//! How a database on a disk is opened.

use std::path::{Path, PathBuf};

use archipelago_journal::{self as journal, Cut, Disk, DiskLock, Journal, Options, Real};
use archipelago_platform::atomic::AtomicU32;
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use super::Failure;
use super::checkpoint::{self, Checkpoints, Latest};
use super::log::{Log, locked};
use super::persist::Persist;
use super::stored::{Catalogue, Stored};
use crate::codec::Codec;
use crate::database::Database;
use crate::scheme::Scheme;
use crate::shared::Shared;
use crate::table::{Row, Table};

/// When a transaction that has written to tables on a disk is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When it is durable; those that commit at the same time share a sync. A transaction that only reads waits for those from which
    /// it has read. The default.
    Durable,
    /// When it is committed in memory: a crash may lose the last transactions, and with each those that come after it.
    /// [`Database::flush`] waits for what is committed.
    Committed {
        /// A thread of the database makes durable what was committed, after each such time.
        every: Duration,
    },
}

/// What was found in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Rows that there are now, in all tables.
    pub rows: u64,
    /// Transactions of the log that were read, checkpointed ones among them.
    pub transactions: u64,
    /// Transactions of the log that had not become durable everywhere: none of them was acknowledged as durable.
    pub discarded: u64,
    /// Torn tails of log files that were cut, as a crash leaves them.
    pub cuts: Vec<Cut>,
}

/// A database that is being opened: see [`Database::open`].
#[must_use = "nothing is opened before `start`"]
pub struct Opening<S: Scheme> {
    shared: Arc<Shared<S>>,
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    options: Options,
    background: Option<bool>,
    acknowledge: Acknowledge,
    part: usize,
    tables: Vec<(String, Arc<dyn Stored<S>>)>,
}

impl<S: Scheme> core::fmt::Debug for Opening<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Opening").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<S: Scheme> Opening<S> {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            shared: Arc::new(Shared::new()),
            disk: Arc::new(Real),
            directory: directory.to_owned(),
            options: Options { epochs: true, queue: 64 << 20, ..Options::default() },
            background: None,
            acknowledge: Acknowledge::Durable,
            part: checkpoint::usual_part(),
            tables: Vec::new(),
        }
    }

    /// Declares a table that is on the disk: its rows, if there are any, are there once the database is
    /// [started](Self::start). The name is what rows are found by, and never changes; the types of row and key may change
    /// only so that they read what they wrote ([`Persist`]). Indexes are built anew, so they may change.
    ///
    /// # Panics
    /// If there is a table with this name.
    pub fn table<R: Row + Persist>(&mut self, name: &str) -> Table<R, S>
    where
        R::Key: Persist,
    {
        assert!(self.tables.iter().all(|(other, _)| other != name), "the table {name:?} is declared twice");
        let codec = Codec { table: AtomicU32::new(0), key: <R::Key as Persist>::save, row: <R as Persist>::save };
        let table = Table::new(&self.shared, Some(codec));
        self.tables.push((name.to_owned(), table.shared_core()));
        table
    }

    /// When a transaction is over: [`Acknowledge::Durable`], unless this is called.
    pub fn acknowledge(self, acknowledge: Acknowledge) -> Self {
        Self { acknowledge, ..self }
    }

    /// How many log files are written side by side: 1, unless this is called. It cannot be changed later. Threads that commit
    /// share a log file's lock for the time of a copy; a group's syncs run at the same time.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.options.lanes = lanes;
        self
    }

    /// How many bytes rows may take, as in [`Database::limited`]. What is on the disk is recovered in any case.
    pub fn limit(self, bytes: usize) -> Self {
        self.shared.home().memory.set_limit(bytes);
        self
    }

    /// The most bytes of each log file that wait in memory to be written, and so of one transaction: 64 MiB, unless this is
    /// called; 4 KiB to 1 GiB. Memory is taken as it is needed.
    pub fn queue(mut self, bytes: usize) -> Self {
        self.options.queue = bytes;
        self
    }

    /// The length in bytes from which on a log file is followed by another: 64 MiB, unless this is called. After a checkpoint
    /// only whole files are removed.
    pub fn segment(mut self, bytes: u64) -> Self {
        self.options.segment = bytes;
        self
    }

    /// Takes another disk than the operating system's: for tests, [`archipelago_journal::Simulated`].
    pub fn disk(self, disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..self }
    }

    /// Without threads, so that tests see each call of the disk in an order that they determine; parts of checkpoints of this
    /// length.
    #[doc(hidden)]
    pub fn in_order(self, part: usize) -> Self {
        Self { background: Some(false), part, ..self }
    }

    /// Reads what the directory has, several files at the same time, and starts the database. The parent of the directory
    /// must be there.
    ///
    /// # Errors
    /// [`Failure`]: nothing that was acknowledged is lost by an attempt.
    ///
    /// # Panics
    /// With what the rows' own methods panic with.
    pub fn start(self) -> Result<Database<S>, Failure> {
        let io = |call, cause| journal::Error::Io { call, file: self.directory.clone(), cause: Arc::new(cause) };
        self.disk.create_directory(&self.directory).map_err(|cause| io("create", cause))?;
        let _lock = self.lock()?;
        let (disk, directory, home) = (&*self.disk, &*self.directory, self.shared.home());
        let names = checkpoint::read_names(disk, directory)?;
        let (catalogue, new) = Catalogue::new(directory.join("tables"), names, &self.tables);
        let latest = Latest::read(disk, directory)?;
        latest.load(disk, directory, &catalogue, home)?;
        let (journal, recovery) = self.replay(&catalogue, &latest)?;
        latest.remove_others(disk, directory)?;
        // Before any record refers to them.
        if new > 0 {
            checkpoint::write_names(self.disk.clone(), directory, &catalogue.names)?;
        }
        let recovered = Recovered {
            rows: finish(&self.tables, &self.shared)?,
            transactions: recovery.records,
            discarded: recovery.discarded,
            cuts: recovery.cuts,
        };
        self.begin(journal, recovery.next_epoch, recovered, (latest, catalogue))
    }

    /// Held while the directory is looked at, before the journal has it.
    fn lock(&self) -> Result<Box<dyn DiskLock>, Failure> {
        let path = self.directory.join("opening");
        self.disk.lock(&path).map_err(|cause| {
            Failure::Log(match cause.kind() {
                std::io::ErrorKind::WouldBlock => journal::Error::Locked { directory: self.directory.clone() },
                _ => journal::Error::Io { call: "lock", file: path, cause: Arc::new(cause) },
            })
        })
    }

    /// Applies the log.
    fn replay(&self, catalogue: &Catalogue<S>, latest: &Latest) -> Result<(Journal, journal::Recovery), Failure> {
        // A thread a log file, if they are several; those that wait do the work otherwise.
        let background = self.background.unwrap_or(self.options.lanes > 1);
        let options = Options { background, ..self.options.clone() };
        let home = self.shared.home();
        let failed = Mutex::new(None);
        let opened = Journal::open(self.disk.clone(), &self.directory, options, |record| {
            if record.position.epoch <= latest.epoch || locked(&failed).is_some() {
                return;
            }
            if let Err(failure) = catalogue.apply(home, record.position.epoch, record.bytes) {
                *locked(&failed) = Some(failure);
            }
        })?;
        match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(failure) => Err(failure),
            None => Ok(opened),
        }
    }

    fn begin(
        self,
        journal: Journal,
        next: u64,
        recovered: Recovered,
        (latest, catalogue): (Latest, Catalogue<S>),
    ) -> Result<Database<S>, Failure> {
        let (directory, part) = (self.directory.clone(), self.part);
        let checkpoints = Checkpoints { disk: self.disk, directory, latest, catalogue, part };
        self.shared.epochs().begin_at(next);
        let log = Log::new(
            (journal, self.options.lanes as u32),
            next,
            self.acknowledge,
            recovered,
            checkpoints,
            self.background == Some(false),
        );
        if let Acknowledge::Committed { every } = self.acknowledge {
            let io =
                |cause| journal::Error::Io { call: "start of a thread", file: self.directory, cause: Arc::new(cause) };
            log.flush_every(&self.shared, every).map_err(io)?;
        }
        self.shared.start_log(log);
        Ok(Database { shared: self.shared })
    }
}

/// Completes the tables, each with a thread of its own; returns how many rows there are.
fn finish<S: Scheme>(tables: &[(String, Arc<dyn Stored<S>>)], shared: &Shared<S>) -> Result<u64, Failure> {
    let home = shared.home();
    let finished: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = tables.iter().map(|(_, table)| scope.spawn(move || table.finish(home))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut rows = 0;
    for ((name, _), result) in tables.iter().zip(finished) {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        rows += result.map_err(|index| Failure::Taken { table: name.clone(), index })?;
    }
    Ok(rows)
}
