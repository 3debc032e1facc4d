//! Splits and merges of the data list's pages (thesis §4.3.3). For locks and logging see `list`.

use super::oplog::OpKind;
use super::page::{Fill, Page};
use super::shared::{Core, Local};
use super::shortcuts::is_chosen;
use crate::hydra::HydraForm;

impl<F: HydraForm> Core<F> {
    /// Splits the locked page to make room for `key`, and unlocks it. `steps` is the number of steps of the walk to the
    /// page.
    #[cold]
    pub(super) fn split(&self, local: &Local<'_, F>, page: &F::Page, key: F::Probe<'_>, steps: usize) {
        let fresh = self.allocate(local.node);
        // SAFETY: `fresh` is an unused block of the right layout, and this thread has locked `page`.
        if !unsafe { page.split(fresh.as_ptr(), key) } {
            page.lock().unlock();
            // SAFETY: nothing was written to the block, and no other thread knows it.
            unsafe { self.release_block(fresh) };
            return;
        }
        // SAFETY: the page was just written. Only a thread that holds `page`'s lock could make it obsolete.
        let fresh_page = unsafe { fresh.as_ref() };
        self.note_page(fresh_page);
        // The split is logged before the lock is released. So a thread that later merges the new page away logs the
        // merge after the split.
        let stamp = self.log(OpKind::Insert, fresh);
        if steps > 1 || is_chosen(stamp) {
            self.shortcuts.add(local.guard, fresh_page);
        }
        page.lock().unlock();
        self.after_structure_change(local);
    }

    /// Unlocks a page that has just lost an entry. If the page has become underfull, tries to merge it with a
    /// neighbour.
    pub(super) fn unlock_or_shrink(&self, local: &Local<'_, F>, page: &F::Page) {
        if !page.is_underfull() {
            page.lock().unlock();
            return;
        }
        let merged = self.merge_next(local, page, Fill::Half);
        // If the right neighbour is too full, the page may still fit into the left one. Finding the left neighbour
        // costs a search. So this merge is tried only if the number of entries that are left is a multiple of four.
        let try_left = !merged && page.len().is_multiple_of(4);
        page.lock().unlock();
        if merged || (try_left && self.merge_into_previous(local, page)) {
            self.after_merge(local);
        }
    }

    /// Merges the page after `page` into `page`, if the two fit together and the next page's lock is free. The caller
    /// has locked `page`.
    pub(super) fn merge_next(&self, local: &Local<'_, F>, page: &F::Page, fill: Fill) -> bool {
        let next = page.next();
        if next.is_null() {
            return false;
        }
        // SAFETY: a locked page's neighbour cannot become obsolete, so it is not retired.
        let right = unsafe { &*next };
        if !right.lock().try_lock() {
            return false;
        }
        if !page.absorb(right, fill) {
            right.lock().unlock_unchanged();
            return false;
        }
        right.set_next(page);
        self.log_obsolete(local, right, page);
        right.lock().unlock_obsolete();
        true
    }

    /// Logs that `page` becomes obsolete and forwards to `heir`. Adds a shortcut to `heir` if `page` had one, or if the
    /// op's stamp is chosen. The caller has locked `page` and the page before it, so neither `page` nor `heir` can
    /// become obsolete meanwhile.
    pub(super) fn log_obsolete(&self, local: &Local<'_, F>, page: &F::Page, heir: &F::Page) {
        let stamp = self.log(OpKind::Remove, page.into());
        if self.shortcuts.take(local.guard, page) || is_chosen(stamp) {
            self.shortcuts.add(local.guard, heir);
        }
    }

    /// Merges `page`, which is not locked, into the page before it, if the two fit together and their locks are free.
    fn merge_into_previous(&self, local: &Local<'_, F>, page: &F::Page) -> bool {
        if core::ptr::eq(page, self.head()) {
            return false;
        }
        let (left, version, _) = self.before(local, Some(page.low()));
        if !core::ptr::eq(left.next(), page) || !left.lock().try_lock_at(version) {
            return false;
        }
        let merged = self.merge_next(local, left, Fill::Half);
        if merged {
            left.lock().unlock()
        } else {
            left.lock().unlock_unchanged()
        }
        merged
    }
}
