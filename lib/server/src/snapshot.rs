//! Snapshots: the file `snapshot` holds the database at one position of the log. The log before this position is then
//! superfluous.
//!
//! # How a snapshot is made
//! 1. *Begin.* While no batch is between the log and the replicas ([`Store::quiet`]), the position of the log's end is
//!    noted, and a walk over one replica begins ([`walk`](crate::db::walk)). The walk returns the database as it was at this
//!    position.
//! 2. *Walk.* Entries are encoded in portions of about 32 KiB. Changes of the walked replica wait while a portion is
//!    encoded. They continue while the portion is written to the file. Other replicas continue all the time.
//! 3. *Commit.* The log is synced up to the position. Without this sync, a crash could remove changes from the log that the
//!    snapshot contains, and the log would then give their positions to other changes. Next, the file is synced and renamed
//!    from `snapshot.tmp`, and the directory is synced. The rename is atomic: at each moment of a crash `snapshot` is either
//!    the whole old file or the whole new file.
//! 4. *Retire.* Segments of the log that end before the position are removed.
//!
//! A recovery reads the snapshot and applies the log's records after the snapshot's position.
//!
//! # The file
//! A checkpoint file of the [journal](archipelago_journal): each record has a CRC-32C, and the last frame has the number of
//! records. The first record is the head: version, position, Unix time, and the state of the database other than its
//! entries. All other records are entries.

use std::path::{Path, PathBuf};

use archipelago_journal::{CheckpointWriter, Disk, Error, read_checkpoint};
use archipelago_platform::atomic::{AtomicBool, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::topology::Topology;
use archipelago_platform::{panics, thread};

use crate::db::hashing::Hashing;
use crate::db::value::Entry;
use crate::db::{Db, image};
use crate::log::{Refusal, Store};
use crate::operation::{Input, put_bytes, put_number};

/// The version of the file's format. Version 1 has no seed in its head: its databases have seed 0.
const VERSION: u64 = 2;
/// The size of a portion of entries, in bytes.
const STRETCH: usize = 32 << 10;
/// Every record is shorter than this number of bytes.
const LONGEST: usize = 1 << 31;
/// The number of bytes that are decoded at a time, by all threads together.
const DECODED: usize = 8 << 20;

/// Returns the path of a directory's snapshot.
pub fn path(directory: &Path) -> PathBuf {
    directory.join("snapshot")
}

/// The state of a server's snapshots: the last one, and the last failure.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The time at which the last snapshot was begun, in seconds since 1970; 0 if there is none.
    pub time: u64,
    /// The position of the log up to which the last snapshot has the changes.
    pub place: u64,
    /// The approximate size of the last snapshot, in bytes.
    pub bytes: u64,
    /// The number of operations in the last snapshot.
    pub serial: u64,
    /// The error of the last attempt, if it failed.
    pub failure: Option<Refusal>,
}

/// The snapshots of a directory.
pub struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    status: Mutex<Status>,
    running: AtomicBool,
    cancelled: AtomicBool,
}

/// On drop, notes that no snapshot is being made any more, and ends the walk.
struct Turn<'s>(&'s Snapshots, &'s Store);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // An error means a poisoned database, which answers every later operation with an error.
        let _ = self.1.db().inspect(0, Db::end_walk);
        self.0.running.store(false, Relaxed);
    }
}

impl Snapshots {
    /// Returns the snapshots of a directory; `status` describes the last one.
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, status: Status) -> Self {
        let (running, cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { disk, path: path(directory), status: Mutex::new(status), running, cancelled }
    }

    /// Returns the state of the snapshots.
    pub fn status(&self) -> Status {
        self.status.lock().expect("nothing panics while it is locked").clone()
    }

    /// Cancels the snapshot that is being made, and refuses others until this function is called with `false`.
    pub fn cancel(&self, cancel: bool) {
        self.cancelled.store(cancel, Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().expect("nothing panics while it is locked"));
    }
}

impl Store {
    /// Makes a snapshot, and removes the part of the log that the snapshot contains. `time` is in seconds since 1970.
    /// Changes wait while a portion of about 32 KiB, or one longer value, is encoded.
    ///
    /// # Errors
    /// A sentence that says what failed. Before the new snapshot is renamed, a failure leaves the previous one. A later
    /// failure (to sync the directory, or to remove the log's segments) leaves the new one. A panic, which the panic hook
    /// has reported, is a failure like any other.
    pub fn snapshot(&self, time: u64) -> Result<(), Refusal> {
        let snapshots = self.snapshots().ok_or("this server has no directory for snapshots")?;
        if snapshots.running.swap(true, Relaxed) {
            return Err("another snapshot is being made".into());
        }
        let turn = Turn(snapshots, self);
        // A client may wait for the end of the snapshot, and the next automatic attempt waits longer after a failure. So a
        // panic is a failure, too.
        let made = panics::quietly(|| self.write_snapshot(snapshots, time))
            .unwrap_or_else(|| Err("making a snapshot has panicked; the server's standard error tells where".into()));
        drop(turn);
        snapshots.change(|status| match &made {
            Ok(new) => *status = new.clone(),
            Err(failure) => status.failure = Some(failure.clone()),
        });
        made.map(drop)
    }

    fn write_snapshot(&self, snapshots: &Snapshots, time: u64) -> Result<Status, Refusal> {
        let told = |error: Error| error.to_string();
        let (end, head) = self.quiet(|db| db.begin_walk())?;
        let is_logged = end.is_some();
        let place = end.map_or(0, |end| end.place);
        // With a log, the directory exists already.
        if let (false, Some(directory)) = (is_logged, snapshots.path.parent()) {
            let shown = directory.display();
            snapshots.disk.create_directory(directory).map_err(|error| format!("cannot make {shown}: {error}"))?;
        }
        let mut writer = CheckpointWriter::create(snapshots.disk.clone(), &snapshots.path).map_err(told)?;
        let mut record = Vec::new();
        put_number(VERSION, &mut record);
        put_number(place, &mut record);
        put_number(time, &mut record);
        let serial = Input(&head).number().unwrap_or(0);
        put_bytes(&head, &mut record);
        writer.record(&record).map_err(told)?;
        let mut bytes = record.len() as u64;
        let mut put = |record: &mut Vec<u8>| {
            if record.len() >= LONGEST {
                return Err("a value of 2 GiB or more is not put into a snapshot".to_owned());
            }
            bytes += record.len() as u64;
            let put = if record.is_empty() { Ok(()) } else { writer.record(record).map_err(told) };
            record.clear();
            put
        };
        loop {
            if snapshots.cancelled.load(Relaxed) {
                return Err("the server ends".into());
            }
            let portion = self.db().inspect(0, |db| db.walk_on(STRETCH)).map_err(|poisoned| poisoned.to_string())?;
            let mut portion = portion.ok_or("another walk has begun")?;
            put(&mut portion.bytes)?;
            for (db, entry) in portion.aside.drain(..) {
                image::put_entry(db, &entry, &mut portion.bytes);
                if portion.bytes.len() >= STRETCH {
                    put(&mut portion.bytes)?;
                }
            }
            put(&mut portion.bytes)?;
            if portion.last {
                break;
            }
        }
        self.sync()?;
        writer.commit().map_err(told)?;
        if let Some(end) = end {
            self.retire_before(end)?;
        }
        Ok(Status { time, place, bytes, serial, failure: None })
    }
}

/// Reads the snapshot of a directory into `db`, which must be empty. Entries are decoded on all processors (16 at
/// most).
///
/// # Errors
/// A sentence that says which file is wrong, why, and what to do.
pub fn read(disk: &dyn Disk, directory: &Path, db: &mut Db) -> Result<Status, Refusal> {
    let path = path(directory);
    // Removes a file that a crash left unfinished. An error is ignored, because the next snapshot overwrites the file.
    if disk.list(directory).is_ok_and(|names| names.iter().any(|name| name == "snapshot.tmp")) {
        let _ = disk.remove(&path.with_extension("tmp"));
    }
    let mut status = Status::default();
    let mut wrong = None;
    let (mut number, mut held) = (0_u64, Vec::new());
    let mut waiting = 0;
    let read = read_checkpoint(disk, &path, |record| {
        number += 1;
        status.bytes += record.len() as u64;
        if number == 1 {
            wrong = head(record, &mut status, db).err();
            return;
        }
        waiting += record.len();
        held.push(record.to_vec());
        if waiting >= DECODED && wrong.is_none() {
            wrong = admit(core::mem::take(&mut held), db).err();
            waiting = 0;
        }
    });
    let repair = "put a copy of it in its place, from a backup with the log of the same time";
    let found = read.map_err(|error| format!("{error}. The snapshot is needed: {repair}"))?;
    if found.is_some() && wrong.is_none() {
        wrong = admit(held, db).err();
    }
    match wrong {
        Some(what) => Err(format!("{}: {what}: start the version that wrote it, or {repair}", path.display())),
        None => Ok(status),
    }
}

fn head(record: &[u8], status: &mut Status, db: &mut Db) -> Result<(), String> {
    let mut input = Input(record);
    let version = input.number();
    if !matches!(version, Some(1..=VERSION)) {
        let version = version.map_or("none".into(), |version| version.to_string());
        return Err(format!("its format has version {version}, and this program reads 1 to {VERSION}"));
    }
    let mut rest = || {
        (status.place, status.time) = (input.number()?, input.number()?);
        let head = input.bytes()?;
        status.serial = Input(head).number()?;
        let seed: &[u8] = if version == Some(1) { &[0; 8] } else { &[] };
        db.resume(&[head, seed].concat())
    };
    rest().ok_or_else(|| "its head makes no sense".into())
}

/// Decodes records on all processors (16 at most), and adds their entries in this thread.
fn admit(records: Vec<Vec<u8>>, db: &mut Db) -> Result<(), String> {
    let threads = Topology::current().cpus().len().clamp(1, 16);
    let share = records.len().div_ceil(threads).max(1);
    let decoded: Vec<Option<Vec<(u32, Entry)>>> = thread::scope(|scope| {
        let hashing = db.hashing();
        let shares = records.chunks(share).map(|share| scope.spawn(move || decode(share, hashing)));
        let threads: Vec<_> = shares.collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    for entries in decoded {
        for (index, entry) in entries.ok_or("a record makes no sense")? {
            db.admit(index, entry).ok_or("a key is there twice, or in a database that is not there")?;
        }
    }
    Ok(())
}

fn decode(records: &[Vec<u8>], hashing: Hashing) -> Option<Vec<(u32, Entry)>> {
    let mut entries = Vec::new();
    for record in records {
        let mut input = Input(record);
        while !input.0.is_empty() {
            entries.push(image::entry(&mut input, hashing)?);
        }
    }
    Some(entries)
}
