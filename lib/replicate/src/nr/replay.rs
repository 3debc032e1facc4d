//! Replay a replica's entries, and read the replica (paper §3.4 to §3.7).
//!
//! A thread that has changed the replica raises the completed tail before it admits readers. (If the tail were raised
//! later, just before the operations are answered, a reader could see an operation here that a later reader on another
//! replica misses.)

use core::mem;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint;
use archipelago_sync::backoff::Backoff;

use super::Replicable;
use super::engine::{Combiner, Shared};
use crate::poison::Poisoned;
use crate::reentry;
use crate::sequential::{lock_for_change, try_lock_for_change};

/// The number of entries after which a helper publishes the replica's local tail. A thread that waits for room in the
/// log then finds some, and readers that wait for the replica's lock enter.
const STEP: u64 = 64;

/// How to treat readers that are inside a replica that is to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    /// Wait until they have left. Chosen by the replica's own combiner, and by readers that need a fresh replica.
    WaitFor,
    /// Skip the replica if readers stay inside. Chosen by threads that help, and by `sync`.
    PassBy,
}

impl<T: Replicable> Shared<T> {
    /// Brings replica `at` up to date, as far as the log is filled.
    pub(super) fn refresh(&self, at: usize, combiner: &mut Combiner<T>) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.poison.check()?;
            self.catch_up(at, combiner);
            Ok(())
        })
    }

    /// Brings replica `at` up to date, as far as the log is filled, unless it is up to date or a combiner is active on
    /// it. Stops if readers stay inside the replica. Returns whether it replayed any entry.
    pub(super) fn refresh_idle(&self, at: usize) -> Result<bool, Poisoned> {
        let before = self.log.local_tail(at);
        if before < self.visible_tail()
            && let Some(mut turn) = self.try_turn(at)
        {
            self.replicas[at].counts.helper_runs.add(1);
            self.guarded(|| {
                self.poison.check()?;
                let (end, ignore) = (self.visible_tail(), &mut |_, _, _: &mut Vec<_>| {});
                loop {
                    let step = end.min(turn.cursor.index() + STEP);
                    if !self.replay_filled(at, &mut turn, u64::MAX, step, Readers::PassBy, ignore) {
                        return Ok(());
                    }
                }
            })?;
        }
        Ok(self.log.local_tail(at) > before)
    }

    /// Returns the index up to which replicas may replay. With an observer, it is the end of the committed operations.
    pub(super) fn visible_tail(&self) -> u64 {
        // Acquire: pairs with the Release of `observe`.
        if self.observer.is_some() { self.observed.load(Ordering::Acquire) } else { self.log.tail() }
    }

    /// Shows the observer all operations below `end` and lets it commit them. Operations that are not committed are not
    /// replayed.
    pub(super) fn observe(&self, end: u64) -> Result<(), Poisoned> {
        let Some(observer) = &self.observer else { return Ok(()) };
        // A panic of the observer poisons both this mutex and the structure.
        let mut observer = observer.lock().map_err(|_| self.poison.why())?;
        let backoff = Backoff::new();
        while !observer.shown(&self.log, end) {
            self.poison.check()?;
            backoff.wait();
        }
        if let Some(end) = observer.commit() {
            self.observed.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Replays the filled entries, without waiting.
    pub(super) fn catch_up(&self, at: usize, combiner: &mut Combiner<T>) {
        let end = self.visible_tail();
        while self.replay_filled(at, combiner, u64::MAX, end, Readers::WaitFor, &mut |_, _, _: &mut Vec<_>| {}) {}
    }

    /// Replays up to `end` and waits for entries that are not filled. From index `start` on, each response is passed to
    /// `answer`, with its distance from `start` and the combiner's list of responses.
    pub(super) fn replay(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        start: u64,
        end: u64,
        mut answer: impl FnMut(usize, T::Response, &mut Vec<T::Response>),
    ) -> Result<(), Poisoned> {
        let backoff = Backoff::new();
        loop {
            self.replay_filled(at, combiner, start, end, Readers::WaitFor, &mut answer);
            if combiner.cursor.index() >= end {
                return Ok(());
            }
            self.poison.check()?;
            self.replicas[at].counts.entry_waits.add(1);
            backoff.wait();
        }
    }

    /// Replays the consecutive filled entries below `end`. Returns whether it replayed any.
    pub(super) fn replay_filled(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        start: u64,
        end: u64,
        readers: Readers,
        answer: &mut impl FnMut(usize, T::Response, &mut Vec<T::Response>),
    ) -> bool {
        let Combiner { cursor, responses, .. } = combiner;
        if cursor.index() >= end {
            return false;
        }
        let ready = self.log.filled_until(cursor, end);
        if ready <= cursor.index() {
            return false;
        }
        let replica = &self.replicas[at];
        let prepare = |data: &T| self.log.peek(cursor, |operation| data.prepare(operation));
        let locked = match readers {
            Readers::WaitFor => Some(lock_for_change(&replica.data, prepare)),
            Readers::PassBy => try_lock_for_change(&replica.data, prepare),
        };
        let Some(mut data) = locked else {
            replica.counts.passed_by.add(1);
            return false;
        };
        let mut applied = 0;
        // Declared after the guard, so that it is dropped before the guard.
        let alarm = self.poison.alarm();
        hint::point("a replica is being changed");
        self.log.replay(cursor, ready, |index, operation| {
            let response = data.write(operation);
            applied += 1;
            if index >= start {
                answer((index - start) as usize, response, responses);
            }
        });
        mem::forget(alarm);
        // The tail is raised before readers enter: if a reader has seen an operation here, a later reader on another
        // replica must not miss the operation.
        self.log.complete(cursor.index());
        drop(data);
        replica.counts.applied.add(applied);
        true
    }

    /// Ensures that replica `at` has applied all operations that were answered before this call.
    #[inline]
    pub(super) fn freshen(&self, at: usize) -> Result<(), Poisoned> {
        // If there is one replica, it has applied all answered operations.
        if self.replicas.len() == 1 {
            return Ok(());
        }
        let until = self.log.completed();
        if self.log.local_tail(at) >= until { Ok(()) } else { self.freshen_slowly(at, until) }
    }

    /// Waits for the combiner, or replays if no thread combines, until replica `at` has applied all operations below
    /// `until`.
    #[cold]
    pub(super) fn freshen_slowly(&self, at: usize, until: u64) -> Result<(), Poisoned> {
        let backoff = Backoff::new();
        while self.log.local_tail(at) < until {
            self.poison.check()?;
            match self.try_turn(at) {
                Some(mut turn) => {
                    self.replicas[at].counts.reader_refreshes.add(1);
                    self.refresh(at, &mut turn)?;
                }
                None => backoff.wait(),
            }
        }
        Ok(())
    }

    /// Calls `look` with replica `at`, which reflects all operations answered before this call.
    #[inline]
    pub(super) fn read<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        reentry::check(reentry::identity(self));
        self.freshen(at)?;
        self.look(at, look)
    }

    /// Calls `look` with replica `at` in its present state.
    #[inline]
    pub(super) fn look<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        let data = self.replicas[at].data.read();
        let _inside = reentry::enter(reentry::identity(self));
        // Checked under the lock: after a panic, the flag is raised before the writer unlocks.
        self.poison.check()?;
        Ok(look(&data))
    }
}
