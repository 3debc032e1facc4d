//! Checkpoints: all rows of a snapshot, so that the log before the snapshot can be removed.
//!
//! A checkpoint consists of files in the journal's directory. `tables` has the names of the tables, by number.
//! `checkpoint` has the epoch of the valid checkpoint, and for each table the number of its parts.
//! `rows-TABLE-EPOCH-PART` has rows. All are checkpoint files of the journal, which are either complete or absent.
//!
//! The steps, in this order:
//! - note the ends of the logs;
//! - open a snapshot of an epoch `s`, so that no record before these ends has an epoch above `s`;
//! - write the parts;
//! - make `s` durable in the log;
//! - write `checkpoint`;
//! - retire the log up to the ends;
//! - remove older parts.
//!
//! A crash between two steps leaves one of two states: the older checkpoint and its log, or the newer checkpoint and
//! perhaps more log than it needs. In the second state recovery skips records with epochs up to `s`. Since `s` is
//! durable in the log before `checkpoint` is written, epochs after the next opening are above `s`.
//!
//! If a step before the one that writes `checkpoint` fails, the new parts are removed. If that step or a later one
//! fails, either checkpoint may be the valid one at the next opening, so both keep their parts.

use std::path::{Path, PathBuf};

use archipelago_journal::{self as journal, CheckpointWriter, Disk, Position, read_checkpoint, write_checkpoint};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;

use super::Failure;
use super::log::{Log, locked};
use super::stored::Catalogue;
use crate::scheme::Scheme;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::tree::Home;

/// Bytes of rows after which another part begins. One thread reads one part at a recovery.
const PART: usize = 32 << 20;

/// The content of the file `checkpoint`, with which a recovery begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    /// The checkpoint's epoch; 0 without a checkpoint.
    pub(crate) epoch: u64,
    /// The number of parts, by table.
    parts: Vec<u32>,
}

/// The checkpoints of a database. A thread that makes a checkpoint holds the lock of this value.
pub(crate) struct Checkpoints<S: Scheme> {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) latest: Latest,
    pub(crate) catalogue: Catalogue<S>,
    /// The bytes of rows after which another part begins.
    pub(crate) part: usize,
}

fn part_path(directory: &Path, table: usize, epoch: u64, part: u32) -> PathBuf {
    directory.join(format!("rows-{table}-{epoch:016x}-{part}"))
}

/// Returns the names of the tables in the directory.
pub(crate) fn read_names(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>, journal::Error> {
    let mut names = Vec::new();
    read_checkpoint(disk, &directory.join("tables"), |name| names.push(String::from_utf8_lossy(name).into_owned()))?;
    Ok(names)
}

pub(crate) fn write_names(disk: Arc<dyn Disk>, directory: &Path, names: &[String]) -> Result<(), journal::Error> {
    let mut writer = CheckpointWriter::create(disk, &directory.join("tables"))?;
    names.iter().try_for_each(|name| writer.record(name.as_bytes()))?;
    writer.commit()
}

impl Latest {
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Self, journal::Error> {
        let path = directory.join("checkpoint");
        let mut words = Vec::new();
        read_checkpoint(disk, &path, |record| {
            words =
                record.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("of 8 bytes"))).collect();
        })?;
        match words.split_first() {
            Some((&epoch, parts)) => Ok(Self { epoch, parts: parts.iter().map(|&parts| parts as u32).collect() }),
            None => Ok(Self::default()),
        }
    }

    fn write(&self, disk: Arc<dyn Disk>, directory: &Path) -> Result<(), journal::Error> {
        let words = core::iter::once(self.epoch).chain(self.parts.iter().map(|&parts| u64::from(parts)));
        let record: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        write_checkpoint(disk, &directory.join("checkpoint"), &record)
    }

    /// Reads all parts, several at a time.
    pub(crate) fn load<S: Scheme>(
        &self,
        disk: &dyn Disk,
        directory: &Path,
        catalogue: &Catalogue<S>,
        home: &Home<S>,
    ) -> Result<(), Failure> {
        let parts = |(table, &parts): (usize, &u32)| (0..parts).map(move |part| (table, part));
        let parts: Vec<(usize, u32)> = self.parts.iter().enumerate().flat_map(parts).collect();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            while let Some(&(table, part)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = part_path(directory, table, self.epoch, part);
                if let Err(failure) = self.load_part(disk, &path, table, catalogue, home) {
                    return *locked(&failed) = Some(failure);
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(parts.len());
        thread::scope(|scope| {
            // If the system refuses a thread, the other ones load its parts.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(spawn).collect();
            work();
            // A scope would replace the panic of a thread that is not joined.
            for other in others {
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }

    fn load_part<S: Scheme>(
        &self,
        disk: &dyn Disk,
        path: &Path,
        table: usize,
        catalogue: &Catalogue<S>,
        home: &Home<S>,
    ) -> Result<(), Failure> {
        let stored = catalogue.table(table as u32)?;
        let mut readable = true;
        let found = read_checkpoint(disk, path, |row| readable &= stored.apply(home, (self.epoch, 0), false, row))?;
        if found.is_none() {
            let what = "it is missing, and the checkpoint has it".to_owned();
            return Err(journal::Error::Damaged { file: path.to_owned(), offset: 0, what }.into());
        }
        if readable { Ok(()) } else { Err(Failure::Unreadable { table: catalogue.name(table as u32) }) }
    }

    /// Removes the parts of other checkpoints, and unfinished ones.
    pub(crate) fn remove_others(&self, disk: &dyn Disk, directory: &Path) -> Result<(), journal::Error> {
        let ours = of_epoch(self.epoch);
        remove_parts(disk, directory, |name| !name.contains(&ours) || name.ends_with(".tmp"))
    }
}

/// Returns the text that the names of an epoch's parts contain.
fn of_epoch(epoch: u64) -> String {
    format!("-{epoch:016x}-")
}

/// Removes the parts for whose names `are_meant` returns true.
fn remove_parts(disk: &dyn Disk, directory: &Path, are_meant: impl Fn(&str) -> bool) -> Result<(), journal::Error> {
    let io = |call, file: &Path, cause| journal::Error::Io { call, file: file.to_owned(), cause: Arc::new(cause) };
    let names = disk.list(directory).map_err(|cause| io("list", directory, cause))?;
    for name in names.iter().filter(|name| name.starts_with("rows-") && are_meant(name)) {
        let path = directory.join(name);
        disk.remove(&path).map_err(|cause| io("remove", &path, cause))?;
    }
    Ok(())
}

/// The parts of a checkpoint that is being made. Dropping the value removes them.
struct Unfinished<'c> {
    disk: &'c dyn Disk,
    directory: &'c Path,
    epoch: u64,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let ours = of_epoch(self.epoch);
        // Parts that cannot be removed now are removed after the next checkpoint, or at the next opening.
        let _ = remove_parts(self.disk, self.directory, |name| name.contains(&ours));
    }
}

impl<S: Scheme> Checkpoints<S> {
    /// Writes a checkpoint. Returns the number of its rows.
    pub(crate) fn make(&mut self, shared: &Shared<S>, log: &Log<S>) -> Result<u64, Failure> {
        let ends: Vec<Position> = (0..log.lanes).map(|lane| log.journal.end(lane)).collect();
        let snapshot = Snapshot::open(shared);
        let epoch = snapshot.moment();
        let unfinished = Unfinished { disk: &*self.disk, directory: &self.directory, epoch };
        let mut latest = Latest { epoch, parts: Vec::new() };
        let mut rows = 0;
        for (number, table) in self.catalogue.tables.iter().enumerate() {
            let mut parts = Parts {
                at: (&self.disk, &self.directory, self.part),
                table: number,
                epoch,
                count: 0,
                bytes: 0,
                writer: None,
            };
            if let Some(table) = table {
                rows += table.save(&snapshot, &mut |row| parts.record(row))?;
            }
            latest.parts.push(parts.end()?);
        }
        drop(snapshot);
        let closed = log.close_now(shared)?;
        debug_assert!(closed >= epoch);
        core::mem::forget(unfinished);
        latest.write(self.disk.clone(), &self.directory)?;
        self.latest = latest;
        ends.into_iter().try_for_each(|end| log.journal.retire_before(end))?;
        self.latest.remove_others(&*self.disk, &self.directory)?;
        Ok(rows)
    }
}

/// The parts of a table, as they are written.
struct Parts<'c> {
    /// The disk, the directory, and the length of a part in bytes.
    at: (&'c Arc<dyn Disk>, &'c Path, usize),
    table: usize,
    epoch: u64,
    count: u32,
    bytes: usize,
    writer: Option<CheckpointWriter>,
}

impl Parts<'_> {
    fn record(&mut self, row: &[u8]) -> Result<(), journal::Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let path = part_path(self.at.1, self.table, self.epoch, self.count);
                self.writer.insert(CheckpointWriter::create(self.at.0.clone(), &path)?)
            }
        };
        writer.record(row)?;
        self.bytes += row.len();
        if self.bytes >= self.at.2 { self.next() } else { Ok(()) }
    }

    fn next(&mut self) -> Result<(), journal::Error> {
        if let Some(writer) = self.writer.take() {
            writer.commit()?;
            (self.count, self.bytes) = (self.count + 1, 0);
        }
        Ok(())
    }

    fn end(mut self) -> Result<u32, journal::Error> {
        self.next()?;
        Ok(self.count)
    }
}

/// Returns the default length of a part, in bytes.
pub(crate) const fn usual_part() -> usize {
    PART
}
