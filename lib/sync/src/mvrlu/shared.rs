//! The state that handles share: their slots (each with a record, a ring of recent commits, and a log), and the
//! assignment of collecting to threads.

use archipelago_platform::atomic::AtomicUsize;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

#[cfg(not(loom))]
use super::background::Background;
use super::chain::{Cuts, Pruner};
use super::grown::Grown;
use super::horizon::Horizon;
use super::patience::Patience;
use super::pool::Pool;
use super::record::Record;
use super::slot::{LogGuard, Slot, try_hold};
use super::version::{Version, owner_of};
use crate::crowd::processors;

/// Loom builds have no background collection.
#[cfg(loom)]
pub(super) struct Background;

#[cfg(loom)]
impl Background {
    fn wake(&self) {}
}

/// Bytes of copies that every thread may have without a pause, even if the watermark is smaller.
const SMALLEST_SHARE: usize = 16 * 1024;

/// The number of examinations that a helping thread credits to another log. When the credit reaches the number of
/// versions in the log, the helper collects the log.
const LOOKS: usize = 128;

pub(super) struct Shared {
    horizon: Horizon,
    /// One slot for each record of the horizon, in the same order.
    slots: Grown<Arc<Slot>>,
    /// The slots that no handle has.
    left: Mutex<Vec<Arc<Slot>>>,
    /// The number of live handles, without that of the domain's own thread. It is not derived from the slots, because
    /// the domain's own thread has a slot, too, and cannot give it up and change a derived count in one step.
    handles: AtomicUsize,
    pruner: Pruner,
    /// Held by a thread that collects all logs, or that looks for a newer horizon on behalf of all waiting threads.
    alone: CachePadded<Mutex<()>>,
    /// Held by a thread that scans because its log has grown.
    scanning: CachePadded<Mutex<()>>,
    background: Option<Background>,
}

// SAFETY: `Shared` consists of `Send` and `Sync` parts, except logs' raw pointers, for which see `Log`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The result of a scan and a collection of one log.
pub(super) struct Pass {
    pub(super) horizon: u64,
    sections: usize,
    /// Bytes of copies in the log afterwards, and of those that wait only for short steps of other threads; see
    /// `Log::pressure`.
    bytes: usize,
    held_up: usize,
}

impl Shared {
    pub(super) fn new(horizon: Horizon, background: Option<Background>) -> Self {
        Self {
            horizon,
            slots: Grown::new(),
            left: Mutex::new(Vec::new()),
            handles: AtomicUsize::new(0),
            pruner: Pruner::new(),
            alone: CachePadded::new(Mutex::new(())),
            scanning: CachePadded::new(Mutex::new(())),
            background,
        }
    }

    #[inline]
    pub(super) fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// Returns the number of live handles, without that of the domain's own thread. A thread that has joined, or been
    /// told by, the threads that made and dropped handles gets the exact number.
    pub(super) fn handles(&self) -> &AtomicUsize {
        &self.handles
    }

    pub(super) fn slots(&self) -> &Grown<Arc<Slot>> {
        &self.slots
    }

    /// Returns a slot for a new handle: one that another handle has left, or a new one.
    pub(super) fn take_slot(&self) -> Arc<Slot> {
        if let Some(slot) = self.left().pop() {
            self.horizon.occupy(&slot.record);
            return slot;
        }
        self.horizon.budget().changed(0, Self::BYTES_PER_SLOT);
        self.slots.push(|_| Arc::new(Slot::new(self.horizon.add_record()))).clone()
    }

    const BYTES_PER_SLOT: usize = size_of::<Record>() + size_of::<Slot>();

    /// Takes a slot back, with its log, for the next handle.
    pub(super) fn leave_slot(&self, slot: Arc<Slot>) {
        slot.record.vacate();
        self.left().push(slot);
    }

    /// Returns the slots that no handle has. Their lock orders successive handles of a slot.
    fn left(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Collects the log of `of` up to the known horizon, unless another thread has the log. If the log is still at its
    /// watermark, scans, collects up to the new horizon, and prunes. Returns the result of the scan, if it scanned.
    ///
    /// # Safety
    /// The caller is inside a section of this domain, and owns `me`.
    pub(super) unsafe fn collect(&self, of: &Slot, me: &Record, pool: &mut Pool) -> Option<Pass> {
        let mut log = of.try_log(self.horizon.budget())?;
        let low = self.horizon.low();
        if !self.horizon.is_multi_version() {
            log.free_detached(self.horizon.look(), pool, self.horizon.budget());
            return None;
        }
        // The horizon that another thread has found may suffice. If another thread is looking for it now, its result may
        // suffice the next time. If hundreds of writers did so at the same time, they would contend for each record.
        // SAFETY: the caller's promise.
        unsafe { self.collect_to_known(&mut log, pool) };
        if log.wants_glance()
            && let Some(_alone) = try_hold(&self.scanning)
        {
            self.horizon.glance();
            // SAFETY: as above.
            unsafe { self.collect_to_known(&mut log, pool) };
            log.glanced(self.horizon.glance_step());
        }
        let is_due = log.wants_scan(low);
        if is_due && let Some(background) = &self.background {
            background.wake();
        }
        // A background thread may be late, so a writer waits for a longer log before it scans itself.
        if !is_due || self.background.is_some() && log.bytes() < 2 * low && !log.is_wanted() {
            return None;
        }
        let alone = try_hold(&self.scanning);
        if !log.wants_scan(low) || alone.is_none() && !log.must_scan(low) {
            return None;
        }
        let cuts = self.scan_for(&mut log);
        drop(alone);
        let prunes = |log: &LogGuard<'_>| log.wants_pruning(low);
        // SAFETY: as above.
        unsafe { self.pass(&mut log, me, &cuts, prunes, pool) };
        let (bytes, held_up) = log.pressure(&cuts);
        Some(Pass { horizon: cuts.horizon, sections: cuts.sections(), bytes, held_up })
    }

    /// # Safety
    /// The caller is in a section.
    unsafe fn collect_to_known(&self, log: &mut LogGuard<'_>, pool: &mut Pool) {
        let horizon = self.horizon.known();
        if horizon > log.collected_to() {
            // SAFETY: the caller's promise.
            unsafe { log.collect(&self.horizon, horizon, pool) };
        }
    }

    /// Called by a thread that waits for the horizon to move: scans, unless another thread is doing so or is collecting
    /// all logs. Returns the horizon.
    pub(super) fn look_for_all(&self) -> u64 {
        try_hold(&self.alone).map_or_else(|| self.horizon.known(), |_alone| self.horizon.look())
    }

    /// Scans while the caller has the log, so that the scan tells of the walks that may access what is unlinked there.
    fn scan_for(&self, log: &mut LogGuard<'_>) -> Cuts {
        log.number_unlinked(&self.horizon);
        self.horizon.scan()
    }

    /// Collects and prunes a log by the result of a scan.
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
        unsafe { log.collect(&self.horizon, cuts.horizon, pool) };
        if prunes(log) {
            // SAFETY: as above.
            unsafe { log.prune(&self.horizon, &self.pruner, me, cuts) };
        }
        log.number_unlinked(&self.horizon);
        log.scanned(self.horizon.low());
        pool.tell(self.horizon.budget());
    }

    /// Returns whether a thread should pause after this pass. At the horizon `in_vain` the thread has already paused
    /// without success.
    ///
    /// Versions that wait for short steps of other threads are freed as soon as these threads run. Versions that
    /// sections need are freed when the sections end. If sections outnumber processors, some of their threads are not
    /// running, and a pause lets them run and end their sections. Otherwise the sections may be long readers, for which
    /// no thread pauses.
    pub(super) fn is_crowded(&self, pass: &Pass, in_vain: u64) -> bool {
        let share = (2 * self.horizon.low()).max(SMALLEST_SHARE);
        !cfg!(loom)
            && pass.bytes >= share
            && (pass.held_up >= share / 2 || pass.sections > processors() && pass.horizon != in_vain)
    }

    /// In a domain with two versions per object (RLU): adds a commit to the log of `slot`, and writes the log back if
    /// it has enough commits.
    pub(super) fn write_back_or_defer(&self, slot: &Slot, stamp: u64, fresh: &mut Vec<Version>, pool: &mut Pool) {
        let mut log = slot.log(self.horizon.budget());
        fresh.drain(..).for_each(|version| log.append(version));
        let deferred = self.horizon.deferrable();
        if log.note_deferred(stamp) > deferred {
            let reached = self.horizon.wait_for(log.deferred_to());
            log.write_back_all(&self.horizon, reached, pool);
        }
    }

    /// With two versions: writes back the deferred commits of an object's holder, after a wait for the sections for
    /// which the holder would have to wait. Writes nothing back if another thread has the holder's log, or if the
    /// holder has committed again. The caller is in no section, and does not have the log during the wait: the holder's
    /// thread may be in a section of another handle, and takes its log for short steps that must not wait.
    pub(super) fn write_back_of_holder(&self, word: u64, pool: &mut Pool) {
        let Some(slot) = owner_of(word).and_then(|owner| self.slots.get(owner)) else { return };
        let Some(deferred_to) = slot.try_log(self.horizon.budget()).map(|log| log.deferred_to()) else { return };
        let mut patience = Patience::new();
        let mut reached = self.look_for_all();
        while reached < deferred_to {
            patience.wait();
            reached = self.look_for_all();
        }
        self.write_back_if_due(slot, reached, pool);
    }

    /// With two versions: writes back the deferred commits of `slot`, if the horizon has reached them.
    fn write_back_if_due(&self, slot: &Slot, reached: u64, pool: &mut Pool) {
        if let Some(mut log) = slot.try_log(self.horizon.budget()) {
            log.free_detached(reached, pool, self.horizon.budget());
            if log.deferred_to() <= reached {
                log.write_back_all(&self.horizon, reached, pool);
            }
        }
    }

    /// Collects one other log, the next one in the caller's rotation `turn`, if its owner rests. So logs of threads
    /// that have ended or no longer write are collected, too. A long log is collected less often.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn help_one(&self, turn: &mut usize, me: &Record, pool: &mut Pool) {
        // With two versions a log's committed versions stay in the log for write-back: see `write_back_if_due`.
        if !self.horizon.is_multi_version() {
            return;
        }
        *turn = turn.wrapping_add(1);
        let Some(of) = self.slots.get(*turn % self.slots.len()) else { return };
        if core::ptr::eq(&*of.record, me) || !of.is_resting() || of.versions() == 0 {
            return;
        }
        let Some(mut log) = of.try_log(self.horizon.budget()) else { return };
        log.take_fresh();
        if !log.takes_help(LOOKS) {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match log.bytes() >= self.horizon.low() {
                true => {
                    let cuts = self.scan_for(&mut log);
                    self.pass(&mut log, me, &cuts, |_| true, pool);
                }
                false => self.collect_to_known(&mut log, pool),
            }
        }
    }

    /// Scans once and collects all logs that no thread is collecting, unless another thread is doing so.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_everybody(&self, me: &Record, pool: &mut Pool) {
        if let Some(_alone) = try_hold(&self.alone) {
            let low = self.horizon.low();
            // SAFETY: the caller's promise.
            unsafe { self.collect_all(me, |log| log.wants_pruning(low), pool) };
        }
    }

    /// Scans once, collects all logs that no thread is collecting, and prunes those for which `prunes` returns true.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_all(&self, me: &Record, prunes: impl Fn(&LogGuard<'_>) -> bool, pool: &mut Pool) {
        if !self.horizon.is_multi_version() {
            let reached = self.horizon.look();
            return self.slots.iter().for_each(|slot| self.write_back_if_due(slot, reached, pool));
        }
        let cuts = self.horizon.scan();
        for slot in self.slots.iter().filter(|slot| slot.versions() > 0) {
            if let Some(mut log) = slot.try_log(self.horizon.budget()) {
                log.take_fresh();
                // SAFETY: the caller's promise.
                unsafe { self.pass(&mut log, me, &cuts, &prunes, pool) };
                log.trim(0);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let budget = self.horizon.budget();
        for slot in self.slots.iter() {
            // SAFETY: no handle is left, so no thread uses the domain's objects through it.
            unsafe {
                let mut log = slot.log(budget);
                log.take_fresh();
                log.drain(budget);
            }
        }
        budget.changed(self.slots.len() * Self::BYTES_PER_SLOT, 0);
        debug_assert_eq!(budget.held(), 0);
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::super::{Domain, Handle, Tuning};

    /// A thread has scanned, and then another thread prunes a log beside a walk that began after the scan. When the
    /// first thread gets the log, its scan does not tell which walks may access the pruned versions.
    #[test]
    fn an_older_scan_does_not_tell_of_walks() {
        let domain = Domain::new();
        let link = domain.alloc(0_u64);
        let [mut reader, mut writer, mut collector] = [(); 3].map(|()| domain.register());
        let shared = reader.shared.clone();
        reader.enter();
        (1..=3).for_each(|value| writer.update(|tx| tx.lock(link).map(|object| *object = value)).unwrap());
        let slot = shared.slots().get(writer.record.owner as usize).unwrap();
        let versions_after = |handle: &mut Handle, cuts: &_| {
            let mut log = slot.log(shared.horizon().budget());
            log.take_fresh();
            // SAFETY: both handles are in a section in which the cuts were made.
            unsafe { shared.pass(&mut log, &handle.record, cuts, |_| true, &mut handle.pool) };
            log.len()
        };
        collector.enter();
        let cuts = shared.horizon().scan();
        let walk = || {
            writer.enter();
            assert_eq!(versions_after(&mut writer, &shared.horizon().scan()), 3, "unlinked, and not freed");
            writer.record.leave();
            assert_eq!(versions_after(&mut collector, &cuts), 3, "freed in the walk");
        };
        reader.record.walk(|| (), walk);
        collector.record.leave();
        collector.collect();
        assert_eq!(domain.stats().versions, 1, "no walk is in progress");
        reader.record.leave();
        // SAFETY: not used any more.
        writer.update(|tx| unsafe { tx.retire(link) }).unwrap();
    }

    /// While all handles are in use, logs are collected without scans, which interrupt the other threads. An idle handle
    /// makes scans necessary.
    #[test]
    fn scans_are_for_handles_that_rest() {
        for rests in [false, true] {
            let tuning = Tuning { dereference_watermark: u32::MAX, ..Tuning::default() };
            let domain = Domain::builder().tuning(tuning).build();
            let link = domain.alloc(0_u64);
            let [mut writer, mut other] = [(); 2].map(|()| domain.register());
            let scans = writer.shared.horizon().scans();
            for _ in 0..5_000 {
                writer.update(|tx| tx.lock(link).map(|object| *object += 1)).expect("there is no cap");
                if !rests {
                    assert!(*other.read().get(link) > 0);
                }
            }
            let scans = writer.shared.horizon().scans() - scans;
            assert_eq!(scans > 0, rests, "{scans} scans");
            assert!(domain.stats().versions < 1_000, "{}", domain.stats().versions);
            // SAFETY: not used any more.
            writer.update(|tx| unsafe { tx.retire(link) }).expect("there is no cap");
        }
    }
}
