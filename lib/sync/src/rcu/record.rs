//! A record: the published state of one reader, and its garbage.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread::{self, thread_local};

use super::garbage::Garbage;
#[cfg(not(loom))]
use crate::identity::Identities;

/// Low bits of the state that count nested guards; above them and [`SPILLED`] is the epoch of the outermost one.
const NESTING_BITS: u32 = 16;
const NESTING: u64 = (1 << NESTING_BITS) - 1;

/// Set while more guards are alive than the low bits can count: the field `spilled` counts the others, [`SPILL`] at
/// a time. While this bit is set the low bits are never all zero, so they still say whether a guard is alive.
const SPILLED: u64 = 1 << NESTING_BITS;
const SPILL: u64 = 1 << (NESTING_BITS - 1);
const EPOCH_SHIFT: u32 = NESTING_BITS + 1;

/// The state that a reader publishes when it enters in some epoch: one guard. The domain stores the entry of the
/// present epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub(super) const FIRST: Self = Self(1);
    /// The difference between the entries of successive epochs.
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

/// Stands for a slot's index in a record that is owned by claim. No thread has a slot of this index.
const CLAIMED: usize = usize::MAX - 1;

/// One record. Only its owner writes `state`, `spilled` and `reclaiming`. The owner is the thread that has the slot for
/// which the record was made, or the holder of the claim.
pub(super) struct Record {
    /// The slot whose thread owns it, or [`CLAIMED`].
    slot: usize,
    /// `epoch << EPOCH_SHIFT | spilled | nested guards`; without guards the epoch is that of the last one.
    state: AtomicU64,
    /// The number of guards that `state` has no room to count.
    spilled: AtomicU64,
    /// For records owned by claim: the [`token`] of the thread that has the claim or had it last.
    owner: AtomicU64,
    /// For records owned by claim: whether an [`OwnedGuard`](super::OwnedGuard) has the claim.
    roams: AtomicBool,
    /// Whether the owner is running reclaim functions, or holds them back. Meanwhile it starts no others, since they
    /// would nest without bound.
    reclaiming: AtomicBool,
    /// Whether the owner has filled a bag since it last yielded.
    filled: AtomicBool,
    /// The epoch whose advance the owner has awaited without success.
    #[cfg_attr(loom, allow(dead_code, reason = "in the model world all threads run"))]
    waited_at: AtomicU64,
    garbage: Mutex<Garbage>,
}

#[cfg(not(loom))]
thread_local! {
    static TOKEN: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
thread_local! {
    static TOKEN: Cell<u64> = Cell::new(0);
}

/// Returns a number that no other thread has or had.
#[cfg(not(loom))]
fn token() -> u64 {
    static THREADS: Identities = Identities::new();
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(THREADS.fresh());
        }
        token.get()
    })
}

/// Returns a number that no other living thread has. This suffices, since all threads of a model end together.
#[cfg(loom)]
fn token() -> u64 {
    TOKEN.with(|token| core::ptr::from_ref(token).addr() as u64)
}

impl Record {
    fn new(slot: usize, owner: u64) -> Self {
        let (state, spilled, reclaiming) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let owner = AtomicU64::new(owner);
        let roams = AtomicBool::new(false);
        let (filled, waited_at) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let garbage = Mutex::new(Garbage::default());
        Self { slot, state, spilled, owner, roams, reclaiming, filled, waited_at, garbage }
    }

    /// Makes a record that the thread with this slot owns.
    pub(super) fn of_slot(slot: usize) -> Self {
        Self::new(slot, 0)
    }

    /// Makes a record that the calling thread has claimed.
    pub(super) fn claimed() -> Self {
        Self::new(CLAIMED, token())
    }

    /// Holder of a new claim only: makes the record the calling thread's.
    pub(super) fn change_owner(&self) {
        self.owner.store(token(), Ordering::Relaxed);
    }

    /// Returns whether the calling thread may write the record. It may if the record is owned by claim (only the
    /// claim's holder calls this), or belongs to the thread's slot. Code that runs after its thread has returned the
    /// slot may not.
    #[inline(always)]
    pub(super) fn is_mine(&self) -> bool {
        thread::has_slot(self.slot) || self.is_claimed()
    }

    /// Not inlined, since ordinary readers use records of slots.
    #[cold]
    fn is_claimed(&self) -> bool {
        self.slot == CLAIMED
    }

    /// Returns whether the calling thread is inside a guard of this record that cannot leave the thread.
    pub(super) fn is_active_here(&self) -> bool {
        let mine = if self.is_claimed() { !self.roams() && self.is_owners() } else { thread::has_slot(self.slot) };
        mine && self.is_active()
    }

    /// Returns whether an owned guard of this record is alive, and the calling thread was the last to begin, renew or
    /// continue it. The guard may have been sent to another thread since.
    pub(super) fn is_owned_here(&self) -> bool {
        self.is_claimed() && self.roams() && self.is_owners() && self.is_active()
    }

    fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) & NESTING != 0
    }

    fn roams(&self) -> bool {
        self.roams.load(Ordering::Relaxed)
    }

    /// For records owned by claim: returns whether the calling thread has the claim or had it last.
    fn is_owners(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == token()
    }

    /// Holder of a new claim only: sets whether the claim belongs to an owned guard, rather than to a quiescent reader.
    pub(super) fn set_roaming(&self, roams: bool) {
        self.roams.store(roams, Ordering::Relaxed);
    }

    /// Owner only: returns whether a guard of this record is alive, or the owner is running or holding back reclaim
    /// functions.
    pub(super) fn is_busy(&self) -> bool {
        self.is_active() || self.reclaiming.load(Ordering::Relaxed)
    }

    /// Returns whether the owner has filled a bag since it last yielded; see [`turn`](super::turn). Relaxed, as in the
    /// next methods: only the owner uses the values, as hints.
    #[cfg(not(loom))]
    #[inline]
    pub(super) fn has_filled_a_bag(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    pub(super) fn note_filled_bag(&self, filled: bool) {
        self.filled.store(filled, Ordering::Relaxed);
    }

    #[cfg(not(loom))]
    pub(super) fn waited_at(&self) -> u64 {
        self.waited_at.load(Ordering::Relaxed)
    }

    #[cfg(not(loom))]
    pub(super) fn note_wait(&self, epoch: u64) {
        self.waited_at.store(epoch, Ordering::Relaxed);
    }

    /// Owner only: counts one more guard. For the outermost guard, publishes `entry()` and then calls `barrier`.
    ///
    /// Every store is a Release: a thread that sees it also sees that all earlier critical sections of this record have
    /// ended.
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
    fn enter_nested(&self, mut state: u64) {
        if state & NESTING == NESTING {
            self.spilled.store(self.spilled.load(Ordering::Relaxed) + SPILL, Ordering::Relaxed);
            state = (state - SPILL) | SPILLED;
        }
        self.state.store(state + 1, Ordering::Release);
    }

    /// Returns what to publish instead of `state` while guards are spilled. If `state` counts no guard, some spilled
    /// ones are moved back into it.
    #[cold]
    fn refill(&self, state: u64) -> u64 {
        if state & NESTING != 0 {
            return state;
        }
        let left = self.spilled.load(Ordering::Relaxed) - SPILL;
        self.spilled.store(left, Ordering::Relaxed);
        let state = state + SPILL;
        if left == 0 { state & !SPILLED } else { state }
    }

    /// Owner only, inside exactly one guard: leaves the guard and enters another one at the epoch of `entry`.
    pub(super) fn renew(&self, entry: Entry) {
        debug_assert_eq!(self.state.load(Ordering::Relaxed) & NESTING, 1);
        self.state.store(entry.0, Ordering::Release);
    }

    /// Owner only: subtracts one from the number of guards.
    #[inline]
    pub(super) fn leave(&self) {
        let state = self.state.load(Ordering::Relaxed);
        debug_assert!(state & NESTING != 0);
        let left = if state & SPILLED == 0 { state - 1 } else { self.refill(state - 1) };
        self.state.store(left, Ordering::Release);
    }

    /// Returns the epoch at which the owner is reading, if it is. Acquire: see the proof in the parent module.
    pub(super) fn active_epoch(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state & NESTING != 0).then_some(Entry(state).epoch())
    }

    /// Owner only: returns the last published epoch, also after the guards have ended.
    pub(super) fn last_epoch(&self) -> u64 {
        Entry(self.state.load(Ordering::Relaxed)).epoch()
    }

    /// Locks the record's garbage. The lock is held for a few instructions only, and never while foreign code runs.
    pub(super) fn garbage(&self) -> MutexGuard<'_, Garbage> {
        // A poisoned lock would mean that the growth of a `Vec` panicked, which leaves the `Vec` intact.
        self.garbage.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Owner only: notes that the owner is running or holding back reclaim functions, until the result is dropped.
    /// Returns `None` if this was noted already.
    pub(super) fn begin_reclaiming(&self) -> Option<Reclaiming<'_>> {
        // Relaxed: only one thread at a time is the owner, see the type.
        if self.reclaiming.load(Ordering::Relaxed) {
            return None;
        }
        self.reclaiming.store(true, Ordering::Relaxed);
        Some(Reclaiming(self))
    }
}

/// Exists while a record's owner is running or holding back reclaim functions.
pub(super) struct Reclaiming<'r>(&'r Record);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaiming.store(false, Ordering::Relaxed);
    }
}
