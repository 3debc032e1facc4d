//! Latches that are held.

use super::page::Page;
use super::policy::Policy;
use super::slots::SlotForm;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::version_lock::Version;

/// A page whose latch this thread holds. Dropping it unlatches without telling readers: nothing has changed.
pub(super) struct Locked<'g, F: SlotForm, P: Policy>(Page<'g, F, P>);

impl<'g, F: SlotForm, P: Policy> Locked<'g, F, P> {
    /// Latches a page that is known to be in the tree, by a latch that is held on the level above.
    pub(super) fn child(page: Page<'g, F, P>) -> Self {
        assert!(page.latch().lock(), "a page that a latched one leads to is in the tree");
        Locked(page)
    }

    /// Latches a page if it still is as it was `seen`.
    pub(super) fn at(page: Page<'g, F, P>, seen: Version) -> Option<Self> {
        page.latch().try_lock_at(seen).then(|| Locked(page))
    }

    /// Latches a page that covered `key` when it was `seen`, and says whether it still is as it was. If it is not, this
    /// waits for the latch, and then the page must still be in the tree and cover the key: it may have become one with its
    /// neighbour, and keys may have gone to either side.
    pub(super) fn covering(
        page: Page<'g, F, P>,
        seen: Version,
        level: usize,
        key: F::Probe<'_>,
    ) -> Option<(Self, bool)> {
        point(points::LATCHING);
        if let Some(locked) = Self::at(page, seen) {
            return Some((locked, true));
        }
        if !page.latch().lock() {
            return None;
        }
        let locked = Locked(page);
        // The root changes its level, too.
        (page.level() == level && page.covers(key)).then_some((locked, false))
    }

    #[inline]
    pub(super) fn page(&self) -> Page<'g, F, P> {
        self.0
    }

    /// Unlatches after a change.
    pub(super) fn changed(self) {
        self.0.latch().unlock();
        core::mem::forget(self);
    }

    /// Unlatches a page that nothing leads to any more, for ever. The caller retires it when it holds no latch:
    /// reclamation may run the destructors of users' values, which may use the tree.
    #[must_use]
    pub(super) fn gone(self) -> Page<'g, F, P> {
        let page = self.0;
        page.latch().unlock_obsolete();
        core::mem::forget(self);
        page
    }
}

impl<F: SlotForm, P: Policy> Drop for Locked<'_, F, P> {
    fn drop(&mut self) {
        self.0.latch().unlock_unchanged();
    }
}
