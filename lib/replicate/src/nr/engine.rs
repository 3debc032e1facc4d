//! The combiners' work: collect requests, append them to the log, show them to the observer, replay, answer (paper §3.3
//! to §3.7).
//!
//! A replica has two locks. The *combiner's lock* (its holder has a [`Turn`]) admits one thread at a time to append for
//! the replica and to replay into it. The *replica's lock*, a distributed reader-writer lock, excludes readers while
//! the structure itself changes. So readers continue while a combiner collects, appends, or waits for an entry.
//!
//! Every thread that replays into a replica holds the replica's combiner's lock, even a reader that refreshes its
//! replica, a helper, or a combiner of another replica that helps. (In the paper, readers refresh under the replica's
//! lock alone. A reader could then replay the entries of a combiner that was about to replay them itself, and the
//! responses would be lost.)
//!
//! A thread that has changed the replica raises the completed tail before it admits readers. (If the tail were raised
//! later, just before the operations are answered, a reader could see an operation here that a later reader on another
//! replica misses.)
//!
//! A combiner never waits while it holds the replica's lock, and never waits for another replica's locks. It helps only
//! replicas that it finds free. So a replica whose readers stay inside falls behind, and the log grows. Only when the
//! log has its largest size and is full does a combiner wait for such a replica.

use core::iter;
use core::mem;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
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
use archipelago_platform::panics::drop_quietly;

/// The largest number of times that a combiner with too small a batch collects again.
const BATCH_ROUNDS: usize = 12;

/// The log is recycled (entries that all replicas have applied are dropped) when the number of entries in use exceeds
/// its capacity divided by this number.
const RECYCLE_PART: u64 = 4;
/// Replicas are helped (other threads replay into them) when, after the recycling, more entries are in use than the
/// log's capacity divided by this number. If the replicas have helpers, these are woken, and the other threads leave
/// the work to them.
const HELP_PART: u64 = 8;
/// The number of entries after which a helper publishes the replica's local tail. A thread that waits for room in the
/// log then finds some, and readers that wait for the replica's lock enter.
const STEP: u64 = 64;
/// The least number of entries that a combiner may replay into another replica before it returns to its own work: some
/// tens of microseconds.
const HELP: usize = 32;
/// A thread that finds the log full helps and waits this many times without success, before it lets the log grow.
const PATIENCE: u32 = 64;
/// How often a combiner may find that entries became free, but too few for its batch, before it appends alone.
const OVERTAKEN: u32 = 64;
/// How long a thread sleeps between two attempts if the log may not grow any more.
const NAP: Duration = Duration::from_micros(100);

/// How to treat readers that are inside a replica that is to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Wait until they have left. Chosen by the replica's own combiner, and by readers that need a fresh replica.
    WaitFor,
    /// Skip the replica if readers stay inside. Chosen by threads that help, and by `sync`.
    PassBy,
}

/// One replica with the state that belongs to it.
pub(super) struct Replica<T: Replicable> {
    /// The combiner's lock.
    combiner: CombinerLock<Combiner<T>>,
    /// The replica's lock, and the structure. In cache lines of their own: they change often, and each operation reads
    /// the neighbouring fields.
    pub(super) data: CachePadded<DistributedRwLock<T>>,
    pub(super) board: Board<T::Write, T::Response>,
    pub(super) counts: CachePadded<Counts>,
    /// The rest state (asleep or not) of the replica's dedicated combiner, if the replica has one.
    pub(super) rest: Rest,
    /// The rest state of the replica's helper, if the replica has one.
    pub(super) helper: Rest,
}

/// The data that the combiner's lock protects.
pub(super) struct Combiner<T: Replicable> {
    cursor: Cursor<T::Write>,
    /// The requests that are carried out in this round.
    batch: Batch,
    /// The responses to these requests, until they may be sent to the posters.
    responses: Vec<T::Response>,
}

impl<T: Replicable> Combiner<T> {
    /// Answers the requests that were carried out.
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
            helper: Rest::default(),
        }
    }

    /// Returns whether a thread has the right to combine.
    pub(super) fn is_combining(&self) -> bool {
        self.combiner.is_locked()
    }
}

/// The right to combine for one replica.
pub(super) type Turn<'s, T> = turn::Turn<'s, Combiner<T>, <T as Sequential>::Write, <T as Sequential>::Response>;

/// The right to append alone, which lasts until this value is dropped. The flag only asks the other combiners to wait,
/// and orders nothing, so all accesses are Relaxed.
struct Alone<'s>(&'s AtomicBool);

impl<'s> Alone<'s> {
    fn begin(exclusive: &'s AtomicBool) -> Option<Self> {
        exclusive.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).ok().map(|_| Self(exclusive))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The part of a replicated structure that all handles share.
pub(super) struct Shared<T: Replicable> {
    pub(super) log: Log<T::Write>,
    pub(super) replicas: Box<[Replica<T>]>,
    pub(super) poison: Poison,
    pub(super) observer: Option<sync::Mutex<Observed<T::Write>>>,
    /// If there is an observer: the index below which it has committed all operations.
    pub(super) observed: AtomicU64,
    /// `true` while one combiner appends alone; see [`reserve`](Self::reserve). The flag has a cache line of its own,
    /// since each combiner reads it, and it seldom changes.
    pub(super) exclusive: CachePadded<AtomicBool>,
    pub(super) min_batch: usize,
    /// Whether background threads combine. If so, clients wait for a while before they combine themselves.
    pub(super) dedicated: bool,
    /// True if each replica has a helper. Then clients help other replicas only while the log stays full.
    pub(super) helped: bool,
}

impl<T: Replicable> Shared<T> {
    /// Returns the right to combine for replica `at`, if no thread has it.
    #[inline]
    pub(super) fn try_turn(&self, at: usize) -> Option<Turn<'_, T>> {
        let replica = &self.replicas[at];
        Turn::try_take(&replica.combiner, &replica.board, reentry::identity(self))
    }

    /// Carries out the operations `own` and all posted requests. The responses to `own` are passed to `answer`, in
    /// order.
    ///
    /// # Errors
    /// If the structure is poisoned or becomes poisoned. Then all requests that were taken are refused.
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
            // Checked under the combiner's lock: a replica that a panic left half changed is not accessed again.
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

    /// Keeps the log from filling up: recycles it, and helps replicas that lag behind. Each call does a little, so that
    /// a thread rarely has to replay a whole log at once. The calling thread has finished its own operations and holds
    /// no turn.
    fn make_room(&self, at: usize, carried_out: usize) {
        if self.is_alone() || !self.log.lag_exceeds(RECYCLE_PART) {
            return;
        }
        // A panic in here poisons the structure; the operations that this thread has finished keep their results.
        let _ = self.guarded(|| {
            self.recycle();
            if self.log.lag_exceeds(HELP_PART) {
                self.call_background();
                // Helpers do this work on their own nodes. If a thread of another node did it in their stead, the
                // replica's memory would move to this node, and the helper would be even later.
                if !self.helped {
                    self.help_others(at, carried_out.max(HELP));
                }
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

    /// Drops the operations that all replicas have applied, unless another thread does.
    pub(super) fn recycle_guarded(&self) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.recycle();
            Ok(())
        })
    }

    /// Returns after all operations that all replicas have applied were dropped, by this thread or by another one.
    pub(super) fn recycle_all(&self) -> Result<(), Poisoned> {
        // Another thread that recycles may have read the local tails before the last of them rose. What that thread
        // leaves is dropped here when it has finished.
        let applied = (0..self.replicas.len()).map(|at| self.log.local_tail(at)).min().unwrap_or(0);
        let backoff = Backoff::new();
        loop {
            self.recycle_guarded()?;
            if self.log.recycled() >= applied {
                return Ok(());
            }
            backoff.wait();
        }
    }

    /// Drops the operations that all replicas have applied, unless another thread does. Their destructors run under the
    /// recycler's lock. So they may not call the structure.
    fn recycle(&self) {
        let _inside = reentry::enter(reentry::identity(self));
        self.log.recycle();
    }

    /// Calls `f`, which calls the user's code. A panic in `f` poisons the structure.
    #[inline]
    fn guarded(&self, f: impl FnOnce() -> Result<(), Poisoned>) -> Result<(), Poisoned> {
        // The state that a panic leaves behind is not read: the poison is checked under the replica's lock.
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            self.poison.set(&*panic);
            // Each sleeper is woken here, or it sees the poison before it sleeps.
            self.replicas.iter().for_each(|replica| replica.board.wake_sleepers());
            drop_quietly(panic);
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

    /// Returns whether no thread reads the log, because there is one replica and no observer. Then nothing is written
    /// to the log.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.replicas.len() == 1 && self.observer.is_none()
    }

    /// Carries out a batch on the only replica.
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
        // Declared after the guard, so that it is dropped before the guard.
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

    /// Takes the posted requests. If these and the `own` operations are fewer than `min_batch` (and fewer than the
    /// handles), waits a little for more, and replays in the meantime.
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

    /// Reserves `count` entries. While the log is full, recycles it, helps lagging replicas for which no thread works
    /// (if they have helpers: wakes these, and helps only when they make no room for a while), and waits. If this frees
    /// no entries for a while, some replica has stopped, and the log grows. If the log has its largest size, the call
    /// waits for that replica. A log that is not longer than the batch grows at once, if it may grow.
    ///
    /// A long batch needs most of the log, or even an empty log, while the batches of other replicas' combiners may be
    /// short. So these combiners could take each entry that becomes free. A combiner that was overtaken more than
    /// [`OVERTAKEN`] times therefore appends alone: the others wait, replay what they have appended, and so empty the
    /// log. If a replica has stopped, this combiner lets the others append again.
    fn reserve(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        count: usize,
    ) -> Result<Reservation<'_, T::Write>, Poisoned> {
        let (mut backoff, mut patience, mut overtaken) = (Backoff::new(), PATIENCE, 0);
        let (mut recycled, mut alone) = (self.log.recycled(), None);
        loop {
            // Another combiner appends alone. It grows the log itself if that helps.
            let waits = alone.is_none() && self.exclusive.load(Ordering::Relaxed);
            if !waits && let Ok(reservation) = self.log.reserve(count) {
                return Ok(reservation);
            }
            self.poison.check()?;
            self.replicas[at].counts.room_waits.add(1);
            if self.log.capacity() <= count && self.log.grow() {
                continue;
            }
            self.catch_up(at, combiner);
            // A helper that keeps up makes room before the patience ends. If it does not (it may not even be
            // scheduled), this thread does its work.
            self.call_helpers(0);
            if !self.helped || patience == 0 {
                self.help_others(at, HELP);
            }
            self.recycle();
            let before = mem::replace(&mut recycled, self.log.recycled());
            if recycled > before {
                (backoff, patience) = (Backoff::new(), PATIENCE);
                overtaken += 1;
                if overtaken > OVERTAKEN {
                    alone = alone.or_else(|| Alone::begin(&self.exclusive));
                }
            } else if patience > 0 {
                patience -= 1;
                backoff.wait();
            } else if waits || !self.log.grow() {
                alone = None;
                thread::sleep(NAP);
            }
        }
    }

    /// Returns whether replica `at` lags so far behind in the log that its background threads must not rest.
    pub(super) fn lags_far(&self, at: usize) -> bool {
        self.log.lag_exceeds(HELP_PART) && self.log.local_tail(at) < self.visible_tail()
    }

    /// Wakes the dedicated combiners that rest, since their replicas may lag behind, and helpers.
    fn call_background(&self) {
        if self.dedicated {
            self.replicas.iter().for_each(|replica| replica.rest.wake());
        }
        self.call_helpers(self.far());
    }

    /// Wakes the helpers that rest although their replicas lag by more than `most` entries. (The helper of a replica
    /// whose threads work would only be in their way.)
    fn call_helpers(&self, most: u64) {
        if self.helped {
            let late = self.replicas.iter().enumerate().filter(|&(at, _)| self.lag(at) > most);
            late.for_each(|(_, replica)| replica.helper.wake());
        }
    }

    /// Returns the number of entries that replica `at` has to replay.
    fn lag(&self, at: usize) -> u64 {
        self.visible_tail().saturating_sub(self.log.local_tail(at))
    }

    /// Returns the greatest lag with which a helper may rest.
    fn far(&self) -> u64 {
        self.log.capacity() as u64 / HELP_PART
    }

    /// Returns whether the helper of replica `at` must not rest. The measure is the replica's own lag: a replica whose
    /// threads work lags by few batches, and needs no help.
    pub(super) fn needs_helper(&self, at: usize) -> bool {
        self.lag(at) > self.far()
    }

    /// Replays at most `most` entries into each of the other replicas, except into those with an active combiner or
    /// with readers that stay inside.
    fn help_others(&self, me: usize, most: usize) {
        let others = (1..self.replicas.len()).map(|step| (me + step) % self.replicas.len());
        for at in others {
            let from = self.log.local_tail(at);
            let end = self.visible_tail().min(from + most as u64);
            if end > from
                && let Some(mut turn) = self.try_turn(at)
                && self.poison.check().is_ok()
            {
                self.replicas[at].counts.combiner_helps.add(1);
                self.replay_filled(at, &mut turn, u64::MAX, end, Readers::PassBy, &mut |_, _, _: &mut Vec<_>| {});
            }
        }
    }

    /// Returns the index up to which replicas may replay. With an observer, it is the end of the committed operations.
    pub(super) fn visible_tail(&self) -> u64 {
        // Acquire: pairs with the Release of `observe`.
        if self.observer.is_some() { self.observed.load(Ordering::Acquire) } else { self.log.tail() }
    }

    /// Shows the observer all operations below `end` and lets it commit them. Operations that are not committed are not
    /// replayed.
    fn observe(&self, end: u64) -> Result<(), Poisoned> {
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
    fn catch_up(&self, at: usize, combiner: &mut Combiner<T>) {
        let end = self.visible_tail();
        while self.replay_filled(at, combiner, u64::MAX, end, Readers::WaitFor, &mut |_, _, _: &mut Vec<_>| {}) {}
    }

    /// Replays up to `end` and waits for entries that are not filled. From index `start` on, each response is passed to
    /// `answer`, with its distance from `start` and the combiner's list of responses.
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

    /// Replays the consecutive filled entries below `end`. Returns whether it replayed any.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sequential::ClosureWrite;
    use crate::{Closures, Replicated};

    /// Two combiners append one entry at a time. Neither replays its entry before the other one has appended the next,
    /// so the log is never empty. A third one appends a batch that is longer than the log. When it appends alone, one
    /// of the others stops for a while. Meanwhile the other one goes on.
    #[test]
    fn a_batch_longer_than_the_log_is_not_overtaken_for_ever() {
        const LOG: usize = 64;
        const ENTRIES: u32 = 1_000;
        let builder = Replicated::builder().replicas(3).log_capacity(LOG).largest_log(LOG);
        let structure = builder.build(|| Closures::new(0_u64));
        let shared = &*structure.owner.shared;
        let (over, stops, appended) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let is_over = || over.load(Ordering::Acquire);
        let is_exclusive = || shared.exclusive.load(Ordering::Relaxed);
        // The number of the batch's attempts.
        let attempts = || shared.replicas[0].counts.room_waits.get();
        let add = || ClosureWrite::new(|sum: &mut u64| *sum += 1);
        let wait_until = |ready: &dyn Fn() -> bool| {
            while !ready() && !is_over() {
                thread::yield_now();
            }
        };
        // Waits until the other one has appended twice. Returns false if it has not during very many attempts.
        let stop = || {
            let (since, before) = (attempts(), appended.load(Ordering::Relaxed));
            stops.store(true, Ordering::Relaxed);
            let goes_on = || appended.load(Ordering::Relaxed) > before + 1;
            wait_until(&|| goes_on() || attempts() > since + 100_000);
            stops.store(false, Ordering::Relaxed);
            goes_on()
        };
        // Appends an entry per attempt. Returns false if the batch waits too long.
        let overtake = &|at: usize| {
            let mut turn = shared.try_turn(at).expect("no other thread combines here");
            let mut has_stopped = at == 1;
            for _ in 0..ENTRIES {
                let before = attempts();
                let mut entry = shared.reserve(at, &mut turn, 1).unwrap();
                let range = entry.range();
                entry.fill(add());
                drop(entry);
                if at == 1 {
                    appended.fetch_add(1, Ordering::Relaxed);
                }
                wait_until(&|| shared.log.tail() > range.end || is_exclusive() || stops.load(Ordering::Relaxed));
                if is_exclusive() && !mem::replace(&mut has_stopped, true) && !stop() {
                    break;
                }
                shared.replay(at, &mut turn, range.start, range.end, |_, _, _| {}).unwrap();
                wait_until(&|| attempts() > before);
                if is_over() {
                    return true;
                }
            }
            // The other one waits for this one.
            over.store(true, Ordering::Release);
            false
        };
        thread::scope(|scope| {
            let others = [1, 2].map(|at| scope.spawn(move || overtake(at)));
            while shared.log.tail() < 2 {
                thread::yield_now();
            }
            let batch = (0..2 * LOG).map(|_| add()).collect();
            structure.handle_on(0).write_many(batch).unwrap();
            over.store(true, Ordering::Release);
            assert!(others.into_iter().all(|other| other.join().unwrap()));
        });
    }
}
