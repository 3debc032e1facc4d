//! Append-only log files with group commit. With the default policy, acknowledged records survive a crash, whole and in
//! order. Damage is reported, never skipped.
//!
//! ```
//! use archipelago_journal::{Journal, Options, Real};
//! use std::sync::{Arc, Mutex};
//!
//! # let directory = std::env::temp_dir().join(format!("journal-example-{}", std::process::id()));
//! # let directory = directory.as_path();
//! let names = Mutex::new(Vec::new());
//! let (journal, recovery) = Journal::open(Arc::new(Real), directory, Options::default(), |record| {
//!     names.lock().unwrap().push(String::from_utf8_lossy(record.bytes).into_owned());
//! })?;
//! for cut in &recovery.cuts {
//!     eprintln!("{}: {} unfinished bytes from {} on", cut.file.display(), cut.bytes, cut.offset);
//! }
//! let position = journal.append(0, 0, b"Ada")?;   // in memory, in order
//! journal.wait(position)?;                        // on the disk; other threads' records share the sync
//! journal.close()?;
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok::<(), archipelago_journal::Error>(())
//! ```
//!
//! - A directory has one journal with one to a thousand *lanes*: log files that are written and synced concurrently. A
//!   lane's records are in the order of its appends.
//! - [`append`](Journal::append) copies a record into a queue; [`wait`](Journal::wait) returns when the record is
//!   durable. One of the waiting threads writes and syncs for all of them (with the policy `Every` and in a journal
//!   with epochs, a background thread does so). An event loop uses [`ask`](Journal::ask),
//!   [`is_durable`](Journal::is_durable) and [`Options::observer`] instead.
//! - With [`Options::epochs`], recovery returns whole epochs: all records of an epoch in all lanes, or none of them.
//!   The caller [closes](Journal::close_epoch) epochs.
//! - After a checkpoint ([`CheckpointWriter`]: a file that exists as a whole or not at all),
//!   [`retire_before`](Journal::retire_before) removes the segments whose records the checkpoint contains.
//! - Every call to the file system is a method of [`Disk`] or [`DiskFile`]. [`Simulated`] is a disk that fails on
//!   request, and loses, tears and reorders writes at a power loss. Users of the journal can use it in their tests,
//!   too.
//!
//! # What survives
//!
//! This table shows which of the records that `wait` has acknowledged survive:
//!
//! | policy | the process ends (`kill -9`) | the power fails | a write or sync fails |
//! |---|---|---|---|
//! | [`Always`](Policy::Always) | all | all | all; nothing more is acknowledged |
//! | [`Every`](Policy::Every) | all | all | all; nothing more is acknowledged |
//! | [`Never`](Policy::Never) | all | what `sync` has acknowledged, what an earlier opening delivered, perhaps more | as at a power failure; nothing more is acknowledged |
//!
//! Of the records that were appended and not acknowledged, a prefix survives in each lane, with each policy. The prefix
//! has whole records only, and with epochs whole epochs only. [`Every`](Policy::Every) differs from `Always` in the
//! time at which `wait` returns. A caller that does not wait may lose the records of an interval at a power failure. If
//! the process ends, such a caller may lose records that the journal has not written yet (see [`ask`](Journal::ask)).
//!
//! Disk full: if a write finds the disk full, the appended records stay in memory, in order, and are written once there
//! is room. Until then new records are refused with [`Error::NoSpace`], and each refused append causes another attempt
//! to write. If a sync finds the disk full, it is unknown which bytes were lost. Then the journal is poisoned: it
//! acknowledges no further record.
//!
//! Damage: each record has a CRC-32C over its bytes and its place (position) in the lane. The log also contains marks.
//! A mark states up to which place records were durable when the mark was written. If a record is not whole and no
//! later mark declares it durable, the record and all bytes after it are a torn tail, which is cut. Otherwise opening
//! fails with [`Error::Damaged`], with file and offset. No mark follows the last batch before a crash, so damage to
//! this batch is cut as a torn tail, and reported in [`Recovery::cuts`]. Except with `Never`, [`close`](Journal::close)
//! writes a last mark.
//!
//! # Costs
//!
//! - The log stores 24 bytes in addition for each record, and 32 bytes for each batch. `append` costs a lock, a copy
//!   and a checksum: O(length).
//! - Memory: two buffers of up to [`Options::queue`] bytes per lane, which grow when they are needed.
//! - One `write` per batch, and with `Always` one `fdatasync`. Per segment, there are three more syncs: of the new
//!   file, of its directory, and (except with `Never`) of the previous segment. Files are not preallocated, so each
//!   sync also writes the file's length. Preallocation would need system calls that `std` does not have, and segments
//!   that are full of zeros at first.
//! - Opening needs room for a few KiB: on a full disk it is refused with [`Error::NoSpace`].
//! - Opening reads everything once. Segments that the next segment's header does not declare durable are read twice.
//!   The bytes that are not known to be durable are then read once more, and rewritten. With `Never`, these are the
//!   records since the last opening or `sync`.
//!
//! # When to use something else
//!
//! - Records that are longer than the queue (8 MiB by default, at most 1 GiB): keep such records in files of their own,
//!   and the files' names in the journal.
//! - Random reads, or reading a log while it is written: records are delivered only when the journal is opened.
//! - Many small journals: each journal has a thread per lane ([`Options::background`]) and at least three files.
//! - Network file systems: the journal relies on the file system's locks and syncs, which may be unreliable.
//! - `fork` without `exec`: the child also holds the lock, but has no background threads.
//!
//! `docs/mechanisms/journal.md` describes the format, and argues why recovery is correct.

#![forbid(unsafe_code)]
// This crate's only interface to the outside is the file system. Its threads and locks are those of the operating
// system even in builds for the virtual machine (a simulator of threads), hence this exception.
#![cfg_attr(archipelago_sim, allow(clippy::disallowed_types, clippy::disallowed_methods))]

mod checkpoint;
mod core;
mod disk;
mod error;
mod frame;
mod journal;
mod lane;
mod manifest;
mod options;
mod position;
mod recover;
mod segment;
mod simulated;

pub use checkpoint::{CheckpointWriter, read_checkpoint, write_checkpoint};
pub use disk::{Disk, DiskFile, DiskLock, Real};
pub use error::Error;
pub use journal::Journal;
pub use options::{Options, Policy};
pub use position::Position;
pub use recover::{Cut, Record, Recovery};
pub use simulated::{Call, Fault, SECTOR, Simulated};

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Poisoning is ignored: threads that hold a lock make no call that can panic while the data is
/// inconsistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn waited<'m, T>(condvar: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
