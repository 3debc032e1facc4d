//! Keeping the search layer up to date: combiner, updaters, and the reclamation of what was merged away
//! (thesis §4.3.4, §4.3.5).
//!
//! A *round* drains all op logs into a merged log ([`oplog`](super::oplog)); every replica's updater applies merged
//! logs in order. A round is started by whoever notices that enough changes are pending: nothing polls, an idle map
//! uses no processor time.
//!
//! **Reclaiming merged logs.** A merged log is dropped when the slowest replica has applied it.
//!
//! **Reclaiming pages, in two epochs.** A page removed in round `m` is retired to RCU once every replica has applied
//! round `m + 1`; RCU then waits for all readers. Why `m + 1`: an obsolete page D forwards to the page L that absorbed
//! it, and a reader that still finds D must find L alive. Let L be merged away later. Its `Remove` is logged after
//! D's (both under L's lock), so when L's was drained, D's had been appended: it was drained in the same round or, if
//! the drain had already passed that log, in the next. So once all replicas have applied the round after L's, none
//! leads to D or to L, and readers that found D before hold guards older than L's retirement.
//!
//! Lock order: updater before combiner; neither is taken while a page lock is held.

use super::config::Maintainers;
use super::core::{Core, Local};
use super::oplog::{MergedLog, Op, PagePtr};
use crate::key::KeyForm;
use archipelago_platform::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering::*};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard, OnceLock};
use archipelago_platform::thread::{self, JoinHandle, Thread};
use archipelago_platform::topology::NodeId;
use std::collections::VecDeque;

/// The state of a map's maintenance.
pub(crate) struct Maintenance<F: KeyForm> {
    /// Structure changes since the last round. Below zero for a moment when a change is drained before it is counted.
    pending: CachePadded<AtomicIsize>,
    /// How many make a round due.
    due_at: AtomicUsize,
    combiner: Mutex<Combiner<F>>,
    updaters: Box<[Updater]>,
    background: Background,
    /// A test hook: while set, nobody starts a round.
    paused: AtomicBool,
}

struct Combiner<F: KeyForm> {
    /// The last round.
    round: u64,
    anchors: usize,
    /// Removes drained in the last round, to be applied in the next.
    delayed: Vec<PagePtr<F>>,
    /// Merged logs that some replica has not applied.
    logs: VecDeque<Arc<MergedLog<F>>>,
    /// Pages by the round that removed them, waiting to be retired.
    removed: VecDeque<(u64, Vec<PagePtr<F>>)>,
}

/// One per replica.
struct Updater {
    /// The last round applied.
    applied: AtomicU64,
    /// Held while applying.
    busy: Mutex<()>,
}

/// The background threads, once they have been needed.
#[derive(Default)]
struct Background {
    /// `None` inside: the operating system refused a thread, clients do the work.
    wake: OnceLock<Option<Arc<Wake>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What background threads sleep on.
struct Wake {
    stop: AtomicBool,
    /// One per background thread.
    sleepers: Box<[Sleeper]>,
}

#[derive(Default)]
struct Sleeper {
    work: AtomicBool,
    thread: OnceLock<Thread>,
    roused: AtomicU64,
    done: AtomicU64,
    wakes: AtomicU64,
}

/// What background work has been done so far, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Rounds of maintenance.
    pub rounds: u64,
    /// Background threads.
    pub threads: usize,
    /// How often one of them was told that there is work.
    pub roused: u64,
    /// How often one of them has finished such work. Equal to `roused`: all of them sleep, or are about to.
    pub done: u64,
    /// How often one of them has come out of its sleep, for whatever reason.
    pub wakes: u64,
}

impl<F: KeyForm> Maintenance<F> {
    pub(super) fn new(nodes: usize) -> Self {
        let combiner =
            Combiner { round: 0, anchors: 1, delayed: Vec::new(), logs: VecDeque::new(), removed: VecDeque::new() };
        Self {
            pending: CachePadded::new(AtomicIsize::new(0)),
            due_at: AtomicUsize::new(1),
            combiner: Mutex::new(combiner),
            updaters: (0..nodes).map(|_| Updater { applied: AtomicU64::new(0), busy: Mutex::new(()) }).collect(),
            background: Background::default(),
            paused: AtomicBool::new(false),
        }
    }
}

impl<F: KeyForm> Core<F> {
    /// Notes a split or merge; starts a round if one is due. The caller holds no lock.
    pub(super) fn after_structure_change(&self, local: &Local<'_, F>) {
        let state = &self.maintenance;
        let due_at = state.due_at.load(Relaxed);
        if state.pending.fetch_add(1, Relaxed) + 1 < due_at as isize || state.paused.load(Relaxed) {
            return;
        }
        let small = due_at <= self.due_at(self.config.tuning.inline_anchors);
        if small || self.config.maintainers == Maintainers::Clients || !self.wake_background() {
            self.round_in_passing(local);
        }
    }

    fn due_at(&self, anchors: usize) -> usize {
        (anchors * self.config.tuning.stale_percent / 100).max(self.config.tuning.stale_min)
    }

    /// A round by a client thread, unless another thread is at it.
    fn round_in_passing(&self, local: &Local<'_, F>) {
        let Ok(mut combiner) = self.maintenance.combiner.try_lock() else { return };
        self.combine(&mut combiner);
        drop(combiner);
        for node in 0..self.layers.len() {
            self.update(local, node);
        }
        self.reclaim(local);
    }

    /// Drains the op logs into a new round, unless there is nothing to do.
    fn combine(&self, combiner: &mut Combiner<F>) {
        let mut ops: Vec<Op<F>> = Vec::new();
        for cell in self.cells.iter() {
            cell.drain_into(&mut ops);
        }
        let drained = ops.len();
        if drained == 0 && combiner.delayed.is_empty() && combiner.removed.is_empty() {
            return;
        }
        combiner.round += 1;
        let (log, delayed) = MergedLog::new(combiner.round, ops, core::mem::take(&mut combiner.delayed));
        combiner.delayed = delayed;
        combiner.anchors = (combiner.anchors + log.inserts.len()).saturating_sub(log.removes.len()).max(1);
        if !log.removes.is_empty() {
            combiner.removed.push_back((log.id, log.removes.clone()));
        }
        combiner.logs.push_back(Arc::new(log));
        self.maintenance.pending.fetch_sub(drained as isize, Relaxed);
        self.maintenance.due_at.store(self.due_at(combiner.anchors), Relaxed);
    }

    /// Brings the replica of `node` up to the last round.
    fn update(&self, local: &Local<'_, F>, node: usize) {
        // Destructors of users' values, which may use the map, must not run under the lock.
        local.guard.hold_back(|| self.update_held_back(local, node));
    }

    fn update_held_back(&self, local: &Local<'_, F>, node: usize) {
        let updater = &self.maintenance.updaters[node];
        let busy = updater.busy.lock().expect("updating does not panic");
        let applied = updater.applied.load(Relaxed);
        let logs: Vec<_> = {
            let combiner = self.lock_combiner();
            combiner.logs.iter().filter(|log| log.id > applied).cloned().collect()
        };
        for log in logs {
            self.layers[node].apply(local.guard, &log);
            // Release pairs with the Acquire in `reclaim`: the layer's change happens before the pages' retirement.
            updater.applied.store(log.id, Release);
        }
        drop(busy);
    }

    /// Drops merged logs and retires pages that every replica has put behind it.
    fn reclaim(&self, local: &Local<'_, F>) {
        let slowest = self.maintenance.updaters.iter().map(|updater| updater.applied.load(Acquire)).min().unwrap_or(0);
        let mut ripe = Vec::new();
        {
            let mut combiner = self.lock_combiner();
            while combiner.logs.front().is_some_and(|log| log.id <= slowest) {
                combiner.logs.pop_front();
            }
            while combiner.removed.front().is_some_and(|(round, _)| *round < slowest) {
                ripe.extend(combiner.removed.pop_front().into_iter().flat_map(|(_, pages)| pages));
            }
        }
        for page in ripe {
            // SAFETY: taken out of the queue once; the module's argument shows that no layer leads to it.
            unsafe { self.retire_page(local.guard, page) };
        }
    }

    /// Applies and retires everything that was logged before the call.
    pub(crate) fn catch_up(&self, local: &Local<'_, F>) {
        // One round for inserts, one for the removes drained with them, one to retire the pages removed.
        for _ in 0..3 {
            self.combine(&mut self.lock_combiner());
            for node in 0..self.layers.len() {
                self.update(local, node);
            }
            self.reclaim(local);
        }
    }

    /// Frees what has been retired, as far as other threads' guards allow. The caller holds no guard.
    pub(crate) fn reclaim_retired(&self) {
        // An attempt moves the epoch by one; what was retired last is free after three moves.
        for _ in 0..4 {
            self.domain.collect();
        }
    }

    /// A test hook: no rounds are started until it is called with `false`.
    pub(crate) fn pause_rounds(&self, paused: bool) {
        self.maintenance.paused.store(paused, Relaxed);
    }

    pub(crate) fn maintenance_stats(&self) -> MaintenanceStats {
        let rounds = self.lock_combiner().round;
        let mut stats = MaintenanceStats { rounds, ..Default::default() };
        let Some(Some(wake)) = self.maintenance.background.wake.get() else { return stats };
        stats.threads = wake.sleepers.len();
        // `done` first (Acquire, with the Release in `wait`): what a thread roused before it was done is counted then.
        stats.done = wake.sleepers.iter().map(|sleeper| sleeper.done.load(Acquire)).sum();
        stats.roused = wake.sleepers.iter().map(|sleeper| sleeper.roused.load(Acquire)).sum();
        stats.wakes = wake.sleepers.iter().map(|sleeper| sleeper.wakes.load(Acquire)).sum();
        stats
    }

    /// Obsolete pages that have not been handed to RCU, for the destructor.
    pub(super) fn take_unretired(&mut self) -> Vec<PagePtr<F>> {
        use super::oplog::Kind;
        let mut ops = Vec::new();
        for cell in self.cells.iter() {
            cell.drain_into(&mut ops);
        }
        let mut combiner = self.lock_combiner();
        let logged = ops.iter().filter(|op| op.kind == Kind::Remove).map(|op| op.page);
        let delayed = core::mem::take(&mut combiner.delayed);
        let removed = core::mem::take(&mut combiner.removed).into_iter().flat_map(|(_, pages)| pages);
        logged.chain(delayed).chain(removed).collect()
    }

    fn lock_combiner(&self) -> MutexGuard<'_, Combiner<F>> {
        self.maintenance.combiner.lock().expect("combining does not panic")
    }

    // ---- Background threads ---------------------------------------------------------------------------------------

    /// Wakes the combiner's thread, starting the threads first if need be. False if there are none to be had.
    fn wake_background(&self) -> bool {
        let wake = self.maintenance.background.wake.get_or_init(|| self.start_background());
        if let Some(wake) = wake {
            wake.rouse(0);
        }
        wake.is_some()
    }

    fn start_background(&self) -> Option<Arc<Wake>> {
        let core = self.this.upgrade()?;
        let sleepers = (0..self.layers.len()).map(|_| Sleeper::default()).collect();
        let wake = Arc::new(Wake { stop: AtomicBool::new(false), sleepers });
        let spawn = |node: usize| {
            let (core, wake) = (core.clone(), wake.clone());
            thread::Builder::new().name(format!("hydralist-{node}")).spawn(move || core.maintain(node, &wake))
        };
        let mut threads = self.maintenance.background.threads.lock().expect("starting threads does not panic");
        // The combiner last: when it runs, every thread it may rouse is known.
        for node in (0..self.layers.len()).rev() {
            match spawn(node) {
                Ok(thread) => {
                    wake.sleepers[node].thread.get_or_init(|| thread.thread().clone());
                    threads.push(thread);
                }
                Err(_) => {
                    wake.stop();
                    return None;
                }
            }
        }
        Some(wake)
    }

    /// The life of the background thread of `node`.
    fn maintain(&self, node: usize, wake: &Wake) {
        if self.layers.len() > 1 {
            // A hint only: without it the replica may be built on another node's memory.
            let _ = thread::bind_current(&self.config.topology, NodeId(node));
        }
        while wake.wait(node) {
            let guard = self.domain.pin();
            let local = Local { guard: &guard, node, layer: &self.layers[node] };
            if node == 0 {
                self.combine(&mut self.lock_combiner());
                (1..self.layers.len()).for_each(|other| wake.rouse(other));
            }
            self.update(&local, node);
            self.reclaim(&local);
            drop(guard);
            self.reclaim_retired();
            wake.sleepers[node].done.fetch_add(1, Release);
        }
    }

    /// Ends the background threads and waits for them.
    pub(crate) fn stop_background(&self) {
        let background = &self.maintenance.background;
        if let Some(Some(wake)) = background.wake.get() {
            wake.stop();
        }
        let threads = core::mem::take(&mut *background.threads.lock().expect("starting threads does not panic"));
        for thread in threads {
            thread.join().expect("maintenance does not panic");
        }
    }
}

impl Wake {
    /// Tells thread `node` that there is work.
    fn rouse(&self, node: usize) {
        let sleeper = &self.sleepers[node];
        // The swap lets only one of many callers pay for the system call. Its Release pairs with the Acquire in
        // `wait`. An unpark is not lost if the thread does not sleep yet.
        if !sleeper.work.swap(true, AcqRel) {
            sleeper.roused.fetch_add(1, Release);
            if let Some(thread) = sleeper.thread.get() {
                thread.unpark();
            }
        }
    }

    /// Sleeps until there is work (true) or the end has come (false).
    fn wait(&self, node: usize) -> bool {
        loop {
            if self.stop.load(Acquire) {
                return false;
            }
            if self.sleepers[node].work.swap(false, AcqRel) {
                return true;
            }
            thread::park();
            self.sleepers[node].wakes.fetch_add(1, Release);
        }
    }

    fn stop(&self) {
        self.stop.store(true, Release);
        for thread in self.sleepers.iter().filter_map(|sleeper| sleeper.thread.get()) {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
