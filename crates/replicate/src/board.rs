//! Where threads post requests for the combiner and find the answers (the *slots* of paper §3.3, the publication
//! records of flat combining).
//!
//! # A slot's states
//!
//! | state | the slot belongs to | next |
//! |---|---|---|
//! | `FREE` | nobody | `CLAIMED`, by a thread's compare-and-exchange |
//! | `CLAIMED` | that thread, which writes its request | `POSTED`, or `IDLE` to be woken without a request |
//! | `IDLE` | that thread, which waits for the combiner to be gone | `FREE` |
//! | `POSTED` | nobody; a combiner or its poster may take the request | `TAKEN` by a combiner, `CLAIMED` by its poster |
//! | `TAKEN` | the combiner, which carries it out | `ANSWERED`, `REFUSED` |
//! | `ABANDONED` | the combiner; the poster has gone away | `FREE` |
//! | `ANSWERED`, `REFUSED` | the poster, which takes the answer | `FREE` |
//!
//! A bit beside the state says that the poster sleeps and left word how to wake it. Any thread may claim any free slot,
//! so that any number of threads can share few slots.
//!
//! # Which slots the combiner looks at
//! Posting a request puts its slot on a list, where it stays; now and then the combiner takes off those that were not
//! used for long (*ageing*). So a combiner's round costs as much as there are busy threads, not as there are slots.
//! Threads push on the list's head by compare-and-exchange and combiners, one at a time, remove behind the head.
//!
//! # Nobody sleeps for ever
//! A sleeper (1) leaves its waker and counts itself among the sleepers, (2) looks whether a combiner is there. A
//! combiner that leaves (1) unlocks, (2) looks whether there are sleepers, and wakes those whose requests it did not
//! see. Both have a `SeqCst` fence between (1) and (2), so that one of them sees the other.

use core::task::Waker;

use archipelago_platform::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread::Thread;

use crate::cell::RaceCell;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const IDLE: u32 = 2;
const POSTED: u32 = 3;
const TAKEN: u32 = 4;
const ABANDONED: u32 = 5;
const ANSWERED: u32 = 6;
const REFUSED: u32 = 7;
const STATE: u32 = 7;
/// Set beside the state: the poster sleeps.
const ASLEEP: u32 = 8;

/// Rounds of combining between two looks for unused slots, and how many rounds a slot may go unused.
const AGE: u32 = if cfg!(loom) { 1 } else { 256 };

/// How to wake who waits at a slot.
pub(crate) enum Sleeper {
    /// A parked thread.
    Thread(Thread),
    /// A task of an executor.
    Task(Waker),
}

impl Sleeper {
    fn wake(self) {
        match self {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => waker.wake(),
        }
    }
}

/// The combiner will not answer this request: the structure is poisoned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

struct Slot<Q, A> {
    state: AtomicU32,
    /// Owned by whom the state says.
    request: RaceCell<Option<Q>>,
    /// Owned by the combiner while `TAKEN` or `ABANDONED`, by the poster while `ANSWERED`.
    answer: RaceCell<Option<A>>,
    sleeper: Mutex<Option<Sleeper>>,
    /// Whether the slot is on the list.
    listed: AtomicBool,
    /// The slot behind this one on the list, plus one; 0 at the end.
    next: AtomicU32,
    /// The round in which the slot was last used. Combiners only.
    used: AtomicU32,
    /// How many handles prefer this slot.
    users: AtomicUsize,
}

/// A request's place on the board, claimed by the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// All slots of one replica or combined structure. See the module's text.
///
/// The functions marked *combiner* are called by one thread at a time, which the combiner's lock sees to.
pub(crate) struct Board<Q, A> {
    slots: Box<[CachePadded<Slot<Q, A>>]>,
    /// The list's first slot, plus one; 0 if it is empty.
    head: CachePadded<AtomicU32>,
    /// Threads and tasks that left a waker and do not know yet that they were answered.
    sleepers: CachePadded<AtomicUsize>,
    /// Counts the combiners' rounds.
    round: AtomicU32,
}

// SAFETY: requests and answers are moved from thread to thread, one owner at a time, as the states say; nothing in them
// is shared.
unsafe impl<Q: Send, A: Send> Sync for Board<Q, A> {}
// SAFETY: as above.
unsafe impl<Q: Send, A: Send> Send for Board<Q, A> {}

impl<Q, A> Board<Q, A> {
    /// A board with `slots` slots, at least one.
    pub(crate) fn new(slots: usize) -> Self {
        let slot = || Slot {
            state: AtomicU32::new(FREE),
            request: RaceCell::new(None),
            answer: RaceCell::new(None),
            sleeper: Mutex::new(None),
            listed: AtomicBool::new(false),
            next: AtomicU32::new(0),
            used: AtomicU32::new(0),
            users: AtomicUsize::new(0),
        };
        Self {
            slots: (0..slots.clamp(1, 1 << 16)).map(|_| CachePadded::new(slot())).collect(),
            head: CachePadded::new(AtomicU32::new(0)),
            sleepers: CachePadded::new(AtomicUsize::new(0)),
            round: AtomicU32::new(0),
        }
    }

    fn slot(&self, id: SlotId) -> &Slot<Q, A> {
        &self.slots[id.0 as usize]
    }

    fn is(&self, id: SlotId, state: u32) -> bool {
        self.slot(id).state.load(Ordering::Relaxed) & STATE == state
    }

    /// A slot for a new handle to prefer: the first of those that the fewest prefer. To be given back by
    /// [`leave`](Self::leave).
    pub(crate) fn join(&self) -> SlotId {
        // Handles that come at once may choose the same slot; then they share it, which is only slower.
        let least = (0..self.slots.len()).min_by_key(|&at| self.slots[at].users.load(Ordering::Relaxed));
        let at = least.expect("there is a slot");
        self.slots[at].users.fetch_add(1, Ordering::Relaxed);
        SlotId(at as u32)
    }

    /// The handle that preferred the slot is gone.
    pub(crate) fn leave(&self, preferred: SlotId) {
        self.slot(preferred).users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims a free slot, `preferred` if possible; `None` if all are in use.
    pub(crate) fn claim(&self, preferred: SlotId) -> Option<SlotId> {
        let count = self.slots.len();
        (0..count).map(|step| SlotId(((preferred.0 as usize + step) % count) as u32)).find(|&id| {
            let state = &self.slot(id).state;
            // Acquire: pairs with the Release of whoever freed the slot, so that the cells are ours now.
            state.load(Ordering::Relaxed) == FREE
                && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Posts a request at a claimed slot.
    pub(crate) fn post(&self, id: SlotId, request: Q) {
        debug_assert!(self.is(id, CLAIMED));
        let slot = self.slot(id);
        slot.request.with_mut(|cell| {
            // SAFETY: the slot is claimed by the caller.
            unsafe { *cell = Some(request) };
        });
        // Release: pairs with the Acquire of `collect` (and of `retract`).
        slot.state.store(POSTED, Ordering::Release);
        self.enlist(id);
    }

    /// Makes a claimed slot one that only waits to be woken, see [`sleep`](Self::sleep).
    pub(crate) fn idle(&self, id: SlotId) {
        debug_assert!(self.is(id, CLAIMED));
        self.slot(id).state.store(IDLE, Ordering::Release);
    }

    /// Frees a slot that is the caller's: idle, claimed or answered.
    #[inline]
    pub(crate) fn free(&self, id: SlotId) {
        debug_assert!([CLAIMED, IDLE, ANSWERED, REFUSED].iter().any(|&state| self.is(id, state)));
        let slot = self.slot(id);
        if slot.state.load(Ordering::Relaxed) & ASLEEP != 0 {
            // A waker left behind would keep its task alive.
            slot.sleeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        }
        // Release: hands the cells over to the next one to claim the slot.
        slot.state.store(FREE, Ordering::Release);
    }

    /// Sees to it that the slot, which was just posted, is on the list.
    fn enlist(&self, id: SlotId) {
        // Partner: the fence in `remove_unused`. Either this sees that the slot was taken off, or the combiner that took
        // it off sees that it is in use.
        fence(Ordering::SeqCst);
        let slot = self.slot(id);
        if slot.listed.load(Ordering::Relaxed) || slot.listed.swap(true, Ordering::Acquire) {
            return;
        }
        let mut first = self.head.load(Ordering::Relaxed);
        loop {
            slot.next.store(first, Ordering::Relaxed);
            // Release: publishes `next` to combiners; the list's other links are published by the release sequence.
            match self.head.compare_exchange_weak(first, id.0 + 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    fn listed(&self) -> impl Iterator<Item = SlotId> + '_ {
        // Acquire: pairs with the Release of `enlist`.
        let mut next = self.head.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            let id = SlotId(next.checked_sub(1)?);
            next = self.slot(id).next.load(Ordering::Relaxed);
            Some(id)
        })
    }

    /// *Combiner.* Whether any request is posted.
    pub(crate) fn has_posts(&self) -> bool {
        self.listed().any(|id| self.is(id, POSTED))
    }

    /// *Combiner.* Takes every posted request: adds their slots to `taken`.
    pub(crate) fn collect(&self, taken: &mut Vec<SlotId>) {
        let round = self.round.load(Ordering::Relaxed).wrapping_add(1);
        self.round.store(round, Ordering::Relaxed);
        for id in self.listed() {
            let slot = self.slot(id);
            let state = slot.state.load(Ordering::Relaxed);
            if state & STATE == POSTED && self.advance(id, POSTED, TAKEN) {
                slot.used.store(round, Ordering::Relaxed);
                taken.push(id);
            }
        }
        if round.is_multiple_of(AGE) {
            self.remove_unused(round);
        }
    }

    /// Exchanges the state and keeps the bit beside it; fails if the state is not `from`. Acquire and Release.
    fn advance(&self, id: SlotId, from: u32, to: u32) -> bool {
        let state = &self.slot(id).state;
        let mut now = state.load(Ordering::Relaxed);
        while now & STATE == from {
            match state.compare_exchange(now, to | now & ASLEEP, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// *Combiner.* Takes slots off the list that nobody used lately. The first one stays: new ones are pushed there.
    #[cold]
    fn remove_unused(&self, round: u32) {
        let mut last: Option<SlotId> = None;
        let listed: Vec<SlotId> = self.listed().collect();
        for id in listed {
            let slot = self.slot(id);
            let old = round.wrapping_sub(slot.used.load(Ordering::Relaxed)) > AGE;
            match last {
                Some(before) if old && slot.state.load(Ordering::Relaxed) == FREE => {
                    self.slot(before).next.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
                    // Release: the link was read before a poster may change it.
                    slot.listed.store(false, Ordering::Release);
                    // Partner: the fence in `enlist`.
                    fence(Ordering::SeqCst);
                    if slot.state.load(Ordering::Relaxed) != FREE {
                        self.enlist(id);
                    }
                }
                _ => last = Some(id),
            }
        }
    }

    /// *Combiner.* Moves the request out of a taken slot.
    ///
    /// # Panics
    /// If it was moved out before.
    pub(crate) fn request(&self, id: SlotId) -> Q {
        debug_assert!(self.is(id, TAKEN) || self.is(id, ABANDONED));
        // SAFETY: a taken slot's cells are the combiner's, and `collect` acquired them from the poster.
        self.slot(id).request.with_mut(|cell| unsafe { (*cell).take() }).expect("a taken slot has a request")
    }

    /// *Combiner.* Stores the answer to a taken slot, to be shown by [`reply`](Self::reply).
    pub(crate) fn prepare(&self, id: SlotId, answer: A) {
        debug_assert!(self.is(id, TAKEN) || self.is(id, ABANDONED));
        // SAFETY: as in `request`.
        self.slot(id).answer.with_mut(|cell| unsafe { *cell = Some(answer) });
    }

    /// *Combiner.* Shows the prepared answer of a taken slot, or refuses it, and wakes who waits for it.
    pub(crate) fn reply(&self, id: SlotId, refuse: bool) {
        let slot = self.slot(id);
        if refuse {
            // SAFETY: as in `request`. Either may still be there.
            drop(slot.request.with_mut(|cell| unsafe { (*cell).take() }));
            // SAFETY: as in `request`.
            drop(slot.answer.with_mut(|cell| unsafe { (*cell).take() }));
        }
        // AcqRel: the Release half pairs with the Acquire of `answer`, the Acquire half with `abandon` and `sleep`.
        let before = slot.state.swap(if refuse { REFUSED } else { ANSWERED }, Ordering::AcqRel);
        match before & STATE {
            TAKEN if before & ASLEEP != 0 => self.wake(id),
            TAKEN => {}
            state => {
                debug_assert_eq!(state, ABANDONED);
                // Nobody waits: it is ours to clean up.
                // SAFETY: the poster has gone away, so the cells are still the combiner's.
                drop(slot.answer.with_mut(|cell| unsafe { (*cell).take() }));
                slot.state.store(FREE, Ordering::Release);
            }
        }
    }

    /// The answer, when there is one; then the slot is free again. For the poster.
    #[inline]
    pub(crate) fn answer(&self, id: SlotId) -> Option<Result<A, Refused>> {
        let slot = self.slot(id);
        // Acquire: pairs with the Release of `reply`.
        let state = slot.state.load(Ordering::Acquire) & STATE;
        if state < ANSWERED {
            return None;
        }
        // SAFETY: an answered slot's cells are the poster's.
        let answer = slot.answer.with_mut(|cell| unsafe { (*cell).take() });
        self.free(id);
        Some(if state == ANSWERED { Ok(answer.expect("an answered slot has an answer")) } else { Err(Refused) })
    }

    /// Whether [`answer`](Self::answer) will have one. For the poster.
    #[inline]
    pub(crate) fn answer_is_there(&self, id: SlotId) -> bool {
        self.slot(id).state.load(Ordering::Acquire) & STATE >= ANSWERED
    }

    /// Takes the request back if no combiner has taken it, and frees the slot. For the poster.
    pub(crate) fn retract(&self, id: SlotId) -> Option<Q> {
        if !self.advance(id, POSTED, CLAIMED) {
            return None;
        }
        // SAFETY: claimed again.
        let request = self.slot(id).request.with_mut(|cell| unsafe { (*cell).take() });
        self.free(id);
        request
    }

    /// The poster goes away without waiting for the answer; what it posted may still be carried out.
    pub(crate) fn abandon(&self, id: SlotId) {
        loop {
            if self.retract(id).is_some() || self.advance(id, TAKEN, ABANDONED) || self.answer(id).is_some() {
                return;
            }
        }
    }

    /// Leaves word how to wake the poster (again, if it did before). It must look afterwards whether it was answered and
    /// whether a combiner is there, and may then sleep if neither. `first`: it did not sleep since it claimed the slot;
    /// then [`wide_awake`](Self::wide_awake) is due when it does not wait any more.
    pub(crate) fn sleep(&self, id: SlotId, sleeper: Sleeper, first: bool) {
        let slot = self.slot(id);
        *slot.sleeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sleeper);
        // Release: pairs with the Acquire of `reply` and of `wake_sleepers`. (Harmless if it was answered meanwhile: the
        // bit goes with the state when the slot is freed.)
        slot.state.fetch_or(ASLEEP, Ordering::AcqRel);
        if first {
            self.sleepers.fetch_add(1, Ordering::AcqRel);
        }
        // Partner: the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
    }

    /// Undoes the first [`sleep`](Self::sleep).
    pub(crate) fn wide_awake(&self) {
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
    }

    /// To be called by every combiner after it unlocked: wakes those who fell asleep behind its back.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        // Partner: the fence in `sleep`. What comes before it is the unlocking.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Acquire) > 0 {
            self.wake_all();
        }
    }

    /// Wakes all who sleep and are not about to be answered.
    #[cold]
    pub(crate) fn wake_all(&self) {
        // All slots, not the list: its links may be changed by the next combiner.
        for at in 0..self.slots.len() {
            let id = SlotId(at as u32);
            let state = self.slot(id).state.load(Ordering::Acquire);
            if state & ASLEEP != 0 && matches!(state & STATE, POSTED | IDLE) {
                self.wake(id);
            }
        }
    }

    /// Wakes who sleeps at the slot. Waking one who does not wait for anything here is harmless.
    #[cold]
    fn wake(&self, id: SlotId) {
        let sleeper = self.slot(id).sleeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
