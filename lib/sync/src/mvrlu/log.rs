//! A handle's log: its committed versions on their way to the master or to the pool. Every thread collects its own.
//!
//! What becomes of a version, with H the domain's horizon (no section, present or future, has a local time below it):
//!
//! 1. superseded at or before H: no thread can choose it, and no reader follows a pointer to it. A pruner may: so the
//!    clock ticks d, and it is freed when H reaches d; see `chain`.
//! 2. the newest of its object, and stamped at or before H: no thread reads the master. The value is *written back*,
//!    the chain is cut off the master; freed after a tick likewise, since who still reads it began before.
//! 3. the mark of a retired object, stamped at or before H: waits for a tick as above, then goes with the master.
//! 4. superseded, and no section's local time lies between its stamp and its successor's: no thread will ever choose
//!    it. It is *pruned* from the middle of its chain, and freed when every thread that was walking a chain has
//!    finished. This is what keeps memory in bounds under a reader that is stuck, where H stands still.
//! 5. the mark of an object of which no section's local time lies between the object's birth and the mark's stamp, when no
//!    version is below it any more: sections from before the birth have no link to the object, and those after the mark
//!    find none. Goes with the master when all walks have ended. Under a stuck reader objects come and go without end.
//!
//! The collector is inside a section while it works on a log (see [`collect`](Log::collect)): that is the paper's
//! reclamation barrier. Nothing here waits for another thread: what is locked is left for the next pass.

use core::ptr;
use std::collections::VecDeque;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::sync::Arc;
use archipelago_platform::{touch, touch_mut};

use super::chain::{Cuts, Pruner, is_pruned};
use super::horizon::Horizon;
use super::points;
use super::pool::{Budget, Pool};
use super::record::Record;
use super::version::{GONE, HELD, NEVER, PRUNED, Version, birth, end, is_end};

/// This many more detached versions, in a log whose owner commits nothing, and it looks for a grace period.
const MANY_DETACHED: usize = 128;

/// Entries of a log that no thread uses are worth giving back from here on.
const ROOM: usize = 64;

/// By how many entries a short table grows; a long one grows by a quarter. Doubled, a table would take as much memory as
/// the copies that it names.
const STEP: usize = 64;

/// What came of an attempt to prune.
#[derive(PartialEq, Eq)]
enum Attempt {
    Needed,
    /// Another thread is at the chain.
    Busy,
    Out,
}

/// Versions out of their chains, and the walks that may still be among them: those of a scan that began after they were out.
struct Pruned {
    versions: Vec<Version>,
    walks: Option<Vec<(Arc<Record>, u64)>>,
}

pub(super) struct Log {
    /// Not looked at yet, by rising stamp.
    committed: VecDeque<Version>,
    /// Stamped at or before the horizon, and still needed.
    waiting: VecDeque<Version>,
    /// Out of use for the thread that begins at or after the tick; and how many of each tick.
    detached: VecDeque<Version>,
    ticks: VecDeque<(u64, usize)>,
    pruned: Vec<Pruned>,
    /// With two versions: the latest stamp in `committed`, and the number of commits there.
    deferred: (u64, usize),
    /// Bytes of copies in `committed` and `waiting`; in the others; in those that could not be pruned for another thread.
    bytes: usize,
    gone: usize,
    busy: usize,
    /// At how many bytes to look for a new horizon, and to prune.
    scan_at: usize,
    prune_at: usize,
    is_wanted: bool,
    /// At how many detached versions to look for a grace period although nothing is committed.
    detached_at: usize,
    /// The horizon of the latest collection.
    collected_to: u64,
    /// What other threads have to their credit here, in versions looked at.
    credit: usize,
    /// Bytes of this log's own tables that the domain knows of.
    pub(super) accounted: usize,
}

// SAFETY: the versions in a log are the log's alone to free, and copies and masters may be used from any thread.
unsafe impl Send for Log {}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            committed: VecDeque::new(),
            waiting: VecDeque::new(),
            detached: VecDeque::new(),
            ticks: VecDeque::new(),
            pruned: Vec::new(),
            deferred: (0, 0),
            bytes: 0,
            gone: 0,
            busy: 0,
            scan_at: 0,
            prune_at: 0,
            is_wanted: false,
            detached_at: MANY_DETACHED,
            collected_to: 0,
            credit: 0,
            accounted: 0,
        }
    }

    /// Takes over what a handle has committed.
    pub(super) fn append(&mut self, version: Version) {
        self.bytes += version.bytes();
        push(&mut self.committed, version);
    }

    /// Versions held, in whatever state.
    pub(super) fn len(&self) -> usize {
        let pruned: usize = self.pruned.iter().map(|pruned| pruned.versions.len()).sum();
        self.committed.len() + self.waiting.len() + self.detached.len() + pruned
    }

    /// Bytes of its own tables.
    pub(super) fn tables(&self) -> usize {
        let pruned: usize = self.pruned.iter().map(|pruned| pruned.versions.capacity()).sum();
        let versions = self.committed.capacity() + self.waiting.capacity() + self.detached.capacity() + pruned;
        versions * size_of::<Version>() + self.ticks.capacity() * size_of::<(u64, usize)>()
    }

    /// Gives back what the tables have grown by and do not use, but for `room`.
    pub(super) fn trim(&mut self, room: usize) {
        for table in [&mut self.committed, &mut self.waiting, &mut self.detached] {
            if table.capacity() > 2 * table.len() + room {
                table.shrink_to(table.len() + room / 2);
            }
        }
    }

    pub(super) fn wants_scan(&self, low: usize) -> bool {
        self.is_wanted || self.bytes >= self.scan_at.max(low)
    }

    /// Whether no other thread's scan is waited for any longer.
    pub(super) fn must_scan(&self, low: usize) -> bool {
        self.is_wanted || self.bytes >= self.scan_at + low
    }

    /// The next pass scans and prunes, however short the log.
    pub(super) fn want_scan(&mut self) {
        (self.is_wanted, self.prune_at) = (true, 0);
    }

    /// After a scan and what followed from it: the next one is due when the log has grown by `low` bytes.
    pub(super) fn scanned(&mut self, low: usize) {
        self.scan_at = self.bytes + low;
        self.is_wanted = false;
        self.trim(ROOM);
    }

    pub(super) fn wants_pruning(&self, low: usize) -> bool {
        self.bytes >= self.prune_at.max(low)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of copies, in whatever state; and of those that only wait for threads inside this module: for a walk, at a
    /// chain, or where a section's time was not known.
    pub(super) fn pressure(&self, cuts: &Cuts) -> (usize, usize) {
        let pruned = self.pruned.iter().flat_map(|pruned| &pruned.versions).map(Version::bytes).sum::<usize>();
        let unknown = if cuts.is_exact() { self.busy } else { self.bytes };
        (self.bytes + self.gone, unknown + pruned)
    }

    /// Whether a thread that comes by should collect this log: a look at each version for each that it owes.
    pub(super) fn takes_help(&mut self, looks: usize) -> bool {
        self.credit += looks;
        let is_due = self.credit >= self.len();
        if is_due {
            self.credit = 0;
        }
        is_due
    }

    pub(super) fn collected_to(&self) -> u64 {
        self.collected_to
    }

    /// Frees and writes back what the horizon allows, where it is known to be `to`.
    ///
    /// # Safety
    /// The caller is inside a section of the domain whose log and whose `horizon` this is.
    ///
    /// *Why the section.* Write-back looks whether a copy is the newest and then writes the master. Should a newer
    /// version c be committed meanwhile, c's own write-back must not begin before ours has ended. We missed c's link, so
    /// c's stamp is above our local time, and the horizon does not reach it while we are in our section. In the same
    /// way, a master whose mark we missed (we have read "not superseded") is not freed: its tick is above our time, and
    /// a pruner of the mark has our section, which is between the object's birth and the mark, among its cuts.
    pub(super) unsafe fn collect(&mut self, horizon: &Horizon, to: u64, pool: &mut Pool) {
        self.collected_to = to;
        pool.beside(self.bytes + self.gone, horizon.low());
        self.free_detached(to, pool, horizon.budget());
        self.free_pruned(pool, horizon.budget());
        self.detached_at = self.detached_at.min(self.detached.len() + MANY_DETACHED);
        let (mut waiting, before) = (core::mem::take(&mut self.waiting), self.detached.len());
        announce(&waiting, waiting.len());
        // SAFETY: the caller's promise.
        waiting.retain(|version| unsafe { self.stays(*version, to) });
        while let Some(version) =
            self.committed.front().inspect(|version| touch(*version, size_of::<Version>())).copied()
        {
            // SAFETY: still in the log. Relaxed: the committer put it there after it knew the stamp.
            if unsafe { version.copy() }.stamp.load(Ordering::Relaxed) > to {
                break;
            }
            self.committed.pop_front();
            // SAFETY: the caller's promise.
            if unsafe { self.stays(version, to) } {
                make_room(&mut waiting, 1);
                waiting.push_back(version);
            }
        }
        self.waiting = waiting;
        self.scan_at = self.scan_at.min(self.bytes + horizon.low());
        self.prune_at = self.prune_at.min(self.bytes + self.bytes / 8);
        if self.detached.len() > before {
            self.set_aside(horizon.clock().stamp(), before);
        }
    }

    /// Looks at a version stamped at or before the horizon; whether it must stay. If not, it is detached, without a tick yet.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    unsafe fn stays(&mut self, version: Version, horizon: u64) -> bool {
        // SAFETY: in the log, so not freed.
        let superseded = unsafe { version.copy() }.superseded.load(Ordering::Acquire);
        // SAFETY: rule 2; not superseded, so the master is there (see `collect`).
        let is_out =
            superseded <= horizon || version.retired.is_some() || superseded == NEVER && unsafe { write_back(version) };
        if is_out {
            self.bytes -= version.bytes();
            self.gone += version.bytes();
            push(&mut self.detached, version);
        }
        !is_out
    }

    /// The detached versions from `first` on are out of use from a tick on.
    fn set_aside(&mut self, tick: u64, first: usize) {
        // Ticks rise, but this log's collector may have drawn a later one already; a little later is as good.
        let tick = self.ticks.back().map_or(tick, |(last, _)| tick.max(*last));
        self.ticks.push_back((tick, self.detached.len() - first));
    }

    pub(super) fn free_detached(&mut self, horizon: u64, pool: &mut Pool, budget: &Budget) {
        while let Some((_, count)) = self.ticks.front().copied().filter(|(tick, _)| *tick <= horizon) {
            self.ticks.pop_front();
            announce(&self.detached, count);
            for version in self.detached.drain(..count) {
                self.gone -= version.bytes();
                // SAFETY: every section that was alive at the tick has ended, so no thread has a reference any more.
                unsafe { free(version, pool, budget) };
            }
        }
    }

    /// With two versions: notes that a commit with this stamp was added; how many are now.
    pub(super) fn note_deferred(&mut self, stamp: u64) -> usize {
        self.deferred.0 = self.deferred.0.max(stamp);
        self.deferred.1 += 1;
        self.deferred.1
    }

    /// With two versions: the stamp that all sections must have reached before what was put off is written back.
    pub(super) fn deferred_to(&self) -> u64 {
        self.deferred.0
    }

    /// With two versions, in which objects stay locked until they are written back: waits for the readers of what was
    /// committed before, writes back, unlocks. The copies go when those who read them have ended.
    pub(super) fn write_back_all(&mut self, horizon: &Horizon, pool: &mut Pool) {
        if self.committed.is_empty() {
            return;
        }
        let reached = horizon.wait_for(self.deferred.0);
        self.deferred = (0, 0);
        self.free_detached(reached, pool, horizon.budget());
        announce(&self.committed, self.committed.len());
        for version in &self.committed {
            if version.retired.is_some() {
                // SAFETY: in the log.
                unsafe { version.copy() }.superseded.store(GONE, Ordering::Release);
            } else {
                // SAFETY: every section is at or above the stamp; the object is locked by us, so no other thread writes
                // it.
                let unlocked = unsafe { write_back(*version) };
                debug_assert!(unlocked, "the holder's copy is the newest");
            }
        }
        let tick = horizon.clock().stamp();
        let first = self.detached.len();
        self.gone += core::mem::take(&mut self.bytes);
        make_room(&mut self.detached, self.committed.len());
        self.detached.append(&mut self.committed);
        self.set_aside(tick, first);
        self.trim(ROOM);
    }

    /// Takes versions that no thread will choose out of the middle of their chains, and marks of objects that no thread
    /// can see.
    ///
    /// # Safety
    /// The caller is in a section, in which it made `cuts`, and owns `me`.
    pub(super) unsafe fn prune(&mut self, pruner: &Pruner, me: &Record, cuts: &Cuts) {
        let (mut versions, mut busy): (Vec<Version>, usize) = (Vec::new(), 0);
        let mut keep = |version: &Version| {
            // SAFETY: the caller's promise.
            match unsafe { prune(version, pruner, me, cuts) } {
                Attempt::Out => {
                    versions.push(*version);
                    return false;
                }
                Attempt::Busy => busy += version.bytes(),
                Attempt::Needed => {}
            }
            true
        };
        announce(&self.waiting, self.waiting.len());
        announce(&self.committed, self.committed.len());
        // By rising stamp, nearly: so what is below a mark goes before it.
        self.waiting.retain(&mut keep);
        self.committed.retain(&mut keep);
        let bytes = versions.iter().map(Version::bytes).sum::<usize>();
        self.bytes -= bytes;
        self.gone += bytes;
        self.busy = busy;
        self.prune_at = self.bytes + self.bytes / 8;
        if !versions.is_empty() {
            versions.shrink_to_fit();
            self.pruned.push(Pruned { versions, walks: None });
        }
    }

    /// Tells what was pruned before which walks are under way now.
    pub(super) fn note_walks(&mut self, cuts: &Cuts) {
        for pruned in &mut self.pruned {
            pruned.walks.get_or_insert_with(|| cuts.walks.clone());
        }
    }

    /// Frees pruned versions that no walk can be at any more.
    fn free_pruned(&mut self, pool: &mut Pool, budget: &Budget) {
        let gone = &mut self.gone;
        self.pruned.retain_mut(|pruned| {
            let Some(walks) = &mut pruned.walks else { return true };
            walks.retain(|(record, walk)| record.walk_in_progress() == Some(*walk));
            if walks.is_empty() {
                for version in pruned.versions.drain(..) {
                    *gone -= version.bytes();
                    // SAFETY: out of its chain, chosen by no thread, and all walks that may have met it have ended. A
                    // mark's object is seen by no section, and no log has another version of it.
                    unsafe { free(version, pool, budget) };
                }
            }
            !pruned.versions.is_empty()
        });
    }

    /// Frees everything; objects that are not retired keep their newest value.
    ///
    /// # Safety
    /// No thread uses the domain any more.
    pub(super) unsafe fn drain(&mut self, budget: &Budget) {
        let mut pool = Pool::new();
        for version in self.committed.drain(..).chain(self.waiting.drain(..)) {
            // SAFETY: not freed yet.
            let superseded = unsafe { version.copy() }.superseded.load(Ordering::Relaxed);
            if superseded >= HELD && superseded != PRUNED && version.retired.is_none() {
                // SAFETY: no other thread uses the object; a version that is not superseded by a mark has a master.
                let written = unsafe { write_back(version) };
                debug_assert!(written);
            }
            // SAFETY: no other thread uses it.
            unsafe { free(version, &mut pool, budget) };
        }
        let pruned = self.pruned.drain(..).flat_map(|pruned| pruned.versions);
        for version in pruned.chain(self.detached.drain(..)) {
            // SAFETY: as above.
            unsafe { free(version, &mut pool, budget) };
        }
        pool.empty(budget);
        *self = Self { accounted: self.accounted, ..Self::new() };
    }

    /// Takes versions that were linked and never committed: out of their chains, but another thread may be looking at
    /// them. Whether enough have come together that they should be collected.
    pub(super) fn detach(&mut self, tick: u64, unlinked: &mut Vec<Version>) -> bool {
        let first = self.detached.len();
        self.gone += unlinked.iter().map(Version::bytes).sum::<usize>();
        make_room(&mut self.detached, unlinked.len());
        self.detached.extend(unlinked.drain(..));
        self.set_aside(tick, first);
        let are_many = self.detached.len() >= self.detached_at;
        if are_many {
            self.detached_at = self.detached.len() + MANY_DETACHED;
        }
        are_many
    }
}

/// Whether a version is out of its chain and chosen by no thread, after an attempt to make it so; rules 4 and 5.
///
/// # Safety
/// As for [`Log::prune`], whose log this is in.
unsafe fn prune(version: &Version, pruner: &Pruner, me: &Record, cuts: &Cuts) -> Attempt {
    // SAFETY: in the log.
    let copy = unsafe { version.copy() };
    let stamp = copy.stamp.load(Ordering::Relaxed);
    if version.retired.is_some() {
        // Acquire: pairs with the pruner that took the last version out, whose walk is waited for.
        let older = copy.older.load(Ordering::Acquire);
        return match is_end(older) && cuts.spare(birth(older), stamp) {
            true => Attempt::Out,
            false => Attempt::Needed,
        };
    }
    if is_pruned(copy) {
        return Attempt::Out;
    }
    // Acquire: who took it out says so after that.
    if !cuts.spare(stamp, copy.superseded.load(Ordering::Acquire)) {
        return Attempt::Needed;
    }
    // SAFETY: the caller's promise; just seen.
    match unsafe { pruner.prune(me, version.master, copy, cuts) } {
        true => Attempt::Out,
        false => Attempt::Busy,
    }
}

/// Room for this many more.
fn make_room(table: &mut VecDeque<Version>, more: usize) {
    if table.len() + more > table.capacity() {
        table.reserve_exact(more.max(STEP).max(table.len() / 4));
    }
}

/// Adds a version to a list.
fn push(list: &mut VecDeque<Version>, version: Version) {
    make_room(list, 1);
    list.push_back(version);
    list.back().into_iter().for_each(|place| touch_mut(place, size_of::<Version>()));
}

/// Says that the first `count` versions of a list are about to be used, and moved.
fn announce(list: &VecDeque<Version>, count: usize) {
    let (front, back) = list.as_slices();
    let front = &front[..count.min(front.len())];
    touch_mut(front.as_ptr(), size_of_val(front));
    let back = &back[..count - front.len()];
    touch_mut(back.as_ptr(), size_of_val(back));
}

/// Frees a version, with the object if it is the mark of a retired one.
///
/// # Safety
/// No thread uses it any more, nor the object if it is a mark.
unsafe fn free(version: Version, pool: &mut Pool, budget: &Budget) {
    if let Some(free_object) = version.retired {
        // SAFETY: the caller's promise.
        unsafe {
            version.master.as_ref().watch.write();
            pool.object_freed(free_object(version.master), budget);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free_copy(version, pool, budget) };
}

/// # Safety
/// No thread uses the copy any more.
unsafe fn free_copy(version: Version, pool: &mut Pool, budget: &Budget) {
    // SAFETY: the caller's promise; headers need no drop.
    unsafe {
        version.copy.as_ref().watch.write();
        version.copy.as_ref().header.gone();
        pool.put(version.copy, version.shape.copy, budget);
    }
}

/// Rule 2: writes the newest version back and cuts the chain off; `false` if it is not the newest (any more).
///
/// # Safety
/// Every section is at or above the version's stamp, so no thread reads the master's value while the chain is there;
/// and the caller's own section, if others are at work, keeps other write-backs of this object away.
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
    let (from, to) = shape.values(version.copy, version.master);
    touch(from, shape.size as usize);
    touch_mut(to, shape.size as usize);
    // SAFETY: both are `size` bytes of one type, in bounds, and apart; the caller's promise keeps readers of the master
    // away, and the payload does not change.
    unsafe { ptr::copy_nonoverlapping(from, to, shape.size as usize) };
    // Release: who finds no chain finds the value.
    newest.compare_exchange(copy, end(0), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
