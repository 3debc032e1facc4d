//! Changes on their way to the replicas, with a log on disk before them or without.
//!
//! # Order
//! A recovery applies the log's records in their order, so this order must be the one in which the replicas applied them: else
//! two changes of one key could be answered one way and come back the other. [`Store::write_many`] appends a batch and hands
//! it to the combiner while it holds [`Order`], so of two batches the one that is earlier in the log is earlier in the
//! replicas.
//!
//! # `always`
//! A batch is appended, *synced*, and only then handed to the combiner: a change that no replica has cannot be seen by a reader,
//! and a reader waits for nothing. The sync takes place on one thread of its own (the writer's), to which the loops hand
//! their batches: all that came during a sync share the next. Loops go on with reads and with other clients meanwhile.
//!
//! # `everysec`
//! A batch is appended (memory) and applied at once; the journal's thread writes and syncs it.
//!
//! # Scripts
//! A script that runs too long is stopped by time. Its record is in the log by then: where the replicas stop it goes to a journal of
//! its own, durable before any of them shows what it did ([`stops`](crate::stops)).
//!
//! # What goes wrong
//! A failed sync poisons the journal: every later write is refused, for good, since it is unknown what the disk has. While the disk is
//! full, writes are refused. With `always`, changes that were appended when that was noticed stay in the journal's queue, in
//! order: their clients are told that they may come about, and [`Order::late`] has them applied before any later change, once
//! they are synced.

use std::path::Path;
use std::time::Duration;

use archipelago_journal::{Disk, Error, Journal, Options, Policy, Position, Recovery};
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use archipelago_platform::time::Instant;
use archipelago_replicate::{Handle, Replicated};

use crate::acl::check::runs_lua;
use crate::config::Appendonly;
use crate::db::{Db, Outcome, hyperloglog};
use crate::deadline::{Deadline, LIMIT};
use crate::operation::{Call, Write};
use crate::reply::{Fault, Reply};
use crate::snapshot::{self, Snapshots};
use crate::stops::{Place, Stops};

/// The most bytes of one change, and of changes that wait for the disk.
const QUEUE: usize = 64 << 20;

/// Held over a batch's way into the log and into the replicas.
#[derive(Default)]
struct Order {
    bytes: Vec<u8>,
    /// Changes that are in the journal, are not durable, and are not applied; and where they end.
    late: Vec<Write>,
    end: Option<Position>,
}

struct Log {
    journal: Journal,
    stops: Arc<Stops>,
    always: bool,
    order: Mutex<Order>,
    /// Nanoseconds that the last batch took behind its sync, for the thread that handed it on.
    applied: AtomicU64,
}

/// The replicas and, with a log, the log before them.
pub struct Store {
    db: Replicated<Db>,
    /// Says that the number of replicas was chosen, and is not that of the nodes.
    chosen: bool,
    log: Option<Log>,
    snapshots: Option<Snapshots>,
}

fn replicated(replicas: usize, db: &Db) -> Replicated<Db> {
    let builder = Replicated::builder();
    let builder = if replicas == 0 { builder } else { builder.replicas(replicas) };
    builder.build(|| db.clone())
}

/// Why a start failed, in a sentence.
pub type Refusal = String;

impl Store {
    /// Without a log.
    pub fn volatile() -> Self {
        Self { db: Replicated::new(Db::default), chosen: false, log: None, snapshots: None }
    }

    /// With the snapshot in `directory`, if there is one, and with a log there, of which the records behind the snapshot are
    /// applied. Reads both: O(bytes).
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

    /// The same with a number of replicas; 0: one a NUMA node.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        appendonly: Appendonly,
        replicas: usize,
    ) -> Result<(Self, Option<Recovery>), Refusal> {
        Self::open_with(disk, directory, appendonly, Options::default().segment, replicas)
    }

    /// The same with segments of the log of about this number of bytes: what a snapshot makes superfluous is removed segment
    /// by segment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
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
                // What clients had set is set anew.
                db.sparse = hyperloglog::SPARSE;
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
        // Asked before the journal makes a new log here.
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
        // The clients who watched are gone. Logged as all changes are, since it counts as an operation.
        for outcome in store.write_many(&mut store.handle(), vec![Write::UnwatchAll]) {
            if let Reply::Error(fault) = outcome.reply {
                return Err(fault.0.into_owned());
            }
        }
        Ok((store, Some(recovery)))
    }

    /// A handle that changes go through: of the calling thread's node, or of the first replica where their number was chosen.
    pub fn handle(&self) -> Handle<Db> {
        self.handle_of(0)
    }

    /// The handle of a loop. Where the number of replicas was chosen, the last is for long reads alone, if it is not the only one.
    pub fn handle_of(&self, number: usize) -> Handle<Db> {
        if self.chosen { self.db.handle_on(number % (self.db.replicas() - 1).max(1)) } else { self.db.handle() }
    }

    /// The replicas.
    pub fn db(&self) -> &Replicated<Db> {
        &self.db
    }

    /// Returns whether [`write_many`](Self::write_many) waits for the disk.
    pub fn waits(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.always)
    }

    /// With a log that waits: how long the last batch took, without the wait. Of use to the only thread that hands on batches.
    pub fn applied(&self) -> Duration {
        Duration::from_nanos(self.log.as_ref().map_or(0, |log| log.applied.load(Relaxed)))
    }

    /// Carries out changes in order, each with an outcome: after they are durable with `always`, which waits.
    pub fn write_many(&self, handle: &mut Handle<Db>, batch: Vec<Write>) -> Vec<Outcome> {
        let Some(log) = &self.log else { return apply(handle, batch) };
        let mut order = log.order.lock().expect("nothing panics while it is locked");
        let count = batch.len();
        let (batch, mut failed) = log.append(&mut order, batch);
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
                    failed = Some(error);
                }
            }
        } else {
            outcomes = apply(handle, batch);
        }
        // What the replicas did with a script may come about otherwise.
        if let Err(error) = log.stops.sound() {
            outcomes.iter_mut().for_each(|outcome| outcome.reply = refused(&error, true).reply);
        }
        if let Some(error) = failed {
            outcomes.extend((taken..count).map(|_| refused(&error, false)));
        }
        outcomes
    }

    /// Where snapshots are written, if they are.
    pub fn snapshots(&self) -> Option<&Snapshots> {
        self.snapshots.as_ref()
    }

    /// Looks at a replica while no change is between the log and the replicas. Returns where the log ends, too.
    ///
    /// # Errors
    /// If changes are late that cannot be synced.
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

    /// Removes segments of the log that end at or before a position.
    pub(crate) fn retire_before(&self, end: Position) -> Result<(), Refusal> {
        let log = self.log.as_ref();
        let retired = |log: &Log| {
            log.journal.retire_before(end)?;
            log.stops.keep(end.place, u64::MAX)
        };
        log.map_or(Ok(()), |log| retired(log).map_err(|error| error.to_string()))
    }

    /// Bytes of changes that were ever appended to the log.
    pub fn appended(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.journal.end(0).place)
    }

    /// Writes and syncs all.
    ///
    /// # Errors
    /// What failed, in a sentence.
    pub fn sync(&self) -> Result<(), Refusal> {
        let synced = |log: &Log| log.journal.sync().and_then(|()| log.stops.sound());
        self.log.as_ref().map_or(Ok(()), |log| synced(log).map_err(|error| error.to_string()))
    }

    /// What is wrong with the log, if anything is.
    pub fn trouble(&self) -> Option<Refusal> {
        let log = self.log.as_ref()?;
        log.stops.sound().and(log.journal.is_durable(log.journal.end(0))).err().map(|error| error.to_string())
    }
}

impl Log {
    /// Appends the changes up to the first that is refused. Returns them, and why the next was refused.
    fn append(&self, order: &mut MutexGuard<'_, Order>, mut batch: Vec<Write>) -> (Vec<Write>, Option<Error>) {
        for at in 0..batch.len() {
            if let Err(error) = self.stops.sound() {
                batch.truncate(at);
                return (batch, Some(error));
            }
            let Order { bytes, end, .. } = &mut **order;
            bytes.clear();
            batch[at].encode(bytes);
            match self.journal.append(0, 0, bytes) {
                Ok(position) => {
                    *end = Some(position);
                    for (call, place) in placed(&mut batch[at], position.place) {
                        call.deadline.iter().for_each(|deadline| deadline.is_logged(self.stops.clone(), place));
                    }
                }
                Err(error) => {
                    batch.truncate(at);
                    return (batch, Some(error));
                }
            }
        }
        (batch, None)
    }

    /// Waits until all that is appended is durable, and applies what is late.
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

/// The calls of an operation, and where the log has them.
fn placed(write: &mut Write, record: u64) -> impl Iterator<Item = (&mut Call, Place)> {
    write.calls_mut().iter_mut().zip(0..).map(move |(call, number)| (call, Place { record, number }))
}

/// Gives the scripts of a recovered operation what is known of them.
fn recall(stops: &Arc<Stops>, record: u64, write: &mut Write) {
    for (call, place) in placed(write, record).filter(|(call, _)| runs_lua(call.command)) {
        call.deadline = Deadline::recalled(stops, place, Duration::from_millis(LIMIT)).map(Arc::new);
    }
}

fn has_log(disk: &dyn Disk, directory: &Path) -> bool {
    disk.list(directory).is_ok_and(|names| names.iter().any(|name| name == "manifest"))
}

/// The log is synced before a snapshot says that it goes on there: it can only have been removed.
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

fn refused(error: &Error, appended: bool) -> Outcome {
    let may = if appended { " This change may come about." } else { "" };
    let reply = match error {
        Error::TooLong { .. } => Reply::Error(Fault::made(format!("ERR the log does not take it: {error}"))),
        _ => Reply::Error(Fault::made(format!("MISCONF Changes are refused, reads go on: {error}.{may}"))),
    };
    Outcome { reply, effects: None }
}
