//! The log of a database: it logs the written rows, in epochs, after Silo (Tu and others, SOSP 2013, section 4.10).
//!
//! # Why a recovered database is one that existed
//! 1. *A transaction is whole.* Its entries are one record of the journal, which has a checksum.
//! 2. *An epoch is whole.* A commit loads its epoch from the clock while all its records are latched (MV-RLU: while it
//!    owns them), and appends its log record with this epoch. Epoch `e` is closed in the journal after [`Shared::seal`]
//!    has moved the clock beyond `e` and has waited for all commits that may have loaded `e` or less. The journal
//!    consists of log files (*lanes*). An epoch is durable when, in every lane, the entries that close this epoch and
//!    all earlier ones (*marks*) are durable.
//! 3. *Epochs respect the order of serialization.* If C1 comes before C2 (C2 has read or overwritten a version that C1
//!    wrote, or overwritten a version that C1 read), then `e1 <= e2`: claim 3 of `epochs.rs`. A recovery restores all
//!    commits up to an epoch, so with each transaction it restores all transactions that precede it. A transaction is
//!    never restored without the transactions whose writes it has read.
//! 4. *Within an epoch and key*, entries are ordered by serials (`codec.rs`), whichever lane they are in. Between
//!    epochs the entry of the later epoch wins, by 3.
//! 5. *Failure.* The record is appended before any version of the commit is visible. If the journal refuses the record,
//!    the transaction is rolled back; no later step can fail.
//!
//! # Groups
//! Threads that wait for an epoch take turns. The thread that has the turn seals the epoch, closes it and waits for the
//! disk. Threads that commit during the turn wait for its end, and one of them takes the next turn for all. The turns
//! need no thread of their own.

use archipelago_journal::{self as journal, DiskLock, Journal};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use archipelago_platform::thread::{self, JoinHandle};
use archipelago_platform::time::Duration;

use super::checkpoint::Checkpoints;
use super::{Acknowledge, Recovered};
use crate::error::Error;
use crate::scheme::Scheme;
use crate::shared::Shared;

pub(crate) struct Log<S: Scheme> {
    pub(crate) journal: Journal,
    pub(crate) lanes: u32,
    acknowledge: Acknowledge,
    pub(crate) recovered: Recovered,
    /// The last epoch of a logged commit.
    appended: CachePadded<AtomicU64>,
    /// All commits up to this epoch are durable.
    durable: CachePadded<AtomicU64>,
    /// The lock that a thread holds while it closes an epoch.
    turn: Mutex<()>,
    pub(crate) checkpoints: Mutex<Checkpoints<S>>,
    flusher: Mutex<Option<Flusher>>,
    /// In deterministic tests: a counter that determines the lane of each record, so that the lane does not depend on
    /// the thread.
    next_lane: Option<AtomicU64>,
    /// The lock of the directory, released after the journal has ended.
    _lock: Box<dyn DiskLock>,
}

/// Locks a mutex. No users' code runs while a lock of this file is held, so the data of a poisoned mutex is valid.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<S: Scheme> Log<S> {
    /// Makes a log in which all epochs before `next` are closed.
    pub(crate) fn new(
        (journal, lanes, lock): (Journal, u32, Box<dyn DiskLock>),
        next: u64,
        acknowledge: Acknowledge,
        recovered: Recovered,
        checkpoints: Checkpoints<S>,
        in_order: bool,
    ) -> Self {
        Self {
            journal,
            lanes,
            acknowledge,
            recovered,
            appended: CachePadded::new(AtomicU64::new(next - 1)),
            durable: CachePadded::new(AtomicU64::new(next - 1)),
            turn: Mutex::new(()),
            checkpoints: Mutex::new(checkpoints),
            flusher: Mutex::new(None),
            next_lane: in_order.then(AtomicU64::default),
            _lock: lock,
        }
    }

    /// Appends the record of a commit in `epoch`. The epoch cannot be closed during the call. Blocks while the lane's
    /// queue is full.
    pub(crate) fn append(&self, epoch: u64, record: &[u8]) -> Result<(), Error> {
        let thread = thread::slot().index as u64;
        let lane = self.next_lane.as_ref().map_or(thread, |next| next.fetch_add(1, Ordering::Relaxed));
        let lane = (lane % u64::from(self.lanes)) as u32;
        match self.journal.append(lane, epoch, record) {
            Ok(_) => {}
            Err(journal::Error::TooLong { .. }) => return Err(Error::TooLarge),
            Err(_) => return Err(Error::Refused),
        }
        // Release: pairs with the Acquire in `reach`. Most commits find their epoch in the word already, and only load
        // it.
        if self.appended.load(Ordering::Relaxed) < epoch {
            self.appended.fetch_max(epoch, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until an epoch is durable, if the database acknowledges only durable commits.
    pub(crate) fn acknowledge(&self, shared: &Shared<S>, epoch: u64) -> Result<(), Error> {
        match self.acknowledge {
            Acknowledge::Durable => self.reach(shared, epoch).map_err(|_| Error::NotDurable),
            Acknowledge::Committed { .. } => Ok(()),
        }
    }

    /// Waits until all commits of an epoch, and of those before, are durable.
    pub(crate) fn reach(&self, shared: &Shared<S>, epoch: u64) -> Result<(), journal::Error> {
        // Epochs without log records are durable if the earlier epochs are.
        let epoch = epoch.min(self.appended.load(Ordering::Acquire));
        let is_durable = || self.durable.load(Ordering::Acquire) >= epoch;
        if is_durable() {
            return Ok(());
        }
        let _turn = locked(&self.turn);
        if is_durable() { Ok(()) } else { self.close(shared).map(drop) }
    }

    /// Ends an epoch, makes it durable and returns it. The caller has the turn.
    fn close(&self, shared: &Shared<S>) -> Result<u64, journal::Error> {
        let sealed = shared.seal();
        self.journal.close_epoch(sealed)?;
        self.journal.wait_epoch(sealed)?;
        self.durable.store(sealed, Ordering::Release);
        Ok(sealed)
    }

    /// Ends an epoch, even if no commit was logged in it, and makes it durable.
    pub(crate) fn close_now(&self, shared: &Shared<S>) -> Result<u64, journal::Error> {
        let _turn = locked(&self.turn);
        self.close(shared)
    }

    /// Makes all commits before the call durable.
    pub(crate) fn flush(&self, shared: &Shared<S>) -> Result<(), journal::Error> {
        self.reach(shared, u64::MAX)
    }

    /// Ends the log, when the database's handle is dropped.
    pub(crate) fn end(&self, shared: &Shared<S>) {
        drop(locked(&self.flusher).take());
        // An error is ignored: commits that are not durable were not acknowledged as durable.
        let _ = self.flush(shared);
    }

    /// Starts the thread that makes commits durable at intervals, for databases whose transactions do not wait for
    /// durability.
    pub(crate) fn flush_every(&self, shared: &Arc<Shared<S>>, every: Duration) -> std::io::Result<()> {
        *locked(&self.flusher) = Some(Flusher::start(Arc::downgrade(shared), every)?);
        Ok(())
    }
}

/// A thread that flushes the log at intervals. Dropping the value stops it.
struct Flusher {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start<S: Scheme>(shared: Weak<Shared<S>>, every: Duration) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = stop.clone();
        // With an interval of zero, the thread would never sleep.
        let every = every.max(Duration::from_millis(1));
        let work = move || {
            let mut stopped = locked(&told.0);
            while !*stopped {
                stopped = told.1.wait_timeout(stopped, every).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                let Some(shared) = shared.upgrade() else { return };
                if let (false, Some(log)) = (*stopped, shared.log()) {
                    // Later commits and `Database::flush` report a failure.
                    let _ = log.flush(&shared);
                }
            }
        };
        let thread = thread::Builder::new().name("archipelago-txn log".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        *locked(&self.stop.0) = true;
        self.stop.1.notify_all();
        // A panic of the thread has been reported by the panic hook. The thread acknowledges no commits.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
