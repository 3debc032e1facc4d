//! The domain: the epoch, when it advances, and who reclaims what.

use core::fmt;

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::pad::CachePadded;
#[cfg(not(loom))]
use archipelago_platform::sync::{Arc, Weak};
use archipelago_platform::{membarrier, thread};

use super::backlog::Backlog;
use super::garbage::{FirstPanic, GRACE, Garbage, Size};
use super::owned::OwnedGuard;
use super::quiescent::QuiescentReader;
use super::reader::{Guard, Reader};
use super::record::{Entry, Record};
use super::records::Records;
#[cfg(not(loom))]
use super::rest::{Owner, Rest};
use crate::backoff::Backoff;

/// Objects per bag. With fences an advance costs a walk over the records; membarrier interrupts the other running
/// threads too, 3 to 10 us in all, which a larger bag spreads to some ten nanoseconds per object.
const EPOCH_BAG: usize = 64;
const MEMBARRIER_BAG: usize = 256;

/// Bytes per bag, where retirers tell the sizes of their objects: large ones are not held back by the hundred. As an
/// object of a kilobyte takes some hundred nanoseconds to make, what an advance costs is small beside it.
const BAG_BYTES: usize = 256 << 10;

/// A thread that has not sealed a bag for this many epochs is idle or finished: others reclaim for it, and they look
/// for such threads whenever the epoch is a multiple of this.
const IDLE_EPOCHS: u64 = 8;

/// How readers and collectors are ordered. The guarantees are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// A `SeqCst` fence each time a reader enters. Works everywhere.
    Epoch,
    /// Readers enter without a fence; each attempt to advance the epoch interrupts the process's running threads for a
    /// microsecond or so (`membarrier`). Linux only.
    Membarrier,
}

/// What a [`Domain`] holds at the moment; exact only while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Objects retired and not yet handed to their reclaim functions.
    pub pending: usize,
    /// The memory that these take, in bytes, as far as their retirers said.
    pub pending_bytes: usize,
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

/// The words that change when the epoch advances, on a line of their own: readers look at the fields beside it often.
struct Clock {
    /// The word of the present epoch's [`Entry`].
    entry: AtomicU64,
    /// See [`Stats::refused_advances`].
    refused: AtomicU64,
}

impl Domain {
    /// A domain of the flavour with the cheapest readers that this machine has.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// assert_eq!(Domain::new().stats().active_readers, 0);
    /// ```
    pub fn new() -> Self {
        Self::with_flavour(Flavour::Membarrier)
    }

    /// A domain of this flavour; of [`Flavour::Epoch`] where the machine has no membarrier.
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

    /// The same domain with bags of `items` objects (64 if not set, 256 with membarrier; 0 counts as 1): each reader, and
    /// each thread that pins, reclaims in batches of that many and holds about four batches back.
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

    /// The same domain with bags that are full as well when their objects take `bytes` (256 KiB if not set), counting
    /// those whose sizes were told ([`Guard::retire_sized`], [`Guard::retire_box`]).
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

    /// The same domain with a limit to its garbage: when more than `objects` sealed objects wait for their grace period
    /// (a reader is stuck, or has been preempted), `report` is called with the state of things, again each time that
    /// their number has doubled, and each thread that fills a bag gives the processor away once, so that readers may
    /// catch up. Nothing is dropped and no thread blocks: RCU cannot reclaim under a stuck reader, it can only say so.
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

    /// The same domain, of a structure that has no thread of its own to reclaim when nothing is done with it any more: a
    /// thread of the process, one for all such domains, reclaims what is left, some milliseconds later, and looks again a
    /// bounded number of times if readers are in the way. It runs reclaim functions, whose panics end there. `owner` is what
    /// the domain lies in; it is upgraded for the time of a look only, and before it is changed or dropped
    /// [`stop_tending`](Self::stop_tending) must be called.
    #[cfg(not(loom))]
    #[must_use]
    pub fn tended_by(mut self, owner: Weak<dyn Owner>) -> Self {
        self.rest = Some(Rest::new(owner));
        self
    }

    /// Ends what [`tended_by`](Self::tended_by) began: when this returns, the process's thread has no reference to the owner,
    /// unless it is what called.
    #[cfg(not(loom))]
    pub fn stop_tending(&self) {
        if let Some(rest) = &self.rest {
            rest.end();
            rest.wait();
        }
    }

    /// The same, without waiting: for a structure that has got a thread of its own.
    #[cfg(not(loom))]
    pub fn leave_alone(&self) {
        if let Some(rest) = &self.rest {
            rest.end();
        }
    }

    /// Something was retired into an empty bag.
    #[inline]
    pub(super) fn note_garbage(&self) {
        #[cfg(not(loom))]
        if let Some(rest) = &self.rest {
            rest.note();
        }
    }

    /// The flavour in use.
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

    /// A way in for this thread, cheaper to enter by than [`pin`](Self::pin). Costs a few loads, contains no locked
    /// instruction and no fence, and leaves nothing behind.
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

    /// A reader of the `qsbr` flavour: inside a guard at all times, and free of cost there, for threads that call
    /// [`QuiescentReader::quiescent`] often. Works in a domain of any flavour, beside other readers.
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

    /// Begins a critical section that belongs to no thread: it may be sent, shared and ended anywhere. Costs some ten
    /// nanoseconds and a lock that all such guards of the domain share, while they begin and end.
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

    /// Begins a critical section of this thread, without a [`Reader`] at hand.
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

    /// Waits until every guard that is alive now has ended. What this thread unlinked before the call is then its own.
    ///
    /// # Panics
    /// If the calling thread is inside a guard of this domain: it would wait for itself.
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

    /// Reclaims everything, at once: no thread can be reading. Dropping the domain does the same.
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
            // `&mut self`: no guard is alive that a thread could still read under, so every bag is ripe.
            self.reclaim_ripe(record, u64::MAX, &mut panic);
        }
        panic
    }

    /// What the domain holds now. Takes every record's lock in turn: for reports, not for hot paths.
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

    /// Bytes of what waits in sealed bags, as far as retirers told sizes. One load: exact but for what each thread has in
    /// its open bag, and for what others do meanwhile.
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

    /// Whether this thread may wait for others' guards to end: it is inside no guard of this domain (quiescent readers
    /// aside) and in no reclaim function, for which those others might wait in turn. An [`OwnedGuard`] counts as inside
    /// for the thread that began or last renewed it. O(threads).
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

    /// The epoch. Acquire, see the proof in the parent module.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.entry().epoch()
    }

    /// What a reader that enters publishes: the epoch. Acquire, as above.
    #[inline]
    pub(super) fn entry(&self) -> Entry {
        Entry::from_word(self.clock.entry.load(Ordering::Acquire))
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
    pub(super) fn try_advance(&self) -> u64 {
        let entry = self.entry();
        let epoch = entry.epoch();
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
        let (old, new) = (entry.word(), entry.next().word());
        match self.clock.entry.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => epoch + 1,
            Err(now) => Entry::from_word(now).epoch(),
        }
    }

    /// The owner's turn, when its bag is full: seals it, sees to it that the epoch moves, reclaims its own ripe bags.
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

    /// Runs the record's bags that are ripe at `epoch`, an epoch that was reached.
    pub(super) fn reclaim_ripe(&self, record: &Record, epoch: u64, panic: &mut FirstPanic) {
        loop {
            // Its own statement, so that the lock is released before reclaim functions run.
            let ripe = record.garbage().take_ripe(epoch);
            let Some(mut bag) = ripe else { return };
            self.backlog.subtract(bag.size());
            // SAFETY: `take_ripe` gave a bag whose grace period is over, by the proof in the parent module.
            unsafe { panic.reclaim(&mut bag) };
            record.garbage().put_spare(bag);
        }
    }
}

/// With what [`stats`](Self::stats) has, so it takes every record's lock in turn.
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
        let panic = self.drain();
        // A second panic during unwinding would abort the process.
        if !thread::panicking() {
            panic.resume();
        }
    }
}
