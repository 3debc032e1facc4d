//! Shortcuts: pages at which a long walk may continue.
//!
//! A search layer lags behind the list, and all pages that it lacks may be adjacent. Two examples: ascending keys
//! append pages that are all behind the layer's last anchor (a page's lowest possible key); and pages that `pop_last`
//! has emptied are merged away, and forward one to the other. A walk from the layer's answer would pass all of them, in
//! time proportional to the map. So the thread that makes a change of the list adds a shortcut for it at once: always
//! if it splits a page to which its walk took more than one step, and otherwise with a probability of one in
//! [`ONE_IN`]. A walk uses shortcuts after [`PATIENCE`] steps. As in a skip list, runs of pages without shortcuts are
//! short: at most `ONE_IN` on average, and longer than `r` with a probability of at most `(1 - 1 / ONE_IN)^r`. This
//! holds however far the layer lags, even if the layer is never updated.
//!
//! **Exact.** A shortcut to a page is added while the page cannot become obsolete, since the lock of the previous page
//! or its own is held. The thread that makes the page obsolete removes the shortcut, under the page's lock, before
//! other threads can see the page as obsolete. So a page that is found here under a guard is live, or has become
//! obsolete after the guard was entered. A merge or move passes the shortcut to the page that gets the entries, so
//! walks need not follow a chain of forward pointers to that page.
//!
//! **Two generations.** Once a change has reached every layer, its shortcut is no longer needed. New shortcuts are
//! added to the `young` tree. When all changes that were logged before the last turn are in all layers, the trees take
//! a turn: the `old` tree is dropped, and the young one becomes old. A change is logged before its shortcut is added,
//! so a tree is dropped only when its pages are not needed any more; see `reclaim`. If no thread changes the list,
//! rounds of maintenance continue, although they find no changes, until both trees are dropped. This happens in `sync`
//! and in an idle map.
//!
//! A thread that removes a shortcut loads `young` first and then `old`, and a turn stores `old` first. So the thread
//! finds the tree that has the shortcut, unless the tree was dropped. The reason: a tree that was young at or before
//! the first load is still young at this load, or is old at the second load, or was dropped.

use super::oplog::PagePtr;
use super::page::Page as _;
use super::snapshot::Target as _;
use crate::art::{RawArt, WriteSync};
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicPtr, Ordering::*};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::rcu::Guard;
use core::ops::Bound;
use core::ptr::{NonNull, null_mut};

/// A walk searches for a shortcut after this many steps, and after each doubling of its steps. Must be a power of two.
pub(super) const PATIENCE: usize = 4;

/// One change of the list in this many gets a shortcut, apart from splits after long walks. Must be a power of two.
const ONE_IN: u64 = 16;

/// Returns whether the change with this stamp (the time at which it was logged) gets a shortcut in any case. (It uses
/// the top bits of a multiplicative hash, so that the choice among successive stamps is even.)
pub(super) fn is_chosen(stamp: u64) -> bool {
    stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - ONE_IN.ilog2()) == 0
}

/// The shortcuts of a map, as the module's documentation describes them.
pub(super) struct Shortcuts<F: HydraForm> {
    /// The young and the old tree. A pointer is null while there is no tree.
    trees: CachePadded<[AtomicPtr<RawArt<F>>; 2]>,
}

const YOUNG: usize = 0;
const OLD: usize = 1;

/// A generation that is no longer used, to be retired.
pub(super) struct Dropped<F: HydraForm>(NonNull<RawArt<F>>);

impl<F: HydraForm> Shortcuts<F> {
    pub(super) fn new() -> Self {
        Self { trees: CachePadded::new([const { AtomicPtr::new(null_mut()) }; 2]) }
    }

    /// Returns the page of the greatest shortcut within an upper bound.
    pub(super) fn nearest(&self, guard: &Guard<'_>, upper: Bound<F::Probe<'_>>) -> Option<PagePtr<F>> {
        let word_of = |tree: &RawArt<F>| tree.predecessor(upper, guard);
        let pages = [YOUNG, OLD].map(|which| self.tree(which, guard).and_then(word_of).map(Self::page));
        // SAFETY: a page found here is not retired before the guard ends, see the module's documentation.
        pages.into_iter().flatten().max_by(|a, b| unsafe { a.anchor().cmp(&b.anchor()) })
    }

    /// Adds a shortcut to `page`, which cannot become obsolete during the call.
    #[cold]
    pub(super) fn add(&self, guard: &Guard<'_>, page: &F::Page) {
        let tree = self.tree(YOUNG, guard).unwrap_or_else(|| self.first_tree());
        // The caller holds a lock: no destructor of a user's value may run here.
        guard.hold_back(|| F::with_bytes(page.low(), |low| tree.insert(low, Self::word(page), guard)));
    }

    /// Removes the shortcut to `page`, which the caller has locked. Returns whether the page had a shortcut.
    pub(super) fn take(&self, guard: &Guard<'_>, page: &F::Page) -> bool {
        // The order matters, see the module's documentation.
        [YOUNG, OLD].into_iter().fold(false, |taken, which| {
            let Some(tree) = self.tree(which, guard) else { return taken };
            guard.hold_back(|| F::with_bytes(page.low(), |low| tree.remove_if(low, Self::word(page), guard))) || taken
        })
    }

    /// Makes the young generation old. Returns the previous old generation, which the caller retires. Only one thread
    /// may call it at a time.
    pub(super) fn turn(&self) -> Option<Dropped<F>> {
        // Acquire, with the Release in `first_tree`: what the thread that made the tree has written is passed on by the
        // swap, to threads that find the tree as the old one, and is seen by the thread that retires the tree.
        let young = self.trees[YOUNG].load(Acquire);
        // Release, with the Acquire in `tree`: a thread that finds no young tree finds the old one. The order matters,
        // see above.
        let old = self.trees[OLD].swap(young, AcqRel);
        // If there was no young tree, another thread may add one meanwhile, which stays young.
        if !young.is_null() {
            self.trees[YOUNG].store(null_mut(), Release);
        }
        NonNull::new(old).map(Dropped)
    }

    /// Returns the number of generations that have a tree, even if it is empty. Rounds continue until none has a tree.
    pub(super) fn generations(&self) -> usize {
        // Relaxed: nothing is read through the pointers. A tree whose first shortcut is added meanwhile waits for the
        // next round.
        self.trees.iter().filter(|tree| !tree.load(Relaxed).is_null()).count()
    }

    /// Returns the approximate number of bytes of memory held.
    pub(super) fn bytes(&self, guard: &Guard<'_>) -> usize {
        [YOUNG, OLD].into_iter().filter_map(|which| self.tree(which, guard)).map(RawArt::bytes).sum()
    }

    fn tree<'g>(&'g self, which: usize, _: &'g Guard<'_>) -> Option<&'g RawArt<F>> {
        // SAFETY: a tree that was stored here is retired after it is replaced, and the caller holds the guard. Acquire
        // pairs with the Release of the thread that stored it.
        unsafe { self.trees[which].load(Acquire).as_ref() }
    }

    #[cold]
    fn first_tree(&self) -> &RawArt<F> {
        // SAFETY: all guards that reach the trees are of the map's domain.
        let fresh = Box::into_raw(Box::new(unsafe { RawArt::new(WriteSync::Rowex) }));
        // Acquire and Release as in `tree`.
        match self.trees[YOUNG].compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
            // SAFETY: the tree was just published, see `tree`.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: the fresh tree was made above and is not published; for the other tree see `tree`.
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
        // SAFETY: `word` has made all words of the trees.
        unsafe { PagePtr::at(word as usize) }
    }
}

impl<F: HydraForm> Dropped<F> {
    /// Retires the dropped generation. The caller must hold no lock.
    pub(super) fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the only thread that replaced the generations then has unpublished the tree.
        unsafe { guard.retire_box_sized(self.0.as_ptr(), self.0.as_ref().bytes()) };
    }
}

impl<F: HydraForm> Drop for Shortcuts<F> {
    fn drop(&mut self) {
        for tree in self.trees.iter().map(|tree| tree.load(Relaxed)).filter(|tree| !tree.is_null()) {
            // SAFETY: `&mut self`: no other thread uses the trees, and no thread will; outside `turn` the two pointers
            // are never equal.
            drop(unsafe { Box::from_raw(tree) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::Word;
    use archipelago_platform::thread;

    /// A thread makes a tree, and another thread passes the tree on. The two meet nowhere else, so Miri reports a data
    /// race if the other thread has not acquired the tree.
    #[test]
    fn a_turn_acquires_the_tree() {
        let shortcuts = Shortcuts::<Word>::new();
        let tree = thread::scope(|scope| {
            scope.spawn(|| _ = shortcuts.first_tree());
            while shortcuts.generations() == 0 {
                thread::yield_now();
            }
            assert!(shortcuts.turn().is_none());
            let Dropped(tree) = shortcuts.turn().expect("the young tree became old");
            // SAFETY: the tree is freed below.
            assert!(unsafe { tree.as_ref() }.bytes() < 4096);
            tree
        });
        // SAFETY: the tree is unpublished, and the thread that made it has ended.
        drop(unsafe { Box::from_raw(tree.as_ptr()) });
    }
}
