//! Shortcuts: pages where a walk may go on that finds itself far from its goal.
//!
//! A search layer lags behind the list, and what is missing from it may all lie in one place: pages that ascending keys append
//! are all behind the last anchor, and pages that `pop_last` has emptied all forward, one to the other. A walk from the layer's
//! answer would pass every one of them, and cost in proportion to the map. So one change of the list in [`ONE_IN`], chosen
//! as by throwing a die, is told here by the thread that makes it, at once; and a walk that has gone [`PATIENCE`] steps asks
//! here. As in a skip list, the pages in a row that are not told of are few: `ONE_IN` on average, and more than `r` with a
//! probability of `(1 - 1 / ONE_IN)^r`, however far the layer lags and whether or not it is ever brought up to date.
//!
//! **Exact.** A page is told of while it cannot become obsolete, the lock of the page before it or its own being held, and taken
//! out by the thread that makes it obsolete, under its lock, before that is to be seen. So a page found here under a guard is live
//! or has become obsolete under the guard. A merge or move hands the page's shortcut on to the page that takes over: the chain
//! of forward pointers that ends at a page with a shortcut need not be followed.
//!
//! **Two generations.** Once a change has reached every layer, its shortcut is needed no more. New ones go into the `young` tree;
//! when what was logged before the trees last took turns is in all layers, the `old` one is dropped whole, and the young one is
//! old. A change is logged before it is told of here, so a tree outlives what its pages are needed for; see `reclaim`. Where
//! no thread changes the list, rounds that drain nothing go on until both are dropped: `sync` does them, and a map at rest.
//!
//! A thread that takes a page out loads `young` first, then `old`, and turning stores `old` first. So it meets the tree that has
//! the page, unless that is out of use: were the page in the tree that was young at the first load, or before, this is it, or it
//! has become old by the second, or was dropped.

use super::oplog::PagePtr;
use super::page::Page as _;
use super::snapshot::Target as _;
use crate::art::{RawArt, WriteSync};
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicPtr, Ordering::*};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::rcu::Guard;
use core::ptr::{NonNull, null_mut};

/// A walk asks for a shortcut at this many steps, and whenever it has gone twice as many. Must be a power of two.
pub(super) const PATIENCE: usize = 4;

/// One change of the list in so many gets a shortcut. Must be a power of two.
const ONE_IN: u64 = 16;

/// Returns whether the change with this stamp is chosen. (The top bits of a multiplicative hash: stamps that follow one another fall
/// evenly.)
pub(super) fn is_chosen(stamp: u64) -> bool {
    stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - ONE_IN.ilog2()) == 0
}

/// See the module's text.
pub(super) struct Shortcuts<F: HydraForm> {
    /// Null until there is one.
    trees: CachePadded<[AtomicPtr<RawArt<F>>; 2]>,
}

const YOUNG: usize = 0;
const OLD: usize = 1;

/// A generation that is in use no more, to be retired.
pub(super) struct Dropped<F: HydraForm>(NonNull<RawArt<F>>);

impl<F: HydraForm> Shortcuts<F> {
    pub(super) fn new() -> Self {
        Self { trees: CachePadded::new([const { AtomicPtr::new(null_mut()) }; 2]) }
    }

    /// The page of the greatest shortcut at or below `key`.
    pub(super) fn nearest(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<PagePtr<F>> {
        let word_of = |tree: &RawArt<F>| F::with_bytes(key, |key| tree.predecessor(key, guard));
        let pages = [YOUNG, OLD].map(|which| self.tree(which, guard).and_then(word_of).map(Self::page));
        // SAFETY: a page found here is not retired before our guard ends; see the module's text.
        pages.into_iter().flatten().max_by(|a, b| unsafe { a.anchor().cmp(&b.anchor()) })
    }

    /// Tells of `page`, which cannot become obsolete during the call.
    #[cold]
    pub(super) fn add(&self, guard: &Guard<'_>, page: &F::Page) {
        let tree = self.tree(YOUNG, guard).unwrap_or_else(|| self.first_tree());
        // The caller holds a lock: no destructor of a user's value may run here.
        guard.hold_back(|| F::with_bytes(page.low(), |low| tree.insert(low, Self::word(page), guard)));
    }

    /// Takes `page` out, which the caller has locked; whether it was there.
    pub(super) fn take(&self, guard: &Guard<'_>, page: &F::Page) -> bool {
        // In this order: see the module's text.
        [YOUNG, OLD].into_iter().fold(false, |taken, which| {
            let Some(tree) = self.tree(which, guard) else { return taken };
            guard.hold_back(|| F::with_bytes(page.low(), |low| tree.remove_if(low, Self::word(page), guard))) || taken
        })
    }

    /// Drops the old generation and makes the young one old. One caller at a time.
    pub(super) fn turn(&self) -> Option<Dropped<F>> {
        let young = self.trees[YOUNG].load(Relaxed);
        // Release, with the Acquire in `tree`: a thread that finds no young tree finds the old one. In this order: see above.
        let old = self.trees[OLD].swap(young, AcqRel);
        self.trees[YOUNG].store(null_mut(), Release);
        NonNull::new(old).map(Dropped)
    }

    /// The number of generations that have a tree, be it empty: rounds go on until none has.
    pub(super) fn generations(&self) -> usize {
        // Relaxed: nothing is read through the pointers. The tree of a change that is told of meanwhile waits for the next round.
        self.trees.iter().filter(|tree| !tree.load(Relaxed).is_null()).count()
    }

    /// Bytes of memory held, about.
    pub(super) fn bytes(&self, guard: &Guard<'_>) -> usize {
        [YOUNG, OLD].into_iter().filter_map(|which| self.tree(which, guard)).map(RawArt::bytes).sum()
    }

    fn tree<'g>(&'g self, which: usize, _: &'g Guard<'_>) -> Option<&'g RawArt<F>> {
        // SAFETY: what was stored here is retired after it is replaced, and the guard is the caller's. Acquire pairs with the
        // Release of the thread that stored it.
        unsafe { self.trees[which].load(Acquire).as_ref() }
    }

    #[cold]
    fn first_tree(&self) -> &RawArt<F> {
        // SAFETY: all guards that reach the trees are of the map's domain.
        let fresh = Box::into_raw(Box::new(unsafe { RawArt::new(WriteSync::Rowex) }));
        // Acquire and Release as in `tree`.
        match self.trees[YOUNG].compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
            // SAFETY: published just now; see `tree`.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: made above and published nowhere; the other one as in `tree`.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*other
                }
            }
        }
    }

    fn word(page: &F::Page) -> u64 {
        PagePtr::<F>(page.into()).addr() as u64
    }

    fn page(word: u64) -> PagePtr<F> {
        // SAFETY: the trees hold what `word` made.
        unsafe { PagePtr::at(word as usize) }
    }
}

impl<F: HydraForm> Dropped<F> {
    /// To be called with no lock held.
    pub(super) fn retire(self, guard: &Guard<'_>) {
        // SAFETY: unpublished, by the only thread that turned the generations then.
        unsafe { guard.retire_box_sized(self.0.as_ptr(), self.0.as_ref().bytes()) };
    }
}

impl<F: HydraForm> Drop for Shortcuts<F> {
    fn drop(&mut self) {
        for tree in self.trees.iter().map(|tree| tree.load(Relaxed)).filter(|tree| !tree.is_null()) {
            // SAFETY: `&mut self`: no other thread uses the trees, and no thread will; the two are never one outside `turn`.
            drop(unsafe { Box::from_raw(tree) });
        }
    }
}
