//! What a scan of all sections says about versions, and the pruning of one object's chain by it.
//!
//! *Who may prune.* One thread at a time per chain: it tries one of a few locks, chosen by the object's address, and leaves
//! the chain to the thread that has it otherwise. It unlinks what no section chooses, whosever log that is in, and says
//! so in the copy ([`PRUNED`]); the owner of the log frees it, when the walks have ended that were under way. So each
//! chain is walked once for all logs.
//!
//! *Why the pruner meets no freed copy.* It is in a section at L and in a walk, and goes down to the copy that the oldest
//! exact section c of its own scan chooses, no further. A copy n on that way is superseded after c.
//! - Nothing chosen by c was ever pruned: an earlier pruner saw c as a cut, or saw its bound, or c began at its floor or above.
//!   So the first copy stamped at or before c is the one that c chooses, and it and those above are superseded after c.
//! - A collector lets n go only at a horizon above c, so after c has ended; it draws a tick d then, and frees n when the horizon
//!   reaches d. If L >= d, our reading of the clock would have followed the draw, hence the end of c, and c would not have
//!   been in our scan, which came later. So L < d, and n stays as long as our section.
//! - Another pruner's copies are out of the chain when we have the lock, and stay while we walk.
//!
//! *Why the object is there.* Its version that made us come is not `PRUNED` while we hold the lock, so it is in the chain, and
//! a mark above it is not the last copy; see rule 5 in `log`. When we take the last copy below the mark out, the mark's log
//! waits for our walk.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::sync::Arc;

use core::ptr::NonNull;

use super::grown::Grown;
use super::points;
use super::record::Record;
use super::version::{Copied, Head, PRUNED, follow};

/// All sections at one time.
pub(super) struct Cuts {
    /// The domain's horizon, brought up to date.
    pub(super) horizon: u64,
    /// The local times of the sections, or bounds of them, rising.
    times: Vec<u64>,
    /// The oldest section whose time is known; the caller's own, if no other.
    oldest: u64,
    /// Every section that is not among `times` is here or above.
    bound: u64,
    is_exact: bool,
    /// The walks under way.
    pub(super) walks: Vec<(Arc<Record>, u64)>,
}

impl Cuts {
    /// Of a scan that began, by its barrier, after the clock's floor was read.
    pub(super) fn of(records: &Grown<Arc<Record>>, floor: u64) -> Self {
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
        Self { horizon, times, oldest, bound, is_exact: bound == floor, walks }
    }

    /// Whether every section's time was known.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn sections(&self) -> usize {
        self.times.len()
    }

    /// Whether no section, now or later, has a time from `from` on and before `to`, and one is before.
    pub(super) fn spare(&self, from: u64, to: u64) -> bool {
        let before = |time| self.times.partition_point(|cut| *cut < time);
        self.oldest < from && to <= self.bound && before(from) == before(to)
    }
}

/// Locks for chains.
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

pub(super) struct Pruner {
    busy: [AtomicBool; STRIPES],
}

impl Pruner {
    pub(super) fn new() -> Self {
        Self { busy: core::array::from_fn(|_| AtomicBool::new(false)) }
    }

    /// Prunes the chain of `master`, unless `version`, which is in it or was, has been pruned or another thread is at
    /// that chain. Whether the version is pruned then.
    ///
    /// # Safety
    /// The caller is in a section in which it made `cuts`, owns `me`, and has the log that `version` is in, which `cuts` spare.
    pub(super) unsafe fn prune(&self, me: &Record, master: NonNull<Head>, version: &Copied, cuts: &Cuts) -> bool {
        let busy = &self.busy[stripe(master)];
        // Acquire: pairs with the Release below: the chain is as the last pruner has left it, and what it took out says so.
        if busy.load(Ordering::Relaxed) || busy.swap(true, Ordering::Acquire) {
            return is_pruned(version);
        }
        if !is_pruned(version) {
            // Without a barrier: who frees what is taken out here has seen that it is out, so it sees the walk. What was
            // there before is kept by the section and by the lock.
            // SAFETY: as here, with the lock.
            let unlink = || unsafe { unlink(master, cuts) };
            me.walk(|| (), unlink);
        }
        busy.store(false, Ordering::Release);
        is_pruned(version)
    }
}

/// Objects are boxes, so their addresses' lowest bits say little.
fn stripe(master: NonNull<Head>) -> usize {
    let address = master.addr().get();
    (address >> 4 ^ address >> 10) % STRIPES
}

pub(super) fn is_pruned(version: &Copied) -> bool {
    // Acquire: pairs with `unlink`: it is out of its chain.
    version.superseded.load(Ordering::Acquire) == PRUNED
}

/// Takes out of a chain what no section chooses.
///
/// # Safety
/// As for [`Pruner::prune`], with the lock, in a walk.
unsafe fn unlink(master: NonNull<Head>, cuts: &Cuts) {
    // SAFETY: the object is there, and copies down to the one that `cuts.oldest` chooses; see the top of this file.
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
            // Release: as what was there.
            here.older.store(next, Ordering::Release);
            let mut out = first;
            while out != next {
                let copy = below(out).expect("a copy that was unlinked");
                out = copy.older.load(Ordering::Relaxed);
                // Release: pairs with `is_pruned`. After this the owner may free it when our walk has ended.
                copy.superseded.store(PRUNED, Ordering::Release);
            }
        }
        above = below(next);
    }
}

/// A copy that is held, or newest, is superseded by nothing, which is above all bounds.
fn is_spared(copy: &Copied, cuts: &Cuts) -> bool {
    let to = copy.superseded.load(Ordering::Acquire);
    cuts.spare(copy.stamp.load(Ordering::Acquire), to)
}
