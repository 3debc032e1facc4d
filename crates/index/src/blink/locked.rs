//! Latches that are held.

use super::latch::Latch;
use super::page::Page;
use super::policy::Policy;
use super::slots::SlotForm;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::version_lock::Version;

/// A page's latch, held for reading if the policy has readers do that.
pub(super) type Hold<'g, P> = Option<<<P as Policy>::Latch as Latch>::Read<'g>>;

/// What the version lock's holder has done.
enum Outcome {
    Nothing,
    Changed,
    Gone,
}

/// A page whose latch this thread holds. Dropping it unlatches; readers are not told, as nothing has changed.
pub(super) struct Locked<'g, F: SlotForm, P: Policy> {
    page: Page<'g, F, P>,
    outcome: Outcome,
    // Let go of after the version lock (by `drop`).
    _write: <P::Latch as Latch>::Write<'g>,
}

impl<'g, F: SlotForm, P: Policy> Locked<'g, F, P> {
    /// Latches a page that is known to be in the tree, by a latch that is held on the level above.
    pub(super) fn child(page: Page<'g, F, P>) -> Self {
        let write = page.side_latch().write();
        assert!(page.latch().lock(), "a page that a latched one leads to is in the tree");
        Locked { page, outcome: Outcome::Nothing, _write: write }
    }

    /// Latches a page if it still is as it was `seen`. The caller holds no latch.
    pub(super) fn at(page: Page<'g, F, P>, seen: Version) -> Option<Self> {
        let write = page.side_latch().write();
        page.latch().try_lock_at(seen).then(|| Locked { page, outcome: Outcome::Nothing, _write: write })
    }

    /// Latches a page that covered `key` when it was `seen`, and says whether it still is as it was. If it is not, this
    /// waits for the latch, and then the page must still be in the tree and cover the key: it may have become one with its
    /// neighbour, and keys may have gone to either side. The caller holds no latch.
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
        let write = page.side_latch().write();
        if !page.latch().lock() {
            return None;
        }
        let locked = Locked { page, outcome: Outcome::Nothing, _write: write };
        // The root changes its level, too.
        (page.level() == level && page.covers(key)).then_some((locked, false))
    }

    #[inline]
    pub(super) fn page(&self) -> Page<'g, F, P> {
        self.page
    }

    /// Unlatches after a change.
    pub(super) fn changed(mut self) {
        self.outcome = Outcome::Changed;
    }

    /// Unlatches a page that nothing leads to any more, for ever. The caller retires it when it holds no latch:
    /// reclamation may run the destructors of users' values, which may use the tree.
    #[must_use]
    pub(super) fn gone(mut self) -> Page<'g, F, P> {
        self.outcome = Outcome::Gone;
        self.page
    }
}

impl<F: SlotForm, P: Policy> Drop for Locked<'_, F, P> {
    fn drop(&mut self) {
        match self.outcome {
            Outcome::Nothing => self.page.latch().unlock_unchanged(),
            Outcome::Changed => self.page.latch().unlock(),
            Outcome::Gone => self.page.latch().unlock_obsolete(),
        }
    }
}
