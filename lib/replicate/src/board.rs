//! The board: an array of *slots*, in which threads post requests for the *combiner* (the thread that carries out the
//! requests of all) and find the answers. (The node-replication paper calls them slots, too, in §3.3; flat combining
//! calls them publication records.)
//!
//! Any thread may claim any free slot, so any number of threads can share a few slots. The field `state` of [`Slot`]
//! describes the states of a slot.
//!
//! # Cache-line transfers
//! State, request and answer are stored together, and the slot of a small request is one cache line. The poster writes
//! the line once. The combiner reads it, then writes answer and state together, and the poster reads these. So the line
//! is transferred only twice, to the combiner and back.
//!
//! The combiner does not mark a slot as taken while it works on the request. Such a mark would transfer the line once
//! more, because the poster polls the line all the time. Without the mark, the combiner also needs no locked
//! instruction. The price is that a poster that abandons its request cannot tell whether the request was taken. Such a
//! poster leaves a mark ([`Sleeper::Gone`]), and the slot is freed when the request is answered or dropped.
//!
//! # Slots that the combiner reads
//! Posting a request sets the slot's bit in a bitmap, where the bit stays set. From time to time, the combiner clears
//! the bits of slots that were unused for long (*ageing*). So the cost of a combiner's round depends on the number of
//! busy threads, not on the number of slots. The combiner reads the slots in the order of their addresses.
//!
//! # No thread sleeps for ever
//! A sleeper (1) stores its waker and sets its bit among the sleepers' bits, then (2) checks whether its request is
//! answered, or whether no combiner is active. A combiner that leaves (1) answers and unlocks, then (2) checks for
//! sleepers and wakes them. Both have a `SeqCst` fence between (1) and (2), so at least one of them sees the other.

mod batch;
mod bits;
mod line;

use core::mem::MaybeUninit;
use core::task::Waker;

use archipelago_platform::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use archipelago_platform::cell::RaceCell;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::boxed;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread::Thread;

#[cfg(any(test, not(loom)))]
pub(crate) use batch::Batch;
use bits::Bits;
use line::Line;

use archipelago_platform::panics::{drop_quietly, quietly};

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const IDLE: u32 = 2;
const POSTED: u32 = 3;
const CANCELLED: u32 = 4;
const ANSWERED: u32 = 5;
const REFUSED: u32 = 6;

/// How to wake the thread or task that waits at a slot.
#[derive(Clone)]
pub(crate) enum Sleeper {
    /// A parked thread.
    Thread(Thread),
    /// A task of an executor.
    Task(Waker),
    /// No thread waits any more: the answer is dropped and the slot is freed.
    Gone,
}

impl Sleeper {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            // A panic of one task's waker must not keep the other sleepers asleep.
            Self::Task(waker) => {
                quietly(|| waker.wake());
            }
            Self::Gone => {}
        }
    }
}

/// The error for a request that no combiner will answer: the structure is poisoned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// The fields have this order so that the state, the request and the answer are in the first cache line.
#[repr(C)]
struct Slot<Q, A> {
    /// | state | owner of the slot | next state |
    /// |---|---|---|
    /// | `FREE` | no thread | `CLAIMED`, by a thread's compare-and-exchange |
    /// | `CLAIMED` | the claiming thread, which writes its request | `POSTED`; `IDLE` to be woken without a request |
    /// | `IDLE` | the claiming thread, which waits to be woken by the combiner | `FREE` |
    /// | `POSTED` | the combiner, or the next thread that combines | `ANSWERED`, `REFUSED`; `CANCELLED` by its poster |
    /// | `CANCELLED` | as for `POSTED`; its poster has abandoned it | `FREE`; `ANSWERED`, `REFUSED` if it was taken before |
    /// | `ANSWERED`, `REFUSED` | the poster, which takes the answer | `FREE` |
    state: AtomicU32,
    /// Initialized while `POSTED` or `CANCELLED`, until the combiner moves the request out.
    request: RaceCell<MaybeUninit<Q>>,
    /// Initialized while `ANSWERED`.
    answer: RaceCell<MaybeUninit<A>>,
    sleeper: Mutex<Option<Sleeper>>,
    /// The number of handles that prefer this slot.
    users: AtomicUsize,
}

/// The index of a slot on the board, claimed by the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// All slots of one replica or combined structure. See the module's text. The combiners' operations are described at
/// [`Batch`].
pub(crate) struct Board<Q, A> {
    slots: Box<[CachePadded<Slot<Q, A>>]>,
    /// The slots that combiners read.
    active: Bits,
    /// The slots with a sleeper, and those with a mark of an abandoned request. One more bit stands for the line (the
    /// queue of threads that found no free slot), and is set while the line is not empty.
    asleep: Bits,
    /// The threads that found no free slot.
    line: Mutex<Line>,
    /// For each slot, the round in which it was last used; and the number of rounds so far, in a cache line of its own,
    /// apart from the fields that each operation reads. Both are used by combiners only.
    used: Box<[AtomicU32]>,
    round: CachePadded<AtomicU32>,
    /// The number of handles.
    handles: CachePadded<AtomicUsize>,
    /// The number of processors available to the handles' threads.
    cpus: usize,
}

// SAFETY: requests and answers are moved from thread to thread. They have one owner at a time, given by the slot's
// state, and are never shared.
unsafe impl<Q: Send, A: Send> Sync for Board<Q, A> {}
// SAFETY: as above.
unsafe impl<Q: Send, A: Send> Send for Board<Q, A> {}

impl<Q, A> Board<Q, A> {
    /// Makes a board with `slots` slots, at least one, for threads that have `cpus` processors.
    pub(crate) fn new(slots: usize, cpus: usize) -> Self {
        let slots = slots.clamp(1, 1 << 16);
        let slot = || Slot {
            state: AtomicU32::new(FREE),
            request: RaceCell::new(MaybeUninit::uninit()),
            answer: RaceCell::new(MaybeUninit::uninit()),
            sleeper: Mutex::new(None),
            users: AtomicUsize::new(0),
        };
        Self {
            slots: boxed(slots, || CachePadded::new(slot())),
            active: Bits::new(slots),
            asleep: Bits::new(slots + 1),
            line: Mutex::default(),
            used: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            round: CachePadded::default(),
            handles: CachePadded::default(),
            cpus,
        }
    }

    fn slot(&self, id: SlotId) -> &Slot<Q, A> {
        &self.slots[id.0 as usize]
    }

    fn is(&self, id: SlotId, state: u32) -> bool {
        self.slot(id).state.load(Ordering::Relaxed) == state
    }

    /// Returns a slot for a new handle to prefer: the first of the slots that the fewest handles prefer. The handle
    /// calls [`leave`](Self::leave) at its end.
    pub(crate) fn join(&self) -> SlotId {
        // Handles that join at the same time may choose the same slot. Then they share it, which is only slower.
        let least = (0..self.slots.len()).min_by_key(|&at| self.slots[at].users.load(Ordering::Relaxed));
        let at = least.expect("there is a slot");
        self.slots[at].users.fetch_add(1, Ordering::Relaxed);
        self.handles.fetch_add(1, Ordering::Relaxed);
        SlotId(at as u32)
    }

    /// Removes a handle that preferred the slot.
    pub(crate) fn leave(&self, preferred: SlotId) {
        self.slot(preferred).users.fetch_sub(1, Ordering::Relaxed);
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of handles.
    pub(crate) fn handles(&self) -> usize {
        self.handles.load(Ordering::Relaxed)
    }

    /// Returns whether there are more handles, hence most likely more threads, than processors for them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.handles() > self.cpus
    }

    /// Claims a free slot, `preferred` if possible. Returns `None` if all are in use.
    pub(crate) fn claim(&self, preferred: SlotId) -> Option<SlotId> {
        let count = self.slots.len();
        (0..count).map(|step| SlotId(((preferred.0 as usize + step) % count) as u32)).find(|&id| {
            let state = &self.slot(id).state;
            // Acquire: pairs with the Release of the thread that freed the slot, so its accesses to the cells happen
            // before ours.
            state.load(Ordering::Relaxed) == FREE
                && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Posts a request in a claimed slot.
    pub(crate) fn post(&self, id: SlotId, request: Q) {
        debug_assert!(self.is(id, CLAIMED));
        let slot = self.slot(id);
        slot.request.with_mut(|cell| {
            // SAFETY: the caller has claimed the slot, and the slot contains no request.
            unsafe { (*cell).write(request) };
        });
        // Release: pairs with the Acquire of `Batch::collect`.
        slot.state.store(POSTED, Ordering::Release);
        // Partner: the fence in `age`. Either this thread sees that the bit was cleared, or the combiner that cleared
        // it sees that the slot is in use.
        fence(Ordering::SeqCst);
        self.active.set(id.0);
    }

    /// Changes a claimed slot to one in which its owner only waits to be woken, see [`sleep`](Self::sleep).
    pub(crate) fn idle(&self, id: SlotId) {
        debug_assert!(self.is(id, CLAIMED));
        self.slot(id).state.store(IDLE, Ordering::Release);
    }

    /// Frees a slot that belongs to the caller and whose cells are empty.
    #[inline]
    pub(crate) fn free(&self, id: SlotId) {
        debug_assert!([CLAIMED, IDLE, CANCELLED, ANSWERED, REFUSED].iter().any(|&state| self.is(id, state)));
        let sleeper = self.asleep.has(id.0).then(|| {
            // A waker that stays in the slot would keep its task alive.
            self.asleep.clear(id.0);
            self.sleeper(id).take()
        });
        // Release: hands the cells over to the next thread that claims the slot.
        self.slot(id).state.store(FREE, Ordering::Release);
        // The waker's destructor is the user's code. It runs after the lock of the sleeper was released, and after the
        // slot was freed: an answer that was read out must not be read again.
        if sleeper.is_some() {
            drop_quietly(sleeper);
        }
    }

    /// Returns whether any request is posted.
    pub(crate) fn has_posts(&self) -> bool {
        self.active.iter().any(|at| self.is(SlotId(at), POSTED))
    }

    /// Returns the answer, if there is one, and then frees the slot. For the poster.
    #[inline]
    pub(crate) fn answer(&self, id: SlotId) -> Option<Result<A, Refused>> {
        let slot = self.slot(id);
        // Acquire: pairs with the Release of `Batch::reply`.
        let answer = match slot.state.load(Ordering::Acquire) {
            // SAFETY: an answered slot contains an answer, which belongs to the poster. It is read once, since the slot
            // is freed below.
            ANSWERED => Ok(slot.answer.with(|cell| unsafe { (*cell).assume_init_read() })),
            REFUSED => Err(Refused),
            _ => return None,
        };
        self.free(id);
        Some(answer)
    }

    /// Returns whether [`answer`](Self::answer) will return one. For the poster.
    #[inline]
    pub(crate) fn answer_is_there(&self, id: SlotId) -> bool {
        self.slot(id).state.load(Ordering::Acquire) >= ANSWERED
    }

    /// Abandons a request: the poster will not wait for the answer. The request is carried out only if a combiner has
    /// taken it already.
    pub(crate) fn abandon(&self, id: SlotId) {
        let mut sleeper = self.sleeper(id);
        // Before the exchange: after it, the slot may be freed and claimed by another thread.
        let before = sleeper.replace(Sleeper::Gone);
        self.asleep.set(id.0);
        // Release: pairs with the Acquire of `collect`, whose thread then sees the mark `Gone`.
        let state = &self.slot(id).state;
        if state.compare_exchange(POSTED, CANCELLED, Ordering::Release, Ordering::Relaxed).is_err() {
            *sleeper = None;
            drop(sleeper);
            drop_quietly(before);
            self.answer(id);
            return;
        }
        drop(sleeper);
        // Users' destructors run only when the lock is not held.
        drop_quietly(before);
        // Partner: the fence in `wake_sleepers`. A combiner that had taken the request may have left before it could
        // see the mark.
        fence(Ordering::SeqCst);
        self.bury(id);
    }

    /// Frees the slot of an abandoned request, if its mark is still set and the combiner has answered.
    fn bury(&self, id: SlotId) {
        let mut sleeper = self.sleeper(id);
        if matches!(*sleeper, Some(Sleeper::Gone)) && self.answer_is_there(id) {
            *sleeper = None;
            drop(sleeper);
            // A panic of the answer's destructor is ignored, since the calling thread is mostly a combiner, whose own
            // work must continue.
            drop_quietly(self.answer(id));
        }
    }

    /// Stores the sleeper by which the poster will be woken, and drops an earlier one. Afterwards the poster must check
    /// whether it was answered and whether a combiner is active. It may sleep if it was not answered and a combiner is
    /// active.
    pub(crate) fn sleep(&self, id: SlotId, sleeper: Sleeper) {
        let before = self.sleeper(id).replace(sleeper);
        self.asleep.set(id.0);
        // Partner: the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
        drop_quietly(before);
    }

    fn sleeper(&self, id: SlotId) -> MutexGuard<'_, Option<Sleeper>> {
        // No user's code runs while the lock is held, so a panic cannot have left the field half changed.
        self.slot(id).sleeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes all sleepers. Every combiner calls this after it has unlocked; it is also called when the structure is
    /// poisoned. Woken sleepers that are not answered check again and store their wakers again.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        // Partner: the fence in `sleep`. The answers, and the unlocking or the poisoning, come before this fence.
        fence(Ordering::SeqCst);
        for at in self.asleep.iter() {
            self.wake(SlotId(at));
        }
    }

    #[cold]
    fn wake(&self, id: SlotId) {
        if id.0 == self.line_bit() {
            return self.wake_first();
        }
        let mut sleeper = self.sleeper(id);
        if matches!(*sleeper, Some(Sleeper::Gone)) {
            drop(sleeper);
            return self.bury(id);
        }
        self.asleep.clear(id.0);
        let woken = sleeper.take();
        drop(sleeper);
        // `None`: the poster did not go to sleep after all.
        woken.into_iter().for_each(Sleeper::wake);
    }
}

impl<Q, A> Drop for Board<Q, A> {
    fn drop(&mut self) {
        for slot in &self.slots {
            match slot.state.load(Ordering::Relaxed) {
                // SAFETY: no other thread uses the board. The request was not moved out, otherwise it would be answered
                // by now.
                POSTED | CANCELLED => slot.request.with_mut(|cell| unsafe { (*cell).assume_init_drop() }),
                // SAFETY: no other thread uses the board, and the poster did not take the answer.
                ANSWERED => slot.answer.with_mut(|cell| unsafe { (*cell).assume_init_drop() }),
                _ => {}
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
