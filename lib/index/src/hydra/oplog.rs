//! Op logs, which carry structure changes of the data list to the search layers (thesis §4.3.4, figure 4.7).
//!
//! Every thread appends `(Insert | Remove, page, stamp)` to its own log while it still holds the page locks that the
//! change needs. The combiner drains all logs into one *merged log*, which every replica's updater applies.
//!
//! The thesis orders a merged log by time stamp alone, which is not enough: draining is not atomic, so a `Remove` may
//! be drained one round before the `Insert` that precedes it in time. Two rules make the result independent of when
//! logs are drained and of how exact the clock is:
//!
//! 1. A `Remove` is applied **one round after** it was drained, and within a round inserts come first. The page's
//!    `Insert` was logged before the `Remove` (under the same page locks), so it was drained no later than the round
//!    after the `Remove`.
//! 2. A `Remove` names its page, and removes the anchor only if the anchor still leads to this page.
//!
//! A merged log uses stamps only to choose between two pages that were inserted for the *same* anchor in one round. A
//! wrong choice would cost a few steps, but never give a wrong answer. (`shortcuts.rs` uses stamps as random numbers.)

use super::page::Page;
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicIsize, AtomicPtr, AtomicU64, Ordering::*};
use archipelago_platform::sync::{Mutex, MutexGuard};
use core::ptr::{NonNull, null_mut};

/// A page's address, shared between threads under the rules of `maintain.rs`.
pub(crate) struct PagePtr<F: HydraForm>(pub NonNull<F::Page>);

impl<F: HydraForm> Clone for PagePtr<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: HydraForm> Copy for PagePtr<F> {}

impl<F: HydraForm> PartialEq for PagePtr<F> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<F: HydraForm> Eq for PagePtr<F> {}

// SAFETY: pages are Sync, and a PagePtr gives no access by itself.
unsafe impl<F: HydraForm> Send for PagePtr<F> {}
// SAFETY: as above.
unsafe impl<F: HydraForm> Sync for PagePtr<F> {}

impl<F: HydraForm> PagePtr<F> {
    /// Returns the page's anchor key.
    ///
    /// # Safety
    /// The page must not be reclaimed during `'a`.
    pub(crate) unsafe fn anchor<'a>(self) -> F::Probe<'a> {
        // SAFETY: the caller guarantees the contract.
        unsafe { self.0.as_ref() }.low()
    }
}

/// The change of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpKind {
    /// The page was linked into the list.
    Insert,
    /// The page was merged away.
    Remove,
}

/// One entry of an op log.
pub(crate) struct Op<F: HydraForm> {
    pub kind: OpKind,
    pub page: PagePtr<F>,
    pub stamp: u64,
}

/// The number of *fingers* of a thread. A finger remembers where an ascending sequence of keys has arrived, so a thread
/// can switch between this many sequences without searching again. A power of two.
const FINGERS: usize = 8;

/// A thread's data in a map: its op log, its fingers, and its shares of the entry count and of the bytes that keys take
/// outside pages.
pub(crate) struct ThreadCell<F: HydraForm> {
    log: Mutex<Vec<Op<F>>>,
    count: AtomicIsize,
    outside: AtomicIsize,
    fingers: [Finger<F>; FINGERS],
}

/// The end of the thread's last long walk from a page: the page at which it ended, and the number of retired pages when
/// that page was seen live ([`Core::retirements`](super::shared::Core::retirements)).
///
/// If no page has been retired since, this page has not been retired, either. So a thread that finds the count
/// unchanged may access the page under its guard. The access is also safe if the page was retired and the thread has
/// not seen the new count. If RCU waits for the thread's guard before it frees the page, the access is valid. Otherwise
/// the guard was entered after the page's grace period. But the count was incremented before the retirement, by a
/// thread in a guard of its own, so before the grace period ended. Then the thread would have found the count changed.
struct Finger<F: HydraForm> {
    page: AtomicPtr<F::Page>,
    retirements: AtomicU64,
}

impl<F: HydraForm> ThreadCell<F> {
    pub(crate) fn new() -> Self {
        Self {
            log: Mutex::new(Vec::new()),
            count: AtomicIsize::new(0),
            outside: AtomicIsize::new(0),
            fingers: [const { Finger { page: AtomicPtr::new(null_mut()), retirements: AtomicU64::new(0) } }; FINGERS],
        }
    }

    /// Returns the page at which the last long walk from `from` (or from another page with the same finger) ended, if
    /// no page has been retired since. Only the thread that has the cell's slot calls this method and `set_finger`, so
    /// no ordering is needed.
    #[inline]
    pub(crate) fn finger(&self, from: &F::Page, retirements: u64) -> Option<NonNull<F::Page>> {
        let finger = self.finger_of(from);
        let same = finger.retirements.load(Relaxed) == retirements;
        NonNull::new(finger.page.load(Relaxed)).filter(|_| same)
    }

    /// Stores `page`, the end of a walk from `from`. `page` was seen live after `retirements` had been read.
    #[inline]
    pub(crate) fn set_finger(&self, from: &F::Page, page: &F::Page, retirements: u64) {
        let finger = self.finger_of(from);
        finger.page.store(core::ptr::from_ref(page).cast_mut(), Relaxed);
        finger.retirements.store(retirements, Relaxed);
    }

    #[inline]
    fn finger_of(&self, from: &F::Page) -> &Finger<F> {
        let hash = (core::ptr::from_ref(from).addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.fingers[(hash >> (u64::BITS - FINGERS.ilog2())) as usize]
    }

    pub(crate) fn append(&self, op: Op<F>) {
        self.lock().push(op);
    }

    pub(crate) fn drain_into(&self, ops: &mut Vec<Op<F>>) {
        // The log is taken with its memory, so a thread that once logged much does not keep the memory.
        let mut log = core::mem::take(&mut *self.lock());
        ops.append(&mut log);
    }

    /// Returns whether nothing waits to be drained.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Op<F>>> {
        // Only a `push` whose allocation fails could panic under the lock, and it leaves the log intact.
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes a thread's share of the count. Only the thread that has the cell's slot calls it, so no
    /// read-modify-write is needed.
    #[inline]
    pub(crate) fn add(&self, change: isize) {
        self.count.store(self.count.load(Relaxed) + change, Relaxed);
    }

    pub(crate) fn count(&self) -> isize {
        self.count.load(Relaxed)
    }

    /// Works as [`add`](Self::add) does, for the bytes that keys take outside pages.
    #[inline]
    pub(crate) fn add_outside(&self, change: isize) {
        self.outside.store(self.outside.load(Relaxed) + change, Relaxed);
    }

    pub(crate) fn outside(&self) -> isize {
        self.outside.load(Relaxed)
    }
}

/// A round's changes for every search layer, sorted by anchor. Inserts are applied before removes.
pub(crate) struct MergedLog<F: HydraForm> {
    /// The number of the round; the first round is 1.
    pub id: u64,
    pub inserts: Vec<PagePtr<F>>,
    pub removes: Vec<PagePtr<F>>,
}

impl<F: HydraForm> MergedLog<F> {
    /// Builds round `id` from the ops that were just drained, and from the removes that were drained in the previous
    /// round. Returns the log, and the removes that wait for the next round.
    pub(crate) fn new(id: u64, mut ops: Vec<Op<F>>, mut removes: Vec<PagePtr<F>>) -> (Self, Vec<PagePtr<F>>) {
        ops.sort_by_key(|op| op.stamp);
        let pages = |kind| ops.iter().filter(move |op| op.kind == kind).map(|op| op.page);
        let mut inserts: Vec<_> = pages(OpKind::Insert).collect();
        let later = pages(OpKind::Remove).collect();
        // SAFETY: pages named in logs are retired only after the logs have been applied (`maintain.rs`).
        let order = |a: &PagePtr<F>, b: &PagePtr<F>| unsafe { a.anchor().cmp(&b.anchor()) };
        inserts.sort_by(order); // stable: of equal anchors the youngest stays last
        inserts.reverse();
        // SAFETY: as above.
        inserts.dedup_by(|a, b| unsafe { a.anchor() == b.anchor() });
        inserts.reverse();
        removes.sort_by(order);
        (Self { id, inserts, removes }, later)
    }
}
