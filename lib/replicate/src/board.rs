//! Where threads post requests for the combiner and find the answers (the *slots* of paper §3.3, the publication
//! records of flat combining).
//!
//! # A slot's states
//!
//! | state | the slot belongs to | next |
//! |---|---|---|
//! | `FREE` | no thread | `CLAIMED`, by a thread's compare-and-exchange |
//! | `CLAIMED` | that thread, which writes its request | `POSTED`, or `IDLE` to be woken without a request |
//! | `IDLE` | that thread, which waits for the combiner to be gone | `FREE` |
//! | `POSTED` | the combiner, or the thread that gets its lock next | `ANSWERED`, `REFUSED`; `CANCELLED` by its poster |
//! | `CANCELLED` | the combiner, as above; the poster has gone away | `FREE`, or `ANSWERED` if the combiner was at it |
//! | `ANSWERED`, `REFUSED` | the poster, which takes the answer | `FREE` |
//!
//! Any thread may claim any free slot, so that any number of threads can share few slots.
//!
//! # What travels
//! State, request and answer lie together, and a small request's slot is one cache line. The poster writes it once, the
//! combiner reads it, writes answer and state in one go, and the poster reads that: a line's way there and back. So the
//! combiner leaves the slot as it is while it works on the request (a mark like "taken" would call the line back from
//! the poster, who looks at it all the time), and needs no locked instruction for it. The price is that a poster that
//! goes away can not tell whether its request was taken: it leaves word that another thread has to clean up.
//!
//! # Which slots the combiner looks at
//! Posting a request sets the slot's bit in a bitmap, where it stays; now and then the combiner clears the bits of slots
//! that were not used for long (*ageing*). So a combiner's round costs as much as there are busy threads, not as there
//! are slots, and goes over them in the order of memory.
//!
//! # No thread sleeps for ever
//! A sleeper (1) leaves its waker and sets its bit among the sleepers, (2) looks whether it was answered or no combiner
//! is there. A combiner that leaves (1) answers and unlocks, (2) looks whether there are sleepers, and wakes them. Both
//! have a `SeqCst` fence between (1) and (2), so that one of them sees the other.

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

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const IDLE: u32 = 2;
const POSTED: u32 = 3;
const CANCELLED: u32 = 4;
const ANSWERED: u32 = 5;
const REFUSED: u32 = 6;

/// How to wake who waits at a slot.
#[derive(Clone)]
pub(crate) enum Sleeper {
    /// A parked thread.
    Thread(Thread),
    /// A task of an executor.
    Task(Waker),
    /// No thread waits any more: the answer is to be thrown away and the slot freed.
    Gone,
}

impl Sleeper {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
            Self::Gone => {}
        }
    }
}

/// The combiner will not answer this request: the structure is poisoned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// In this order, so that what travels lies on the first line.
#[repr(C)]
struct Slot<Q, A> {
    state: AtomicU32,
    /// There while `POSTED` or `CANCELLED`, until the combiner moves it out.
    request: RaceCell<MaybeUninit<Q>>,
    /// There while `ANSWERED`.
    answer: RaceCell<MaybeUninit<A>>,
    sleeper: Mutex<Option<Sleeper>>,
    /// How many handles prefer this slot.
    users: AtomicUsize,
}

/// A request's place on the board, claimed by the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// All slots of one replica or combined structure. See the module's text; what combiners do is at [`Batch`].
pub(crate) struct Board<Q, A> {
    slots: Box<[CachePadded<Slot<Q, A>>]>,
    /// Slots that combiners look at.
    active: Bits,
    /// Slots where a sleeper left word how to be woken; and the line, while anyone stands in it.
    asleep: Bits,
    /// Of those that found no free slot.
    line: Mutex<Line>,
    /// For each slot the round in which it was last used; and the rounds so far, apart from what each operation reads. Combiners
    /// only.
    used: Box<[AtomicU32]>,
    round: CachePadded<AtomicU32>,
    /// How many handles there are.
    handles: CachePadded<AtomicUsize>,
    /// Processors for their threads.
    cpus: usize,
}

// SAFETY: requests and answers are moved from thread to thread, one owner at a time, as the states say; nothing in them
// is shared.
unsafe impl<Q: Send, A: Send> Sync for Board<Q, A> {}
// SAFETY: as above.
unsafe impl<Q: Send, A: Send> Send for Board<Q, A> {}

impl<Q, A> Board<Q, A> {
    /// A board with `slots` slots, at least one, for threads that have `cpus` processors.
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

    /// A slot for a new handle to prefer: the first of those that the fewest prefer. To be given back by
    /// [`leave`](Self::leave).
    pub(crate) fn join(&self) -> SlotId {
        // Handles that come at once may choose the same slot; then they share it, which is only slower.
        let least = (0..self.slots.len()).min_by_key(|&at| self.slots[at].users.load(Ordering::Relaxed));
        let at = least.expect("there is a slot");
        self.slots[at].users.fetch_add(1, Ordering::Relaxed);
        self.handles.fetch_add(1, Ordering::Relaxed);
        SlotId(at as u32)
    }

    /// The handle that preferred the slot is gone.
    pub(crate) fn leave(&self, preferred: SlotId) {
        self.slot(preferred).users.fetch_sub(1, Ordering::Relaxed);
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many handles there are.
    pub(crate) fn handles(&self) -> usize {
        self.handles.load(Ordering::Relaxed)
    }

    /// Whether there are more handles, hence most likely threads, than processors for them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.handles() > self.cpus
    }

    /// Claims a free slot, `preferred` if possible; `None` if all are in use.
    pub(crate) fn claim(&self, preferred: SlotId) -> Option<SlotId> {
        let count = self.slots.len();
        (0..count).map(|step| SlotId(((preferred.0 as usize + step) % count) as u32)).find(|&id| {
            let state = &self.slot(id).state;
            // Acquire: pairs with the Release of the thread that freed the slot, so that the cells are ours now.
            state.load(Ordering::Relaxed) == FREE
                && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Posts a request at a claimed slot.
    pub(crate) fn post(&self, id: SlotId, request: Q) {
        debug_assert!(self.is(id, CLAIMED));
        let slot = self.slot(id);
        slot.request.with_mut(|cell| {
            // SAFETY: the slot is claimed by the caller, and holds no request.
            unsafe { (*cell).write(request) };
        });
        // Release: pairs with the Acquire of `Batch::collect`.
        slot.state.store(POSTED, Ordering::Release);
        // Partner: the fence in `age`. Either this sees that the bit was cleared, or the combiner that cleared it sees
        // that the slot is in use.
        fence(Ordering::SeqCst);
        self.active.set(id.0);
    }

    /// Makes a claimed slot one that only waits to be woken, see [`sleep`](Self::sleep).
    pub(crate) fn idle(&self, id: SlotId) {
        debug_assert!(self.is(id, CLAIMED));
        self.slot(id).state.store(IDLE, Ordering::Release);
    }

    /// Frees a slot that is the caller's and whose cells are empty.
    #[inline]
    pub(crate) fn free(&self, id: SlotId) {
        debug_assert!([CLAIMED, IDLE, CANCELLED, ANSWERED, REFUSED].iter().any(|&state| self.is(id, state)));
        if self.asleep.has(id.0) {
            // A waker left behind would keep its task alive.
            self.asleep.clear(id.0);
            self.sleeper(id).take();
        }
        // Release: hands the cells over to the next one to claim the slot.
        self.slot(id).state.store(FREE, Ordering::Release);
    }

    /// Whether any request is posted.
    pub(crate) fn has_posts(&self) -> bool {
        self.active.iter().any(|at| self.is(SlotId(at), POSTED))
    }

    /// The answer, when there is one; then the slot is free again. For the poster.
    #[inline]
    pub(crate) fn answer(&self, id: SlotId) -> Option<Result<A, Refused>> {
        let slot = self.slot(id);
        // Acquire: pairs with the Release of `Batch::reply`.
        let answer = match slot.state.load(Ordering::Acquire) {
            // SAFETY: an answered slot has an answer, which is the poster's; it is freed below.
            ANSWERED => Ok(slot.answer.with(|cell| unsafe { (*cell).assume_init_read() })),
            REFUSED => Err(Refused),
            _ => return None,
        };
        self.free(id);
        Some(answer)
    }

    /// Whether [`answer`](Self::answer) will have one. For the poster.
    #[inline]
    pub(crate) fn answer_is_there(&self, id: SlotId) -> bool {
        self.slot(id).state.load(Ordering::Acquire) >= ANSWERED
    }

    /// The poster goes away without waiting for the answer. What it posted is carried out only if a combiner is at it.
    pub(crate) fn abandon(&self, id: SlotId) {
        let mut sleeper = self.sleeper(id);
        // Before the exchange: after it the slot may be freed, and be another's.
        *sleeper = Some(Sleeper::Gone);
        self.asleep.set(id.0);
        // Release: pairs with the Acquire of `collect`, which then finds that word was left.
        let state = &self.slot(id).state;
        if state.compare_exchange(POSTED, CANCELLED, Ordering::Release, Ordering::Relaxed).is_err() {
            *sleeper = None;
            drop(sleeper);
            self.answer(id);
            return;
        }
        drop(sleeper);
        // Partner: the fence in `wake_sleepers`. The combiner that was at it may have left before it could see the word.
        fence(Ordering::SeqCst);
        self.bury(id);
    }

    /// Cleans up behind one who has gone away, if that was left to be done and the combiner is through with it.
    fn bury(&self, id: SlotId) {
        let mut sleeper = self.sleeper(id);
        if matches!(*sleeper, Some(Sleeper::Gone)) && self.answer_is_there(id) {
            *sleeper = None;
            drop(sleeper);
            self.answer(id);
        }
    }

    /// Leaves word how to wake the poster (again, if it did before). It must look afterwards whether it was answered and
    /// whether a combiner is there, and may then sleep if neither.
    pub(crate) fn sleep(&self, id: SlotId, sleeper: Sleeper) {
        *self.sleeper(id) = Some(sleeper);
        self.asleep.set(id.0);
        // Partner: the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
    }

    fn sleeper(&self, id: SlotId) -> MutexGuard<'_, Option<Sleeper>> {
        // Dropping a task's waker may panic; what it was in is empty then.
        self.slot(id).sleeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// To be called by every combiner after it unlocked, and when the structure is poisoned: wakes all who sleep. Those
    /// who are not answered look around and leave word again.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        // Partner: the fence in `sleep`. What comes before it is answering, and the unlocking or the poisoning.
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
        // `None`: it did not go to sleep after all.
        woken.into_iter().for_each(Sleeper::wake);
    }
}

impl<Q, A> Drop for Board<Q, A> {
    fn drop(&mut self) {
        for slot in &self.slots {
            match slot.state.load(Ordering::Relaxed) {
                // SAFETY: no other thread is here; what was posted was not moved out, else it would be answered by now.
                POSTED | CANCELLED => slot.request.with_mut(|cell| unsafe { (*cell).assume_init_drop() }),
                // SAFETY: no other thread is here, and the poster did not fetch it.
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
