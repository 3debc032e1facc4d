//! Opening a database on a disk.

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

/// When a transaction that has written to tables on a disk returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When it is durable. Transactions that commit at the same time share a sync. A transaction that only reads, or
    /// writes only to tables in memory, waits until the transactions whose writes it has read are durable. This is the
    /// default.
    ///
    /// A transaction whose closure fails, and a [`Snapshot`](crate::Snapshot), do not wait: what they have seen may be
    /// lost in a crash. For example, if an insertion was answered with [`Error::NotDurable`](crate::Error::NotDurable),
    /// and its repetition with [`Error::Duplicate`](crate::Error::Duplicate), the row is not necessarily durable.
    Durable,
    /// When it is committed in memory. A crash may lose the last transactions in the order of serialization.
    /// [`Database::flush`] waits until all commits are durable.
    Committed {
        /// The interval at which a thread of the database makes commits durable; at least a millisecond.
        every: Duration,
    },
}

/// What the opening found in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Rows in all tables after the recovery.
    pub rows: u64,
    /// Transactions that were read from the log, including transactions that the checkpoint contains, too.
    pub transactions: u64,
    /// Transactions of the log whose epoch was not durable in all lanes (log files). None of them was acknowledged as
    /// durable.
    pub discarded: u64,
    /// Torn tails of log files, which a crash had left and the opening has cut off.
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

    /// Declares a table that is on the disk. [`start`](Self::start) recovers its rows. The name identifies the table on
    /// the disk and must never change. The types of row and key may change only if the new types can still read what
    /// the old ones have written ([`Persist`]). Indexes are rebuilt, so they may change.
    ///
    /// # Panics
    /// If a table with this name has been declared.
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

    /// Sets when a transaction returns. The default is [`Acknowledge::Durable`].
    pub fn acknowledge(self, acknowledge: Acknowledge) -> Self {
        Self { acknowledge, ..self }
    }

    /// Sets how many log files are written in parallel. The default is 1. The number cannot be changed later. A thread
    /// that commits holds a log file's lock while it copies its record. The files of one group of commits are synced at
    /// the same time.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.options.lanes = lanes;
        self
    }

    /// Sets the limit on memory in bytes, as in [`Database::limited`]. The recovery ignores it.
    pub fn limit(self, bytes: usize) -> Self {
        self.shared.home().memory.set_limit(bytes);
        self
    }

    /// Sets how many bytes of each log file may wait in memory to be written. It is also the bound on a transaction's
    /// size. The default is 64 MiB; 4 KiB to 1 GiB are allowed. Memory is allocated as needed.
    pub fn queue(mut self, bytes: usize) -> Self {
        self.options.queue = bytes;
        self
    }

    /// Sets the length in bytes at which the next log file begins. The default is 64 MiB. A checkpoint removes only
    /// whole files.
    pub fn segment(mut self, bytes: u64) -> Self {
        self.options.segment = bytes;
        self
    }

    /// Sets the disk. The default is the operating system's; tests use [`archipelago_journal::Simulated`].
    pub fn disk(self, disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..self }
    }

    /// For tests: the log uses no background threads, so that tests determine the order of the disk's calls. `part` is
    /// the length in bytes of a checkpoint's parts.
    #[doc(hidden)]
    pub fn in_order(self, part: usize) -> Self {
        Self { background: Some(false), part, ..self }
    }

    /// Reads the directory, several files at a time, and starts the database. The directory's parent must exist.
    ///
    /// # Errors
    /// [`Failure`]. A failed attempt loses no acknowledged commit.
    ///
    /// # Panics
    /// If a row's own methods panic, with the same panic.
    pub fn start(self) -> Result<Database<S>, Failure> {
        let io = |call, cause| journal::Error::Io { call, file: self.directory.clone(), cause: Arc::new(cause) };
        self.disk.create_directory(&self.directory).map_err(|cause| io("create", cause))?;
        let lock = self.lock()?;
        let (disk, directory, home) = (&*self.disk, &*self.directory, self.shared.home());
        let names = checkpoint::read_names(disk, directory)?;
        let (catalogue, new) = Catalogue::new(directory.join("tables"), names, &self.tables);
        let latest = Latest::read(disk, directory)?;
        latest.load(disk, directory, &catalogue, home)?;
        // The parts of other checkpoints are removed before the journal is opened, since the opening needs room. The
        // sync precedes the removal. Otherwise a power loss could undo the renaming of the last `checkpoint` file, but
        // not the removal of the previous checkpoint's parts.
        disk.sync_directory(directory).map_err(|cause| io("sync", cause))?;
        latest.remove_others(disk, directory)?;
        let (journal, recovery) = self.replay(&catalogue, &latest)?;
        // The names are written before any record refers to them.
        if new > 0 {
            checkpoint::write_names(self.disk.clone(), directory, &catalogue.names)?;
        }
        let recovered = Recovered {
            rows: finish(&self.tables, &self.shared)?,
            transactions: recovery.records,
            discarded: recovery.discarded,
            cuts: recovery.cuts,
        };
        self.begin((journal, lock), recovery.next_epoch, recovered, (latest, catalogue))
    }

    /// Locks the directory. The journal has a lock of its own, but takes it only when it is opened. `start` reads files
    /// before that.
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
        // With several log files, each has a background thread that writes it. A single log file is written by the
        // threads that wait for durability.
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
        (journal, lock): (Journal, Box<dyn DiskLock>),
        next: u64,
        recovered: Recovered,
        (latest, catalogue): (Latest, Catalogue<S>),
    ) -> Result<Database<S>, Failure> {
        let (directory, part) = (self.directory.clone(), self.part);
        let checkpoints = Checkpoints { disk: self.disk, directory, latest, catalogue, part };
        self.shared.epochs().begin_at(next);
        let log = Log::new(
            (journal, self.options.lanes as u32, lock),
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

/// Completes the tables, each in a thread of its own. Returns the number of rows.
fn finish<S: Scheme>(tables: &[(String, Arc<dyn Stored<S>>)], shared: &Shared<S>) -> Result<u64, Failure> {
    let home = shared.home();
    let finished: Vec<_> = thread::scope(|scope| {
        let finish = |(_, table): &'_ (String, Arc<dyn Stored<S>>)| table.finish(home);
        let spawn = |table| (table, thread::Builder::new().spawn_scoped(scope, move || finish(table)));
        let threads: Vec<_> = tables.iter().map(spawn).collect();
        // The tables of threads that the system refuses are finished here.
        let joined = threads.into_iter().map(|(table, thread)| thread.map_or_else(|_| Ok(finish(table)), |t| t.join()));
        joined.collect()
    });
    let mut rows = 0;
    for ((name, _), result) in tables.iter().zip(finished) {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        rows += result.map_err(|index| Failure::Taken { table: name.clone(), index })?;
    }
    Ok(rows)
}
