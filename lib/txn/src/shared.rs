//! The state that all handles of a database share.

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
    /// The home (the state that all indexes share) is in an allocation of its own, since indexes have pointers to it.
    /// `drop` frees it.
    home: *mut Home<S>,
    /// The next arrival number. Padded, because every access to a row reads `home`.
    arrivals: CachePadded<AtomicU64>,
    /// Whether a transaction has the *turn*. Transactions that have been retried often wait for it before they run, but
    /// only for a bounded time.
    turn: AtomicBool,
    /// For each thread slot, whether the thread is in a transaction.
    inside: PerThread<AtomicBool>,
    /// The tables. They live as long as the database, since transactions refer to them without counting references.
    tables: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    log: OnceLock<Log<S>>,
    /// For each thread slot, in a database with a log: 0 while the thread does not commit; during a commit, the clock's
    /// epoch before the commit latched any record.
    committing: PerThread<CachePadded<AtomicU64>>,
}

// SAFETY: only the home is not `Send` and `Sync` by itself; threads may share it, and this value owns it.
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
            arrivals: CachePadded::new(AtomicU64::new(1)),
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

    /// Starts the logging of commits. No transaction has begun yet.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn start_log(&self, log: Log<S>) {
        assert!(self.log.set(log).is_ok(), "a database has one log");
    }

    /// Announces, until the result is dropped, that this thread makes a commit that is logged. The caller then passes a
    /// SeqCst fence and loads the commit's epoch.
    pub(crate) fn step_up(&self) -> Committing<'_> {
        let cell = self.committing.get_or(thread::slot().index, || CachePadded::new(AtomicU64::new(0)));
        cell.store(self.epochs().now(), Ordering::Relaxed);
        Committing(cell)
    }

    /// Ends the clock's epoch, and returns it once the log has all commits of this and earlier epochs.
    ///
    /// A commit announces itself, passes a SeqCst fence and loads its epoch. This method advances the clock, passes a
    /// fence and loads the announcements. So either the commit gets a later epoch, or this method sees the commit and
    /// waits until it has appended to the log or failed.
    /// (A commit of MV-RLU draws its epoch from the counter and passes no fence. If the epoch is not later, the advance
    /// reads what the draw or a later change of the counter wrote, with Acquire, so this method sees the announcement.)
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn seal(&self) -> u64 {
        let sealed = self.epochs().advance();
        for cell in self.committing.iter() {
            let backoff = Backoff::new();
            // Acquire: pairs with the Release of `Committing`'s drop, after the append.
            while (1..=sealed).contains(&cell.load(Ordering::Acquire)) {
                backoff.wait();
            }
        }
        sealed
    }

    pub(crate) fn home(&self) -> &Home<S> {
        // SAFETY: the home lives until the drop.
        unsafe { &*self.home }
    }

    pub(crate) fn epochs(&self) -> &Epochs<S> {
        &self.home().epochs
    }

    /// Returns whether a table was made. Tables stay in the database even if they have no handles.
    pub(crate) fn has_tables(&self) -> bool {
        !self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_empty()
    }

    /// Returns the epochs of a database to which no table refers yet.
    pub(crate) fn epochs_mut(&mut self) -> &mut Epochs<S> {
        // SAFETY: the home lives until the drop. Each table has a reference to this value, so the exclusive reference
        // shows that no table exists. Without tables no transaction can exist.
        unsafe { &mut (*self.home).epochs }
    }

    /// Keeps a table until the database is dropped.
    pub(crate) fn keep(&self, table: Arc<dyn Any + Send + Sync>) {
        self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(table);
    }

    /// Returns a transaction's arrival number, in schemes that use transactions' ages.
    pub(crate) fn arrive(&self) -> u64 {
        if S::AGES { self.arrivals.fetch_add(1, Ordering::Relaxed) } else { 0 }
    }

    /// Waits, for a bounded time, until no other transaction has the turn, and takes the turn. No other transaction
    /// gets it until the result is dropped. Returns `None` if the turn was not free in time.
    pub(crate) fn take_turn(&self) -> Option<Turn<'_>> {
        // Relaxed: the turn protects no data and publishes none.
        let take = || !self.turn.load(Ordering::Relaxed) && !self.turn.swap(true, Ordering::Relaxed);
        linger(take).then(|| Turn(&self.turn))
    }

    /// Marks this thread as being in a transaction until the result is dropped.
    ///
    /// # Panics
    /// If the thread is already in a transaction of this database.
    pub(crate) fn step_inside(&self) -> Inside<'_> {
        let flag = self.inside.get_or(thread::slot().index, || AtomicBool::new(false));
        let inside = flag.swap(true, Ordering::Relaxed);
        assert!(!inside, "a transaction inside of a transaction of the same database: use `Tx::savepoint`");
        Inside(flag)
    }

    /// Closes a snapshot, and frees the versions that were kept for it alone. The caller holds no latch, and is in no
    /// transaction or at a transaction's end.
    pub(crate) fn close(&self, snapshot: u64) {
        // The guard begins before the snapshot is closed: after the close any thread may free the versions that were
        // kept for the snapshot, and unlink their records.
        let guard = self.home().domain.pin();
        let kept = self.epochs().close(snapshot);
        if kept.is_empty() {
            return;
        }
        let mut dropped = Vec::new();
        // Versions that readers at or above the horizon see are freed later: running transactions may need them.
        let needs = Needs::above(self.epochs().horizon());
        for kept in kept {
            // SAFETY: a version of the record was kept for the snapshot, so it was linked when the guard began. Indexes
            // live as long as the database.
            let (record, tree) = unsafe { (&*kept.record, &*kept.tree) };
            if let Some(latch) = record.latch() {
                self.epochs().prune(&latch, kept.tree, &needs, &mut dropped);
            }
            // SAFETY: found alive inside the guard.
            unsafe { tree.unlink(record, &guard) };
            // SAFETY: they were unlinked from the chain under the latch.
            dropped.drain(..).for_each(|version| unsafe { record::retire(&guard, version, &self.home().memory) });
        }
    }
}

/// In multi-version schemes replaced versions wait for two grace periods, so garbage bags are smaller.
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
        // The index of a removal in its grace period is dropped with `tables`, after this destructor. So such removals
        // must do nothing.
        self.home().closing.store(true, Ordering::Relaxed);
        // SAFETY: the home came from a box, and no transaction is left. (`Typed::due` reads only the domain and
        // `closing`.)
        unsafe {
            (*self.home).domain.drain_all();
            drop(Box::from_raw(self.home));
        }
    }
}
