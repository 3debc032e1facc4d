//! Compaction: moving pages out of sparse chunks.
//!
//! Pages are allocated in chunks of up to 2 MiB, and a chunk is returned to the operating system only when it has no
//! page. So after most entries of a map have been removed, and most pages merged, the remaining pages occupy nearly as
//! many chunks as before. When an arena has more than twice the memory of its live pages (1.6 times in a map at rest
//! and in `sync`), its sparse chunks are closed
//! ([`BlockArena::close_sparse`](archipelago_platform::memory::BlockArena::close_sparse)). One walk along the list then
//! replaces pages in closed chunks by *twins* in other chunks, or merges them into the previous page. The next walk
//! runs when half of the remaining memory has been freed again. So all walks together have a constant cost for each
//! page that was ever merged.
//!
//! **A move is a merge into a fresh page.** The previous page and the page itself are locked, so neither the page nor
//! the link to it can change. The twin gets the same bounds and entries, and the link is changed to the twin. The page
//! becomes obsolete and forwards to its twin, whose `low` is the same. So the rules for walks (`list.rs`) and for
//! reclamation (`maintain.rs`) hold unchanged: the page's `Remove` is logged under the lock that any later change of
//! the link needs. A layer applies the twin's `Insert`, which changes the anchor to the twin, one round before the
//! page's `Remove`. The `Remove` then finds that the anchor leads to another page, and has no effect.

use super::super::oplog::OpKind;
use super::super::page::{Fill, Page};
use super::super::shared::{Core, Local};
use crate::hydra::HydraForm;
use crate::points;
use crate::thin::Extent;
use archipelago_platform::atomic::Ordering::Relaxed;
use archipelago_platform::hint::point;
use archipelago_platform::memory::Sparse;
use archipelago_platform::sync::{MutexGuard, TryLockError};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::backoff::Backoff;

/// The number of pages that are examined under one guard.
const BATCH: usize = 256;

/// The number of milliseconds for which a thread waits for another thread's walk.
const PATIENCE: usize = 256;

/// The number of attempts to lock a busy page.
const TRIES: usize = 16;

impl<F: HydraForm> Core<F> {
    /// Compacts pages if chunks are sparse, unless another thread does so. Returns whether this thread has compacted.
    ///
    /// If `again` is true, the call does more. It waits for the other thread. It also moves pages that an earlier walk
    /// left in closed chunks. And it also walks if pages are nearly empty on average, although none of them is
    /// underfull ([`Thin`](crate::thin::Thin)). The caller passes `again` only after the memory of earlier moves and
    /// merges has been freed as far as possible.
    pub(super) fn compact_if_sparse(&self, node: usize, again: bool) -> bool {
        let Some(mut in_closed) = self.begin_compacting(again) else { return false };
        let sparse = if again { Sparse::Third } else { Sparse::Half };
        let before = core::mem::replace(&mut *in_closed, self.close_sparse(sparse));
        let merge = again && self.is_due();
        if *in_closed == 0 && !merge || !again && before > 0 {
            return false;
        }
        let began = self.extent();
        self.compact(node);
        if merge {
            self.maintenance.thin.walked(began, self.extent());
        }
        true
    }

    /// Takes the right to move pages. The wait for another walk is bounded, for two reasons. This thread itself may be
    /// in that walk, and be running a destructor. And after a `fork` the walking thread may not exist.
    fn begin_compacting(&self, waits: bool) -> Option<MutexGuard<'_, usize>> {
        for _ in 0..if waits { PATIENCE } else { 1 } {
            if self.is_ending() {
                return None;
            }
            match self.maintenance.compacting.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) if waits => thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        None
    }

    /// Returns whether [`compact_if_sparse`](Self::compact_if_sparse), called with `again`, would walk.
    pub(in super::super) fn is_thin(&self) -> bool {
        self.is_due() || self.is_sparse(Sparse::Third)
    }

    fn is_due(&self) -> bool {
        self.maintenance.thin.is_due(self.extent(), F::Page::SLOTS)
    }

    fn extent(&self) -> Extent {
        Extent { entries: self.len(), pages: self.pages() }
    }

    /// For tests: moves every page except the first. The caller holds no guard.
    pub(crate) fn move_pages(&self, node: usize) {
        {
            let _compacting = super::lock(&self.maintenance.compacting);
            self.close_all();
            self.compact(node);
        }
        self.tidy(node);
    }

    /// Walks over all pages, merges neighbours that fit together, and moves pages out of closed chunks.
    pub(super) fn compact(&self, node: usize) {
        let mut from = Some(F::least());
        while let Some(low) = from.filter(|_| !self.is_ending()) {
            let guard = self.domain.pin();
            from = self.compact_some(&self.local_at(&guard, node), F::probe(&low));
            point(points::WALKED);
        }
    }

    /// Compacts a batch of pages, from the page of the key `from` on. Returns the key at which to continue, or `None`
    /// after the last page.
    fn compact_some(&self, local: &Local<'_, F>, from: F::Probe<'_>) -> Option<F::Owned> {
        let mut page = self.target(local.guard, local.jump(from), from).0;
        for _ in 0..BATCH {
            // The following pages are merged or moved, one after the other, before the walk enters the next one.
            while self.improve_next(local, page) {}
            let (same, version, _) = self.target(local.guard, page, page.low());
            let next = same.next();
            if same.lock().validate(version) {
                // SAFETY: `next` was validated, so it was this live page's neighbour, and was not retired when the
                // guard was entered.
                page = unsafe { next.as_ref() }?;
            }
        }
        Some(F::own(page.low()))
    }

    /// Merges the page after `page` into `page`, if the two fit together. Otherwise, if the page after `page` is in a
    /// closed chunk, replaces it by a twin in another chunk. Returns `true` after a merge: then another page follows
    /// `page`, and is to be examined, too.
    fn improve_next(&self, local: &Local<'_, F>, page: &F::Page) -> bool {
        let backoff = Backoff::new();
        for _ in 0..TRIES {
            let (page, version, _) = self.target(local.guard, page, page.low());
            let next = page.next();
            if !page.lock().validate(version) {
                continue;
            }
            // SAFETY: `next` was validated, see above.
            let Some(right) = (unsafe { next.as_ref() }) else { return false };
            let fits = page.len() + right.len() <= F::Page::MOST;
            if !fits && self.closed_at(right).is_none() {
                return false;
            }
            if page.lock().try_lock_at(version) {
                let merged = self.merge_next(local, page, Fill::Most);
                let moved = !merged && self.move_next(local, page);
                if merged || moved {
                    page.lock().unlock();
                    self.maintenance.pending.fetch_add(if moved { 2 } else { 1 }, Relaxed);
                    return merged;
                }
                page.lock().unlock_unchanged();
                if self.closed_at(right).is_none() {
                    return false;
                }
            }
            backoff.wait();
        }
        false
    }

    /// Replaces the page after `page` by a twin, if that page is in a closed chunk and its lock is free. The caller has
    /// locked `page`.
    fn move_next(&self, local: &Local<'_, F>, page: &F::Page) -> bool {
        // SAFETY: a locked page's neighbour cannot become obsolete, so it is not retired.
        let Some(right) = (unsafe { page.next().as_ref() }) else { return false };
        let Some(node) = self.closed_at(right) else { return false };
        if !right.lock().try_lock() {
            return false;
        }
        let twin = self.allocate(node);
        // SAFETY: the block is fresh and has the page's layout. This thread has locked `right`, and makes it obsolete
        // below.
        let twin_page = unsafe {
            right.copy_to(twin.as_ptr());
            twin.as_ref()
        };
        self.note_page(twin_page);
        page.set_twin(twin_page);
        right.set_next(twin_page);
        // The move is logged before the locks are released. So a thread that later merges the twin away, or moves it,
        // logs that change after this one.
        self.log(OpKind::Insert, twin);
        self.log_obsolete(local, right, twin_page);
        right.lock().unlock_obsolete();
        self.maintenance.moved.fetch_add(1, Relaxed);
        true
    }
}
