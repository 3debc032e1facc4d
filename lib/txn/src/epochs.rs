//! The clock of epochs, the open snapshots, and the moments of running transactions. (`kept.rs`: the versions that are
//! kept for them.)
//!
//! In schemes with one version per row, snapshots advance the clock, and commits only load it. So the clock's cache
//! line changes only when a snapshot is opened or the log ends an epoch. A snapshot takes the number `s` from the clock
//! and adds one. A commit that loads `e` from the clock sets `begin = e` in its versions. The snapshot sees versions
//! with `begin <= s`.
//!
//! # Why a snapshot is one moment, in the order of serialization
//! A commit C latches all that it writes, passes a SeqCst fence, and loads the clock. Then it validates its reads,
//! installs its versions and unlatches. A snapshot adds to the clock, passes a SeqCst fence, and reads records whose
//! latches are free (it waits until they are).
//!
//! 1. *If C loaded `e <= s`, all of C is seen.* C's load comes before the addition in the clock's order, so C's fence
//!    comes before the snapshot's. So the snapshot sees what C installed, or it sees C's latches and waits until C has
//!    installed. Then it finds `begin = e`.
//! 2. *If C loaded `e > s`, nothing of C is seen*, since `begin > s`.
//! 3. *If C1 comes before C2 in the order of serialization, then `e1 <= e2`.* If C2 overwrote or read a version that C1
//!    wrote, C1's load of the clock happens before C2's. If C2 overwrote a version that C1 read: C1 loaded the clock,
//!    passed a fence (`Epochs::enter`), and then found the record not latched by C2. C2 latched it, passed its fence
//!    and loaded the clock. If C2 had read an older value from the clock than C1, C2's fence would precede C1's, and C1
//!    would have found the latch. (With locks, C1 releases the record after its load. TicToc: see `scheme/tictoc.rs`.)
//!
//! # Many versions
//! Multi-version schemes draw stamps from the clock instead of loading it, and each of their transactions reads as of
//! one moment of the clock. The clock may be the processors' clocks. `archipelago_sync::clock` describes what such a
//! clock guarantees, and the schemes describe where they wait. A snapshot increments `open` before it takes its moment.
//! A thread that prunes (unlinks versions that no reader needs) first gets its floor, and then loads `open`. The floor
//! is a moment below which no later moment will be taken. So if the thread misses a snapshot, the snapshot's moment is
//! not below the floor, and the versions that such moments see are kept.

use std::collections::BTreeMap;

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread;
use archipelago_sync::clock::{Clock, ClockKind};

#[cfg(all(test, loom))]
mod model;

/// The properties of a scheme on which its epochs depend. All schemes implement it (`kept.rs`). The models do, too, so
/// that loom builds this file without records.
pub trait Keeps {
    /// `true` for multi-version schemes.
    const MANY: bool;

    /// A record with a version that is kept for a snapshot.
    type Kept: Send;
}

/// The open snapshots, each with its list of records.
pub(crate) type Open<S> = BTreeMap<u64, Vec<<S as Keeps>::Kept>>;

pub struct Epochs<S: Keeps> {
    /// The clock is logical (a counter), except in a multi-version scheme whose database chose the processors' clocks.
    clock: Clock,
    /// The number of snapshots in `table`, and of those that are about to be added.
    open: CachePadded<AtomicUsize>,
    table: Mutex<Open<S>>,
    /// For each thread slot, in multi-version schemes: the moment that the thread's transaction reads.
    running: PerThread<CachePadded<Running>>,
    /// No transaction reads an earlier moment than this one, now or later.
    horizon: CachePadded<AtomicU64>,
}

/// The moments of a thread's transactions.
#[derive(Default)]
struct Running {
    /// The moment that the running transaction reads, or 0 if none runs. With the flag [`FROM`] it is a lower bound of
    /// that moment.
    moment: AtomicU64,
    /// The moment of the thread's last transaction.
    last: AtomicU64,
}

const FROM: u64 = 1 << 63;

/// A stamp must not reach the highest bits of a word, which encode the state of a set (`mvrlu.rs`). A processor's clock
/// that is above this value already could reach these bits within some years, so it is not used.
const LATEST: u64 = 1 << 59;

/// The moments that running and future transactions read.
pub(crate) struct Needs {
    /// This moment and all later ones are needed.
    floor: u64,
    /// Earlier moments that are needed, ascending.
    moments: Vec<u64>,
}

impl Needs {
    /// Returns the needs of readers of this moment and of all later ones.
    pub(crate) fn above(floor: u64) -> Self {
        Self { floor, moments: Vec::new() }
    }

    pub(crate) fn lowest(&self) -> u64 {
        self.moments.first().map_or(self.floor, |&first| first.min(self.floor))
    }

    /// Returns whether one of the moments is at or after `begin` and before `next`.
    pub(crate) fn lie_in(&self, begin: u64, next: u64) -> bool {
        let first = self.moments.partition_point(|&moment| moment < begin);
        next > self.floor || self.moments.get(first).is_some_and(|&moment| moment < next)
    }
}

impl<S: Keeps> Epochs<S> {
    pub(crate) fn new() -> Self {
        let open = CachePadded::new(AtomicUsize::new(0));
        Self {
            clock: Clock::new(ClockKind::Logical),
            open,
            table: Mutex::new(BTreeMap::new()),
            running: PerThread::new(),
            // Only in multi-version schemes do running transactions need old versions.
            horizon: CachePadded::new(AtomicU64::new(if S::MANY { 0 } else { u64::MAX })),
        }
    }

    /// Returns the epoch of a commit that has latched its records (in multi-version schemes: its stamp).
    ///
    /// The first fence comes between the latches and the load of the clock, as claims 1 and 3 of the module's text
    /// require, and between the commit's announcement and the load, as `announced.rs` requires. The second fence comes
    /// between the load and the validation of the commit's reads, as claim 3 requires. (Stamps from a counter need
    /// neither fence: they are drawn by a read-modify-write, so of two threads that draw, or cut, the second sees what
    /// the first did before. The fences are for the processors' clocks.)
    #[inline]
    pub(crate) fn enter(&self) -> u64 {
        fence(Ordering::SeqCst);
        let epoch = if S::MANY { self.draw() } else { self.now() };
        self.settle(epoch);
        fence(Ordering::SeqCst);
        epoch
    }

    /// Returns the clock's value. Acquire: pairs with the Release of `open`'s addition, so that a commit sees the
    /// earlier snapshots in the table.
    pub(crate) fn now(&self) -> u64 {
        self.clock.begin()
    }

    /// Loads the clock before all later reads of the caller. The fence pairs with the fences of commits: see
    /// `scheme/tictoc.rs`.
    pub(crate) fn settled_now(&self) -> u64 {
        let now = self.now();
        fence(Ordering::SeqCst);
        now
    }

    /// Starts the clock at an epoch above those of all restored commits. No transaction has begun yet.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn begin_at(&self, epoch: u64) {
        self.clock.go_on_at(epoch);
    }

    /// Orders commits and snapshots by another clock. No transaction has begun yet.
    pub(crate) fn set_clock(&mut self, kind: ClockKind) {
        let clock = Clock::new(kind);
        if clock.begin() < LATEST {
            self.clock = clock;
        }
    }

    pub(crate) fn clock(&self) -> ClockKind {
        self.clock.kind()
    }

    /// Ends the clock's epoch and returns it. Commits that pass their fence from now on get later epochs.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn advance(&self) -> u64 {
        let epoch = self.clock.cut();
        // Pairs with the fence that a commit passes after it has announced itself: see `announced.rs`.
        fence(Ordering::SeqCst);
        epoch
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Open<S>> {
        // No users' code runs under the lock.
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Opens a snapshot.
    pub(crate) fn open(&self) -> u64 {
        let mut table = self.table();
        self.open.fetch_add(1, Ordering::Relaxed);
        // The clocks of two processors may show equal values.
        let mut moments = core::iter::repeat_with(|| self.clock.cut());
        let snapshot = moments.find(|moment| !table.contains_key(moment)).expect("they go on");
        table.insert(snapshot, Vec::new());
        drop(table);
        // Pairs with the fences of commits: see the module's text.
        fence(Ordering::SeqCst);
        snapshot
    }

    /// Closes a snapshot and returns its list. Each record of the list has a version that was kept for the snapshot, so
    /// the record is not unlinked from its index before the caller has pruned it.
    pub(crate) fn close(&self, snapshot: u64) -> Vec<S::Kept> {
        let kept = self.table().remove(&snapshot);
        self.open.fetch_sub(1, Ordering::Relaxed);
        kept.unwrap_or_default()
    }

    /// Returns the number of open snapshots.
    pub(crate) fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn running(&self) -> &Running {
        self.running.get_or(thread::slot().index, CachePadded::default)
    }

    /// Begins a transaction and returns the moment that it reads: it sees all commits with stamps up to this moment.
    /// The caller is in an RCU section.
    ///
    /// `needs` gets a floor from the clock, passes a SeqCst fence and loads the threads' cells. If `needs` misses this
    /// thread's store, the floor is not above the moment that this thread gets after the barrier. Before this thread
    /// stores its moment, its cell has the moment of the thread's last transaction, which is a lower bound. So this
    /// call loads the clock, which every commit changes, only once.
    pub(crate) fn begin(&self) -> u64 {
        let running = self.running();
        // Release, here and below: the reads of the thread's last transaction precede the store.
        running.moment.store(running.last.load(Ordering::Relaxed) | FROM, Ordering::Release);
        self.clock.barrier();
        let moment = self.now();
        running.last.store(moment, Ordering::Relaxed);
        running.moment.store(moment, Ordering::Release);
        moment
    }

    pub(crate) fn end(&self) {
        self.running().moment.store(0, Ordering::Release);
    }

    /// Draws the stamp of a commit. It is above the moments of all readers that have missed the commit's earlier
    /// stores.
    pub(crate) fn draw(&self) -> u64 {
        self.clock.stamp()
    }

    /// Waits until all transactions that begin later have moments at or above `stamp`.
    pub(crate) fn settle(&self, stamp: u64) {
        self.clock.settle(stamp);
    }

    /// Returns whether a reader of `moment` sees a version with this stamp. If so, all transactions that begin after
    /// the return see it, too.
    pub(crate) fn shows(&self, stamp: u64, moment: u64) -> bool {
        let shows = stamp <= moment;
        if shows {
            self.clock.observe(stamp, moment);
        }
        shows
    }

    pub(crate) fn horizon(&self) -> u64 {
        self.horizon.load(Ordering::Acquire)
    }

    /// Returns the moments that running transactions need.
    pub(crate) fn needs(&self) -> Needs {
        let mut needs = Needs::above(self.clock.floor());
        fence(Ordering::SeqCst);
        for running in self.running.iter() {
            match running.moment.load(Ordering::Acquire) {
                0 => {}
                moment if moment & FROM != 0 => needs.floor = needs.floor.min(moment & !FROM),
                moment => needs.moments.push(moment),
            }
        }
        needs.moments.sort_unstable();
        self.horizon.fetch_max(needs.lowest(), Ordering::AcqRel);
        needs
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use archipelago_platform::sync::Arc;

    use super::*;
    use crate::{Database, Hekaton, MvRlu, Row, Scheme, on};

    #[derive(Clone)]
    struct Item {
        _alive: Arc<()>,
    }

    impl Row for Item {
        type Key = u64;
        type Map = on::Art;
        type Indexes = ();
        fn key(&self) -> u64 {
            0
        }
    }

    /// When a removal's grace period ends, a thread is beginning its first transaction, and has not loaded the clock
    /// yet.
    fn removals_beside_a_beginning<S: Scheme>() {
        let (db, alive) = (Database::<S>::new(), Arc::new(()));
        let table = db.table::<Item>();
        db.transact(|tx| tx.insert(&table, Item { _alive: alive.clone() })).unwrap();
        let beginning = thread::scope(|scope| scope.spawn(|| &db.shared.epochs().running().moment).join().unwrap());
        beginning.store(FROM, Ordering::Release);
        db.transact(|tx| tx.remove(&table, &0).map(drop)).unwrap();
        (0..6).for_each(|_| db.collect());
        beginning.store(0, Ordering::Release);
        (0..6).for_each(|_| db.collect());
        assert_eq!((Arc::strong_count(&alive), db.stats().garbage), (1, 0));
        assert!(table.core(&db.shared).rows.find(&0).is_none(), "the record is unlinked");
    }

    #[test]
    fn what_is_kept_for_a_beginning_is_freed_later() {
        removals_beside_a_beginning::<Hekaton>();
        removals_beside_a_beginning::<MvRlu>();
    }
}
