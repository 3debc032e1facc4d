//! A record: the published state of one reader, and its garbage.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread::{self, thread_local};

use super::garbage::Garbage;

/// Low bits of the state that count nested guards; above them and [`ORPHANED`] is the epoch of the outermost one.
const NESTING_BITS: u32 = 16;
const NESTING: u64 = (1 << NESTING_BITS) - 1;

/// Set when the reader of a record was dropped before the last of its guards, which then gives the record back.
const ORPHANED: u64 = 1 << NESTING_BITS;
const EPOCH_SHIFT: u32 = NESTING_BITS + 1;

/// The state that a reader publishes when it enters in some epoch: one guard. The domain keeps the present one ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub(super) const FIRST: Self = Self(1);
    /// What one epoch adds.
    const STEP: u64 = 1 << EPOCH_SHIFT;

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn next(self) -> Self {
        Self(self.0 + Self::STEP)
    }

    pub(super) fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }
}

/// One record. Only its owner writes `state` and `reclaiming`: the thread whose slot it was made for, or whoever holds
/// the claim.
pub(super) struct Record {
    /// The slot whose thread owns it, or `None` if it is owned by claim.
    slot: Option<usize>,
    /// `epoch << EPOCH_SHIFT | orphaned | nested guards`; without guards the epoch means nothing.
    state: AtomicU64,
    /// For records owned by claim: 1 for the domain, while it lives, and 1 for the claim, if there is one.
    pub(super) references: AtomicUsize,
    /// For records owned by claim: the [`token`] of the thread that has it or had it last.
    owner: AtomicUsize,
    /// The owner is running reclaim functions; more of them must wait, or they would nest without bound.
    reclaiming: AtomicBool,
    garbage: Mutex<Garbage>,
}

#[cfg(not(loom))]
thread_local! {
    static MARK: Cell<u8> = const { Cell::new(0) };
}
#[cfg(loom)]
thread_local! {
    static MARK: Cell<u8> = Cell::new(0);
}

/// A number that no other living thread has: the address of a thread-local without a destructor.
fn token() -> usize {
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

impl Record {
    fn new(slot: Option<usize>, owner: usize, references: usize) -> Self {
        let (state, reclaiming) = (AtomicU64::new(0), AtomicBool::new(false));
        let (references, owner) = (AtomicUsize::new(references), AtomicUsize::new(owner));
        Self { slot, state, references, owner, reclaiming, garbage: Mutex::new(Garbage::default()) }
    }

    /// The record that the thread with this slot owns.
    pub(super) fn of_slot(slot: usize) -> Self {
        Self::new(Some(slot), 0, 1)
    }

    /// A record that the calling thread claims from the start.
    pub(super) fn claimed() -> Self {
        Self::new(None, token(), 2)
    }

    /// Makes a record that nobody owns the calling thread's.
    pub(super) fn try_claim(&self) -> bool {
        // Acquire: pairs with the Release of giving back, so that the last owner's critical sections have ended.
        let claimed = self.references.load(Ordering::Relaxed) == 1
            && self.references.compare_exchange(1, 2, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if claimed {
            self.owner.store(token(), Ordering::Relaxed);
        }
        claimed
    }

    /// Owner only, at the end of its claim: whether to give the record back now; otherwise the last guard does.
    pub(super) fn end_claim(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state & NESTING != 0 {
            self.state.store(state | ORPHANED, Ordering::Release);
        }
        state & NESTING == 0
    }

    /// By an orphan's last guard, so inside the domain's lifetime: this is not the last reference.
    #[cold]
    fn give_back(&self) {
        self.state.store(0, Ordering::Release);
        self.references.fetch_sub(1, Ordering::Release);
    }

    /// When no guard can be alive any more: forgets the forgotten ones, and says whether they kept an ended claim.
    pub(super) fn abandon(&self) -> bool {
        self.state.swap(0, Ordering::AcqRel) & ORPHANED != 0
    }

    /// Whether the calling thread, which has a guard of this record, may write it. It may if the record is owned by
    /// claim. A slot's record is another thread's for a thread-local destructor that runs after its thread gave the slot
    /// back.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        self.slot.is_none_or(|slot| thread::slot().index == slot)
    }

    /// Whether the calling thread is inside a guard of this record.
    pub(super) fn is_active_here(&self) -> bool {
        let mine = if self.slot.is_some() { self.is_mine() } else { self.owner.load(Ordering::Relaxed) == token() };
        mine && self.state.load(Ordering::Relaxed) & NESTING != 0
    }

    /// Owner only: counts one more guard; the outermost publishes `epoch()` and then needs its barrier.
    ///
    /// Release on every store: whoever sees it has seen all earlier critical sections of this record leave.
    #[inline]
    pub(super) fn enter(&self, entry: impl FnOnce() -> Entry, barrier: impl FnOnce()) {
        let state = self.state.load(Ordering::Relaxed);
        if state & NESTING == 0 {
            self.state.store(entry().0, Ordering::Release);
            barrier();
        } else {
            self.enter_nested(state);
        }
    }

    #[inline(never)]
    fn enter_nested(&self, state: u64) {
        assert!(state & NESTING < NESTING, "65,535 guards of one domain are alive in one thread; drop some");
        self.state.store(state + 1, Ordering::Release);
    }

    /// Owner only, inside exactly one guard: leaves it and enters another at `entry`'s epoch.
    pub(super) fn renew(&self, entry: Entry) {
        debug_assert_eq!(self.state.load(Ordering::Relaxed) & NESTING, 1);
        self.state.store(entry.0, Ordering::Release);
    }

    /// Owner only: counts one guard less.
    #[inline]
    pub(super) fn leave(&self) {
        let state = self.state.load(Ordering::Relaxed);
        debug_assert!(state & NESTING != 0);
        self.state.store(state - 1, Ordering::Release);
        if (state - 1) & (NESTING | ORPHANED) == ORPHANED {
            self.give_back();
        }
    }

    /// The epoch that the owner is reading at, if it is. Acquire, see the proof in the parent module.
    pub(super) fn active_epoch(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state & NESTING != 0).then_some(Entry(state).epoch())
    }

    /// The garbage of this slot. Held for a few instructions only, and never while foreign code runs.
    pub(super) fn garbage(&self) -> MutexGuard<'_, Garbage> {
        // A poisoned lock would mean that a Vec's growth panicked half-way, which leaves the Vec intact.
        self.garbage.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Owner only: marks that reclaim functions run until the result is dropped; `None` if they were running already.
    pub(super) fn begin_reclaiming(&self) -> Option<Reclaiming<'_>> {
        // Relaxed: one thread at a time, see the type.
        if self.reclaiming.load(Ordering::Relaxed) {
            return None;
        }
        self.reclaiming.store(true, Ordering::Relaxed);
        Some(Reclaiming(self))
    }
}

/// Reclaim functions of one record's owner are running.
pub(super) struct Reclaiming<'r>(&'r Record);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaiming.store(false, Ordering::Relaxed);
    }
}
