//! A domain's state for each handle: its record, its latest commits, and its log.

use core::ops::{Deref, DerefMut};

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard, TryLockError};
use archipelago_platform::touch_mut;

use super::log::Log;
use super::pool::Budget;
use super::record::Record;
use super::ring::Ring;
use super::version::Version;

pub(super) struct Slot {
    pub(super) record: Arc<Record>,
    /// The owner's commits that the log does not have yet.
    fresh: Ring,
    /// The value of [`Ring::total`] when another thread last checked it.
    visited: AtomicUsize,
    /// The number of versions in the log after its last use.
    versions: AtomicUsize,
    /// In another cache line than its lock, which other threads try.
    log: Mutex<CachePadded<Log>>,
}

/// The log's lock. Its drop updates the slot's counts.
pub(super) struct LogGuard<'r> {
    log: MutexGuard<'r, CachePadded<Log>>,
    slot: &'r Slot,
    budget: &'r Budget,
}

impl Deref for LogGuard<'_> {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl DerefMut for LogGuard<'_> {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl LogGuard<'_> {
    /// Moves the owner's commits from the ring to the log.
    pub(super) fn take_fresh(&mut self) {
        let log = &mut **self.log;
        self.slot.fresh.take(|version| log.append(version));
    }
}

impl Drop for LogGuard<'_> {
    fn drop(&mut self) {
        let tables = self.log.tables();
        let before = core::mem::replace(&mut self.log.accounted, tables);
        self.budget.changed(before, tables);
        self.slot.versions.store(self.log.len(), Ordering::Relaxed);
    }
}

impl Slot {
    pub(super) fn new(record: Arc<Record>) -> Self {
        let (visited, versions) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { record, fresh: Ring::new(), visited, versions, log: Mutex::new(CachePadded::new(Log::new())) }
    }

    /// Owner only: adds a committed version to the ring, unless the ring is full. Returns whether it did.
    #[inline]
    pub(super) fn put(&self, version: Version) -> bool {
        self.fresh.put(version)
    }

    /// Returns about how many committed versions are not freed.
    pub(super) fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed) + self.fresh.len()
    }

    /// Returns whether the owner has committed nothing since the last call.
    pub(super) fn is_resting(&self) -> bool {
        let total = self.fresh.total();
        let rests = self.visited.load(Ordering::Relaxed) == total;
        self.visited.store(total, Ordering::Relaxed);
        rests
    }

    pub(super) fn log<'r>(&'r self, budget: &'r Budget) -> LogGuard<'r> {
        // No code of users runs under this lock. It is poisoned only if the growth of a `Vec` failed.
        let log = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self::guard(log, self, budget)
    }

    fn guard<'r>(log: MutexGuard<'r, CachePadded<Log>>, slot: &'r Slot, budget: &'r Budget) -> LogGuard<'r> {
        touch_mut(&raw const **log, size_of::<Log>());
        LogGuard { log, slot, budget }
    }

    pub(super) fn try_log<'r>(&'r self, budget: &'r Budget) -> Option<LogGuard<'r>> {
        Some(Self::guard(try_hold(&self.log)?, self, budget))
    }
}

/// Locks a mutex, poisoned or not, unless another thread has it.
pub(super) fn try_hold<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
