//! The log of a database: value logging in epochs, after Silo (Tu and others, SOSP 2013, section 4.10).
//!
//! # Why a recovered database is one that was
//! 1. *A transaction is whole.* Its entries are one record of the journal, which has a checksum.
//! 2. *An epoch is whole.* A commit's epoch is the clock's, loaded with all latched; the record is appended with it. Epoch `e` is
//!    closed in the journal after [`Shared::seal`] has moved the clock beyond `e` and has waited for all commits that may have
//!    loaded `e` or less. The journal counts an epoch when its closing marks are durable in all lanes, and with it all before.
//! 3. *Epochs respect the order of serialization.* If C1 comes before C2 (C2 has read or overwritten what C1 wrote, or overwritten
//!    what C1 read) then `e1 <= e2`: claim 3 of `epochs.rs`. So what is recovered, all commits up to an epoch, has with each
//!    transaction all those that come before it. A transaction that has read from another is never there without it.
//! 4. *Within an epoch and key*, entries are ordered by serials (`codec.rs`), whichever lane they are in. From one epoch to a later one,
//!    the later one wins: 3.
//! 5. *Failure.* The record is appended before anything is installed. If the journal refuses it, the transaction is rolled back;
//!    nothing that fails comes after.
//!
//! # Groups
//! Those that wait for an epoch take turns: one seals the epoch, closes it and waits for the disk; those that committed
//! meanwhile wait for the turn to end, and one of them takes the next for all. No thread is in between.

use archipelago_journal::{self as journal, Journal};
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
    /// No commit that was logged has a later epoch.
    appended: CachePadded<AtomicU64>,
    /// All commits up to this epoch are durable.
    durable: CachePadded<AtomicU64>,
    /// Held by the thread that closes an epoch.
    turn: Mutex<()>,
    pub(crate) checkpoints: Mutex<Checkpoints<S>>,
    flusher: Mutex<Option<Flusher>>,
    /// Of tests that determine all: the next lane, whichever the thread.
    next_lane: Option<AtomicU64>,
}

/// Locks. No code of users runs under the locks of this file.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<S: Scheme> Log<S> {
    /// A log in which all epochs before `next` are closed.
    pub(crate) fn new(
        (journal, lanes): (Journal, u32),
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
        }
    }

    /// Appends what a commit of an epoch has to say; the epoch cannot be closed meanwhile. Blocks while the queue is full.
    pub(crate) fn append(&self, epoch: u64, record: &[u8]) -> Result<(), Error> {
        let thread = thread::slot().index as u64;
        let lane = self.next_lane.as_ref().map_or(thread, |next| next.fetch_add(1, Ordering::Relaxed));
        let lane = (lane % u64::from(self.lanes)) as u32;
        match self.journal.append(lane, epoch, record) {
            Ok(_) => {}
            Err(journal::Error::TooLong { .. }) => return Err(Error::TooLarge),
            Err(_) => return Err(Error::Refused),
        }
        // Release: with the Acquire in `reach`. Most commits find their epoch there.
        if self.appended.load(Ordering::Relaxed) < epoch {
            self.appended.fetch_max(epoch, Ordering::Release);
        }
        Ok(())
    }

    /// Waits for an epoch, if transactions are to.
    pub(crate) fn acknowledge(&self, shared: &Shared<S>, epoch: u64) -> Result<(), Error> {
        match self.acknowledge {
            Acknowledge::Durable => self.reach(shared, epoch).map_err(|_| Error::NotDurable),
            Acknowledge::Committed { .. } => Ok(()),
        }
    }

    /// Waits until all commits of an epoch, and of those before, are durable.
    pub(crate) fn reach(&self, shared: &Shared<S>, epoch: u64) -> Result<(), journal::Error> {
        // Epochs in which nothing was logged are as durable as those before.
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

    /// Ends an epoch, whether anything was logged or not, and makes it durable.
    pub(crate) fn close_now(&self, shared: &Shared<S>) -> Result<u64, journal::Error> {
        let _turn = locked(&self.turn);
        self.close(shared)
    }

    /// Makes all durable that was committed before the call.
    pub(crate) fn flush(&self, shared: &Shared<S>) -> Result<(), journal::Error> {
        self.reach(shared, u64::MAX)
    }

    /// The database's handle goes.
    pub(crate) fn end(&self, shared: &Shared<S>) {
        drop(locked(&self.flusher).take());
        // What cannot be made durable was not acknowledged as such.
        let _ = self.flush(shared);
    }

    /// Starts the thread that makes durable what transactions do not wait for.
    pub(crate) fn flush_every(&self, shared: &Arc<Shared<S>>, every: Duration) -> std::io::Result<()> {
        *locked(&self.flusher) = Some(Flusher::start(Arc::downgrade(shared), every)?);
        Ok(())
    }
}

/// A thread that flushes now and then; stopped by drop.
struct Flusher {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start<S: Scheme>(shared: Weak<Shared<S>>, every: Duration) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = stop.clone();
        let work = move || {
            let mut stopped = locked(&told.0);
            while !*stopped {
                stopped = told.1.wait_timeout(stopped, every).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                let Some(shared) = shared.upgrade() else { return };
                if let (false, Some(log)) = (*stopped, shared.log()) {
                    // A failure is told to those that commit next, and by `Database::flush`.
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
        // A panic of its own has been reported; nothing was acknowledged by it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
