//! What all handles of a database share.

use core::any::Any;

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::{Arc, Mutex, OnceLock};
use archipelago_platform::thread;
#[cfg(all(feature = "durable", not(archipelago_sim)))]
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Domain;

use crate::durable::Log;
use crate::epochs::{Epochs, Needs};
use crate::memory::Memory;
use crate::record;
use crate::scheme::{Scheme, linger};
use crate::tree::Home;

pub struct Shared<S: Scheme> {
    /// In a place of its own, to which indexes refer; freed by drop.
    home: *mut Home<S>,
    arrivals: AtomicU64,
    /// A transaction that has begun anew often is under way.
    turn: AtomicBool,
    /// By thread slot: whether the thread is in a transaction.
    inside: PerThread<AtomicBool>,
    /// What transactions refer to without counting.
    tables: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    log: OnceLock<Log<S>>,
    /// By thread slot, of a database with a log: 0, or an epoch that was the clock's before the commit latched anything.
    committing: PerThread<CachePadded<AtomicU64>>,
}

// SAFETY: the home, which is all that is not `Send` and `Sync` by itself, is shared by threads and owned by this.
unsafe impl<S: Scheme> Send for Shared<S> {}
// SAFETY: as above.
unsafe impl<S: Scheme> Sync for Shared<S> {}

impl<S: Scheme> Shared<S> {
    pub(crate) fn new() -> Self {
        let home = Home {
            domain: domain::<S>(),
            epochs: Epochs::new(),
            memory: Memory::new(),
            closing: AtomicBool::new(false),
        };
        Self {
            home: Box::into_raw(Box::new(home)),
            arrivals: AtomicU64::new(1),
            turn: AtomicBool::new(false),
            inside: PerThread::new(),
            tables: Mutex::new(Vec::new()),
            log: OnceLock::new(),
            committing: PerThread::new(),
        }
    }

    pub(crate) fn log(&self) -> Option<&Log<S>> {
        self.log.get()
    }

    /// From now on commits are logged. There are no transactions yet.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn start_log(&self, log: Log<S>) {
        assert!(self.log.set(log).is_ok(), "a database has one log");
    }

    /// Says that this thread is going to commit something that is logged, until the result is dropped. A SeqCst fence and the
    /// load of the commit's epoch follow.
    pub(crate) fn step_up(&self) -> Committing<'_> {
        let cell = self.committing.get_or(thread::slot().index, || CachePadded::new(AtomicU64::new(0)));
        cell.store(self.epochs().now(), Ordering::Relaxed);
        Committing(cell)
    }

    /// Ends the epoch of the clock and returns it when the log has all commits of it and of those before.
    ///
    /// A commit says that it is committing, passes a SeqCst fence and loads its epoch; this advances the clock, passes a fence
    /// and looks who is committing. So either the commit gets a later epoch, or it is seen here and waited for: until it has
    /// appended to the log or given up.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn seal(&self) -> u64 {
        let sealed = self.epochs().advance();
        for cell in self.committing.iter() {
            let backoff = Backoff::new();
            // Acquire: with the Release of `Committing`'s drop, after the append.
            while (1..=sealed).contains(&cell.load(Ordering::Acquire)) {
                backoff.wait();
            }
        }
        sealed
    }

    pub(crate) fn home(&self) -> &Home<S> {
        // SAFETY: there until the drop.
        unsafe { &*self.home }
    }

    pub(crate) fn epochs(&self) -> &Epochs<S> {
        &self.home().epochs
    }

    /// Of a database that nothing refers to yet.
    pub(crate) fn epochs_mut(&mut self) -> &mut Epochs<S> {
        // SAFETY: there until the drop; each table has a reference to this, so no table is there, and no transaction.
        unsafe { &mut (*self.home).epochs }
    }

    /// Keeps a table until the database is dropped.
    pub(crate) fn keep(&self, table: Arc<dyn Any + Send + Sync>) {
        self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(table);
    }

    /// The next number of a transaction, in the schemes to which its age matters.
    pub(crate) fn arrive(&self) -> u64 {
        if S::AGES { self.arrivals.fetch_add(1, Ordering::Relaxed) } else { 0 }
    }

    /// Waits until no other transaction that has begun anew often is under way, or a while; in the former case none is until the
    /// result is dropped.
    pub(crate) fn take_turn(&self) -> Option<Turn<'_>> {
        // Relaxed: it excludes nothing, and publishes nothing.
        let take = || !self.turn.load(Ordering::Relaxed) && !self.turn.swap(true, Ordering::Relaxed);
        linger(take).then(|| Turn(&self.turn))
    }

    /// Says that this thread is in a transaction until the result is dropped.
    ///
    /// # Panics
    /// If it is in one of this database.
    pub(crate) fn step_inside(&self) -> Inside<'_> {
        let flag = self.inside.get_or(thread::slot().index, || AtomicBool::new(false));
        let inside = flag.swap(true, Ordering::Relaxed);
        assert!(!inside, "a transaction inside of a transaction of the same database: use `Tx::savepoint`");
        Inside(flag)
    }

    /// Closes a snapshot, and frees what was kept for it alone. Nothing is latched, and the caller is in no transaction, or at
    /// its end.
    pub(crate) fn close(&self, snapshot: u64) {
        // Before the snapshot is closed: from then on any thread may free what was kept for it, and take the records out.
        let guard = self.home().domain.pin();
        let kept = self.epochs().close(snapshot);
        if kept.is_empty() {
            return;
        }
        let mut dropped = Vec::new();
        // Running transactions free themselves what they need.
        let needs = Needs::above(self.epochs().horizon());
        for kept in kept {
            // SAFETY: a version of the record was kept for the snapshot, so it was linked when the guard began. Indexes are
            // there while the database is.
            let (record, tree) = unsafe { (&*kept.record, &*kept.tree) };
            if let Some(latch) = record.latch() {
                self.epochs().prune(&latch, kept.tree, &needs, &mut dropped);
            }
            // SAFETY: found alive inside of the guard.
            unsafe { tree.unlink(record, &guard) };
            // SAFETY: they were taken out of the chain under the latch.
            dropped.drain(..).for_each(|version| unsafe { record::retire(&guard, version, &self.home().memory) });
        }
    }
}

/// With many versions what is replaced waits for two grace periods, so that bags are smaller.
fn domain<S: Scheme>() -> Domain {
    let domain = Domain::new();
    if S::VERSIONS { domain.with_bag_bytes(16 << 10) } else { domain }
}

pub(crate) struct Committing<'s>(&'s AtomicU64);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

pub(crate) struct Inside<'s>(&'s AtomicBool);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

pub(crate) struct Turn<'s>(&'s AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<S: Scheme> Drop for Shared<S> {
    fn drop(&mut self) {
        // Removals in their grace period refer to indexes, which go with `tables`: after this.
        self.home().closing.store(true, Ordering::Relaxed);
        // SAFETY: it came from a box, and no transaction is left. (`Typed::due` looks at `closing` only, beside the domain.)
        unsafe {
            (*self.home).domain.drain_all();
            drop(Box::from_raw(self.home));
        }
    }
}
