//! The domain: the epoch, its advances, and reclamation. Each thread collects the objects that it retires in a *bag*. A
//! full bag is *sealed* with the present epoch. It is *ripe* when its objects may be reclaimed.

use core::fmt;

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::membarrier;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::panics::FirstPanic;
#[cfg(not(loom))]
use archipelago_platform::sync::{Arc, Weak};

use super::backlog::Backlog;
use super::garbage::{self, GRACE, Garbage, Size};
use super::owned::OwnedGuard;
use super::quiescent::QuiescentReader;
use super::reader::{Guard, Reader};
use super::record::{Entry, Record};
use super::records::Records;
#[cfg(not(loom))]
use super::rest::{Owner, Rest};
use crate::backoff::Backoff;

/// Objects per bag. With fences an advance costs a walk over the records. A membarrier also interrupts the other
/// running threads, which costs 3 to 10 us in all. In a bag of 256 objects, this is 12 to 40 ns per object.
const EPOCH_BAG: usize = 64;
const MEMBARRIER_BAG: usize = 256;

/// Bytes per bag, if callers give the sizes of retired objects, so that hundreds of large objects do not wait.
/// Making an object of a kilobyte takes some hundred nanoseconds, so the cost of an advance is small in comparison.
const BAG_BYTES: usize = 256 << 10;

/// A thread that has not sealed a bag for this many epochs is idle or finished: other threads reclaim for it. They
/// search for such threads whenever the epoch is a multiple of this number.
const IDLE_EPOCHS: u64 = 8;

/// How readers and collectors are ordered. Both flavours give the same guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// A `SeqCst` fence each time a reader enters. Works on every machine.
    Epoch,
    /// Readers enter without a fence; each attempt to advance the epoch interrupts the process's running threads for a
    /// microsecond or so (`membarrier`). Linux only.
    Membarrier,
}

/// Statistics of a [`Domain`]; exact only while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Objects retired and not yet handed to their reclaim functions.
    pub pending: usize,
    /// The memory of these objects, in bytes, as far as the calls that retired them gave sizes.
    pub pending_bytes: usize,
    /// The epoch, which begins at 0 and grows by one per advance.
    pub epoch: u64,
    /// Sections in progress: one for each thread inside a guard, for each quiescent reader, and for each owned guard.
    pub active_readers: usize,
    /// How many epochs the oldest guard is behind. Any lag stops the epoch, so while a reader is stuck the value
    /// stays at 1 (or a few, for a thread that was preempted while it entered).
    pub oldest_reader_lag: u64,
    /// Failed attempts to advance the epoch since its last advance; each failed because of a reader. If this value and
    /// `pending` both grow, some thread does not leave its guard.
    pub refused_advances: u64,
}

/// An RCU domain: one per data structure, independent of every other. See the [module](super).
///
/// ```
/// use archipelago::platform::atomic::{AtomicPtr, Ordering};
/// use archipelago::sync::rcu::Domain;
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
    bag_limit: Size,
    backlog: Backlog,
    records: Records,
    #[cfg(not(loom))]
    rest: Option<Arc<Rest>>,
}

/// The words that change when the epoch advances, in a cache line of their own, since readers often load the
/// neighbouring fields.
struct Clock {
    /// The word of the present epoch's [`Entry`].
    entry: AtomicU64,
    /// See [`Stats::refused_advances`].
    refused: AtomicU64,
}

impl Domain {
    /// Makes a domain of the flavour with the cheapest readers that this machine supports.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// assert_eq!(Domain::new().stats().active_readers, 0);
    /// ```
    pub fn new() -> Self {
        Self::with_flavour(Flavour::Membarrier)
    }

    /// Makes a domain of this flavour, or of [`Flavour::Epoch`] if the machine has no membarrier.
    ///
    /// ```
    /// use archipelago::sync::rcu::{Domain, Flavour};
    ///
    /// assert_eq!(Domain::with_flavour(Flavour::Epoch).flavour(), Flavour::Epoch);
    /// ```
    pub fn with_flavour(wanted: Flavour) -> Self {
        let flavour = if membarrier::available() { wanted } else { Flavour::Epoch };
        Self {
            clock: CachePadded::new(Clock { entry: AtomicU64::new(Entry::FIRST.word()), refused: AtomicU64::new(0) }),
            flavour,
            bag_limit: Size {
                objects: match flavour {
                    Flavour::Epoch => EPOCH_BAG,
                    Flavour::Membarrier => MEMBARRIER_BAG,
                },
                bytes: BAG_BYTES,
            },
            backlog: Backlog::unlimited(),
            records: Records::new(),
            #[cfg(not(loom))]
            rest: None,
        }
    }

    /// Sets the number of objects at which a bag is full. The default is 64, and 256 with membarrier; 0 counts as 1.
    /// Each thread reclaims in batches of this size (of fewer objects, if these reach the [bytes of a
    /// bag](Self::with_bag_bytes)), and about four of its batches wait.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new().with_bag_limit(1); // reclaims early, and looks often
    /// let object = Box::into_raw(Box::new([0; 64]));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire_box(object) };
    /// # domain.collect();
    /// ```
    #[must_use]
    pub fn with_bag_limit(mut self, items: usize) -> Self {
        self.bag_limit.objects = items.max(1);
        self
    }

    /// Sets the number of bytes at which a bag is full, too. The default is 256 KiB; 0 counts as 1. Only objects with a
    /// known size count ([`Guard::retire_sized`], [`Guard::retire_box`]).
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new().with_bag_bytes(1 << 20); // a bag may hold back a mebibyte
    /// # drop(domain);
    /// ```
    #[must_use]
    pub fn with_bag_bytes(mut self, bytes: usize) -> Self {
        self.bag_limit.bytes = bytes.max(1);
        self
    }

    /// Sets a limit above which garbage is reported. When more than `objects` sealed objects wait for their grace
    /// period (since a reader is stuck or was preempted), `report` is called with the statistics. It is called again
    /// each time that the number has doubled. While the limit is exceeded, each thread that fills a bag yields the
    /// processor once, so that readers may end. No object is dropped and no thread blocks: RCU cannot reclaim while a
    /// reader is stuck, and can only report it.
    ///
    /// `report` runs in a thread that retires, inside its guard: it must not call [`synchronize`](Self::synchronize).
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// use std::sync::Arc;
    ///
    /// let most = Arc::new(AtomicUsize::new(0));
    /// let seen = most.clone();
    /// let domain = Domain::new().with_bag_limit(1).with_backlog_limit(10, move |stats| seen.store(stats.pending, Relaxed));
    /// let stuck = domain.pin();
    /// for number in 0..100 {
    ///     // SAFETY: nothing else refers to the object.
    ///     unsafe { domain.pin().retire_box(Box::into_raw(Box::new(number))) };
    /// }
    /// assert!(most.load(Relaxed) > 10);
    /// drop(stuck);
    /// ```
    #[must_use]
    pub fn with_backlog_limit(mut self, objects: usize, report: impl Fn(Stats) + Send + Sync + 'static) -> Self {
        self.backlog = Backlog::limited(objects, Box::new(report));
        self
    }

    /// Registers the domain for reclamation by a thread of the process. This is for a structure without a thread of its
    /// own that reclaims when the structure becomes idle. The process's thread serves all such domains. It reclaims the
    /// remaining objects some milliseconds later, and tries again a bounded number of times if readers prevent this. It
    /// runs reclaim functions and catches their panics. `owner` contains the domain. The reference to the owner is
    /// upgraded only for the time of a try. [`stop_tending`](Self::stop_tending) must be called before the owner is
    /// changed or dropped.
    #[cfg(not(loom))]
    #[must_use]
    pub fn tended_by(mut self, owner: Weak<dyn Owner>) -> Self {
        self.rest = Some(Rest::new(owner));
        self
    }

    /// Ends the registration by [`tended_by`](Self::tended_by). When the call returns, the process's thread has no
    /// reference to the owner, unless this thread itself is the caller.
    #[cfg(not(loom))]
    pub fn stop_tending(&self) {
        if let Some(rest) = &self.rest {
            rest.end();
            rest.wait();
        }
    }

    /// As `stop_tending`, but does not wait: for a structure that now has a thread of its own.
    #[cfg(not(loom))]
    pub fn leave_alone(&self) {
        if let Some(rest) = &self.rest {
            rest.end();
        }
    }

    /// Notes that an object was retired into an empty bag.
    #[inline]
    pub(super) fn note_garbage(&self) {
        #[cfg(not(loom))]
        if let Some(rest) = &self.rest {
            rest.note();
        }
    }

    /// Returns the flavour.
    ///
    /// ```
    /// use archipelago::platform::membarrier;
    /// use archipelago::sync::rcu::{Domain, Flavour};
    ///
    /// let expected = if membarrier::available() { Flavour::Membarrier } else { Flavour::Epoch };
    /// assert_eq!(Domain::new().flavour(), expected);
    /// ```
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Returns a reader for this thread, with which entering is cheaper than by [`pin`](Self::pin). Costs a few
    /// loads, without an atomic read-modify-write or a fence, and allocates nothing.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.enter();
    /// assert_eq!(domain.stats().active_readers, 1);
    /// drop(guard);
    /// assert_eq!(domain.stats().active_readers, 0);
    /// ```
    #[inline]
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self)
    }

    /// Returns a reader for quiescent-state-based reclamation (liburcu's flavour `qsbr`). The reader is always inside a
    /// guard, so that reading has no cost. It suits threads that call [`QuiescentReader::quiescent`] often. It works in
    /// a domain of any flavour, together with other readers.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reader = domain.quiescent_reader();
    /// for _ in 0..3 {
    ///     let _guard = reader.enter();
    ///     // ... an operation ...
    ///     reader.quiescent();
    /// }
    /// ```
    pub fn quiescent_reader(&self) -> QuiescentReader<'_> {
        QuiescentReader::new(self)
    }

    /// Begins a critical section that belongs to no thread: its guard may be sent, shared, and dropped by any thread.
    /// A thread that has such a guard and calls [`synchronize`](Self::synchronize) waits until another thread ends the
    /// guard. Beginning and ending take some ten nanoseconds and a lock that all such guards of the domain share.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let guard = domain.pin_owned();
    /// std::thread::scope(|s| _ = s.spawn(|| assert_eq!(domain.stats().active_readers, 1)));
    /// drop(guard);
    /// ```
    pub fn pin_owned(&self) -> OwnedGuard<'_> {
        OwnedGuard::new(self)
    }

    /// Begins a critical section of this thread, without a [`Reader`].
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let _guard = domain.pin();
    /// // What is reachable now is not freed while the guard lives.
    /// ```
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        Guard::begin(self, self.records.own())
    }

    /// Waits until every guard that is alive now has ended. Then no other thread can reach objects that this thread
    /// unlinked before the call.
    ///
    /// If the calling thread has an [`OwnedGuard`] or a [`Held`](super::Held), the call waits until another thread ends
    /// it, or for ever. In this case the call does not panic, since the domain does not know which thread has an owned
    /// guard or a `Held` now. [`may_wait`](Self::may_wait) assumes the thread that began, renewed or continued its
    /// section last.
    ///
    /// # Panics
    /// If the calling thread is inside a guard of this domain that cannot be sent to another thread ([`Guard`],
    /// [`QuiescentReader`]), since it would wait for itself.
    ///
    /// ```
    /// use archipelago::platform::atomic::{AtomicPtr, Ordering};
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
    /// let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
    /// domain.synchronize();
    /// // SAFETY: unlinked, and no guard that may have seen it is left.
    /// assert_eq!(*unsafe { Box::from_raw(old) }, 1);
    /// # drop(unsafe { Box::from_raw(shared.into_inner()) });
    /// ```
    pub fn synchronize(&self) {
        assert!(
            !self.records.of_this_thread().any(Record::is_active_here),
            "synchronize() inside a guard of the same domain would wait for itself: drop the guard first"
        );
        // The epoch at which an object would be ripe if this thread retired it now, inside a guard.
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

    /// Reclaims as much as possible: seals every thread's bag, including those of finished threads, tries to advance
    /// the epoch, and runs the reclaim functions of ripe bags. If no guard is alive, it reclaims everything that was
    /// retired before. Never waits for a reader.
    ///
    /// Within a reclaim function, or in [`Guard::hold_back`], the call only seals. In a reclaim function, the caller of
    /// the function continues to reclaim.
    ///
    /// # Panics
    /// With the first panic of a reclaim function, after all ripe bags have been reclaimed.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let object = Box::into_raw(Box::new(7));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire_box(object) };
    /// domain.collect();
    /// assert_eq!(domain.stats().pending, 0);
    /// ```
    pub fn collect(&self) {
        let guard = self.pin();
        let epoch = self.epoch_in(&guard);
        for record in self.records.iter() {
            self.seal(record, epoch);
        }
        let me = guard.record();
        drop(guard);
        let Some(_reclaiming) = me.begin_reclaiming() else { return };
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

    /// Reclaims everything at once. No thread can be reading, since the call has exclusive access. Dropping the domain
    /// does the same.
    ///
    /// # Panics
    /// With the first panic of a reclaim function, after all have run.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let mut domain = Domain::new();
    /// let object = Box::into_raw(Box::new(7));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire_box(object) };
    /// domain.drain_all();
    /// assert_eq!(domain.stats().pending, 0);
    /// ```
    pub fn drain_all(&mut self) {
        self.drain().resume();
    }

    fn drain(&mut self) -> FirstPanic {
        let mut panic = FirstPanic::default();
        for record in self.records.iter() {
            self.seal(record, 0);
            // Because of `&mut self`, no guard is alive under which a thread could still read. So every bag is ripe.
            self.reclaim_ripe(record, u64::MAX, &mut panic);
        }
        panic
    }

    /// Returns the domain's statistics. Takes every record's lock in turn, so use it for reports only.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let object = Box::into_raw(Box::new(7_u64));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire_box(object) };
    /// assert_eq!((domain.stats().pending, domain.stats().pending_bytes), (1, 8));
    /// ```
    pub fn stats(&self) -> Stats {
        let epoch = self.epoch();
        let lags = || self.records.iter().filter_map(|record| record.active_epoch()).map(|at| epoch.saturating_sub(at));
        let pending: Size = self.records.iter().map(|record| record.garbage().pending()).sum();
        Stats {
            pending: pending.objects,
            pending_bytes: pending.bytes,
            epoch,
            active_readers: lags().count(),
            oldest_reader_lag: lags().max().unwrap_or(0),
            refused_advances: self.clock.refused.load(Ordering::Relaxed),
        }
    }

    /// Returns the bytes of objects in sealed bags, as far as their sizes are known. Costs one load. The result
    /// includes neither threads' open bags nor concurrent changes.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// assert_eq!(Domain::new().sealed_bytes(), 0);
    /// ```
    #[inline]
    pub fn sealed_bytes(&self) -> usize {
        self.backlog.bytes()
    }

    /// Returns whether this thread may wait until other threads' guards end. It may if it is inside no guard of this
    /// domain (except quiescent readers), in no reclaim function, and not in [`Guard::hold_back`]. Then no other thread
    /// can wait for this thread in turn. An [`OwnedGuard`] counts as a guard of the thread that began or last renewed
    /// it. O(threads).
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let guard = domain.pin();
    /// assert!(!domain.may_wait()); // for its own guard it would wait for ever
    /// drop(guard);
    /// assert!(domain.may_wait());
    /// ```
    pub fn may_wait(&self) -> bool {
        !self.records.own().is_busy() && !self.records.iter().any(Record::is_owned_here)
    }

    #[inline]
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    #[inline]
    pub(super) fn bag_limit(&self) -> Size {
        self.bag_limit
    }

    /// Returns the epoch. Acquire: see the proof in the parent module.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.entry().epoch()
    }

    /// Returns the entry that a reader publishes when it enters, which contains the epoch. Acquire, as above.
    #[inline]
    pub(super) fn entry(&self) -> Entry {
        Entry::from_word(self.clock.entry.load(Ordering::Acquire))
    }

    /// Returns an epoch to seal a bag with. The proof requires that it is read inside a guard, after all objects of the
    /// bag were retired.
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

    /// Advances the epoch if no reader is behind. Returns the epoch after the attempt.
    pub(super) fn try_advance(&self) -> u64 {
        let entry = self.entry();
        let epoch = entry.epoch();
        // If a reader is visibly behind, the expensive barrier is skipped. Only the check after the barrier proves that
        // no reader is behind.
        let hopeless = self.flavour == Flavour::Membarrier && !self.readers_are_at(epoch);
        if hopeless || {
            self.collector_barrier();
            !self.readers_are_at(epoch)
        } {
            self.clock.refused.fetch_add(1, Ordering::Relaxed);
            return epoch;
        }
        self.clock.refused.store(0, Ordering::Relaxed);
        let (old, new) = (entry.word(), entry.next().word());
        match self.clock.entry.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => epoch + 1,
            Err(now) => Entry::from_word(now).epoch(),
        }
    }

    /// Called by the owner of a full bag: seals the bag, tries to advance the epoch, and reclaims the owner's ripe
    /// bags.
    #[cold]
    pub(super) fn seal_and_reclaim(&self, guard: &Guard<'_>) {
        let epoch = self.epoch_in(guard);
        let me = guard.record();
        self.seal(me, epoch);
        me.note_filled_bag(true);
        let before = me.garbage().visit(epoch);
        if self.backlog.is_over_limit() {
            self.backlog.press(|| self.stats());
        }
        let Some(_reclaiming) = me.begin_reclaiming() else { return };
        // If other threads have advanced the epoch since this thread's last call, this thread needs no barrier of its
        // own.
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

    /// Reclaims for threads that have finished or no longer retire anything. `epoch` was read inside a guard.
    fn reclaim_for_the_idle(&self, epoch: u64, panic: &mut FirstPanic) {
        for record in self.records.iter() {
            let idle = |garbage: &Garbage| garbage.last_visit() + IDLE_EPOCHS <= epoch;
            if idle(&record.garbage()) {
                self.seal(record, epoch);
                self.reclaim_ripe(record, epoch, panic);
            }
        }
    }

    /// Seals the record's open bag with `epoch`, which was read inside a guard, after everything in it was retired.
    fn seal(&self, record: &Record, epoch: u64) {
        let sealed = record.garbage().seal(epoch);
        self.backlog.add(sealed);
    }

    /// Reclaims the record's bags that are ripe at `epoch`, which the domain has reached.
    pub(super) fn reclaim_ripe(&self, record: &Record, epoch: u64, panic: &mut FirstPanic) {
        loop {
            // A separate statement releases the lock before reclaim functions run.
            let ripe = record.garbage().take_ripe(epoch);
            let Some(mut bag) = ripe else { return };
            self.backlog.subtract(bag.size());
            // SAFETY: `take_ripe` gave a bag whose grace period is over, by the proof in the parent module.
            unsafe { garbage::reclaim(&mut bag, panic) };
            record.garbage().put_spare(bag);
        }
    }
}

/// Prints the result of [`stats`](Self::stats), so it takes every record's lock in turn.
impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("flavour", &self.flavour).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.drain().resume();
    }
}
