//! A scan of all sections, its conclusions about versions, and the pruning of an object's chain.
//!
//! *Terms.* A *section* is a snapshot or a transaction in progress; it sees the objects as of its *local time*. A *cut*
//! is the local time of a section that a scan has found. The section is *exact* if it has published its time, and not
//! only a lower bound of it. A *walk* is a thread's traversal of a chain, which the thread announces in its record. The
//! *mark* is the newest copy of a retired object.
//!
//! *Mutual exclusion.* One thread at a time prunes a chain: the thread tries one of a few locks, chosen by the object's
//! address, and skips the chain if another thread has the lock. It unlinks the copies that no section chooses, also
//! those in other threads' logs, and stores [`PRUNED`] in them. A later pass over a copy's log frees the copy when all
//! walks that were in progress have ended. So each chain is walked once for all logs.
//!
//! *Why the pruner meets no freed copy.* The pruner is in a section at L and in a walk, and walks down only to the copy
//! that the oldest exact section c of its own scan chooses. A copy n above this one is superseded after c.
//! - No copy that c chooses was ever pruned: each earlier pruner saw c as a cut, or saw the bound that c had published,
//!   or c began at or above the floor of its scan. So the first copy that is stamped at or before c is the one that c
//!   chooses, and this copy and all copies above it are superseded after c.
//! - A collector detaches n only at a horizon above c, so after c has ended. Then it draws a tick d, and it frees n
//!   when the horizon reaches d. If L >= d, the pruner would have read the clock after the draw, hence after the end of
//!   c, and c would not be in the pruner's later scan. So L < d, and n is not freed before the pruner's section ends.
//! - Copies that another pruner has unlinked are out of the chain when this pruner gets the lock, and are not freed
//!   during its walk.
//! - A copy at the head of the chain that is not visible may be unlinked by its holder. It is freed when the pruner's
//!   walk has ended (rule 6 in `log`). Its `older` is the newest visible copy, which this pruner does not unlink: if
//!   that copy is superseded meanwhile, the stamp is above the floor of the pruner's scan.
//!
//! *Why the object is not freed.* The version that caused the pruning is not `PRUNED` while the pruner holds the lock.
//! So the version is still in the chain, below the mark if there is one. By rule 5 in `log`, the object is not freed
//! while a version is below its mark. If the pruner unlinks the last copy below the mark, the mark's log waits for the
//! pruner's walk.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Arc;

use core::ptr::NonNull;

use super::grown::Grown;
use super::points;
use super::record::Record;
use super::version::{Copied, Head, PRUNED, follow};
use crate::crowd::processors;

/// The sections that a scan has found.
pub(super) struct Cuts {
    /// The number of the scan: see [`Horizon::scans`](super::horizon::Horizon::scans).
    pub(super) number: u64,
    /// The domain's horizon, brought up to date.
    pub(super) horizon: u64,
    /// The local times of the sections, or lower bounds of them, ascending.
    times: Vec<u64>,
    /// The time of the oldest section whose time is known exactly. The caller's own section is such a section.
    oldest: u64,
    /// Every section that is not among `times` has a local time at or above this.
    bound: u64,
    is_exact: bool,
    /// The walks in progress.
    pub(super) walks: Vec<(Arc<Record>, u64)>,
}

impl Cuts {
    /// Scans the records. The scan's barrier comes after the read of the clock's `floor`, and after the draw of the
    /// scan's `number`.
    pub(super) fn of(records: &Grown<Arc<Record>>, floor: u64, number: u64) -> Self {
        let (mut times, mut walks) = (Vec::new(), Vec::new());
        let (mut oldest, mut bound) = (u64::MAX, floor);
        for record in records.iter() {
            walks.extend(record.walk_in_progress().map(|walk| (record.clone(), walk)));
            if let Some(section) = record.section() {
                times.push(section.local);
                match section.is_exact {
                    true => oldest = oldest.min(section.local),
                    false => bound = bound.min(section.local),
                }
            }
        }
        times.sort_unstable();
        let horizon = times.first().map_or(floor, |first| floor.min(*first));
        Self { number, horizon, times, oldest, bound, is_exact: bound == floor, walks }
    }

    /// Returns whether every section below the clock's floor had published its exact time.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn sections(&self) -> usize {
        self.times.len()
    }

    /// Returns whether no present or future section has a time at or after `from` and before `to`, and some section has
    /// a time before `from`.
    pub(super) fn spare(&self, from: u64, to: u64) -> bool {
        let before = |time| self.times.partition_point(|cut| *cut < time);
        self.oldest < from && to <= self.bound && before(from) == before(to)
    }
}

/// Bounds of the number of locks for chains.
const FEWEST_LOCKS: usize = 64;
const MOST_LOCKS: usize = 1024;

/// Locks for chains: about as many as processors, each in a cache line of its own. With hundreds of writers that share
/// few lines of locks, pruning takes longer than the writers need for their updates, and their logs grow.
pub(super) struct Pruner {
    /// Their number is a power of two.
    busy: Box<[CachePadded<AtomicBool>]>,
}

impl Pruner {
    pub(super) fn new() -> Self {
        // Loom has no limit of processors, and finds more with one lock.
        let locks = if cfg!(loom) { 1 } else { processors().next_power_of_two().clamp(FEWEST_LOCKS, MOST_LOCKS) };
        Self { busy: (0..locks).map(|_| CachePadded::new(AtomicBool::new(false))).collect() }
    }

    /// Prunes the chain of `master`. Does nothing if `version`, which is or was in the chain, has already been pruned,
    /// or if another thread is pruning the chain. Returns whether `version` is pruned at the end.
    ///
    /// # Safety
    /// The caller is in a section in which it made `cuts`, owns `me`, and has the log of `version`. No section of
    /// `cuts` chooses the version. `barrier` is the reader's half of the scans' barrier.
    pub(super) unsafe fn prune(
        &self,
        me: &Record,
        barrier: impl FnOnce(),
        master: NonNull<Head>,
        version: &Copied,
        cuts: &Cuts,
    ) -> bool {
        let busy = &self.busy[stripe(master) & (self.busy.len() - 1)];
        // Acquire: pairs with the Release below. So the thread sees the chain as the last pruner has left it, and
        // `PRUNED` in the copies that the last pruner unlinked.
        if busy.load(Ordering::Relaxed) || busy.swap(true, Ordering::Acquire) {
            return is_pruned(version);
        }
        if !is_pruned(version) {
            // The walk's barrier is for an invisible copy at the chain's head. If its holder unlinks this copy
            // meanwhile, a scan precedes the copy's freeing, and the scan finds this walk. The other copies would need
            // no barrier. A thread that frees a copy unlinked here has seen `PRUNED`, so it sees the walk, too. The
            // section and the lock keep the copies that were in the chain before.
            // SAFETY: the caller's promise; this thread has the lock, and is in the walk below.
            let unlink = || unsafe { unlink(master, cuts) };
            me.walk(barrier, unlink);
        }
        busy.store(false, Ordering::Release);
        is_pruned(version)
    }
}

/// Returns a number by which an object's lock is chosen. Objects are boxes, so the lowest bits of their addresses are
/// mostly equal, and are left out.
fn stripe(master: NonNull<Head>) -> usize {
    let address = master.addr().get();
    address >> 4 ^ address >> 10
}

pub(super) fn is_pruned(version: &Copied) -> bool {
    // Acquire: pairs with the Release in `unlink`, so a version that is found pruned is out of its chain.
    version.superseded.load(Ordering::Acquire) == PRUNED
}

/// Unlinks the copies of a chain that no section chooses.
///
/// # Safety
/// As for [`Pruner::prune`]. In addition, the caller has the lock and is in a walk.
unsafe fn unlink(master: NonNull<Head>, cuts: &Cuts) {
    // SAFETY: the object is alive, and so are the copies down to the one that `cuts.oldest` chooses; see the top of
    // this file.
    let below = |word: *mut Copied| unsafe { follow(word) };
    // SAFETY: as above.
    let mut above = below(unsafe { master.as_ref() }.newest.load(Ordering::Acquire));
    while let Some(here) = above.filter(|here| here.stamp.load(Ordering::Acquire) > cuts.oldest) {
        let first = here.older.load(Ordering::Acquire);
        let mut next = first;
        while let Some(spared) = below(next).filter(|copy| is_spared(copy, cuts)) {
            next = spared.older.load(Ordering::Acquire);
        }
        if next != first {
            point(points::PRUNING);
            // Release, as the store of the previous value.
            here.older.store(next, Ordering::Release);
            let mut out = first;
            while out != next {
                let copy = below(out).expect("a copy that was unlinked");
                out = copy.older.load(Ordering::Relaxed);
                // Release: pairs with `is_pruned`. After this store the owner may free the copy as soon as this walk
                // has ended.
                copy.superseded.store(PRUNED, Ordering::Release);
            }
        }
        above = below(next);
    }
}

/// Returns whether the copy may be unlinked: see [`Cuts::spare`]. A copy that is held, or the newest, is not
/// superseded: its word is above all times, so the result is false.
fn is_spared(copy: &Copied, cuts: &Cuts) -> bool {
    let to = copy.superseded.load(Ordering::Acquire);
    cuts.spare(copy.stamp.load(Ordering::Acquire), to)
}
