//! The domain: clock, horizon, the handles' records, and who collects.

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::clock::drain_stores;
use archipelago_platform::membarrier;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};

#[cfg(not(loom))]
use super::background::Background;
use super::chain::{Cuts, Pruner};
use super::clock::{Clock, ClockKind};
use super::handle::Handle;
use super::log::Version;
use super::patience::Patience;
use super::pool::{Budget, Pool};
use super::record::{LogGuard, Record};
use super::version::{Link, Raw, Versioned, owner_of};

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
    /// Bytes of versions in a log at which its thread looks for a grace period: the paper's capacity watermark. 8 KiB
    /// (the paper: half of a 512 KiB ring), and beside many objects more: an eighth of their bytes, divided by the handles,
    /// up to 64 KiB. A larger log saves membarriers, a smaller one saves memory, and readers the chains.
    pub low_watermark: usize,
    /// How often a handle reads a copy instead of a master before it has everybody's log collected: the paper's
    /// dereference watermark (there a ratio, 50 % by the text and 33 % by the code). 4096 such reads cost what one
    /// collection does. `u32::MAX` turns it off.
    pub dereference_watermark: u32,
    /// Each thread collects its own log, and one that rests in passing. Off, for measurements of what it gives:
    /// one thread at a time collects all logs.
    pub concurrent: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { low_watermark: 8 * 1024, dereference_watermark: 4096, concurrent: true }
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

    /// The most bytes that the domain may take: objects, versions, logs, and free blocks of the threads (three low
    /// watermarks each, or a 64th of the cap). No bound if not set.
    /// A transaction that would go beyond gets [`Abort::Full`](super::Abort::Full). What cannot be refused
    /// ([`Domain::alloc`], [`Domain::register`], a log's table) counts, and leaves transactions the less.
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
            low: AtomicUsize::new(self.tuning.low_watermark),
            budget: Budget::new(self.memory_cap),
            records: RwLock::new(Vec::new()),
            left: Mutex::new(Vec::new()),
            own_handles: AtomicUsize::new(0),
            next_to_help: AtomicUsize::new(0),
            pruner: Pruner::new(),
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
    /// Versions committed and not freed yet.
    pub versions: usize,
    /// Bytes in copies and logs, with the free blocks that threads keep for reuse.
    pub bytes: usize,
    /// Bytes in objects, but for up to 4 KiB that each handle has not told of. Without what the allocator adds.
    pub objects: usize,
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
        self.inner.budget.objects_changed(Link::<T>::BYTES as isize);
        Link::new(value, 0, self.inner.id())
    }

    /// As [`alloc`](Self::alloc), for who knows the object's domain.
    pub fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        self.inner.budget.objects_changed(Raw::<T>::BYTES as isize);
        Raw::new(value, 0)
    }

    /// The clock in use.
    pub fn clock(&self) -> ClockKind {
        self.inner.clock.kind()
    }

    /// What the domain holds now. O(handles); waits for no log, so it may be asked anywhere.
    pub fn stats(&self) -> Stats {
        let now = self.inner.clock.begin();
        // Before the records, whose list only grows: what is in this one is then in that one.
        let left = self.inner.left().len();
        let records = self.inner.records();
        let sections = || records.iter().filter_map(|record| record.section());
        Stats {
            versions: records.iter().map(|record| record.versions()).sum(),
            bytes: self.inner.budget.held(),
            objects: self.inner.budget.objects(),
            handles: (records.len() - left).saturating_sub(self.inner.own_handles.load(Ordering::Acquire)),
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
    /// The low watermark, as the objects allow.
    low: AtomicUsize,
    budget: Budget,
    records: RwLock<Vec<Arc<Record>>>,
    /// Those that no handle has.
    left: Mutex<Vec<Arc<Record>>>,
    /// Handles of the domain's own thread.
    own_handles: AtomicUsize,
    /// Whose log to collect in passing.
    next_to_help: AtomicUsize,
    pruner: Pruner,
    /// Held by who collects everybody's log because of what it has read.
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

    /// For the domain's own thread: a handle that is not counted.
    #[cfg(not(loom))]
    pub(super) fn collect_in_background(self: Arc<Self>) {
        self.own_handles.fetch_add(1, Ordering::AcqRel);
        Handle::new(self.clone()).collect_everybody();
        self.own_handles.fetch_sub(1, Ordering::AcqRel);
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The low watermark now.
    #[inline]
    pub(super) fn low(&self) -> usize {
        self.low.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn pruner(&self) -> &Pruner {
        &self.pruner
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
        self.budget.changed(0, size_of::<Record>());
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
        self.raise_horizon(oldest.map_or(floor, |oldest| oldest.min(floor)))
    }

    /// The same, with all that is known about sections and walks.
    pub(super) fn scan(&self) -> Cuts {
        let floor = self.clock.floor();
        self.scan_barrier();
        let records = self.records();
        let mut cuts = Cuts::of(&records, floor);
        let more = self.budget.objects() / (8 * records.len()).max(1);
        let base = self.tuning.low_watermark;
        self.low.store(base.max((base + more).min(HIGHEST_LOW)), Ordering::Relaxed);
        cuts.horizon = self.raise_horizon(cuts.horizon);
        cuts
    }

    fn raise_horizon(&self, found: u64) -> u64 {
        self.horizon.fetch_max(found, Ordering::AcqRel).max(found)
    }

    /// Collects the log of `of`: as far as the horizon is known, or scans first if the log has grown to its watermark, and
    /// prunes what a scan leaves. What a scan found, if there was one.
    ///
    /// # Safety
    /// The caller is inside a section of this domain, and owns `me`.
    pub(super) unsafe fn collect(&self, of: &Record, me: &Record, pool: &mut Pool) -> Option<Pass> {
        let mut log = of.try_log(&self.budget)?;
        let low = self.low();
        if !self.is_multi_version() {
            log.free_detached(self.look(), pool, &self.budget);
            return None;
        }
        let is_due = log.wants_scan(low);
        if is_due && let Some(background) = &self.background {
            background.wake();
        }
        // Where a thread collects in the background, it may be late.
        if !is_due || self.background.is_some() && log.bytes() < 2 * low {
            // SAFETY: the caller's promise.
            unsafe { self.collect_to_known(&mut log, pool) };
            return None;
        }
        let cuts = self.scan();
        let prunes = |log: &LogGuard<'_>| log.wants_pruning(low);
        // SAFETY: as above.
        unsafe { self.pass(&mut log, me, &cuts, prunes, pool) };
        let (bytes, held_up) = log.pressure(&cuts);
        Some(Pass { horizon: cuts.horizon, sections: cuts.sections(), bytes, held_up })
    }

    /// # Safety
    /// The caller is in a section.
    unsafe fn collect_to_known(&self, log: &mut LogGuard<'_>, pool: &mut Pool) {
        let horizon = self.horizon();
        if horizon > log.collected_to() {
            // SAFETY: the caller's promise.
            unsafe { log.collect(self, horizon, pool) };
        }
    }

    /// For one of those that wait for the horizon to move: looks for it, unless another one does.
    pub(super) fn look_for_all(&self) -> u64 {
        self.everybody.try_lock().map_or_else(|_| self.horizon(), |_alone| self.look())
    }

    /// Brings a log up to a scan.
    ///
    /// # Safety
    /// The caller is in a section in which it made `cuts`, and owns `me`.
    unsafe fn pass(
        &self,
        log: &mut LogGuard<'_>,
        me: &Record,
        cuts: &Cuts,
        prunes: impl FnOnce(&LogGuard<'_>) -> bool,
        pool: &mut Pool,
    ) {
        log.note_walks(cuts);
        // SAFETY: the caller's promise.
        unsafe { log.collect(self, cuts.horizon, pool) };
        if prunes(log) {
            // SAFETY: as above.
            unsafe { log.prune(self, me, cuts) };
        }
        log.scanned(self.low());
        pool.tell(&self.budget);
    }

    /// Whether a thread should pause after a pass that found this, having waited in vain for the horizon `in_vain`.
    ///
    /// What waits for threads in this module goes when those run. What is needed goes when sections end, which is as soon as
    /// their threads run, if there are more sections than processors; if not, readers may be long, and are not waited for.
    pub(super) fn is_crowded(&self, pass: &Pass, in_vain: u64) -> bool {
        let share = (2 * self.low()).max(SMALLEST_SHARE);
        !cfg!(loom)
            && pass.bytes >= share
            && (pass.held_up >= share / 2 || pass.sections > processors() && pass.horizon != in_vain)
    }

    /// With two versions: adds a commit to the log of `record`, and writes the log back if it holds enough.
    pub(super) fn write_back_or_defer(&self, record: &Record, stamp: u64, fresh: &mut Vec<Version>, pool: &mut Pool) {
        let mut log = record.log(&self.budget);
        fresh.drain(..).for_each(|version| log.append(version));
        let deferred = self.two_versions.unwrap_or(0);
        if log.note_deferred(stamp) > deferred {
            log.write_back_all(self, pool);
        }
    }

    /// With two versions: writes back what the holder of an object has put off. Outside any section of the caller's.
    pub(super) fn write_back_of_holder(&self, word: u64, pool: &mut Pool) {
        let Some(owner) = owner_of(word) else { return };
        let record = self.records()[owner].clone();
        if let Some(mut log) = record.try_log(&self.budget) {
            log.write_back_all(self, pool);
        }
    }

    /// With two versions: writes back what `record` has put off, as far as that waits for no section.
    fn write_back_if_due(&self, record: &Record, pool: &mut Pool) {
        if let Some(mut log) = record.try_log(&self.budget) {
            let horizon = self.look();
            log.free_detached(horizon, pool, &self.budget);
            if log.deferred_to() <= horizon {
                log.write_back_all(self, pool);
            }
        }
    }

    /// Waits until every section is at or above the stamp, as the caller's is, if it is in one.
    pub(super) fn wait_for(&self, stamp: u64) -> u64 {
        let mut patience = Patience::new();
        loop {
            let horizon = self.look();
            if horizon >= stamp {
                return horizon;
            }
            patience.wait();
        }
    }

    /// Collects one other log, in turn, if its owner rests: so those of threads that have ended or write no more are collected
    /// too. A log that is long is looked at seldom.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn help_one(&self, me: &Record, pool: &mut Pool) {
        let of = self.next_record();
        if core::ptr::eq(&*of, me) || !of.is_resting() || of.versions() == 0 {
            return;
        }
        let Some(mut log) = of.try_log(&self.budget) else { return };
        log.take_fresh();
        if !log.takes_help(LOOKS) {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match log.bytes() >= self.low() {
                true => self.pass(&mut log, me, &self.scan(), |_| true, pool),
                false => self.collect_to_known(&mut log, pool),
            }
        }
    }

    /// Each record in turn.
    fn next_record(&self) -> Arc<Record> {
        let (turn, records) = (self.next_to_help.fetch_add(1, Ordering::Relaxed), self.records());
        records[turn % records.len()].clone()
    }

    /// Scans once and collects all logs that nobody is collecting, unless another thread is at it.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_everybody(&self, me: &Record, pool: &mut Pool) {
        if let Ok(_alone) = self.everybody.try_lock() {
            let low = self.low();
            // SAFETY: the caller's promise.
            unsafe { self.collect_all(me, |log| log.wants_pruning(low), pool) };
        }
    }

    /// Scans once, collects all logs that nobody is collecting, and prunes some.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_all(&self, me: &Record, prunes: impl Fn(&LogGuard<'_>) -> bool, pool: &mut Pool) {
        let records = self.records().clone();
        if !self.is_multi_version() {
            return records.iter().for_each(|record| self.write_back_if_due(record, pool));
        }
        let cuts = self.scan();
        for record in records.iter().filter(|record| record.versions() > 0) {
            if let Some(mut log) = record.try_log(&self.budget) {
                log.take_fresh();
                // SAFETY: the caller's promise.
                unsafe { self.pass(&mut log, me, &cuts, &prunes, pool) };
                log.trim(0);
            }
        }
    }
}

/// What a scan and a collection of one log found.
pub(super) struct Pass {
    pub(super) horizon: u64,
    sections: usize,
    /// Bytes of copies in the log after it; and of those that wait for threads inside this module only.
    bytes: usize,
    held_up: usize,
}

/// Bytes of copies that every thread may have without pausing, however small the watermark.
const SMALLEST_SHARE: usize = 16 * 1024;

/// The highest low watermark that many objects lead to.
const HIGHEST_LOW: usize = 64 * 1024;

/// Versions that a thread looks at in another's log for each time it comes by.
const LOOKS: usize = 128;

#[cfg(loom)]
fn processors() -> usize {
    usize::MAX
}

#[cfg(not(loom))]
fn processors() -> usize {
    use archipelago_platform::sync::OnceLock;
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| archipelago_platform::thread::available_parallelism().map_or(1, |count| count.get()))
}

impl Drop for Inner {
    fn drop(&mut self) {
        let records = self.records.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for record in records.iter_mut() {
            // SAFETY: no handle is left, so nobody uses the domain's objects through it.
            unsafe {
                let mut log = record.log(&self.budget);
                log.take_fresh();
                log.drain(&self.budget);
            }
        }
        self.budget.changed(records.len() * size_of::<Record>(), 0);
        *records = Vec::new();
        debug_assert_eq!(self.budget.held(), 0);
    }
}
