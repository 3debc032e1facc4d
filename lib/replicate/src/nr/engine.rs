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
//! `replay.rs` has what changes a replica and reads it, `room.rs` what keeps the log from filling up.

use core::iter;
use core::mem;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use archipelago_platform::atomic::{AtomicBool, AtomicU64};
use archipelago_platform::hint;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, Mutex, RawDistributedRwLock};
use archipelago_sync::log::{Cursor, Log};

use super::Replicable;
use super::observe::Observed;
use super::rest::Rest;
use super::stats::Counts;
use crate::board::{Batch, Board};
use crate::poison::{Poison, Poisoned};
use crate::reentry;
use crate::sequential::{Sequential, lock_for_change};
use crate::turn::{self, CombinerLock};
use archipelago_platform::panics::drop_quietly;

/// The largest number of times that a combiner with too small a batch collects again.
const BATCH_ROUNDS: usize = 12;

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
    pub(super) cursor: Cursor<T::Write>,
    /// The requests that are carried out in this round.
    batch: Batch,
    /// The responses to these requests, until they may be sent to the posters.
    pub(super) responses: Vec<T::Response>,
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

    /// Calls `f`, which calls the user's code. A panic in `f` poisons the structure.
    #[inline]
    pub(super) fn guarded(&self, f: impl FnOnce() -> Result<(), Poisoned>) -> Result<(), Poisoned> {
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
