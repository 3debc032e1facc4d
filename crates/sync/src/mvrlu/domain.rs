//! The domain: clock, horizon, the handles' records, and who collects.

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::clock::drain_stores;
use archipelago_platform::membarrier;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};

#[cfg(not(loom))]
use super::background::Background;
use super::clock::{Clock, ClockKind};
use super::handle::Handle;
use super::pool::{Budget, Pool};
use super::record::Record;
use super::version::{Link, Raw, Versioned, owner_of};
use crate::backoff::Backoff;

/// The model world has no background collection.
#[cfg(loom)]
struct Background;

#[cfg(loom)]
impl Background {
    fn wake(&self) {}
}

/// Who looks for grace periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// The threads that write, when their logs have grown, and those that read, when they meet many copies.
    Cooperative,
    /// A thread of the domain's own, asleep unless a log has grown; writers collect what it has found to be free.
    Background,
}

/// When the domain collects, and how. The defaults need no reading.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes of versions in a log at which its thread looks for a grace period: the paper's capacity watermark. 64 KiB
    /// (the paper: half of a 512 KiB ring): a larger log saves membarriers, a smaller one saves readers the chains.
    pub low_watermark: usize,
    /// How often a handle reads a copy instead of a master before it has everybody's log collected: the paper's
    /// dereference watermark (there a ratio, 50 % by the text and 33 % by the code). 4096 such reads cost what one
    /// collection does. `u32::MAX` turns it off.
    pub dereference_watermark: u32,
    /// Each thread collects its own log, and one of its neighbours' in passing. Off, for measurements of what it gives:
    /// one thread at a time collects all logs.
    pub concurrent: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { low_watermark: 64 * 1024, dereference_watermark: 4096, concurrent: true }
    }
}

/// Makes a [`Domain`].
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    clock: ClockKind,
    collection: Collection,
    memory_cap: usize,
    tuning: Tuning,
    /// Two versions only (RLU), and how many commits may be put off to be written back together.
    two_versions: Option<usize>,
}

impl Builder {
    pub(crate) fn two_versions(mut self, deferred: usize) -> Self {
        self.two_versions = Some(deferred);
        self
    }

    /// What commits and snapshots are ordered by. [`ClockKind::Logical`] if not set.
    #[must_use]
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = clock;
        self
    }

    /// Who looks for grace periods. [`Collection::Cooperative`] if not set.
    #[must_use]
    pub fn collection(mut self, collection: Collection) -> Self {
        self.collection = collection;
        self
    }

    /// The most bytes that versions may take, free blocks of the threads (1 MiB each, or a 16th of the cap)
    /// included. No bound if not set.
    /// A transaction that would go beyond gets [`Abort::Full`](super::Abort::Full).
    #[must_use]
    pub fn memory_cap(mut self, bytes: usize) -> Self {
        self.memory_cap = bytes;
        self
    }

    /// When to collect.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// The domain.
    pub fn build(self) -> Domain {
        let inner = |background| Inner {
            clock: Clock::new(self.clock),
            horizon: CachePadded::new(AtomicU64::new(0)),
            // With two versions every commit scans.
            membarrier: self.two_versions.is_none() && membarrier::available(),
            two_versions: self.two_versions,
            tuning: self.tuning,
            budget: Budget::new(self.memory_cap),
            records: RwLock::new(Vec::new()),
            left: Mutex::new(Vec::new()),
            next_to_help: AtomicUsize::new(0),
            gate: RwLock::new(()),
            everybody: Mutex::new(()),
            background,
        };
        #[cfg(not(loom))]
        if self.collection == Collection::Background {
            return Domain { inner: Arc::new_cyclic(|domain| inner(Some(Background::start(domain.clone())))) };
        }
        Domain { inner: Arc::new(inner(None)) }
    }
}

/// What a domain holds at the moment; exact only while nobody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Versions in the logs that handles have handed in (each keeps up to 64 to itself), collected and not yet freed.
    pub versions: usize,
    /// Bytes in copies, with the free blocks that threads keep for reuse.
    pub bytes: usize,
    /// Handles alive.
    pub handles: usize,
    /// Handles inside a section.
    pub active_sections: usize,
    /// By how much time the oldest section is behind: commits with the logical clock, ticks with the hardware's.
    pub oldest_lag: u64,
}

/// Objects that are versioned together: snapshots see all of a domain's objects at one moment. Domains share nothing.
///
/// A reference to a shared state; cloning it is cheap.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

impl Domain {
    /// A domain with a logical clock and cooperative collection.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A domain made to measure.
    pub fn builder() -> Builder {
        let tuning = Tuning::default();
        Builder {
            clock: ClockKind::Logical,
            collection: Collection::Cooperative,
            memory_cap: usize::MAX,
            tuning,
            two_versions: None,
        }
    }

    /// A way in. For one thread at a time; may be sent to another one between sections. O(handles).
    pub fn register(&self) -> Handle {
        Handle::new(self.inner.clone())
    }

    /// A new object, in the state it has until a commit changes it. It lives until it is retired; objects that never are
    /// outlive the domain.
    pub fn alloc<T: Versioned>(&self, value: T) -> Link<T> {
        Link::new(value, self.inner.id())
    }

    /// As [`alloc`](Self::alloc), for who knows the object's domain.
    pub(crate) fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        Raw::new(value)
    }

    /// The clock in use.
    pub fn clock(&self) -> ClockKind {
        self.inner.clock.kind()
    }

    /// What the domain holds now. Takes every log's lock in turn: for reports, not for hot paths.
    pub fn stats(&self) -> Stats {
        let now = self.inner.clock.begin();
        // Before the records, whose list only grows: what is in this one is then in that one.
        let left = self.inner.left().len();
        // A copy, since who has a log's lock may ask for the list.
        let records = self.inner.records().to_vec();
        let sections = || records.iter().filter_map(|record| record.section());
        Stats {
            versions: records.iter().map(|record| record.log().len()).sum(),
            bytes: self.inner.budget.held(),
            handles: records.len() - left,
            active_sections: sections().count(),
            oldest_lag: sections().map(|section| now.saturating_sub(section.local)).max().unwrap_or(0),
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

/// What handles share.
pub(super) struct Inner {
    clock: Clock,
    /// No section has a local time below this, now or later. Only grows.
    horizon: CachePadded<AtomicU64>,
    /// Readers enter without a fence, and scans pay for it.
    membarrier: bool,
    two_versions: Option<usize>,
    tuning: Tuning,
    budget: Budget,
    records: RwLock<Vec<Arc<Record>>>,
    /// Those that no handle has.
    left: Mutex<Vec<Arc<Record>>>,
    /// Whose log to collect in passing.
    next_to_help: AtomicUsize,
    /// Shared: collecting. Alone: pruning.
    gate: RwLock<()>,
    /// Held by who collects everybody's log.
    everybody: Mutex<()>,
    background: Option<Background>,
}

// SAFETY: `Inner` is made of `Send` and `Sync` parts; logs' raw pointers are theirs alone, see there.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    #[inline]
    pub(super) fn is_multi_version(&self) -> bool {
        self.two_versions.is_none()
    }

    /// What objects name their domain by.
    #[inline]
    pub(super) fn id(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    #[inline]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The reader's half of the barrier that [`scan_barrier`](Self::scan_barrier) is the other half of.
    #[inline]
    pub(super) fn reader_barrier(&self) {
        if self.membarrier { membarrier::light() } else { fence(Ordering::SeqCst) }
    }

    /// The same between what a section publishes and its reading of the clock, which a fence does not order.
    #[inline]
    pub(super) fn entry_barrier(&self) {
        if !self.membarrier && self.clock.kind() == ClockKind::Hardware {
            drain_stores()
        } else {
            self.reader_barrier()
        }
    }

    fn scan_barrier(&self) {
        if self.membarrier { membarrier::heavy() } else { fence(Ordering::SeqCst) }
    }

    fn records(&self) -> RwLockReadGuard<'_, Vec<Arc<Record>>> {
        self.records.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A record for a new handle: one that another has left, or a new one.
    pub(super) fn take_record(&self) -> Arc<Record> {
        if let Some(record) = self.left().pop() {
            return record;
        }
        let mut records = self.records.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let record = Arc::new(Record::new(records.len() as u32));
        records.push(record.clone());
        record
    }

    /// Takes a record back, with its log as it is, for the next handle.
    pub(super) fn leave_record(&self, record: Arc<Record>) {
        record.leave();
        self.left().push(record);
    }

    /// The lock orders the handles that have a record one after the other.
    fn left(&self) -> MutexGuard<'_, Vec<Arc<Record>>> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The horizon as it is known.
    pub(super) fn horizon(&self) -> u64 {
        // Acquire: pairs with `look`, so that the sections it found ended have ended for us too.
        self.horizon.load(Ordering::Acquire)
    }

    /// Finds the horizon out: the earliest time that a section has now or may have later.
    pub(super) fn look(&self) -> u64 {
        let floor = self.clock.floor();
        self.scan_barrier();
        let oldest = self.records().iter().filter_map(|record| record.section()).map(|section| section.local).min();
        let found = oldest.map_or(floor, |oldest| oldest.min(floor));
        self.horizon.fetch_max(found, Ordering::AcqRel).max(found)
    }

    /// Collects the log of `record`. Scans first if the log has grown to its watermark, or if `scan` says so.
    ///
    /// # Safety
    /// The caller is inside a section of this domain.
    pub(super) unsafe fn collect(&self, record: &Record, scan: bool, pool: &mut Pool) {
        if let Some(mut log) = record.try_log() {
            // SAFETY: the caller's promise.
            unsafe { self.collect_log(&mut log, scan, pool) };
        }
    }

    unsafe fn collect_log(&self, log: &mut super::log::Log, scan: bool, pool: &mut Pool) {
        if !self.is_multi_version() {
            return log.free_detached(self.look(), pool, &self.budget);
        }
        let low = self.tuning.low_watermark;
        let scan = scan || log.wants_scan(low);
        let look = scan && (self.background.is_none() || log.wants_pruning(low));
        let horizon = if look { self.look() } else { self.horizon() };
        {
            let Ok(_gate) = self.gate.try_read() else { return };
            // SAFETY: the caller's promise; the gate is held.
            unsafe { log.collect(self, horizon, pool) };
        }
        if scan {
            if log.wants_pruning(low) {
                // SAFETY: as above.
                unsafe { self.prune(log, pool) };
            }
            log.scanned(low);
            self.background.iter().for_each(Background::wake);
        }
    }

    /// Prunes `log`, and another one in turn: what an idle thread wrote is superseded by others and pruned by nobody else.
    ///
    /// # Safety
    /// The caller is inside a section.
    #[cold]
    unsafe fn prune(&self, log: &mut super::log::Log, pool: &mut Pool) {
        // Who has the gate waits for nobody's section, but may have lost its processor.
        let _gate = if log.is_far_behind() {
            self.gate.write().unwrap_or_else(|poisoned| poisoned.into_inner())
        } else {
            let Ok(gate) = self.gate.try_write() else { return };
            gate
        };
        let floor = self.clock.floor();
        self.scan_barrier();
        let mut cuts = Vec::new();
        let mut bound = floor;
        for section in self.records().iter().filter_map(|record| record.section()) {
            cuts.push(section.local);
            if !section.is_exact {
                bound = bound.min(section.local);
            }
        }
        cuts.sort_unstable();
        let horizon = self.horizon();
        let mut prune = |log: &mut super::log::Log| {
            // SAFETY: the gate is held alone, so nobody frees; `cuts` has all sections, those not yet exact are at `bound`
            // or above, and those begun since at `floor` or above. The collect brings the log up to the horizon.
            unsafe {
                log.collect(self, horizon, pool);
                log.prune(self, &cuts, bound, horizon);
            }
            // Mostly nobody is on a walk: without this a quarter of the versions would wait for the next collection.
            log.free_pruned(pool, &self.budget);
        };
        prune(log);
        if let Some(mut other) = self.next_record().try_log() {
            prune(&mut other);
        }
    }

    /// The walks that may have met what was unlinked before the call.
    pub(super) fn walks_in_progress(&self) -> Vec<(Arc<Record>, u64)> {
        self.scan_barrier();
        let walk = |record: &Arc<Record>| record.walk_in_progress().map(|walk| (record.clone(), walk));
        self.records().iter().filter_map(walk).collect()
    }

    /// With two versions: adds a commit to the log of `record`, and writes the log back if it holds enough.
    pub(super) fn write_back_or_defer(
        &self,
        record: &Record,
        stamp: u64,
        fresh: &mut Vec<super::log::Version>,
        pool: &mut Pool,
    ) {
        let mut log = record.log();
        log.append(fresh);
        let deferred = self.two_versions.unwrap_or(0);
        if log.note_deferred(stamp) > deferred {
            log.write_back_all(self, pool);
        }
    }

    /// With two versions: writes back what the holder of an object has put off. Outside any section of the caller's.
    pub(super) fn write_back_of_holder(&self, word: u64, pool: &mut Pool) {
        let Some(owner) = owner_of(word) else { return };
        let record = self.records()[owner].clone();
        if let Some(mut log) = record.try_log() {
            log.write_back_all(self, pool);
        }
    }

    /// Waits until every section is at or above the stamp. Outside any section of the caller's.
    pub(super) fn wait_for(&self, stamp: u64) -> u64 {
        let backoff = Backoff::new();
        loop {
            let horizon = self.look();
            if horizon >= stamp {
                return horizon;
            }
            backoff.wait();
        }
    }

    /// Collects one other log, in turn: so those of threads that have ended or write no more are collected too.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn help_one(&self, pool: &mut Pool) {
        // SAFETY: the caller's promise.
        unsafe { self.collect(&self.next_record(), false, pool) };
    }

    /// Each record in turn.
    fn next_record(&self) -> Arc<Record> {
        let (turn, records) = (self.next_to_help.fetch_add(1, Ordering::Relaxed), self.records());
        records[turn % records.len()].clone()
    }

    /// Scans once and collects all logs.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_everybody(&self, pool: &mut Pool) {
        let Ok(_alone) = self.everybody.try_lock() else { return };
        self.look();
        let records = self.records().clone();
        for record in records {
            // SAFETY: the caller's promise.
            unsafe { self.collect(&record, false, pool) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let records = self.records.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for record in records.iter_mut() {
            // SAFETY: no handle is left, so nobody uses the domain's objects through it.
            unsafe { record.log().drain(&self.budget) };
        }
        debug_assert_eq!(self.budget.held(), 0);
    }
}
