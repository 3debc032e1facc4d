//! Keeping the search layer up to date: combiner, updaters, and the reclamation of pages that were merged away
//! (thesis §4.3.4, §4.3.5).
//!
//! A *round* drains all op logs into a merged log ([`oplog`](super::oplog)); every replica's updater applies merged
//! logs in order. The thread that notices that enough changes are pending starts a round, or does it, see
//! [`turns`](super::turns). So no thread polls, and an idle map uses no processor time. When a map becomes idle, a thread
//! does the remaining work, and checks for it a bounded number of times, see [`background`]. If few pages are left in
//! their chunks, they are moved together, see [`compact`].
//!
//! **Reclaiming merged logs.** A merged log is dropped when the slowest replica has applied it.
//!
//! **Reclaiming pages, in two epochs.** A page that was removed in round `m` is retired to RCU once every replica has
//! applied round `m + 1`; RCU then waits for all readers. Why `m + 1`: an obsolete page D forwards to the page L that
//! absorbed it, and a reader that still finds D must find L alive. Suppose that L is merged away later. Its `Remove` is
//! logged after D's (both under L's lock), so when L's `Remove` was drained, D's had already been logged. It was
//! drained in the same round or, if the drain had already passed its log, in the next round. So once all replicas have
//! applied the round after L's, no replica leads to D or to L. Readers that found D earlier hold guards that were
//! entered before L's retirement.
//!
//! A *moved* page (`compact.rs`) is reclaimed like a removed one: it forwards to its twin, and its `Remove` is logged
//! before any thread can reach the twin, hence before the twin's own `Remove`.
//!
//! Lock order: compacting, then updater, then combiner. None of them is taken while a page lock is held. A panic leaves
//! the data of these locks consistent (a round that was not applied is applied again), so a poisoned lock is taken like
//! any other lock. A destructor must not panic because another thread has panicked.

use super::config::Maintainers;
use super::oplog::{MergedLog, Op, OpKind, PagePtr};
use super::shared::{Core, Local};
use super::stats::MaintenanceStats;
use super::upkeep::{Combiner, lock};
use crate::hydra::HydraForm;
use archipelago_platform::atomic::Ordering::*;
use archipelago_platform::sync::{Arc, MutexGuard};
use archipelago_platform::touch;

mod background;
mod compact;

impl<F: HydraForm> Core<F> {
    /// Notes a change of the list's structure; starts a round if one is due. The caller holds no lock.
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

    /// Notes a merge, as [`after_structure_change`](Self::after_structure_change) does, and the merged page as garbage.
    pub(super) fn after_merge(&self, local: &Local<'_, F>) {
        self.after_structure_change(local);
        self.note_garbage();
    }

    fn due_at(&self, anchors: usize) -> usize {
        (anchors * self.config.tuning.stale_percent / 100).max(self.config.tuning.stale_min)
    }

    /// Runs a round in a client thread, unless none is due any more.
    fn round_in_passing(&self, local: &Local<'_, F>) {
        // Destructors of users' values, which may use the map, must not run under the locks.
        if !local.guard.hold_back(|| self.round_if_due(local)) {
            return;
        }
        self.reclaim(local);
        self.compact_if_sparse(local.node, false);
        // The layer's previous snapshot was retired, which the map's thread frees, if there is one.
        self.note_garbage();
    }

    /// Combines and updates all replicas, unless too few changes are pending. Returns whether it did.
    ///
    /// The updaters' locks come before the question whether a round is due. If clients began rounds, and then waited for
    /// an updater, the operation of the first one would apply the rounds of all. Of the clients that wait here, the first
    /// one does the round, and the others find that it is done. (A client that left instead of waiting could leave the
    /// round to no thread, if no change follows.) So an operation applies its own round, and those of threads that have
    /// begun rounds otherwise: of the map's threads, and of callers of `sync`.
    fn round_if_due(&self, local: &Local<'_, F>) -> bool {
        let state = &self.maintenance;
        // In the order of nodes, as every client.
        let _updating: Vec<_> = state.updaters.iter().map(|it| lock(&it.busy)).collect();
        let mut combiner = self.lock_combiner();
        if !self.combine_if_due(&mut combiner) {
            return false;
        }
        state.background.turns.take();
        drop(combiner);
        (0..self.layers.len()).for_each(|node| self.apply_rounds(local, node));
        true
    }

    /// Combines, unless too few changes are pending. Returns whether a round was due.
    ///
    /// A thread that is told of a round asks again when it has the combiner. Changes that are noted after a thread was
    /// told, and before it drains the op logs, tell a thread of one more round. That round would rebuild the search
    /// layers for the few changes since: without this question each round was made twice while a map grew.
    fn combine_if_due(&self, combiner: &mut Combiner<F>) -> bool {
        let state = &self.maintenance;
        // Relaxed: no due round is lost. The thread was told by a change that had counted itself, so this load sees
        // that change or a later count. A later count below the limit is one of which a round has been subtracted, and
        // the change that reaches the limit again tells a thread. The limit is written under the combiner's lock, which
        // the caller holds.
        let is_due = state.pending.load(Relaxed) >= state.due_at.load(Relaxed) as isize;
        if is_due {
            self.combine(combiner);
        }
        is_due
    }

    /// Drains the op logs into a new round, unless there is nothing to do.
    fn combine(&self, combiner: &mut Combiner<F>) {
        let mut ops: Vec<Op<F>> = Vec::new();
        for cell in self.cells.iter() {
            cell.drain_into(&mut ops);
        }
        let drained = ops.len();
        if drained == 0 && !self.waits_for_rounds(combiner) {
            return;
        }
        // Each page is counted once and discounted once, also if several pages were linked in at one anchor, one after
        // the other.
        combiner.anchors += ops.iter().filter(|op| op.kind == OpKind::Insert).count();
        combiner.round += 1;
        let (log, delayed) = MergedLog::new(combiner.round, ops, core::mem::take(&mut combiner.delayed));
        combiner.delayed = delayed;
        combiner.anchors -= log.removes.len();
        if !log.removes.is_empty() {
            combiner.removed.push_back((log.id, log.removes.clone()));
        }
        combiner.logs.push_back(Arc::new(log));
        self.maintenance.pending.fetch_sub(drained as isize, Relaxed);
        self.maintenance.due_at.store(self.due_at(combiner.anchors), Relaxed);
    }

    /// Applies all rounds to the replica of `node`.
    fn update(&self, local: &Local<'_, F>, node: usize) {
        // Destructors of users' values, which may use the map, must not run under the lock.
        local.guard.hold_back(|| {
            let _updating = lock(&self.maintenance.updaters[node].busy);
            self.apply_rounds(local, node);
        });
    }

    /// Does the work of [`update`](Self::update). The caller holds the updater's lock.
    fn apply_rounds(&self, local: &Local<'_, F>, node: usize) {
        let updater = &self.maintenance.updaters[node];
        let applied = updater.applied.load(Relaxed);
        let logs: Vec<_> = {
            let combiner = self.lock_combiner();
            let is_new = |log: &&Arc<MergedLog<F>>| {
                // Another thread may have made the log, and moved the pointer to it.
                touch(*log, size_of_val(*log));
                touch(&raw const log.id, size_of_val(&log.id));
                log.id > applied
            };
            combiner.logs.iter().filter(is_new).cloned().collect()
        };
        for log in logs {
            self.layers[node].apply(local.guard, &log);
            // Release pairs with the Acquire in `reclaim`: the layer's change happens before the pages' retirement.
            updater.applied.store(log.id, Release);
        }
    }

    /// Drops merged logs and shortcuts that no replica needs any more, and retires pages that no replica needs any
    /// more.
    fn reclaim(&self, local: &Local<'_, F>) {
        let slowest = self.maintenance.updaters.iter().map(|updater| updater.applied.load(Acquire)).min().unwrap_or(0);
        let mut ripe = Vec::new();
        let dropped = {
            let mut combiner = self.lock_combiner();
            while combiner.logs.front().is_some_and(|log| log.id <= slowest) {
                combiner.logs.pop_front();
            }
            while combiner.removed.front().is_some_and(|(round, _)| *round < slowest) {
                ripe.extend(combiner.removed.pop_front().into_iter().flat_map(|(_, pages)| pages));
            }
            // A turn exchanges the generations of shortcuts. All changes that were logged before the last turn were
            // drained by the next round at the latest, and a removal is applied one round after it was drained.
            let all_apply = slowest >= combiner.turned + 2;
            all_apply.then(|| {
                combiner.turned = combiner.round;
                self.shortcuts.turn()
            })
        };
        if let Some(generation) = dropped.flatten() {
            generation.retire(local.guard);
        }
        for page in ripe {
            // SAFETY: each page is taken out of the queue once, and the module's argument shows that no layer leads to
            // it.
            unsafe { self.retire_page(local.guard, page) };
        }
    }

    /// Returns whether further rounds are needed to free something, although they drain nothing.
    fn waits_for_rounds(&self, combiner: &Combiner<F>) -> bool {
        !combiner.delayed.is_empty() || !combiner.removed.is_empty() || self.shortcuts.generations() > 0
    }

    /// Applies and retires everything that was logged before the call, and drops all shortcuts that were added before
    /// it.
    fn catch_up(&self, local: &Local<'_, F>) {
        // One round is for inserts, one for the removes drained with them, and one retires the removed pages. Each
        // generation of shortcuts needs two rounds, if the generations were replaced in the last round before the call.
        for _ in 0..4 {
            self.combine(&mut self.lock_combiner());
            for node in 0..self.layers.len() {
                self.update(local, node);
            }
            self.reclaim(local);
        }
    }

    /// Applies everything that was logged before the call, compacts sparse pages, and frees what can be freed. The
    /// caller holds no guard. `node` is the caller's node.
    pub(crate) fn tidy(&self, node: usize) {
        // Perhaps the first pass only frees memory that an earlier walk has vacated. The second pass then closes chunks
        // that have become sparse by this.
        for _ in 0..3 {
            self.catch_up(&self.local_at(&self.domain.pin(), node));
            self.reclaim_retired();
            if !self.compact_if_sparse(node, true) {
                return;
            }
        }
        self.catch_up(&self.local_at(&self.domain.pin(), node));
        self.reclaim_retired();
    }

    /// Returns whether changes, pages that were merged away, or shortcuts wait for a further round.
    fn has_unretired(&self) -> bool {
        self.waits_for_rounds(&self.lock_combiner()) || self.cells.iter().any(|cell| !cell.is_drained())
    }

    fn is_paused(&self) -> bool {
        self.maintenance.paused.load(Relaxed)
    }

    /// Frees what has been retired, as far as other threads' guards allow. The caller holds no guard.
    fn reclaim_retired(&self) {
        // One attempt frees everything if no reader is behind. A guard of another thread can make an attempt fail, even
        // a guard that another attempt holds for a moment. So several attempts are made.
        for _ in 0..4 {
            self.domain.collect();
        }
    }

    /// A test hook: after a call with `true`, changes start no rounds until it is called with `false`. `tidy` still
    /// runs rounds.
    pub(crate) fn pause_rounds(&self, paused: bool) {
        self.maintenance.paused.store(paused, Relaxed);
    }

    pub(crate) fn maintenance_stats(&self) -> MaintenanceStats {
        let mut stats = MaintenanceStats::default();
        self.maintenance.background.count(&mut stats);
        // This is loaded after the threads' counts: if these show that all threads sleep, no round is running.
        stats.rounds = self.lock_combiner().round;
        stats.moved = self.maintenance.moved.load(Relaxed);
        stats
    }

    /// Returns the obsolete pages that have not been retired to RCU, for the destructor.
    pub(super) fn take_unretired(&mut self) -> Vec<PagePtr<F>> {
        let mut ops = Vec::new();
        for cell in self.cells.iter() {
            cell.drain_into(&mut ops);
        }
        let mut combiner = self.lock_combiner();
        let logged = ops.iter().filter(|op| op.kind == OpKind::Remove).map(|op| op.page);
        let delayed = core::mem::take(&mut combiner.delayed);
        let removed = core::mem::take(&mut combiner.removed).into_iter().flat_map(|(_, pages)| pages);
        logged.chain(delayed).chain(removed).collect()
    }

    fn lock_combiner(&self) -> MutexGuard<'_, Combiner<F>> {
        lock(&self.maintenance.combiner)
    }
}

#[cfg(test)]
mod tests;
