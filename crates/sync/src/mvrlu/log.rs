//! A handle's log: its committed versions on their way to the master or to the pool. Every thread collects its own.
//!
//! What becomes of a version, with H the domain's horizon (no section, present or future, has a local time below it):
//!
//! 1. superseded at or before H: nobody can read it, and nobody follows a pointer to it. Freed.
//! 2. the newest of its object, and stamped at or before H: nobody reads the master. The value is *written back*, the
//!    chain is cut off the master, the clock ticks d; freed when H reaches d, since who still reads it began before.
//! 3. the mark of a retired object, stamped at or before H: waits for a tick as above, then goes with the master.
//! 4. superseded, and no section's local time lies between its stamp and its successor's: nobody will ever choose it.
//!    It is *pruned* from the middle of its chain, and freed when everybody who was walking a chain has finished.
//!    This is what keeps memory in bounds under a reader that is stuck, where H stands still.
//!
//! The collector is inside a section while it works on a log (see [`collect`](Log::collect)): that is the paper's
//! reclamation barrier. It holds the gate shared, and a pruner holds it alone.

use core::cmp::Reverse;
use core::ptr::{self, NonNull};
use std::collections::VecDeque;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::sync::Arc;

use super::domain::Inner;
use super::points;
use super::pool::{Budget, Pool};
use super::record::Record;
use super::version::{Copied, Free, GONE, HELD, Head, NEVER, Shape};

/// Detached versions in a log whose owner commits nothing, at which it looks for a grace period.
const MANY_DETACHED: usize = 1_024;

/// Bytes of versions that nobody has collected or pruned, because a thread that lost its processor has the log or the gate,
/// from which their owner waits for that thread.
pub(super) const FAR: usize = 128 * 1024;

/// A committed version.
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) copy: NonNull<Copied>,
    pub(super) master: NonNull<Head>,
    pub(super) shape: &'static Shape,
    /// How to free the object, in the mark of a retired one, which is its last version.
    pub(super) retired: Option<Free>,
}

impl Version {
    pub(super) fn bytes(&self) -> usize {
        self.shape.copy.size()
    }

    /// # Safety
    /// The copy is not freed: as the log that holds this version has not freed it.
    unsafe fn copy<'a>(self) -> &'a Copied {
        // SAFETY: the caller's promise.
        unsafe { self.copy.as_ref() }
    }
}

/// Versions out of their chains, and the walks that may still be among them.
struct Pruned {
    versions: Vec<Version>,
    walks: Vec<(Arc<Record>, u64)>,
}

pub(super) struct Log {
    /// Not looked at yet, by rising stamp.
    committed: VecDeque<Version>,
    /// Stamped at or before the horizon, and still needed.
    waiting: Vec<Version>,
    /// Out of use for whoever begins at or after the tick.
    detached: VecDeque<(u64, Version)>,
    pruned: Vec<Pruned>,
    /// With two versions: the latest stamp in `committed`, and the number of commits there.
    deferred: (u64, usize),
    /// Bytes in `committed` and `waiting`.
    bytes: usize,
    /// At how many bytes to look for a new horizon, and to prune.
    scan_at: usize,
    prune_at: usize,
    is_behind: bool,
}

// SAFETY: the versions in a log are the log's alone to free, and copies and masters may be used from any thread.
unsafe impl Send for Log {}

impl Log {
    pub(super) fn new() -> Self {
        let (committed, waiting, detached, pruned) = Default::default();
        Self {
            committed,
            waiting,
            detached,
            pruned,
            deferred: (0, 0),
            bytes: 0,
            scan_at: 0,
            prune_at: 0,
            is_behind: false,
        }
    }

    /// Takes over what a handle has committed.
    pub(super) fn append(&mut self, fresh: &mut Vec<Version>) {
        self.bytes += fresh.iter().map(Version::bytes).sum::<usize>();
        self.committed.extend(fresh.drain(..));
    }

    /// Versions held, in whatever state.
    pub(super) fn len(&self) -> usize {
        let pruned: usize = self.pruned.iter().map(|pruned| pruned.versions.len()).sum();
        self.committed.len() + self.waiting.len() + self.detached.len() + pruned
    }

    pub(super) fn wants_scan(&self, low: usize) -> bool {
        self.bytes >= self.scan_at.max(low)
    }

    /// Whether the latest scan left the log as long as it was, once: somebody is long in a section.
    pub(super) fn take_behind(&mut self) -> bool {
        core::mem::take(&mut self.is_behind)
    }

    /// Whether it has grown far beyond where it should have been pruned.
    pub(super) fn is_far_behind(&self) -> bool {
        self.bytes >= self.prune_at.max(FAR) / 4 * 5
    }

    /// After a scan and what followed from it: the next one is due when the log has grown by `low` bytes.
    pub(super) fn scanned(&mut self, low: usize) {
        self.scan_at = self.bytes + low;
        self.is_behind = self.bytes >= low;
    }

    pub(super) fn wants_pruning(&self, low: usize) -> bool {
        self.bytes >= self.prune_at.max(2 * low)
    }

    /// Frees and writes back what the horizon allows.
    ///
    /// # Safety
    /// The caller is inside a section of `domain`, whose log this is, and holds the gate.
    ///
    /// *Why the section.* Write-back looks whether a copy is the newest and then writes the master. Should a newer
    /// version c be committed meanwhile, c's own write-back must not begin before ours has ended. We missed c's link, so
    /// c's stamp is above our local time, and the horizon does not reach it while we are in our section. In the same
    /// way, a master whose mark we missed (we have read "not superseded") is not freed: its tick is above our time.
    pub(super) unsafe fn collect(&mut self, domain: &Inner, horizon: u64, pool: &mut Pool) {
        let budget = domain.budget();
        pool.beside(self.bytes);
        self.free_detached(horizon, pool, budget);
        self.free_pruned(pool, budget);
        let mut out = Vec::new();
        let mut waiting = core::mem::take(&mut self.waiting);
        // SAFETY: the caller's promise.
        waiting.retain(|version| unsafe { self.step(*version, horizon, pool, budget, &mut out) });
        while let Some(version) = self.committed.front().copied() {
            // SAFETY: still in the log. Relaxed: the committer put it there after it knew the stamp.
            if unsafe { version.copy() }.stamp.load(Ordering::Relaxed) > horizon {
                break;
            }
            self.committed.pop_front();
            // SAFETY: the caller's promise.
            if unsafe { self.step(version, horizon, pool, budget, &mut out) } {
                waiting.push(version);
            }
        }
        self.waiting = waiting;
        self.scan_at = self.scan_at.min(self.bytes + domain.tuning().low_watermark);
        self.prune_at = self.prune_at.min(self.bytes + self.bytes / 8);
        if !out.is_empty() {
            let tick = domain.clock().stamp();
            self.detached.extend(out.into_iter().map(|version| (tick, version)));
        }
    }

    pub(super) fn free_detached(&mut self, horizon: u64, pool: &mut Pool, budget: &Budget) {
        while self.detached.front().is_some_and(|(tick, _)| *tick <= horizon) {
            let (_, version) = self.detached.pop_front().expect("just seen");
            // SAFETY: every section that was alive at the tick has ended, so nobody has a reference any more.
            unsafe { free(version, pool, budget) };
        }
    }

    /// With two versions: notes that a commit with this stamp was added; how many are now.
    pub(super) fn note_deferred(&mut self, stamp: u64) -> usize {
        self.deferred.0 = self.deferred.0.max(stamp);
        self.deferred.1 += 1;
        self.deferred.1
    }

    /// With two versions, in which objects stay locked until they are written back: waits for the readers of what was
    /// committed before, writes back, unlocks. The copies go when those who read them have ended.
    pub(super) fn write_back_all(&mut self, domain: &Inner, pool: &mut Pool) {
        if self.committed.is_empty() {
            return;
        }
        let horizon = domain.wait_for(self.deferred.0);
        self.deferred = (0, 0);
        self.free_detached(horizon, pool, domain.budget());
        for version in &self.committed {
            if version.retired.is_some() {
                // SAFETY: in the log.
                unsafe { version.copy() }.superseded.store(GONE, Ordering::Release);
            } else {
                // SAFETY: every section is at or above the stamp; the object is locked by us, so nobody else writes it.
                let unlocked = unsafe { write_back(*version) };
                debug_assert!(unlocked, "the holder's copy is the newest");
            }
        }
        let tick = domain.clock().stamp();
        self.bytes = 0;
        self.detached.extend(self.committed.drain(..).map(|version| (tick, version)));
    }

    /// Looks at a version stamped at or before the horizon; whether it must stay. Detached ones go `out`.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    unsafe fn step(
        &mut self,
        version: Version,
        horizon: u64,
        pool: &mut Pool,
        budget: &Budget,
        out: &mut Vec<Version>,
    ) -> bool {
        // SAFETY: in the log, so not freed.
        let superseded = unsafe { version.copy() }.superseded.load(Ordering::Acquire);
        if superseded <= horizon {
            // SAFETY: rule 1. Sections are all at or above `superseded`, so they stop at the successor or above; no
            // pruner is at work.
            unsafe { free_copy(version, pool, budget) };
        // SAFETY: rule 2; not superseded, so the master is there (see `collect`).
        } else if version.retired.is_some() || superseded == NEVER && unsafe { write_back(version) } {
            out.push(version);
        } else {
            return true;
        }
        self.bytes -= version.bytes();
        false
    }

    /// Takes versions that nobody will choose out of the middle of their chains.
    ///
    /// # Safety
    /// The caller holds the gate alone. `cuts` are the local times of all sections, rising, and every section that is
    /// not among them is at or above `floor`. `horizon` is the domain's, and everything at or before it was collected
    /// from this log.
    pub(super) unsafe fn prune(&mut self, domain: &Inner, cuts: &[u64], floor: u64, horizon: u64) {
        let mut versions: Vec<Version> = Vec::new();
        let mut keep = |version: &Version| {
            // SAFETY: in the log.
            let copy = unsafe { version.copy() };
            let (from, to) = (copy.stamp.load(Ordering::Relaxed), copy.superseded.load(Ordering::Acquire));
            let nobody_chooses = to > horizon
                && to <= floor
                && cuts.partition_point(|cut| *cut < from) == cuts.partition_point(|cut| *cut < to);
            if nobody_chooses {
                versions.push(*version);
            }
            !nobody_chooses
        };
        self.waiting.retain(&mut keep);
        self.committed.retain(&mut keep);
        self.bytes -= versions.iter().map(Version::bytes).sum::<usize>();
        self.prune_at = self.bytes + self.bytes / 8;
        if versions.is_empty() {
            return;
        }
        // By object, and newest first, as they are in their chains: one walk per chain, however long.
        versions.sort_unstable_by_key(|version| {
            // SAFETY: in the log.
            (version.master, Reverse(unsafe { version.copy() }.stamp.load(Ordering::Relaxed)))
        });
        for chain in versions.chunk_by(|one, next| one.master == next.master) {
            // SAFETY: superseded after the horizon, so the object is there, and all copies above these.
            unsafe { unlink(chain) };
        }
        self.pruned.push(Pruned { versions, walks: domain.walks_in_progress() });
    }

    /// Frees pruned versions that no walk can be at any more.
    pub(super) fn free_pruned(&mut self, pool: &mut Pool, budget: &Budget) {
        self.pruned.retain_mut(|pruned| {
            pruned.walks.retain(|(record, walk)| record.walk_in_progress() == Some(*walk));
            if pruned.walks.is_empty() {
                for version in pruned.versions.drain(..) {
                    // SAFETY: out of its chain, chosen by nobody, and all walks that may have met it have ended.
                    unsafe { free_copy(version, pool, budget) };
                }
            }
            !pruned.versions.is_empty()
        });
    }

    /// Frees everything; objects that are not retired keep their newest value.
    ///
    /// # Safety
    /// Nobody uses the domain any more.
    pub(super) unsafe fn drain(&mut self, budget: &Budget) {
        let mut pool = Pool::new();
        let all = self.committed.drain(..).chain(self.waiting.drain(..));
        for version in all {
            // SAFETY: not freed yet.
            let is_last = unsafe { version.copy() }.superseded.load(Ordering::Relaxed) >= HELD;
            if is_last && version.retired.is_none() {
                // SAFETY: nobody else uses the object; a version that is not superseded by a mark has a master.
                let written = unsafe { write_back(version) };
                debug_assert!(written);
            }
            // SAFETY: nobody else uses it.
            unsafe { free(version, &mut pool, budget) };
        }
        let pruned = self.pruned.drain(..).flat_map(|pruned| pruned.versions);
        for version in pruned.chain(self.detached.drain(..).map(|(_, version)| version)) {
            // SAFETY: as above.
            unsafe { free(version, &mut pool, budget) };
        }
        pool.empty(budget);
    }

    /// Takes versions that were linked and never committed: out of their chains, but somebody may be looking at them.
    /// Whether so many have come together that they should be collected.
    pub(super) fn detach(&mut self, tick: u64, unlinked: &mut Vec<Version>) -> bool {
        // Ticks rise, but this log's collector may have drawn a later one already; a little later is as good.
        let tick = self.detached.back().map_or(tick, |(last, _)| tick.max(*last));
        self.detached.extend(unlinked.drain(..).map(|version| (tick, version)));
        self.detached.len() >= MANY_DETACHED
    }
}

/// Frees a version, with the object if it is the mark of a retired one.
///
/// # Safety
/// Nobody uses it any more, nor the object if it is a mark.
unsafe fn free(version: Version, pool: &mut Pool, budget: &Budget) {
    if let Some(free_object) = version.retired {
        // SAFETY: the caller's promise.
        unsafe {
            version.master.as_ref().watch.write();
            free_object(version.master);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free_copy(version, pool, budget) };
}

/// # Safety
/// Nobody uses the copy any more.
unsafe fn free_copy(version: Version, pool: &mut Pool, budget: &Budget) {
    // SAFETY: the caller's promise; headers need no drop.
    unsafe {
        version.copy.as_ref().watch.write();
        pool.put(version.copy, version.shape.copy, budget);
    }
}

/// Rule 2: writes the newest version back and cuts the chain off; `false` if it is not the newest (any more).
///
/// # Safety
/// Every section is at or above the version's stamp, so nobody reads the master's value while the chain is there; and
/// the caller's own section, if others are at work, keeps other write-backs of this object away.
unsafe fn write_back(version: Version) -> bool {
    // SAFETY: the object is not freed, see `Log::collect`.
    let newest = &unsafe { version.master.as_ref() }.newest;
    let copy = version.copy.as_ptr();
    if newest.load(Ordering::Relaxed) != copy {
        return false;
    }
    point(points::WRITING_BACK);
    let shape = version.shape;
    // SAFETY: the log has not freed the copy, nor the object.
    let (from, to) = unsafe { (&version.copy.as_ref().watch, &version.master.as_ref().watch) };
    from.read();
    to.write();
    // SAFETY: both are `size` bytes of one type, in bounds, and apart; the caller's promise keeps readers of the master
    // away, and the payload does not change.
    unsafe {
        let from = copy.byte_add(shape.in_copy as usize).cast::<u8>();
        let to = version.master.as_ptr().byte_add(shape.in_master as usize).cast::<u8>();
        ptr::copy_nonoverlapping(from, to, shape.size as usize);
    }
    // Release: who finds no chain finds the value.
    newest.compare_exchange(copy, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Rule 4: takes superseded copies of one object, newest first, out of their chain.
///
/// # Safety
/// None of them, and no copy above them, is freed meanwhile, and nobody else unlinks.
unsafe fn unlink(versions: &[Version]) {
    let mut left = versions.iter().map(|version| version.copy.as_ptr()).peekable();
    // SAFETY: the object of a copy that is not freed by a newer one's mark.
    let mut above = unsafe { versions[0].master.as_ref() }.newest.load(Ordering::Acquire);
    // SAFETY: the caller's promise.
    while let Some(node) = unsafe { above.as_ref() } {
        let mut older = node.older.load(Ordering::Acquire);
        let first = older;
        while left.next_if_eq(&older).is_some() {
            // SAFETY: one of the versions.
            older = unsafe { &*older }.older.load(Ordering::Acquire);
        }
        if older != first {
            // Release: as what was there.
            node.older.store(older, Ordering::Release);
        }
        if left.peek().is_none() {
            return;
        }
        above = older;
    }
    debug_assert!(false, "a version after the horizon is in its chain");
}
