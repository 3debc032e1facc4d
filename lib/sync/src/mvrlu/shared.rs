//! What handles share: their slots, and who collects whose log.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

#[cfg(not(loom))]
use super::background::Background;
use super::chain::{Cuts, Pruner};
use super::grown::Grown;
use super::horizon::Horizon;
use super::pool::Pool;
use super::record::Record;
use super::slot::{LogGuard, Slot};
use super::version::{Version, owner_of};
use crate::crowd::processors;

/// The model world has no background collection.
#[cfg(loom)]
pub(super) struct Background;

#[cfg(loom)]
impl Background {
    fn wake(&self) {}
}

/// Bytes of copies that every thread may have without pausing, however small the watermark.
const SMALLEST_SHARE: usize = 16 * 1024;

/// Versions that a thread looks at in another's log for each time it comes by.
const LOOKS: usize = 128;

pub(super) struct Shared {
    horizon: Horizon,
    /// As many as the horizon has records, and in their order.
    slots: Grown<Arc<Slot>>,
    /// Those that no handle has.
    left: Mutex<Vec<Arc<Slot>>>,
    /// Handles of the domain's own thread.
    own_handles: AtomicUsize,
    pruner: Pruner,
    /// Held by who collects every thread's log because of what it has read.
    alone: Mutex<()>,
    /// Held by one that scans because its log has grown.
    scanning: Mutex<()>,
    background: Option<Background>,
}

// SAFETY: `Shared` is made of `Send` and `Sync` parts; logs' raw pointers are theirs alone, see there.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What a scan and a collection of one log found.
pub(super) struct Pass {
    pub(super) horizon: u64,
    sections: usize,
    /// Bytes of copies in the log after it; and of those that wait for threads inside this module only.
    bytes: usize,
    held_up: usize,
}

impl Shared {
    pub(super) fn new(horizon: Horizon, background: Option<Background>) -> Self {
        Self {
            horizon,
            slots: Grown::new(),
            left: Mutex::new(Vec::new()),
            own_handles: AtomicUsize::new(0),
            pruner: Pruner::new(),
            alone: Mutex::new(()),
            scanning: Mutex::new(()),
            background,
        }
    }

    #[inline]
    pub(super) fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// What objects name their domain by.
    #[inline]
    pub(super) fn id(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    /// Runs something with a handle of the domain's own, which is not counted.
    #[cfg(not(loom))]
    pub(super) fn uncounted(&self, run: impl FnOnce()) {
        self.own_handles.fetch_add(1, Ordering::AcqRel);
        run();
        self.own_handles.fetch_sub(1, Ordering::AcqRel);
    }

    /// Handles alive; their slots' number is `slots`, read after those that were left.
    pub(super) fn handles(&self, left: usize, slots: usize) -> usize {
        (slots - left).saturating_sub(self.own_handles.load(Ordering::Acquire))
    }

    pub(super) fn slots(&self) -> &Grown<Arc<Slot>> {
        &self.slots
    }

    /// A slot for a new handle: one that another has left, or a new one.
    pub(super) fn take_slot(&self) -> Arc<Slot> {
        if let Some(slot) = self.left().pop() {
            return slot;
        }
        self.horizon.budget().changed(0, Self::BYTES_PER_SLOT);
        self.slots.push(|_| Arc::new(Slot::new(self.horizon.add_record()))).clone()
    }

    const BYTES_PER_SLOT: usize = size_of::<Record>() + size_of::<Slot>();

    /// Takes a slot back, with its log as it is, for the next handle.
    pub(super) fn leave_slot(&self, slot: Arc<Slot>) {
        slot.record.leave();
        self.left().push(slot);
    }

    /// The lock orders the handles that have a slot one after the other.
    pub(super) fn left(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Collects the log of `of`: as far as the horizon is known, or scans first if the log has grown to its watermark, and
    /// prunes what a scan leaves. What a scan found, if there was one.
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
        let is_due = log.wants_scan(low);
        if is_due && let Some(background) = &self.background {
            background.wake();
        }
        // Where a thread collects in the background, it may be late.
        if !is_due || self.background.is_some() && log.bytes() < 2 * low {
            // SAFETY: the caller's promise.
            unsafe { self.collect_to_known(&mut log, pool) };
            return None;
        }
        // What another thread has found may be enough, or will be at the next turn if it is looking now: hundreds that write, and scan
        // at once, meet at each record.
        // SAFETY: the caller's promise.
        unsafe { self.collect_to_known(&mut log, pool) };
        let alone = self.scanning.try_lock();
        if !log.wants_scan(low) || alone.is_err() && !log.must_scan(low) {
            return None;
        }
        let cuts = self.horizon.scan();
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

    /// For one of those that wait for the horizon to move: looks for it, unless another one does.
    pub(super) fn look_for_all(&self) -> u64 {
        self.alone.try_lock().map_or_else(|_| self.horizon.known(), |_alone| self.horizon.look())
    }

    /// Brings a log up to a scan.
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
            unsafe { log.prune(&self.pruner, me, cuts) };
        }
        log.scanned(self.horizon.low());
        pool.tell(self.horizon.budget());
    }

    /// Whether a thread should pause after a pass that found this, having waited in vain for the horizon `in_vain`.
    ///
    /// What waits for threads in this module goes when those run. What is needed goes when sections end, which is as soon as
    /// their threads run, if there are more sections than processors; if not, readers may be long, and are not waited for.
    pub(super) fn is_crowded(&self, pass: &Pass, in_vain: u64) -> bool {
        let share = (2 * self.horizon.low()).max(SMALLEST_SHARE);
        !cfg!(loom)
            && pass.bytes >= share
            && (pass.held_up >= share / 2 || pass.sections > processors() && pass.horizon != in_vain)
    }

    /// With two versions: adds a commit to the log of `slot`, and writes the log back if it holds enough.
    pub(super) fn write_back_or_defer(&self, slot: &Slot, stamp: u64, fresh: &mut Vec<Version>, pool: &mut Pool) {
        let mut log = slot.log(self.horizon.budget());
        fresh.drain(..).for_each(|version| log.append(version));
        let deferred = self.horizon.deferrable();
        if log.note_deferred(stamp) > deferred {
            log.write_back_all(&self.horizon, pool);
        }
    }

    /// With two versions: writes back what the holder of an object has put off. Outside any section of the caller's.
    pub(super) fn write_back_of_holder(&self, word: u64, pool: &mut Pool) {
        let Some(slot) = owner_of(word).and_then(|owner| self.slots.get(owner)) else { return };
        if let Some(mut log) = slot.try_log(self.horizon.budget()) {
            log.write_back_all(&self.horizon, pool);
        }
    }

    /// With two versions: writes back what `slot` has put off, as far as that waits for no section.
    fn write_back_if_due(&self, slot: &Slot, pool: &mut Pool) {
        if let Some(mut log) = slot.try_log(self.horizon.budget()) {
            let horizon = self.horizon.look();
            log.free_detached(horizon, pool, self.horizon.budget());
            if log.deferred_to() <= horizon {
                log.write_back_all(&self.horizon, pool);
            }
        }
    }

    /// Collects one other log, the next one in the caller's `turn`, if its owner rests: so those of threads that have ended or write no more are collected
    /// too. A log that is long is looked at seldom.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn help_one(&self, turn: &mut usize, me: &Record, pool: &mut Pool) {
        // With two versions a log's committed versions stay where write-back finds them: see `write_back_if_due`.
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
                true => self.pass(&mut log, me, &self.horizon.scan(), |_| true, pool),
                false => self.collect_to_known(&mut log, pool),
            }
        }
    }

    /// Scans once and collects all logs that no thread is collecting, unless another thread is at it.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_everybody(&self, me: &Record, pool: &mut Pool) {
        if let Ok(_alone) = self.alone.try_lock() {
            let low = self.horizon.low();
            // SAFETY: the caller's promise.
            unsafe { self.collect_all(me, |log| log.wants_pruning(low), pool) };
        }
    }

    /// Scans once, collects all logs that no thread is collecting, and prunes some.
    ///
    /// # Safety
    /// As for [`collect`](Self::collect).
    pub(super) unsafe fn collect_all(&self, me: &Record, prunes: impl Fn(&LogGuard<'_>) -> bool, pool: &mut Pool) {
        if !self.horizon.is_multi_version() {
            return self.slots.iter().for_each(|slot| self.write_back_if_due(slot, pool));
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
