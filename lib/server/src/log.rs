//! The path of changes to the replicas, with or without a log on the disk.
//!
//! # Order
//! A recovery applies the log's records in their order. This order must be the order in which the replicas applied the
//! changes: otherwise two changes of one key could be answered in one order and recovered in the other.
//! [`Store::write_many`] holds [`Order`] while it appends a batch to the log and hands it to the combiner (the thread
//! that applies changes to a replica, in node replication). So of two batches, the one that is earlier in the log is
//! applied earlier by the replicas.
//!
//! # `always`
//! A batch is appended, then *synced*, and only then handed to the combiner. No replica has the change before the sync, so a
//! reader cannot see a change that is not durable, and a reader never waits for the disk. One thread, the writer, waits for
//! the syncs. The event loops hand their batches to the writer, and all batches that arrive during a sync share the next
//! sync. Meanwhile the loops continue with reads and with other clients.
//!
//! # `everysec`
//! A batch is appended to the log's queue in memory and applied at once. The journal's thread writes and syncs the queue.
//!
//! # Scripts
//! A script that runs too long is stopped by a clock. At this time the log already has the script's record. Therefore
//! the point at which the replicas stop the script is kept in a second journal, and is durable before any replica shows
//! the script's effects ([`stops`](crate::stops)).
//!
//! # Errors of the disk
//! A failed sync poisons the journal: the bytes on the disk are unknown from then on, so every later write is refused. While
//! the disk is full, writes are refused. With `always`, some changes may already be in the journal's queue when the full
//! disk is noticed. These changes stay in the queue, in order, and their clients are told that the changes may still happen.
//! Once the changes are synced, they are applied before any later change: they are kept in [`Order::late`] until then.

use std::path::Path;

use archipelago_journal::{Disk, Error, Journal, Options, Policy, Position, Recovery};
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::{Handle, Replicated};

use crate::acl::check::runs_lua;
use crate::config::Appendonly;
use crate::db::{Db, Outcome};
use crate::deadline::{Deadline, LIMIT};
use crate::operation::{Call, Write};
use crate::reply::{Fault, Reply};
use crate::snapshot::{self, Snapshots};
use crate::stops::{CallId, Stops};

/// The maximum size of one change, and of all changes that wait for the disk, in bytes.
const QUEUE: usize = 64 << 20;

/// The state of appending. Its lock is held from a batch's appending to the log until the replicas have the batch.
#[derive(Default)]
struct Order {
    bytes: Vec<u8>,
    /// Changes that are in the journal but neither durable nor applied.
    late: Vec<Write>,
    end: Option<Position>,
}

struct Log {
    journal: Journal,
    stops: Arc<Stops>,
    always: bool,
    order: Mutex<Order>,
    /// The duration of the last batch after its sync, in nanoseconds. The thread that handed the batch on reads it.
    applied: AtomicU64,
}

/// The replicas and, if changes are durable, the log.
pub struct Store {
    db: Replicated<Db>,
    /// Whether the number of replicas was set explicitly, instead of one for each NUMA node.
    chosen: bool,
    log: Option<Log>,
    snapshots: Option<Snapshots>,
}

fn replicated(replicas: usize, db: &Db) -> Replicated<Db> {
    let builder = Replicated::builder();
    let builder = if replicas == 0 { builder } else { builder.replicas(replicas) };
    builder.build(|| db.clone())
}

/// A sentence that says why a start failed.
pub type Refusal = String;

impl Store {
    /// Creates a store without a log.
    pub fn volatile() -> Self {
        Self { db: Replicated::new(Db::default), chosen: false, log: None, snapshots: None }
    }

    /// Opens a store in a directory, with a log unless `appendonly` is [`Appendonly::No`]. Reads the snapshot in
    /// `directory`, if there is one, and applies the records of the log after the snapshot. O(bytes of both).
    ///
    /// # Errors
    /// A sentence that says what is wrong and what to do.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        appendonly: Appendonly,
    ) -> Result<(Self, Option<Recovery>), Refusal> {
        Self::open_on(disk, directory, appendonly, 0)
    }

    /// Opens a store as [`open`](Self::open) does, with a number of replicas; 0 means one for each NUMA node.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        appendonly: Appendonly,
        replicas: usize,
    ) -> Result<(Self, Option<Recovery>), Refusal> {
        Self::open_with(disk, directory, appendonly, Options::default().segment, replicas)
    }

    /// Opens a store as [`open_on`](Self::open_on) does, with log segments of about `segment` bytes. A snapshot makes
    /// earlier records superfluous; they are removed in whole segments.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(
        disk: Arc<dyn Disk>,
        directory: &Path,
        appendonly: Appendonly,
        segment: u64,
        replicas: usize,
    ) -> Result<(Self, Option<Recovery>), Refusal> {
        let policy = match appendonly {
            Appendonly::No => {
                if has_log(&*disk, directory) {
                    return Err(format!(
                        "{} has a log, which would not be kept up: start with --appendonly everysec or always, or with another directory",
                        directory.display()
                    ));
                }
                let mut db = Db::default();
                let status = snapshot::read(&*disk, directory, &mut db)?;
                // As after a recovery of the log: no client watches a key yet, and the parameters have their defaults, since
                // clients set them anew after each start.
                db.write(&Write::UnwatchAll);
                let snapshots = Some(Snapshots::new(disk, directory, status));
                return Ok((Self { db: replicated(replicas, &db), chosen: replicas > 0, log: None, snapshots }, None));
            }
            Appendonly::EverySecond => Policy::Every(Duration::from_secs(1)),
            Appendonly::Always => Policy::Always,
        };
        let options = Options { policy, segment, queue: QUEUE, ..Options::default() };
        let mut db = Db::default();
        let status = snapshot::read(&*disk, directory, &mut db)?;
        let place = status.place;
        // The existence of the log is checked here, because opening the journal creates a new log.
        if place > 0 && !has_log(&*disk, directory) {
            return Err(without_its_log(directory, place));
        }
        let stops = Arc::new(Stops::open(disk.clone(), directory)?);
        let recovered = Mutex::new((db, None));
        let apply = |record: archipelago_journal::Record<'_>| {
            if record.position.place <= place {
                return;
            }
            let mut recovered = recovered.lock().expect("the one before did not panic");
            match Write::decode(record.bytes) {
                Some(mut write) => {
                    recall(&stops, record.position.place, &mut write);
                    _ = recovered.0.write(&write);
                }
                None => _ = recovered.1.get_or_insert(record.position.place),
            }
        };
        let opened = Journal::open(disk.clone(), directory, options, apply);
        let (journal, recovery) = opened.map_err(|error| error.to_string())?;
        let (db, unknown) = recovered.into_inner().expect("the last one did not panic");
        if let Some(place) = unknown {
            return Err(format!(
                "{}: the record that ends at {place} is no operation of this version: start the version that wrote it",
                directory.display()
            ));
        }
        if journal.end(0).place < place {
            return Err(without_its_log(directory, place));
        }
        stops.sound().and_then(|()| stops.keep(place, journal.end(0).place)).map_err(|error| error.to_string())?;
        let log = Log {
            journal,
            stops,
            always: appendonly == Appendonly::Always,
            order: Mutex::default(),
            applied: AtomicU64::new(0),
        };
        let snapshots = Some(Snapshots::new(disk, directory, status));
        let store = Self { db: replicated(replicas, &db), chosen: replicas > 0, log: Some(log), snapshots };
        // The clients that watched keys are gone. The change is logged like every other change, because it counts as an
        // operation.
        store.carry_out(Write::UnwatchAll)?;
        Ok((store, Some(recovery)))
    }

    /// Gives the databases this seed of their hash function, unless they have keys or a seed. The seed is logged like a
    /// change.
    ///
    /// # Errors
    /// If the log refuses the seed.
    pub fn seed(&self, seed: u64) -> Result<(), Refusal> {
        if self.db.inspect(0, Db::takes_a_seed).map_err(|poisoned| poisoned.to_string())? {
            self.carry_out(Write::Seed { seed })?;
        }
        Ok(())
    }

    fn carry_out(&self, write: Write) -> Result<(), Refusal> {
        match self.write_many(&mut self.handle(), vec![write]).pop().map(|outcome| outcome.reply) {
            Some(Reply::Error(fault)) => Err(fault.0.into_owned()),
            _ => Ok(()),
        }
    }

    /// Returns a handle for changes. It uses the replica of the calling thread's node, or the first replica if the
    /// number of replicas was set.
    pub fn handle(&self) -> Handle<Db> {
        self.handle_of(0)
    }

    /// Returns the handle of the event loop `number`. If the number of replicas was set and is greater than 1, the last
    /// replica serves long reads only.
    pub fn handle_of(&self, number: usize) -> Handle<Db> {
        if self.chosen { self.db.handle_on(number % (self.db.replicas() - 1).max(1)) } else { self.db.handle() }
    }

    /// Returns the replicas.
    pub fn db(&self) -> &Replicated<Db> {
        &self.db
    }

    /// Returns whether changes are logged.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Returns whether [`write_many`](Self::write_many) waits for the disk.
    pub fn waits(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.always)
    }

    /// Returns the duration of the last batch without the wait for the disk, if the log is synced before each answer.
    /// Meaningful only for the thread that hands on batches.
    pub fn applied(&self) -> Duration {
        Duration::from_nanos(self.log.as_ref().map_or(0, |log| log.applied.load(Relaxed)))
    }

    /// Carries out changes in order and returns one outcome for each. With `always`, waits until the changes are durable.
    pub fn write_many(&self, handle: &mut Handle<Db>, batch: Vec<Write>) -> Vec<Outcome> {
        let Some(log) = &self.log else { return apply(handle, batch) };
        let mut order = log.order.lock().expect("nothing panics while it is locked");
        let (batch, failed) = log.append(&mut order, batch);
        let (mut outcomes, taken) = (Vec::new(), batch.len());
        if log.always {
            match log.wait(&mut order, handle) {
                Ok(()) => {
                    let began = Instant::now();
                    outcomes = apply(handle, batch);
                    log.applied.store(began.elapsed().as_nanos() as u64, Relaxed);
                }
                Err(error) => {
                    order.late.extend(batch);
                    outcomes.extend((0..taken).map(|_| refused(&error, true)));
                }
            }
        } else {
            outcomes = apply(handle, batch);
        }
        // The stop of a script could not be recorded, so a recovery may produce another outcome than the replicas did.
        if let Err(error) = log.stops.sound() {
            outcomes.iter_mut().for_each(|outcome| outcome.reply = refused(&error, true).reply);
        }
        let mut outcomes = outcomes.into_iter();
        let outcome = |error: Option<Error>| match error {
            Some(error) => refused(&error, false),
            None => outcomes.next().expect("each appended change has an outcome"),
        };
        failed.into_iter().map(outcome).collect()
    }

    /// Returns the snapshots, if any are written.
    pub fn snapshots(&self) -> Option<&Snapshots> {
        self.snapshots.as_ref()
    }

    /// Calls `look` with a replica while no change is between the log and the replicas. Also returns the end of the log.
    ///
    /// # Errors
    /// If late changes cannot be synced.
    pub(crate) fn quiet<R>(&self, look: impl FnOnce(&Db) -> R) -> Result<(Option<Position>, R), Refusal> {
        let look = || self.db.inspect(0, look).map_err(|poisoned| poisoned.to_string());
        let Some(log) = &self.log else { return Ok((None, look()?)) };
        let mut order = log.order.lock().expect("nothing panics while it is locked");
        if log.always {
            log.wait(&mut order, &mut self.handle()).map_err(|error| error.to_string())?;
        }
        let end = log.journal.end(0);
        Ok((Some(end), look()?))
    }

    /// Removes the segments of the log that end at or before a position.
    pub(crate) fn retire_before(&self, end: Position) -> Result<(), Refusal> {
        let log = self.log.as_ref();
        let retired = |log: &Log| {
            log.journal.retire_before(end)?;
            log.stops.keep(end.place, u64::MAX)
        };
        log.map_or(Ok(()), |log| retired(log).map_err(|error| error.to_string()))
    }

    /// Returns the number of bytes of changes that were ever appended to the log.
    pub fn appended(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.journal.end(0).place)
    }

    /// Writes and syncs all changes.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn sync(&self) -> Result<(), Refusal> {
        let synced = |log: &Log| log.journal.sync().and_then(|()| log.stops.sound());
        self.log.as_ref().map_or(Ok(()), |log| synced(log).map_err(|error| error.to_string()))
    }

    /// Returns the error of the log, if there is one.
    pub fn trouble(&self) -> Option<Refusal> {
        let log = self.log.as_ref()?;
        log.stops.sound().and(log.journal.is_durable(log.journal.end(0))).err().map(|error| error.to_string())
    }
}

impl Log {
    /// Appends the changes. Returns the appended changes, and for each change of the batch the reason why it was
    /// refused, if it was. After an error of the disk all further changes of the batch are refused. A change that is
    /// too long is refused alone.
    fn append(&self, order: &mut MutexGuard<'_, Order>, mut batch: Vec<Write>) -> (Vec<Write>, Vec<Option<Error>>) {
        let mut failed: Vec<Option<Error>> = Vec::with_capacity(batch.len());
        let mut broken = None;
        batch.retain_mut(|write| {
            let error = broken.clone().or_else(|| self.append_one(order, write).err());
            broken = error.clone().filter(|error| !matches!(error, Error::TooLong { .. }));
            failed.push(error);
            failed.last().is_some_and(Option::is_none)
        });
        (batch, failed)
    }

    fn append_one(&self, order: &mut MutexGuard<'_, Order>, write: &mut Write) -> Result<(), Error> {
        self.stops.sound()?;
        let Order { bytes, end, .. } = &mut **order;
        bytes.clear();
        write.encode(bytes);
        let position = self.journal.append(0, 0, bytes)?;
        *end = Some(position);
        for (call, place) in placed(write, position.place) {
            call.deadline.iter().for_each(|deadline| deadline.is_logged(self.stops.clone(), place));
        }
        Ok(())
    }

    /// Waits until all appended changes are durable, and applies the late ones.
    fn wait(&self, order: &mut MutexGuard<'_, Order>, handle: &mut Handle<Db>) -> Result<(), Error> {
        let Some(end) = order.end else { return Ok(()) };
        self.journal.wait(end)?;
        order.end = None;
        let late = core::mem::take(&mut order.late);
        if !late.is_empty() {
            apply(handle, late);
        }
        Ok(())
    }
}

/// Returns the calls of an operation, with their positions in the log.
fn placed(write: &mut Write, record: u64) -> impl Iterator<Item = (&mut Call, CallId)> {
    write.calls_mut().iter_mut().zip(0..).map(move |(call, number)| (call, CallId { record, number }))
}

/// Gives the scripts of a recovered operation their recorded stops.
fn recall(stops: &Arc<Stops>, record: u64, write: &mut Write) {
    for (call, place) in placed(write, record).filter(|(call, _)| runs_lua(call.command)) {
        call.deadline = Deadline::recalled(stops, place, Duration::from_millis(LIMIT)).map(Arc::new);
    }
}

fn has_log(disk: &dyn Disk, directory: &Path) -> bool {
    disk.list(directory).is_ok_and(|names| names.iter().any(|name| name == "manifest"))
}

/// The log is synced before a snapshot refers to a position in it. So if the log does not reach this position, its files
/// were removed.
fn without_its_log(directory: &Path, place: u64) -> Refusal {
    format!(
        "{}: the snapshot goes on at {place} of a log that is not there or ends before: put what is missing back; or, to go on \
         with the snapshot alone, move the log's files away, start with --appendonly no, and SAVE",
        directory.display()
    )
}

fn apply(handle: &mut Handle<Db>, batch: Vec<Write>) -> Vec<Outcome> {
    let count = batch.len();
    if count == 0 {
        return Vec::new();
    }
    handle.write_many(batch).unwrap_or_else(|poisoned| {
        let reply = Reply::Error(Fault::made(format!("ERR {poisoned}")));
        vec![Outcome { reply, effects: None }; count]
    })
}

/// The end of the error for a change that was appended and not synced.
const MAY_COME_ABOUT: &str = " This change may come about.";

/// Returns whether a change that was answered with this error may be applied later.
pub fn may_come_about(fault: &Fault) -> bool {
    fault.0.ends_with(MAY_COME_ABOUT)
}

fn refused(error: &Error, appended: bool) -> Outcome {
    let may = if appended { MAY_COME_ABOUT } else { "" };
    let reply = match error {
        Error::TooLong { .. } => Reply::Error(Fault::made(format!("ERR the log does not take it: {error}"))),
        _ => Reply::Error(Fault::made(format!("MISCONF Changes are refused, reads go on: {error}.{may}"))),
    };
    Outcome { reply, effects: None }
}
