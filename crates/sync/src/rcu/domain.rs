//! The domain: the epoch, when it advances, and who reclaims what.

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::{membarrier, thread};

use super::garbage::{FirstPanic, GRACE, Garbage};
use super::reader::{Guard, Reader};
use super::record::Record;
use crate::backoff::Backoff;

/// Objects per bag. 64 spread one barrier (a microsecond or so with membarrier) to some ten nanoseconds per object.
const DEFAULT_BAG_LIMIT: usize = 64;

/// A thread that has not sealed a bag for this many epochs is idle or finished: others reclaim for it, and they look
/// for such threads whenever the epoch is a multiple of this.
const IDLE_EPOCHS: u64 = 8;

/// How readers and collectors are ordered. The guarantees are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// A `SeqCst` fence each time a reader enters. Works everywhere.
    Epoch,
    /// Readers enter without a fence; each attempt to advance the epoch interrupts the process's running threads for a
    /// microsecond or so (`membarrier`). Linux only.
    Membarrier,
}

/// What a [`Domain`] holds at the moment; exact only while nobody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Objects retired and not yet handed to their reclaim functions.
    pub pending: usize,
    /// The epoch: grows by one per advance, from 0.
    pub epoch: u64,
    /// Threads inside a guard.
    pub active_readers: usize,
    /// By how many epochs the longest guard is behind. Any lag stops the epoch, so this stays at 1 (or a few, for a
    /// thread that was preempted while it entered) for as long as a reader is stuck.
    pub oldest_reader_lag: u64,
    /// Attempts to advance the epoch that a reader has stopped since it last advanced. Growing together with `pending`,
    /// it means that some thread does not leave its guard.
    pub refused_advances: u64,
}

/// An RCU domain: one per data structure, independent of every other. See the [module](super).
///
/// ```
/// use archipelago_platform::atomic::{AtomicPtr, Ordering};
/// use archipelago_sync::rcu::Domain;
///
/// let domain = Domain::new();
/// let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
/// let guard = domain.pin();
/// let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
/// // SAFETY: `old` came from a box and the swap unlinked it.
/// unsafe { guard.retire_box(old) };
/// // SAFETY: the guard protects it.
/// assert_eq!(unsafe { *old }, 1);
/// drop(guard);
/// domain.collect();
/// assert_eq!(domain.stats().pending, 0);
/// # drop(unsafe { Box::from_raw(shared.into_inner()) });
/// ```
pub struct Domain {
    clock: CachePadded<Clock>,
    flavour: Flavour,
    bag_limit: usize,
    records: PerThread<CachePadded<Record>>,
}

/// The words that change when the epoch advances, on a line of their own: readers look at the fields beside it often.
struct Clock {
    epoch: AtomicU64,
    /// See [`Stats::refused_advances`].
    refused: AtomicU64,
}

impl Domain {
    /// A domain of the flavour with the cheapest readers that this machine has.
    pub fn new() -> Self {
        Self::with_flavour(Flavour::Membarrier)
    }

    /// A domain of this flavour; of [`Flavour::Epoch`] where the machine has no membarrier.
    pub fn with_flavour(wanted: Flavour) -> Self {
        let flavour = if membarrier::available() { wanted } else { Flavour::Epoch };
        Self {
            clock: CachePadded::new(Clock { epoch: AtomicU64::new(0), refused: AtomicU64::new(0) }),
            flavour,
            bag_limit: DEFAULT_BAG_LIMIT,
            records: PerThread::new(),
        }
    }

    /// The same domain with bags of `items` objects (64 if not set; 0 counts as 1): each thread reclaims in batches of
    /// that many and holds about four batches back.
    #[must_use]
    pub fn with_bag_limit(mut self, items: usize) -> Self {
        self.bag_limit = items.max(1);
        self
    }

    /// The flavour in use.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// This thread's way in. Makes the thread's record on its first call.
    #[inline]
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self)
    }

    /// Begins a critical section: [`reader`](Self::reader) and [`Reader::enter`] in one.
    ///
    /// # Panics
    /// As [`Reader::enter`].
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        Guard::begin(self.reader())
    }

    /// Waits until every guard that is alive now has ended. What this thread unlinked before the call is then its own.
    ///
    /// # Panics
    /// If the calling thread is inside a guard of this domain: it would wait for itself.
    pub fn synchronize(&self) {
        assert!(
            self.reader().record().nesting() == 0,
            "synchronize() inside a guard of the same domain would wait for itself: drop the guard first"
        );
        // As if this thread had retired something right now, inside a guard.
        let ripe = self.epoch_in(&self.pin()) + GRACE;
        let backoff = Backoff::new();
        loop {
            let before = self.epoch();
            if before >= ripe {
                return;
            }
            if self.try_advance() == before {
                backoff.wait();
            }
        }
    }

    /// Reclaims what can be: seals every thread's bag, finished threads' too, tries to advance the epoch, and runs what
    /// is ripe. Without guards alive, this reclaims everything retired before. Never waits for a reader.
    ///
    /// Inside a reclaim function it seals only, and the caller of that function goes on reclaiming.
    ///
    /// # Panics
    /// With the first panic of a reclaim function, after all the ripe ones have run.
    pub fn collect(&self) {
        let guard = self.pin();
        let epoch = self.epoch_in(&guard);
        for record in self.records.iter() {
            record.garbage().seal(epoch);
        }
        let me = guard.reader();
        drop(guard);
        let Some(_reclaiming) = me.record().begin_reclaiming() else { return };
        let mut now = self.epoch();
        while now < epoch + GRACE {
            let advanced = self.try_advance();
            if advanced == now {
                break;
            }
            now = advanced;
        }
        let mut panic = FirstPanic::default();
        for record in self.records.iter() {
            self.reclaim_ripe(record, now, &mut panic);
        }
        panic.resume();
    }

    /// Reclaims everything, at once: nobody can be reading. Dropping the domain does the same.
    ///
    /// # Panics
    /// With the first panic of a reclaim function, after all have run.
    pub fn drain_all(&mut self) {
        self.drain().resume();
    }

    fn drain(&mut self) -> FirstPanic {
        let mut panic = FirstPanic::default();
        for record in self.records.iter() {
            record.garbage().seal(0);
            // `&mut self`: no guard is alive that anybody could still read under, so every bag is ripe.
            self.reclaim_ripe(record, u64::MAX, &mut panic);
        }
        panic
    }

    /// What the domain holds now. Takes every record's lock in turn: for reports, not for hot paths.
    pub fn stats(&self) -> Stats {
        let epoch = self.epoch();
        let lags = || self.records.iter().filter_map(|record| record.active_epoch()).map(|at| epoch.saturating_sub(at));
        Stats {
            pending: self.records.iter().map(|record| record.garbage().pending()).sum(),
            epoch,
            active_readers: lags().count(),
            oldest_reader_lag: lags().max().unwrap_or(0),
            refused_advances: self.clock.refused.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(super) fn record(&self, slot: usize) -> &Record {
        self.records.get_or(slot, || CachePadded::new(Record::new(slot)))
    }

    #[inline]
    pub(super) fn bag_limit(&self) -> usize {
        self.bag_limit
    }

    /// The epoch. Acquire, see the proof in the parent module.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.clock.epoch.load(Ordering::Acquire)
    }

    /// An epoch to seal with: the proof needs it to be read inside a guard, after all of the bag was retired.
    fn epoch_in(&self, _inside: &Guard<'_>) -> u64 {
        self.epoch()
    }

    /// B_R of the proof.
    #[inline]
    pub(super) fn reader_barrier(&self) {
        match self.flavour {
            Flavour::Epoch => fence(Ordering::SeqCst),
            Flavour::Membarrier => membarrier::light(),
        }
    }

    /// B_A of the proof.
    fn collector_barrier(&self) {
        match self.flavour {
            Flavour::Epoch => fence(Ordering::SeqCst),
            Flavour::Membarrier => membarrier::heavy(),
        }
    }

    fn readers_are_at(&self, epoch: u64) -> bool {
        self.records.iter().all(|record| record.active_epoch().is_none_or(|at| at == epoch))
    }

    /// Advances the epoch if no reader is behind; returns the epoch after the attempt.
    fn try_advance(&self) -> u64 {
        let epoch = self.epoch();
        // A reader that is visibly behind saves the dear barrier; only the look after the barrier counts.
        let hopeless = self.flavour == Flavour::Membarrier && !self.readers_are_at(epoch);
        if hopeless || {
            self.collector_barrier();
            !self.readers_are_at(epoch)
        } {
            self.clock.refused.fetch_add(1, Ordering::Relaxed);
            return epoch;
        }
        self.clock.refused.store(0, Ordering::Relaxed);
        match self.clock.epoch.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => epoch + 1,
            Err(now) => now,
        }
    }

    /// The owner's turn, when its bag is full: seals it, sees to it that the epoch moves, reclaims its own ripe bags.
    #[cold]
    pub(super) fn seal_and_reclaim(&self, guard: &Guard<'_>) {
        let epoch = self.epoch_in(guard);
        let me = guard.reader().record();
        let before = {
            let mut garbage = me.garbage();
            garbage.seal(epoch);
            garbage.visit(epoch)
        };
        let Some(_reclaiming) = me.begin_reclaiming() else { return };
        // If others have moved the epoch since this thread's last turn, they have paid the barrier for it too.
        let now = if before == epoch { self.try_advance() } else { epoch };
        let mut panic = FirstPanic::default();
        if now != epoch {
            me.garbage().visit(now);
            if now % IDLE_EPOCHS == 0 {
                self.reclaim_for_the_idle(epoch, &mut panic);
            }
        }
        self.reclaim_ripe(me, now, &mut panic);
        panic.resume();
    }

    /// Reclaims for threads that have finished or retire nothing any more. `epoch` was read inside a guard.
    fn reclaim_for_the_idle(&self, epoch: u64, panic: &mut FirstPanic) {
        for record in self.records.iter() {
            let idle = |garbage: &Garbage| garbage.last_visit() + IDLE_EPOCHS <= epoch;
            if idle(&record.garbage()) {
                record.garbage().seal(epoch);
                self.reclaim_ripe(record, epoch, panic);
            }
        }
    }

    /// Runs the record's bags that are ripe at `epoch`, an epoch that was reached.
    fn reclaim_ripe(&self, record: &Record, epoch: u64, panic: &mut FirstPanic) {
        loop {
            // Its own statement, so that the lock is released before reclaim functions run.
            let ripe = record.garbage().take_ripe(epoch);
            let Some(mut bag) = ripe else { return };
            // SAFETY: `take_ripe` gave a bag whose grace period is over, by the proof in the parent module.
            unsafe { panic.reclaim(&mut bag) };
            record.garbage().put_spare(bag);
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let panic = self.drain();
        // A second panic during unwinding would abort the process.
        if !thread::panicking() {
            panic.resume();
        }
    }
}
