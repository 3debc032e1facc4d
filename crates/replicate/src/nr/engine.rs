//! What combiners do: collect, append, show to the observer, replay, answer (paper §3.3 to §3.7).
//!
//! A replica has two locks. The *combiner's lock* (its holder has a [`Turn`]) makes one thread at a time append for the
//! replica and replay into it; the *replica's lock*, a distributed reader-writer lock, keeps readers out while the
//! structure itself changes. So readers go on while a combiner collects, appends, or waits for an entry.
//!
//! Whoever replays has the combiner's lock, also a reader that refreshes and a helper from another replica. (The paper
//! lets readers refresh under the replica's lock alone. Then a reader could replay the entries of a combiner that was
//! about to do so itself, and the answers would be lost.)
//!
//! A combiner never waits while it holds the replica's lock, and never waits for another replica's lock: it helps those
//! it finds free.

use core::iter;
use core::mem;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, Mutex, MutexGuard, RawDistributedRwLock, RawTtas};

use super::Replicable;
use super::observe::Observed;
use super::stats::Counts;
use crate::board::{Board, SlotId};
use crate::log::{Cursor, Log, Reservation};
use crate::poison::{Poison, Poisoned};

/// How often a combiner whose batch is too small looks again.
const BATCH_ROUNDS: usize = 12;

/// One replica with all that belongs to it.
pub(super) struct Replica<T: Replicable> {
    /// The combiner's lock.
    combiner: CachePadded<Mutex<RawTtas, Combiner<T>>>,
    /// The replica's lock, and the structure.
    pub(super) data: DistributedRwLock<T>,
    pub(super) board: Board<T::Write, T::Response>,
    pub(super) counts: CachePadded<Counts>,
    /// Handles alive.
    pub(super) handles: AtomicUsize,
}

/// What the combiner's lock guards besides the right to combine.
pub(super) struct Combiner<T: Replicable> {
    cursor: Cursor<T::Write>,
    /// Slots whose requests this round carries out.
    taken: Vec<SlotId>,
    /// How many of them have their answer.
    replied: usize,
}

impl<T: Replicable> Replica<T> {
    pub(super) fn new(data: T, cursor: Cursor<T::Write>, slots: usize, reader_slots: usize) -> Self {
        let combiner = Combiner { cursor, taken: Vec::new(), replied: 0 };
        Self {
            combiner: CachePadded::new(Mutex::new(combiner)),
            data: DistributedRwLock::from_raw(RawDistributedRwLock::with_slots(reader_slots), data),
            board: Board::new(slots),
            counts: CachePadded::default(),
            handles: AtomicUsize::new(0),
        }
    }
}

/// The right to combine for one replica. When it goes, those who fell asleep meanwhile are woken.
pub(super) struct Turn<'s, T: Replicable> {
    replica: &'s Replica<T>,
    /// `None` only while it is dropped.
    combiner: Option<MutexGuard<'s, RawTtas, Combiner<T>>>,
}

impl<T: Replicable> Turn<'_, T> {
    fn combiner(&mut self) -> &mut Combiner<T> {
        self.combiner.as_mut().expect("held until the turn is over")
    }
}

impl<T: Replicable> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.combiner = None;
        self.replica.board.wake_sleepers();
    }
}

/// What all handles of a replicated structure share.
pub(super) struct Shared<T: Replicable> {
    pub(super) log: Log<T::Write>,
    pub(super) replicas: Box<[Replica<T>]>,
    pub(super) poison: Poison,
    pub(super) observer: Option<sync::Mutex<Observed<T::Write>>>,
    /// With an observer: it has committed everything below.
    pub(super) observed: AtomicU64,
    pub(super) min_batch: usize,
    /// Background threads do the combining, so that clients need not hurry to.
    pub(super) dedicated: bool,
}

impl<T: Replicable> Shared<T> {
    /// The right to combine for replica `at`, if nobody has it.
    #[inline]
    pub(super) fn try_turn(&self, at: usize) -> Option<Turn<'_, T>> {
        let replica = &self.replicas[at];
        replica.combiner.try_lock().map(|guard| Turn { replica, combiner: Some(guard) })
    }

    /// Carries out `own` operations, whose responses go to `answer` in order, and all posted requests.
    ///
    /// # Errors
    /// If the structure is or gets poisoned. Then every request taken was refused.
    pub(super) fn combine(
        &self,
        at: usize,
        turn: &mut Turn<'_, T>,
        own: impl ExactSizeIterator<Item = T::Write>,
        answer: impl FnMut(T::Response),
    ) -> Result<(), Poisoned> {
        let combiner = turn.combiner();
        combiner.taken.clear();
        combiner.replied = 0;
        let outcome = self.guarded(|| {
            // Under the combiner's lock: a replica that a panic left half changed is not touched again.
            self.poison.check()?;
            self.round(at, combiner, own, answer)
        });
        if outcome.is_err() {
            for &id in &combiner.taken[combiner.replied..] {
                self.replicas[at].board.reply(id, true);
            }
        }
        outcome
    }

    /// Brings replica `at` up to date, as far as the log is filled.
    pub(super) fn refresh(&self, at: usize, turn: &mut Turn<'_, T>) -> Result<(), Poisoned> {
        let combiner = turn.combiner();
        self.guarded(|| {
            self.poison.check()?;
            self.catch_up(at, combiner);
            Ok(())
        })
    }

    /// Drops what all replicas have applied.
    pub(super) fn recycle_guarded(&self) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.log.recycle();
            Ok(())
        })
    }

    /// Runs code that calls the user's, whose panic poisons the structure.
    #[inline]
    fn guarded(&self, f: impl FnOnce() -> Result<(), Poisoned>) -> Result<(), Poisoned> {
        // What a panic leaves behind is not looked at: the poison is checked under the replica's lock.
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            self.poison.set(&*panic);
            // Partner: the fence in `Board::sleep`: who sleeps is woken, or sees the poison before it sleeps.
            fence(Ordering::SeqCst);
            self.replicas.iter().for_each(|replica| replica.board.wake_all());
            Err(self.poison.why())
        })
    }

    fn round(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        mut own: impl ExactSizeIterator<Item = T::Write>,
        mut answer: impl FnMut(T::Response),
    ) -> Result<(), Poisoned> {
        let replica = &self.replicas[at];
        self.collect(at, combiner, own.len());
        if own.len() + combiner.taken.len() == 0 {
            self.catch_up(at, combiner);
            return Ok(());
        }
        if self.is_alone() {
            self.round_alone(combiner, own, answer);
            return Ok(());
        }
        while own.len() + combiner.taken.len() - combiner.replied > 0 {
            let waiting = own.len() + combiner.taken.len() - combiner.replied;
            let count = waiting.min(self.log.longest_batch());
            let of_own = own.len().min(count);
            let mut reservation = self.reserve(at, combiner, count)?;
            let range = reservation.range();
            own.by_ref().take(of_own).for_each(|operation| reservation.fill(operation));
            let piece = combiner.replied..combiner.replied + count - of_own;
            combiner.taken[piece.clone()].iter().for_each(|&id| reservation.fill(replica.board.request(id)));
            drop(reservation);
            replica.counts.batch(count);
            self.observe(range.end)?;
            let slots = piece.start;
            self.replay(at, combiner, range.start, range.end, |offset, response, taken| {
                match offset.checked_sub(of_own) {
                    None => answer(response),
                    Some(posted) => replica.board.prepare(taken[slots + posted], response),
                }
            })?;
            self.log.complete(range.end);
            for slot in piece {
                replica.board.reply(combiner.taken[slot], false);
                combiner.replied = slot + 1;
            }
        }
        if self.log.below_low_mark() {
            self.log.recycle();
        }
        Ok(())
    }

    /// Whether nobody reads the log: there is one replica, and no observer. Then nothing is written to it.
    #[inline]
    fn is_alone(&self) -> bool {
        self.replicas.len() == 1 && self.observer.is_none()
    }

    /// Carries a batch out on the only replica.
    fn round_alone(
        &self,
        combiner: &mut Combiner<T>,
        own: impl ExactSizeIterator<Item = T::Write>,
        mut answer: impl FnMut(T::Response),
    ) {
        let replica = &self.replicas[0];
        let count = own.len() + combiner.taken.len();
        let mut data = replica.data.write();
        // Behind the guard, so that it goes before the guard does.
        let alarm = self.poison.alarm();
        own.for_each(|operation| answer(data.write(&operation)));
        for &id in &combiner.taken {
            let operation = replica.board.request(id);
            replica.board.prepare(id, data.write(&operation));
        }
        mem::forget(alarm);
        drop(data);
        replica.counts.batch(count);
        replica.counts.applied.add(count as u64);
        for &id in &combiner.taken {
            replica.board.reply(id, false);
            combiner.replied += 1;
        }
    }

    /// Takes the posted requests; if there are fewer than `min_batch` (or than handles), waits a little for more and
    /// uses the time to replay.
    fn collect(&self, at: usize, combiner: &mut Combiner<T>, own: usize) {
        let replica = &self.replicas[at];
        replica.board.collect(&mut combiner.taken);
        if self.min_batch <= 1 || own + combiner.taken.len() == 0 {
            return;
        }
        let goal = self.min_batch.min(replica.handles.load(Ordering::Relaxed));
        let backoff = Backoff::new();
        for _ in 0..BATCH_ROUNDS {
            if own + combiner.taken.len() >= goal {
                break;
            }
            replica.counts.batch_waits.add(1);
            self.catch_up(at, combiner);
            backoff.wait();
            replica.board.collect(&mut combiner.taken);
        }
    }

    /// Room for `count` entries: recycles, helps replicas that lag behind and nobody works for, lets the log grow, or
    /// waits.
    fn reserve(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        count: usize,
    ) -> Result<Reservation<'_, T::Write>, Poisoned> {
        let backoff = Backoff::new();
        loop {
            if let Ok(reservation) = self.log.reserve(count) {
                return Ok(reservation);
            }
            self.poison.check()?;
            self.replicas[at].counts.room_waits.add(1);
            if self.log.capacity() <= count {
                self.log.grow();
                continue;
            }
            self.catch_up(at, combiner);
            if self.log.recycle() {
                continue;
            }
            self.help_others(at);
            if !self.log.recycle() && !self.log.grow() {
                backoff.wait();
            }
        }
    }

    /// Brings the other replicas up to date that have no combiner at work.
    pub(super) fn help_others(&self, me: usize) {
        for (at, replica) in self.replicas.iter().enumerate() {
            if at == me || self.log.local_tail(at) >= self.visible_tail() {
                continue;
            }
            if let Some(mut turn) = self.try_turn(at)
                && self.poison.check().is_ok()
            {
                replica.counts.helper_runs.add(1);
                self.catch_up(at, turn.combiner());
            }
        }
    }

    /// Up to where replicas may replay: with an observer, what it has committed.
    pub(super) fn visible_tail(&self) -> u64 {
        // Acquire: pairs with the Release of `observe`.
        if self.observer.is_some() { self.observed.load(Ordering::Acquire) } else { self.log.tail() }
    }

    /// Shows the observer everything below `end`. Nobody replays what it has not committed.
    fn observe(&self, end: u64) -> Result<(), Poisoned> {
        let Some(observer) = &self.observer else { return Ok(()) };
        // A panicking observer poisons both this lock and the structure.
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

    /// Replays what is filled, without waiting.
    fn catch_up(&self, at: usize, combiner: &mut Combiner<T>) {
        let end = self.visible_tail();
        while self.replay_filled(at, combiner, u64::MAX, end, &mut |_, _, _: &[SlotId]| {}) {}
    }

    /// Replays up to `end`, waiting for entries that are not filled. Responses from index `start` on go to `answer`,
    /// with their distance from `start` and the slots taken.
    fn replay(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        start: u64,
        end: u64,
        mut answer: impl FnMut(usize, T::Response, &[SlotId]),
    ) -> Result<(), Poisoned> {
        let backoff = Backoff::new();
        loop {
            self.replay_filled(at, combiner, start, end, &mut answer);
            if combiner.cursor.index() >= end {
                return Ok(());
            }
            self.poison.check()?;
            self.replicas[at].counts.entry_waits.add(1);
            backoff.wait();
        }
    }

    /// Replays the filled entries in a row below `end`. Returns whether there were any.
    fn replay_filled(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        start: u64,
        end: u64,
        answer: &mut impl FnMut(usize, T::Response, &[SlotId]),
    ) -> bool {
        let Combiner { cursor, taken, .. } = combiner;
        if cursor.index() >= end {
            return false;
        }
        let ready = self.log.filled_until(cursor, end);
        if ready <= cursor.index() {
            return false;
        }
        let replica = &self.replicas[at];
        let mut applied = 0;
        let mut data = replica.data.write();
        // Behind the guard, so that it goes before the guard does.
        let alarm = self.poison.alarm();
        self.log.replay(cursor, ready, |index, operation| {
            let response = data.write(operation);
            applied += 1;
            if index >= start {
                answer((index - start) as usize, response, taken);
            }
        });
        mem::forget(alarm);
        drop(data);
        replica.counts.applied.add(applied);
        true
    }

    /// Sees to it that replica `at` has everything that was answered before this call.
    #[inline]
    pub(super) fn freshen(&self, at: usize) -> Result<(), Poisoned> {
        // With one replica, whatever is answered is in it.
        if self.replicas.len() == 1 {
            return Ok(());
        }
        let until = self.log.completed();
        if self.log.local_tail(at) >= until { Ok(()) } else { self.freshen_slowly(at, until) }
    }

    /// Waits for the combiner, or replays if there is none, until replica `at` has everything below `until`.
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

    /// Runs `look` on replica `at`, which reflects everything answered before this call.
    #[inline]
    pub(super) fn read<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        self.freshen(at)?;
        self.look(at, look)
    }

    /// Runs `look` on replica `at` as it is.
    #[inline]
    pub(super) fn look<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        let data = self.replicas[at].data.read();
        // Under the lock: a panic raises the flag before its writer unlocks.
        self.poison.check()?;
        Ok(look(&data))
    }

    /// Carries out one operation as the combiner.
    #[inline]
    pub(super) fn write_in_turn(
        &self,
        at: usize,
        mut turn: Turn<'_, T>,
        operation: T::Write,
    ) -> Result<T::Response, Poisoned> {
        let mut response = None;
        self.combine(at, &mut turn, iter::once(operation), |answer| response = Some(answer))?;
        Ok(response.expect("every operation of a batch is answered"))
    }
}
