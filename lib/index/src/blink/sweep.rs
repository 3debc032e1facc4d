//! Sweeping: compacting pages after removals all over a tree.
//!
//! Pages are allocated in regions of up to 2 MiB (the *chunks* of a `BlockArena`), and a region is freed only when it
//! has no page. So after most pages have been merged, the remaining pages occupy nearly as many regions as before. A
//! walk over the levels moves pages out of regions that are mostly free: such regions are *closed* for allocation
//! ([`BlockArena::close_sparse`]). A thorough walk also merges neighbours that fit well into one page, although neither
//! is underfull.
//!
//! [`sweep`](Tree::sweep) makes one whole walk; `structure.rs` repeats such walks while they free memory. In addition,
//! each removal that balances an underfull leaf advances the current walk by [`STEPS`] pages, or begins a walk if half
//! of an arena's memory is free. So walks proceed as long as leaves are balanced, at a bounded cost for each balanced
//! leaf.
//!
//! A page is replaced under the same latches as in a merge: its parent's, its left neighbour's, and its own. With
//! coarse latches ([`Policy::FINEST`]) the left neighbour of a parent's first child may be covered by a latch that
//! comes earlier in the latch order and can no longer be taken. So no pages of such trees are moved: thorough walks
//! only merge them.

use super::balance::Why;
use super::locked::Locked;
use super::page::{Goal, Page};
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::{Spot, Tree};
use archipelago_platform::memory::{BlockArena, Sparse};
use archipelago_sync::rcu::{Domain, Guard};
use core::ptr::NonNull;

/// The number of pages that are examined after each removal that balances a leaf.
const STEPS: usize = 8;

/// The number of pages that are examined under one guard.
const BATCH: usize = 64;

impl<F: SlotForm> Spot<F> {
    /// Returns the position at which a walk begins. Leaves are first, since merges of leaves make merges of inner pages
    /// possible.
    fn first() -> Self {
        Spot { level: 0, key: F::least() }
    }
}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Whether walks can latch the pages that they replace. If not, no page is moved.
    const IS_SWEPT: bool = P::FINEST == 0;

    /// Advances the current walk after a leaf was balanced, as the module's documentation describes. The caller holds
    /// no latch.
    pub(super) fn sweep_in_passing(&self, guard: &Guard<'_>) {
        // If the lock is held, the thread skips the sweep and does not wait: the holder may be this thread, in a
        // destructor.
        let Ok(mut at) = self.sweeping.try_lock() else { return };
        let begin = || (self.close_sparse(Sparse::Half) > 0).then(Spot::first);
        let Some(from) = at.take().or_else(begin) else { return };
        *at = guard.hold_back(|| self.sweep_some(from, STEPS, false, guard));
    }

    /// Walks once: moves pages, and with `merge` merges them. Returns `false` if nothing is to be done.
    pub(super) fn sweep(&self, merge: bool, domain: &Domain) -> bool {
        let is_due = self.close_sparse(Sparse::Third) > 0 || merge;
        if is_due {
            self.walk(merge, domain);
        }
        is_due
    }

    fn walk(&self, merge: bool, domain: &Domain) {
        let mut at = Some(Spot::first());
        while let Some(from) = at {
            at = self.sweep_some(from, BATCH, merge, &domain.pin());
        }
    }

    /// Returns whether [`sweep`](Self::sweep) would find pages to move.
    pub(super) fn is_sparse(&self) -> bool {
        Self::IS_SWEPT && self.arenas.iter().any(|arena| arena.is_sparse(Sparse::Third))
    }

    fn close_sparse(&self, sparse: Sparse) -> usize {
        let close = |arena: &BlockArena| arena.close_sparse(sparse);
        if Self::IS_SWEPT { self.arenas.iter().map(close).sum() } else { 0 }
    }

    /// For tests: moves all pages but the root.
    pub(super) fn move_pages(&self, domain: &Domain) {
        if Self::IS_SWEPT {
            self.arenas.iter().for_each(BlockArena::close_all);
            self.walk(false, domain);
        }
    }

    /// Examines up to `pages` pages. Returns the position at which to continue, or `None` if the walk has ended.
    fn sweep_some(&self, from: Spot<F>, pages: usize, merge: bool, guard: &Guard<'_>) -> Option<Spot<F>> {
        let Spot { mut level, mut key } = from;
        for _ in 0..pages {
            if level >= self.root(guard).level() {
                return None;
            }
            self.balance_from(level + 1, F::probe(&key), Why::Swept { merge }, guard);
            (level, key) = match self.high_of(level, F::probe(&key), guard) {
                Some(high) => (level, high),
                None => (level + 1, F::least()),
            };
        }
        Some(Spot { level, key })
    }

    /// Returns the upper fence of the page to which a key belongs. Returns `None` if the page is the last of its level,
    /// or if the level no longer exists.
    fn high_of(&self, level: usize, key: F::Probe<'_>, guard: &Guard<'_>) -> Option<F::Owned> {
        loop {
            let ((page, seen), _hold) = self.find(Goal::At(key), level, guard)?;
            let high = page.high();
            if page.is_still(seen) {
                return high;
            }
        }
    }

    /// Returns whether a page, or a copy of it, is in a closed region.
    fn is_closed(&self, page: Page<'_, F, P>) -> bool {
        let closed = |home: usize, page: NonNull<_>| self.arenas[home].is_closed(page.cast());
        closed(page.home(), page.address())
            || page.each_copy().any(|copy: Page<'_, F, P>| closed(copy.home(), copy.address()))
    }

    /// If the child in a slot of a latched parent is in a closed region (one that is to be freed), replaces the child
    /// by another page with the same fences, entries and neighbours. Returns whether the child was replaced.
    pub(super) fn move_child<'g>(
        &self,
        parent: Page<'g, F, P>,
        slot: usize,
        gone: &mut Vec<Page<'g, F, P>>,
        guard: &'g Guard<'_>,
    ) -> bool {
        let child = self.child_of(parent, slot);
        if !self.is_closed(child) {
            return false;
        }
        // The left neighbour may have another parent. Only the neighbour's own latch is needed, which precedes the
        // child's latch in the order.
        let left = match child.left() {
            None => None,
            Some(left) => {
                // SAFETY: the left neighbour was in the tree under the guard.
                let Some(left) = Locked::linked_to(unsafe { Page::from_address(left) }, child) else { return false };
                Some(left)
            }
        };
        let old = self.lock_child(parent, slot);
        debug_assert_eq!(child.left(), left.as_ref().map(|left| left.page().address()), "links meet");
        let (piece, level) = (child.piece(), child.level());
        let new = self.create_page_at(child.home(), level, guard);
        new.fill(&piece, 0..piece.run.len());
        // SAFETY: the neighbour of a latched page is in the tree.
        let right: Option<Page<'g, F, P>> = child.right().map(|right| unsafe { Page::from_address(right) });
        new.set_right(right);
        new.set_left(left.as_ref().map(Locked::page));
        // The copies are forgotten before any page is unlatched, since pages to which a copy leads must not be retired.
        child.forget_copies();
        parent.set_child(slot, new);
        if let Some(left) = left {
            left.page().set_right(Some(new));
            left.changed();
        }
        if let Some(right) = right {
            right.set_left(Some(new));
        }
        gone.push(old.gone());
        true
    }
}
