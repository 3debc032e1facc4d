//! What a domain keeps per handle: where its section stands in time, whether it walks a chain, and its log.

use core::ops::{Deref, DerefMut};

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::touch_mut;

use super::clock::{Clock, ClockKind};
use super::log::{Log, Version};
use super::points;
use super::pool::Budget;
use super::ring::Ring;

/// Not in a section.
const IDLE: u64 = u64::MAX;
/// In a section whose local time is not known yet, but is not below what the word says.
const INEXACT: u64 = 1;

/// Written by the handle that has it; read by collectors.
struct Published {
    /// `local time << 1 | INEXACT`, or `IDLE`.
    local: AtomicU64,
    /// Odd while the owner walks a chain; grows.
    walk: AtomicU64,
}

pub(super) struct Record {
    published: CachePadded<Published>,
    /// The number that lock words name the owner by.
    pub(super) owner: u32,
    /// What the owner has committed, on its way to the log.
    fresh: Ring,
    /// What [`Ring::total`] was when another thread last came by.
    visited: AtomicUsize,
    /// Versions in the log, as its last user left it.
    versions: AtomicUsize,
    /// Apart from its lock, at which others look in passing.
    log: Mutex<CachePadded<Log>>,
}

/// The log's lock; tells what has changed when it is let go of.
pub(super) struct LogGuard<'r> {
    log: MutexGuard<'r, CachePadded<Log>>,
    record: &'r Record,
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
    /// Takes over what the owner has committed.
    pub(super) fn take_fresh(&mut self) {
        let log = &mut **self.log;
        self.record.fresh.take(|version| log.append(version));
    }
}

impl Drop for LogGuard<'_> {
    fn drop(&mut self) {
        let tables = self.log.tables();
        let before = core::mem::replace(&mut self.log.accounted, tables);
        self.budget.changed(before, tables);
        self.record.versions.store(self.log.len(), Ordering::Relaxed);
    }
}

/// A section as a collector sees it.
pub(super) struct Section {
    pub(super) local: u64,
    pub(super) is_exact: bool,
}

impl Record {
    pub(super) fn new(owner: u32) -> Self {
        let published = Published { local: AtomicU64::new(IDLE), walk: AtomicU64::new(0) };
        let published = CachePadded::new(published);
        let (visited, versions) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { published, owner, fresh: Ring::new(), visited, versions, log: Mutex::new(CachePadded::new(Log::new())) }
    }

    /// Owner only: begins a section and answers its local time. `last` is not above any earlier answer.
    ///
    /// A collector's scan either sees what is published first, or comes before `barrier`; then the second reading of the
    /// clock is not below the floor that the collector read before its scan. Release on every store: whoever sees it
    /// has seen the end of all earlier sections.
    #[inline]
    pub(super) fn enter(&self, clock: &Clock, last: u64, barrier: impl FnOnce()) -> u64 {
        // A second reading of the hardware clock would cost more than an old bound does.
        let bound = if clock.kind() == ClockKind::Logical { clock.begin() } else { last };
        self.published.local.store(bound << 1 | INEXACT, Ordering::Release);
        barrier();
        let local = clock.begin();
        point(points::ENTERING);
        self.published.local.store(local << 1, Ordering::Release);
        local
    }

    /// Owner only: ends the section.
    #[inline]
    pub(super) fn leave(&self) {
        self.published.local.store(IDLE, Ordering::Release);
    }

    /// The section that the owner is in. Acquire: its earlier sections have ended.
    pub(super) fn section(&self) -> Option<Section> {
        let word = self.published.local.load(Ordering::Acquire);
        (word != IDLE).then_some(Section { local: word >> 1, is_exact: word & INEXACT == 0 })
    }

    /// Owner only: walks a chain between a `barrier` and the end, so that what a pruner unlinks is kept meanwhile.
    #[inline]
    pub(super) fn walk<R>(&self, barrier: impl FnOnce(), walk: impl FnOnce() -> R) -> R {
        let count = self.published.walk.load(Ordering::Relaxed);
        self.published.walk.store(count + 1, Ordering::Release);
        barrier();
        let result = walk();
        self.published.walk.store(count + 2, Ordering::Release);
        result
    }

    /// The number of the walk that the owner is on. Acquire: earlier walks have ended.
    pub(super) fn walk_in_progress(&self) -> Option<u64> {
        let count = self.published.walk.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }

    /// Owner only: says that a version was committed, unless too many wait for the log.
    #[inline]
    pub(super) fn put(&self, version: Version) -> bool {
        self.fresh.put(version)
    }

    /// Versions committed and not freed, about.
    pub(super) fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed) + self.fresh.len()
    }

    /// Whether the owner has committed nothing since the last call.
    pub(super) fn is_resting(&self) -> bool {
        let total = self.fresh.total();
        let rests = self.visited.load(Ordering::Relaxed) == total;
        self.visited.store(total, Ordering::Relaxed);
        rests
    }

    pub(super) fn log<'r>(&'r self, budget: &'r Budget) -> LogGuard<'r> {
        // Foreign code never runs under this lock; a poisoned one would mean that a Vec failed to grow.
        let log = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self::guard(log, self, budget)
    }

    fn guard<'r>(log: MutexGuard<'r, CachePadded<Log>>, record: &'r Record, budget: &'r Budget) -> LogGuard<'r> {
        touch_mut(&raw const **log, size_of::<Log>());
        LogGuard { log, record, budget }
    }

    pub(super) fn try_log<'r>(&'r self, budget: &'r Budget) -> Option<LogGuard<'r>> {
        let log = self.log.try_lock().ok()?;
        Some(Self::guard(log, self, budget))
    }
}
