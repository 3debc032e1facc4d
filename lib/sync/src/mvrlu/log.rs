//! A handle's log: its committed versions until they are freed. Normally the owner collects its log; other threads
//! collect the log of an owner that rests.
//!
//! The versions of an object form a chain: copies, the newest first, and at its end the *master*, the object's own
//! memory. The newest copy of a retired object is its *mark*. A *section* is a snapshot or a transaction in progress.
//!
//! The fate of a version, where H is the domain's horizon (no present or future section has a local time below H):
//!
//! 1. A version that was superseded at or before H: no thread can choose it, and no reader follows a pointer to it. A
//!    *pruner*, a thread that prunes the chain (rule 4), may still follow such a pointer. So a *tick* d, a fresh time
//!    of the clock, is drawn, and the version is freed when H reaches d; see `chain`.
//! 2. The newest version of an object, if stamped at or before H: no thread reads the master. The value is *written
//!    back*, and the chain is cut off the master. The version is freed after a tick, too, since threads that still read
//!    it began before the tick.
//! 3. The mark of a retired object, if stamped at or before H: it waits for a tick as above, and is then freed together
//!    with the master.
//! 4. A superseded version, if no section's local time is between its stamp and its successor's: no thread will ever
//!    choose it. It is *pruned* from the middle of its chain, and freed when every thread that was walking a chain has
//!    finished. This bounds memory while a stuck reader stops H.
//! 5. The mark of an object, if no section's local time is between the object's birth and the mark's stamp, and if no
//!    version is left below the mark: sections from before the birth have no link to the object, and sections after the
//!    mark find none. The mark is freed together with the master when all walks have ended. So memory stays bounded if
//!    objects are made and retired while a reader is stuck.
//! 6. A copy that was unlinked without having been visible, by an abort or by the commit of a transaction that has only
//!    locked the object: no section will choose it, and other threads access it only in walks. It is freed when all
//!    walks have ended, together with the other such copies of its transaction. Among these copies is the leader of an
//!    aborted write set. A walk reaches the leader only from a copy of the set. So aborts, too, cost no memory while a
//!    reader is stuck.
//!
//! The collector is inside a section while it works on a log (see [`collect`](Log::collect)): this corresponds to the
//! paper's reclamation barrier. The code in this file never waits for another thread: a chain that another thread has
//! locked is left for the next pass.

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

/// The owner of a log may commit nothing and still add versions that were unlinked without having been visible. After
/// this many of them, the owner scans the sections and walks of all threads.
const MANY_NEVER_VISIBLE: usize = if cfg!(loom) { 3 } else { 128 };

/// A table of a log is shrunk if it has room for more than twice its entries plus this many.
const ROOM: usize = 64;

/// By how many entries a short table grows; a long one grows by a quarter. A doubled table would take as much memory as
/// the copies to which its entries point.
const STEP: usize = 64;

/// The result of an attempt to prune.
#[derive(PartialEq, Eq)]
enum Attempt {
    Needed,
    /// Another thread is pruning the chain.
    Busy,
    Out,
}

/// Versions that were unlinked by pruning, or without having been visible, and the walks that may still access them. A
/// scan that begins after the unlinking finds these walks; until then `walks` is `None`. A thread that collects many
/// logs may have scanned before it got this log, so it compares the number of its scan with `scans`.
struct Pruned {
    versions: Vec<Version>,
    /// The number of scans that had begun after the last unlinking, or `None` while versions may be added.
    scans: Option<u64>,
    walks: Option<Vec<(Arc<Record>, u64)>>,
}

pub(super) struct Log {
    /// Versions that no pass has examined yet, by rising stamp.
    committed: VecDeque<Version>,
    /// Versions that are stamped at or before the horizon, and still needed.
    waiting: VecDeque<Version>,
    /// Versions that are out of their chains: a section that begins at or after a version's tick cannot access the
    /// version. `ticks` has the number of versions of each tick.
    detached: VecDeque<Version>,
    ticks: VecDeque<(u64, usize)>,
    pruned: Vec<Pruned>,
    /// In a domain with two versions per object (RLU): the latest stamp in `committed`, and the number of commits
    /// there.
    deferred: (u64, usize),
    /// Three numbers of bytes of copies: `bytes` in `committed` and `waiting`; `gone` in the other lists; `busy` of
    /// copies that could not be pruned because another thread was pruning their chain.
    bytes: usize,
    gone: usize,
    busy: usize,
    /// The numbers of bytes at which the next scan and the next pruning are due.
    scan_at: usize,
    prune_at: usize,
    /// The number of bytes at which the next [glance](Horizon::glance) is due.
    glance_at: usize,
    is_wanted: bool,
    /// The number of versions that [`detach`](Self::detach) has added since it last returned true.
    never_visible: usize,
    /// The horizon of the latest collection.
    collected_to: u64,
    /// The number of examinations that helping threads have contributed since one of them last collected this log. When
    /// it reaches the number of versions, a helper collects the log.
    credit: usize,
    /// Bytes of this log's tables that the domain's budget includes.
    pub(super) accounted: usize,
}

// SAFETY: only the log frees its versions, and any thread may use copies and masters.
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
            glance_at: 0,
            is_wanted: false,
            never_visible: 0,
            collected_to: 0,
            credit: 0,
            accounted: 0,
        }
    }

    /// Adds a version that a handle has committed.
    pub(super) fn append(&mut self, version: Version) {
        self.bytes += version.bytes();
        push(&mut self.committed, version);
    }

    /// Returns the number of versions, in all states.
    pub(super) fn len(&self) -> usize {
        let pruned: usize = self.pruned.iter().map(|pruned| pruned.versions.len()).sum();
        self.committed.len() + self.waiting.len() + self.detached.len() + pruned
    }

    /// Returns the bytes of the log's tables.
    pub(super) fn tables(&self) -> usize {
        let pruned: usize = self.pruned.iter().map(|pruned| pruned.versions.capacity()).sum();
        let versions = self.committed.capacity() + self.waiting.capacity() + self.detached.capacity() + pruned;
        versions * size_of::<Version>() + self.ticks.capacity() * size_of::<(u64, usize)>()
    }

    /// Shrinks each table that has room for more than twice its entries plus `room`; the table keeps room for
    /// `room / 2` more entries.
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

    /// Returns whether this thread must do a scan of its own, instead of waiting for another thread's.
    pub(super) fn must_scan(&self, low: usize) -> bool {
        self.is_wanted || self.bytes >= self.scan_at + low
    }

    /// Makes the next pass scan and prune, however short the log is.
    pub(super) fn want_scan(&mut self) {
        (self.is_wanted, self.prune_at) = (true, 0);
    }

    /// Notes a scan and its pass: the next scan is due when the log has grown by `low` bytes.
    pub(super) fn scanned(&mut self, low: usize) {
        self.scan_at = self.bytes + low;
        self.is_wanted = false;
        self.trim(ROOM);
    }

    pub(super) fn wants_glance(&self) -> bool {
        self.bytes >= self.glance_at
    }

    /// Notes a glance and its collection: the next glance is due when the log has grown by `step` bytes, or, if glances
    /// do not help, to twice its length.
    pub(super) fn glanced(&mut self, step: usize) {
        self.glance_at = self.bytes + step.max(self.bytes);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(super) fn wants_pruning(&self, low: usize) -> bool {
        self.bytes >= self.prune_at.max(low)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of all copies, and the bytes of those that wait only for short steps of other threads: the end
    /// of a walk, the release of a chain's lock, or the publication of a section's exact time.
    pub(super) fn pressure(&self, cuts: &Cuts) -> (usize, usize) {
        let pruned = self.pruned.iter().flat_map(|pruned| &pruned.versions).map(Version::bytes).sum::<usize>();
        let unknown = if cuts.is_exact() { self.busy } else { self.bytes };
        (self.bytes + self.gone, unknown + pruned)
    }

    /// Adds the credit of a helping thread. Returns whether the thread should collect this log: once the helpers'
    /// credit is at least the number of versions.
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

    /// Frees and writes back the versions that the horizon `to` allows.
    ///
    /// # Safety
    /// This log and `horizon` belong to the same domain, and the caller is inside one of its sections.
    ///
    /// *Why the section is needed.* Write-back checks that a copy is the newest, and then writes the master. If a newer
    /// version c is committed meanwhile, c's write-back must not begin before this one has ended. This thread has
    /// missed c's link, so c's stamp is above this section's local time, and the horizon does not reach the stamp while
    /// the section lasts. Likewise, if this thread has missed a master's mark (it has loaded "not superseded"), the
    /// master is not freed. The mark's tick is above this section's time. And a pruner of the mark sees this section
    /// among the open sections (its `cuts`). The section's time is between the object's birth and the mark, so rule 5
    /// does not apply.
    pub(super) unsafe fn collect(&mut self, horizon: &Horizon, to: u64, pool: &mut Pool) {
        self.collected_to = to;
        pool.beside(self.bytes + self.gone, horizon.low());
        self.free_detached(to, pool, horizon.budget());
        self.free_pruned(pool, horizon.budget());
        let (mut waiting, before) = (core::mem::take(&mut self.waiting), self.detached.len());
        announce(&waiting, waiting.len());
        // SAFETY: the caller's promise.
        waiting.retain(|version| unsafe { self.stays(*version, to) });
        while let Some(version) =
            self.committed.front().inspect(|version| touch(*version, size_of::<Version>())).copied()
        {
            // SAFETY: still in the log. Relaxed: the committer added it after the stamp was set.
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
        self.glance_at = self.glance_at.min(self.bytes + horizon.glance_step().max(self.bytes));
        if self.detached.len() > before {
            self.set_aside(horizon.clock().stamp(), before);
        }
    }

    /// Examines a version that is stamped at or before the horizon. Returns whether it must stay. If not, it is
    /// detached, and gets its tick later.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    unsafe fn stays(&mut self, version: Version, horizon: u64) -> bool {
        // SAFETY: in the log, so not freed.
        let superseded = unsafe { version.copy() }.superseded.load(Ordering::Acquire);
        // SAFETY: rule 2; not superseded, so the master is alive (see `collect`).
        let is_out =
            superseded <= horizon || version.retired.is_some() || superseded == NEVER && unsafe { write_back(version) };
        if is_out {
            self.bytes -= version.bytes();
            self.gone += version.bytes();
            push(&mut self.detached, version);
        }
        !is_out
    }

    /// Sets the tick of the detached versions from `first` on.
    fn set_aside(&mut self, tick: u64, first: usize) {
        // Ticks must ascend in the list, but another collector of this log may already have added a later one. A later
        // tick is safe.
        let tick = self.ticks.back().map_or(tick, |(last, _)| tick.max(*last));
        self.ticks.push_back((tick, self.detached.len() - first));
    }

    pub(super) fn free_detached(&mut self, horizon: u64, pool: &mut Pool, budget: &Budget) {
        while let Some((_, count)) = self.ticks.front().copied().filter(|(tick, _)| *tick <= horizon) {
            self.ticks.pop_front();
            announce(&self.detached, count);
            for version in self.detached.drain(..count) {
                self.gone -= version.bytes();
                // SAFETY: every section that was open at the tick has ended, so no thread has a reference any more.
                unsafe { free(version, pool, budget) };
            }
        }
    }

    /// With two versions: notes that a commit with this stamp was added. Returns the number of deferred commits.
    pub(super) fn note_deferred(&mut self, stamp: u64) -> usize {
        self.deferred.0 = self.deferred.0.max(stamp);
        self.deferred.1 += 1;
        self.deferred.1
    }

    /// With two versions: returns the stamp that all sections must have reached before deferred commits are written
    /// back.
    pub(super) fn deferred_to(&self) -> u64 {
        self.deferred.0
    }

    /// In a domain with two versions an object stays locked until its new version is written back. This function writes
    /// all committed versions back, and unlocks the objects. The copies are freed when their readers have ended. The
    /// horizon has `reached` at least [`deferred_to`](Self::deferred_to), so the readers that began before the commits
    /// have ended.
    pub(super) fn write_back_all(&mut self, horizon: &Horizon, reached: u64, pool: &mut Pool) {
        if self.committed.is_empty() {
            return;
        }
        debug_assert!(self.deferred.0 <= reached, "sections that read the masters may be open");
        self.deferred = (0, 0);
        self.free_detached(reached, pool, horizon.budget());
        announce(&self.committed, self.committed.len());
        for version in &self.committed {
            if version.retired.is_some() {
                // SAFETY: in the log.
                unsafe { version.copy() }.superseded.store(GONE, Ordering::Release);
            } else {
                // SAFETY: every section is at or above the stamp; this thread holds the object's lock, so no other
                // thread writes it.
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

    /// Prunes versions in the middle of chains that no thread will choose, and marks of objects that no thread can see.
    ///
    /// # Safety
    /// The caller is in a section, in which it made `cuts`, and owns `me`.
    pub(super) unsafe fn prune(&mut self, horizon: &Horizon, pruner: &Pruner, me: &Record, cuts: &Cuts) {
        let (mut versions, mut busy): (Vec<Version>, usize) = (Vec::new(), 0);
        let mut keep = |version: &Version| {
            // SAFETY: the caller's promise.
            match unsafe { prune(version, horizon, pruner, me, cuts) } {
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
        // The order is nearly that of rising stamps, so versions below a mark are pruned before the mark.
        self.waiting.retain(&mut keep);
        self.committed.retain(&mut keep);
        let bytes = versions.iter().map(Version::bytes).sum::<usize>();
        self.bytes -= bytes;
        self.busy = busy;
        self.prune_at = self.bytes + self.bytes / 8;
        versions.shrink_to_fit();
        self.await_walks(&mut versions);
    }

    /// Takes over versions that are out of their chains, and that only walks in progress may still access.
    fn await_walks(&mut self, versions: &mut Vec<Version>) {
        self.gone += versions.iter().map(Version::bytes).sum::<usize>();
        match self.pruned.last_mut().filter(|last| last.scans.is_none()) {
            Some(last) => last.versions.append(versions),
            None if versions.is_empty() => {}
            None => self.pruned.push(Pruned { versions: core::mem::take(versions), scans: None, walks: None }),
        }
    }

    /// Makes scans that begin from now on tell of the walks that may access the versions unlinked so far.
    pub(super) fn number_unlinked(&mut self, horizon: &Horizon) {
        if let Some(last) = self.pruned.last_mut() {
            last.scans.get_or_insert_with(|| horizon.scans());
        }
    }

    /// For each batch of pruned versions that has no walks noted yet, and that was unlinked before the scan began, notes
    /// the walks that the scan found in progress.
    pub(super) fn note_walks(&mut self, cuts: &Cuts) {
        for pruned in self.pruned.iter_mut().filter(|pruned| pruned.scans.is_some_and(|scans| scans < cuts.number)) {
            pruned.walks.get_or_insert_with(|| cuts.walks.clone());
        }
    }

    /// Frees pruned versions that no walk can access any more.
    fn free_pruned(&mut self, pool: &mut Pool, budget: &Budget) {
        let gone = &mut self.gone;
        self.pruned.retain_mut(|pruned| {
            let Some(walks) = &mut pruned.walks else { return true };
            walks.retain(|(record, walk)| record.walk_in_progress() == Some(*walk));
            if walks.is_empty() {
                for version in pruned.versions.drain(..) {
                    *gone -= version.bytes();
                    // SAFETY: the version is unlinked, no thread chooses it, and all walks that may have met it have
                    // ended. No section sees a mark's object, and no log has another version of it.
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

    /// Adds all versions of a transaction that were unlinked without having been visible. Other threads may be
    /// accessing them in walks (rule 6) or, with two versions, where walks are not announced, in sections. Returns
    /// whether the log has enough such versions for a collection.
    pub(super) fn detach(&mut self, horizon: &Horizon, unlinked: &mut Vec<Version>) -> bool {
        self.never_visible += unlinked.len();
        if horizon.is_multi_version() {
            self.await_walks(unlinked);
        } else {
            let first = self.detached.len();
            self.gone += unlinked.iter().map(Version::bytes).sum::<usize>();
            make_room(&mut self.detached, unlinked.len());
            self.detached.extend(unlinked.drain(..));
            self.set_aside(horizon.clock().stamp(), first);
        }
        let are_many = self.never_visible >= MANY_NEVER_VISIBLE;
        if are_many {
            self.never_visible = 0;
            self.want_scan();
        }
        are_many
    }
}

/// Tries to prune a version by rules 4 and 5. Returns `Out` if the version is unlinked and no thread chooses it, `Busy`
/// if another thread is pruning the chain, and otherwise `Needed`.
///
/// # Safety
/// As for [`Log::prune`]. The version is in that log.
unsafe fn prune(version: &Version, horizon: &Horizon, pruner: &Pruner, me: &Record, cuts: &Cuts) -> Attempt {
    // SAFETY: in the log.
    let copy = unsafe { version.copy() };
    let stamp = copy.stamp.load(Ordering::Relaxed);
    if version.retired.is_some() {
        // Acquire: pairs with the pruner that unlinked the last version, so that the log waits for this pruner's walk.
        let older = copy.older.load(Ordering::Acquire);
        return match is_end(older) && cuts.spare(birth(older), stamp) {
            true => Attempt::Out,
            false => Attempt::Needed,
        };
    }
    if is_pruned(copy) {
        return Attempt::Out;
    }
    // Acquire: a pruner stores `PRUNED` in `superseded` after it has unlinked the version.
    if !cuts.spare(stamp, copy.superseded.load(Ordering::Acquire)) {
        return Attempt::Needed;
    }
    // SAFETY: the caller's promise; no section of `cuts` chooses the version, by the check above.
    match unsafe { pruner.prune(me, || horizon.reader_barrier(), version.master, copy, cuts) } {
        true => Attempt::Out,
        false => Attempt::Busy,
    }
}

/// Makes room for this many more entries.
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

/// In a simulated build, tells the simulator that the first `count` versions of a list are about to be used and moved.
fn announce(list: &VecDeque<Version>, count: usize) {
    let (front, back) = list.as_slices();
    let front = &front[..count.min(front.len())];
    touch_mut(front.as_ptr(), size_of_val(front));
    let back = &back[..count - front.len()];
    touch_mut(back.as_ptr(), size_of_val(back));
}

/// Frees a version, and the object if the version is the mark of a retired one.
///
/// # Safety
/// No thread uses the version any more. If the version is a mark, no thread uses the object either.
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

/// Rule 2: writes the newest version back and cuts the chain off. Returns `false` if the version is not the newest.
///
/// # Safety
/// Every section is at or above the version's stamp, so no thread reads the master's value while the chain exists.
/// If other threads may write back, the caller is in a section, which excludes other write-backs of this object.
unsafe fn write_back(version: Version) -> bool {
    // SAFETY: the object is not freed, see `Log::collect`.
    let newest = &unsafe { version.master.as_ref() }.newest;
    let copy = version.copy.as_ptr();
    if newest.load(Ordering::Relaxed) != copy {
        return false;
    }
    point(points::WRITING_BACK);
    let shape = version.shape;
    // SAFETY: the log has freed neither the copy nor the object.
    let (from, to) = unsafe { (&version.copy.as_ref().watch, &version.master.as_ref().watch) };
    from.read();
    to.write();
    let (from, to) = shape.values(version.copy, version.master);
    touch(from, shape.size as usize);
    touch_mut(to, shape.size as usize);
    // SAFETY: both are `size` bytes of one type, in bounds, and do not overlap; by the caller's promise no thread reads
    // the master, and the payload does not change.
    unsafe { ptr::copy_nonoverlapping(from, to, shape.size as usize) };
    // Release: a thread that finds no chain sees the value.
    newest.compare_exchange(copy, end(0), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
