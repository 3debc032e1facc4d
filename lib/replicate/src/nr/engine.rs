//! What combiners do: collect, append, show to the observer, replay, answer (paper §3.3 to §3.7).
//!
//! A replica has two locks. The *combiner's lock* (its holder has a [`Turn`]) makes one thread at a time append for the
//! replica and replay into it; the *replica's lock*, a distributed reader-writer lock, keeps readers out while the
//! structure itself changes. So readers go on while a combiner collects, appends, or waits for an entry.
//!
//! A thread that replays has the combiner's lock, also a reader that refreshes and a helper from another replica. (The
//! paper lets readers refresh under the replica's lock alone. Then a reader could replay the entries of a combiner that
//! was about to do so itself, and the answers would be lost.)
//!
//! A thread that has changed the replica raises the completed tail before it lets readers in. (If it did so only before
//! it answered, which may seem enough, a reader could see an operation here that a later reader elsewhere misses.)
//!
//! A combiner never waits while it holds the replica's lock, and never waits for another replica's locks or readers: it
//! helps those it finds free. A replica whose readers stay falls behind, and the log grows.

use core::iter;
use core::mem;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, Mutex, RawDistributedRwLock};
use archipelago_sync::log::{Cursor, Log, Reservation};

use super::Replicable;
use super::observe::Observed;
use super::rest::Rest;
use super::stats::Counts;
use crate::board::{Batch, Board};
use crate::poison::{Poison, Poisoned};
use crate::reentry;
use crate::sequential::{Sequential, lock_for_change, try_lock_for_change};
use crate::turn::{self, CombinerLock};

/// How often a combiner whose batch is too small looks again.
const BATCH_ROUNDS: usize = 12;

/// The log is recycled when more than its capacity divided by this lies between its ends.
const RECYCLE_PART: u64 = 4;
/// Replicas are helped along when one lags by more than the capacity divided by this.
const HELP_PART: u64 = 8;
/// How many entries a helper replays at least into one replica before it looks after its own affairs again: some tens
/// of microseconds.
const HELP: usize = 32;
/// How often the thread that finds the log full helps and waits in vain before it lets the log grow.
const PATIENCE: u32 = 64;
/// How long it rests between two looks once the log may not grow any more.
const NAP: Duration = Duration::from_micros(100);

/// What to do about readers that are inside a replica that is to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Wait until they have left: for the replica's own combiner, and for readers who need it fresh.
    WaitFor,
    /// Leave the replica to its own threads if they stay: for helpers.
    PassBy,
}

/// One replica with all that belongs to it.
pub(super) struct Replica<T: Replicable> {
    /// The combiner's lock.
    combiner: CombinerLock<Combiner<T>>,
    /// The replica's lock, and the structure: apart, since it changes, and each operation reads what lies beside it.
    pub(super) data: CachePadded<DistributedRwLock<T>>,
    pub(super) board: Board<T::Write, T::Response>,
    pub(super) counts: CachePadded<Counts>,
    /// Of its dedicated combiner, if it has one.
    pub(super) rest: Rest,
}

/// What the combiner's lock guards besides the right to combine.
pub(super) struct Combiner<T: Replicable> {
    cursor: Cursor<T::Write>,
    /// The requests that this round carries out.
    batch: Batch,
    /// Their responses, until they may be answered.
    responses: Vec<T::Response>,
}

impl<T: Replicable> Combiner<T> {
    /// Answers what was carried out.
    fn reply(&mut self, board: &Board<T::Write, T::Response>) {
        self.responses.drain(..).for_each(|response| board.reply(&mut self.batch, response));
    }
}

impl<T: Replicable> Replica<T> {
    pub(super) fn new(data: T, cursor: Cursor<T::Write>, slots: usize, cpus: usize) -> Self {
        let combiner = Combiner { cursor, batch: Batch::default(), responses: Vec::new() };
        Self {
            combiner: CachePadded::new(Mutex::new(combiner)),
            data: CachePadded::new(DistributedRwLock::from_raw(RawDistributedRwLock::with_slots(cpus), data)),
            board: Board::new(slots, cpus),
            counts: CachePadded::default(),
            rest: Rest::default(),
        }
    }

    /// Whether a thread has the right to combine.
    pub(super) fn is_combining(&self) -> bool {
        self.combiner.is_locked()
    }
}

/// The right to combine for one replica.
pub(super) type Turn<'s, T> = turn::Turn<'s, Combiner<T>, <T as Sequential>::Write, <T as Sequential>::Response>;

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
    /// The right to combine for replica `at`, if no thread has it.
    #[inline]
    pub(super) fn try_turn(&self, at: usize) -> Option<Turn<'_, T>> {
        let replica = &self.replicas[at];
        Turn::try_take(&replica.combiner, &replica.board, reentry::identity(self))
    }

    /// Carries out `own` operations, whose responses go to `answer` in order, and all posted requests.
    ///
    /// # Errors
    /// If the structure is or gets poisoned. Then every request taken was refused.
    pub(super) fn combine(
        &self,
        at: usize,
        mut turn: Turn<'_, T>,
        own: impl ExactSizeIterator<Item = T::Write>,
        answer: impl FnMut(T::Response),
    ) -> Result<(), Poisoned> {
        let combiner = &mut *turn;
        combiner.batch.clear();
        combiner.responses.clear();
        let outcome = self.guarded(|| {
            // Under the combiner's lock: a replica that a panic left half changed is not touched again.
            self.poison.check()?;
            self.round(at, combiner, own, answer)
        });
        if outcome.is_err() {
            self.replicas[at].board.refuse(&mut combiner.batch);
        }
        let carried_out = combiner.batch.len();
        drop(turn);
        self.make_room(at, carried_out);
        outcome
    }

    /// Takes care that the log does not fill up: recycles, and helps replicas that lag behind, a little at a time, so
    /// that no thread ever has to replay a whole log at once. For a thread whose own work is done, and that has no
    /// turn.
    fn make_room(&self, at: usize, carried_out: usize) {
        if self.is_alone() || !self.log.lag_exceeds(RECYCLE_PART) {
            return;
        }
        // A panic poisons the structure; what this thread did before is done.
        let _ = self.guarded(|| {
            self.log.recycle();
            if self.log.lag_exceeds(HELP_PART) {
                self.call_combiners();
                self.help_others(at, carried_out.max(HELP));
            }
            self.log.shrink();
            Ok(())
        });
    }

    /// Brings replica `at` up to date, as far as the log is filled.
    pub(super) fn refresh(&self, at: usize, combiner: &mut Combiner<T>) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.poison.check()?;
            self.catch_up(at, combiner);
            Ok(())
        })
    }

    /// Brings replica `at` up to date, as far as the log is filled, unless its readers stay.
    pub(super) fn refresh_idle(&self, at: usize, combiner: &mut Combiner<T>) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.poison.check()?;
            let end = self.visible_tail();
            while self.replay_filled(at, combiner, u64::MAX, end, Readers::PassBy, &mut |_, _, _: &mut Vec<_>| {}) {}
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
            // Who sleeps is woken, or sees the poison before it sleeps.
            self.replicas.iter().for_each(|replica| replica.board.wake_sleepers());
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
        if own.len() + combiner.batch.len() == 0 {
            self.catch_up(at, combiner);
            return Ok(());
        }
        if self.is_alone() {
            self.round_alone(combiner, own, answer);
            return Ok(());
        }
        while own.len() + combiner.batch.left() > 0 {
            let count = (own.len() + combiner.batch.left()).min(self.log.longest_batch());
            let of_own = own.len().min(count);
            let mut reservation = self.reserve(at, combiner, count)?;
            let range = reservation.range();
            hint::point("a combiner has reserved");
            own.by_ref().take(of_own).for_each(|operation| reservation.fill(operation));
            (of_own..count).for_each(|_| reservation.fill(replica.board.request(&mut combiner.batch)));
            drop(reservation);
            replica.counts.batch(count);
            self.observe(range.end)?;
            self.replay(at, combiner, range.start, range.end, |offset, response, responses| {
                if offset < of_own { answer(response) } else { responses.push(response) }
            })?;
            combiner.reply(&replica.board);
        }
        Ok(())
    }

    /// Whether no thread reads the log: there is one replica, and no observer. Then nothing is written to it.
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
        let count = own.len() + combiner.batch.len();
        let mut own = own.peekable();
        let mut data = lock_for_change(&replica.data, |data| {
            let first = own.peek().or_else(|| replica.board.next_request(&combiner.batch));
            first.into_iter().for_each(|operation| data.prepare(operation));
        });
        // Behind the guard, so that it goes before the guard does.
        let alarm = self.poison.alarm();
        own.for_each(|operation| answer(data.write(&operation)));
        for _ in 0..combiner.batch.len() {
            let operation = replica.board.request(&mut combiner.batch);
            combiner.responses.push(data.write(&operation));
        }
        mem::forget(alarm);
        drop(data);
        replica.counts.batch(count);
        replica.counts.applied.add(count as u64);
        combiner.reply(&replica.board);
    }

    /// Takes the posted requests; if there are fewer than `min_batch` (or than handles), waits a little for more and
    /// uses the time to replay.
    fn collect(&self, at: usize, combiner: &mut Combiner<T>, own: usize) {
        let replica = &self.replicas[at];
        replica.board.collect(&mut combiner.batch);
        if self.min_batch <= 1 || own + combiner.batch.len() == 0 {
            return;
        }
        let goal = self.min_batch.min(replica.board.handles());
        let backoff = Backoff::new();
        for _ in 0..BATCH_ROUNDS {
            if own + combiner.batch.len() >= goal {
                break;
            }
            replica.counts.batch_waits.add(1);
            self.catch_up(at, combiner);
            backoff.wait();
            replica.board.collect(&mut combiner.batch);
        }
    }

    /// Room for `count` entries: recycles, helps replicas that lag behind and no thread works for, and waits. The log
    /// grows if that gives no room at all for a while: some replica stands still. At its largest it waits for that
    /// replica.
    fn reserve(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        count: usize,
    ) -> Result<Reservation<'_, T::Write>, Poisoned> {
        let (mut backoff, mut patience) = (Backoff::new(), PATIENCE);
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
            self.help_others(at, HELP);
            if self.log.recycle() {
                (backoff, patience) = (Backoff::new(), PATIENCE);
            } else if patience > 0 {
                patience -= 1;
                backoff.wait();
            } else if !self.log.grow() {
                thread::sleep(NAP);
            }
        }
    }

    /// Whether so much of what replica `at` has not applied lies in the log that its combiner must not rest.
    pub(super) fn lags_far(&self, at: usize) -> bool {
        self.log.lag_exceeds(HELP_PART) && self.log.local_tail(at) < self.visible_tail()
    }

    /// Wakes dedicated combiners that rest while their replicas lag behind.
    fn call_combiners(&self) {
        if self.dedicated {
            self.replicas.iter().for_each(|replica| replica.rest.wake());
        }
    }

    /// Replays at most `most` entries into each of the other replicas that have no combiner at work and no readers that
    /// stay.
    fn help_others(&self, me: usize, most: usize) {
        let others = (1..self.replicas.len()).map(|step| (me + step) % self.replicas.len());
        for at in others {
            let from = self.log.local_tail(at);
            let end = self.visible_tail().min(from + most as u64);
            if end > from
                && let Some(mut turn) = self.try_turn(at)
                && self.poison.check().is_ok()
            {
                self.replicas[at].counts.helper_runs.add(1);
                self.replay_filled(at, &mut turn, u64::MAX, end, Readers::PassBy, &mut |_, _, _: &mut Vec<_>| {});
            }
        }
    }

    /// Up to where replicas may replay: with an observer, what it has committed.
    pub(super) fn visible_tail(&self) -> u64 {
        // Acquire: pairs with the Release of `observe`.
        if self.observer.is_some() { self.observed.load(Ordering::Acquire) } else { self.log.tail() }
    }

    /// Shows the observer everything below `end`. No thread replays what it has not committed.
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
        while self.replay_filled(at, combiner, u64::MAX, end, Readers::WaitFor, &mut |_, _, _: &mut Vec<_>| {}) {}
    }

    /// Replays up to `end`, waiting for entries that are not filled. Responses from index `start` on go to `answer`,
    /// with their distance from `start` and the combiner's list of responses.
    fn replay(
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

    /// Replays the filled entries in a row below `end`. Returns whether it did any.
    fn replay_filled(
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
        // Behind the guard, so that it goes before the guard does.
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
        // Before readers get in: what one of them has seen, no later one on another replica may miss.
        self.log.complete(cursor.index());
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
        reentry::check(reentry::identity(self));
        self.freshen(at)?;
        self.look(at, look)
    }

    /// Runs `look` on replica `at` as it is.
    #[inline]
    pub(super) fn look<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        let data = self.replicas[at].data.read();
        let _inside = reentry::enter(reentry::identity(self));
        // Under the lock: a panic raises the flag before its writer unlocks.
        self.poison.check()?;
        Ok(look(&data))
    }

    /// Carries out one operation as the combiner.
    #[inline]
    pub(super) fn write_in_turn(
        &self,
        at: usize,
        turn: Turn<'_, T>,
        operation: T::Write,
    ) -> Result<T::Response, Poisoned> {
        let mut response = None;
        self.combine(at, turn, iter::once(operation), |answer| response = Some(answer))?;
        Ok(response.expect("every operation of a batch is answered"))
    }
}
