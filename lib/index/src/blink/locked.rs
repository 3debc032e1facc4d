//! Latches that are held.

use super::latch::Latch;
use super::page::{Page, Seen};
use super::policy::Policy;
use super::slots::SlotForm;
use crate::points;
use archipelago_platform::hint::point;

/// A page with a version at which it was read, and with its latch if readers take latches.
pub(super) type Held<'g, F, P> = (Seen<'g, F, P>, Hold<'g, F, P>);

/// The state of a thread that reads a page. If the policy makes readers take latches, the state contains the latch,
/// held shared, and the page to which the latch belongs.
pub(super) struct Hold<'g, F: SlotForm, P: Policy> {
    read: Option<<P::Latch as Latch>::Read<'g>>,
    above: Above<'g, F, P>,
}

/// If a page has no latch of its own: the page above whose latch covers it, with the version at which that page was
/// seen. `None` if the page has its own latch.
pub(super) type Above<'g, F, P> = Option<Seen<'g, F, P>>;

impl<'g, F: SlotForm, P: Policy> Hold<'g, F, P> {
    /// Latches a page that has a latch, if the policy makes readers take it.
    #[inline(always)]
    pub(super) fn of(page: Page<'g, F, P>) -> Self {
        Hold { read: P::LATCHED_READS.then(|| page.side_latch().read()), above: None }
    }

    /// Returns an empty hold.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Hold { read: None, above: None }
    }

    /// Moves on to the page `next`. If `next` has a latch, takes it and returns the previous hold, which the caller
    /// releases after it has validated the previous page, `seen`. If `next` has no latch, it is covered by the latch of
    /// the previous page, or by the latch that covers the previous page.
    #[inline(always)]
    pub(super) fn go_on(self, seen: Seen<'g, F, P>, next: Page<'g, F, P>) -> (Self, Self) {
        if next.has_latch() {
            (Self::of(next), self)
        } else {
            (Hold { above: self.above.or(Some(seen)), ..self }, Self::none())
        }
    }

    /// Releases the latch. Returns the page whose latch it is.
    #[inline(always)]
    pub(super) fn release(self) -> Above<'g, F, P> {
        drop(self.read);
        self.above
    }
}

/// Takes the latch that covers a page, for writing. Returns `None` if the latch belongs to another page and that page
/// has changed.
fn write_latch<'g, F: SlotForm, P: Policy>(
    page: Page<'g, F, P>,
    above: Above<'g, F, P>,
) -> Option<<P::Latch as Latch>::Write<'g>> {
    let Some((above, seen)) = above else { return Some(page.side_latch().write()) };
    let write = above.side_latch().write();
    // The entry that led to the page may have moved to a page other than `above`. All changes of `above` are made under
    // this latch.
    above.is_still(seen).then_some(write)
}

/// For debug builds: returns whether a latched page is covered by the latch of another page, which is held.
fn is_under<F: SlotForm, P: Policy>(page: Page<'_, F, P>, above: Above<'_, F, P>) -> bool {
    above.is_none_or(|(above, _)| above.level() <= P::FINEST && above.covers(F::probe(&page.low())))
}

/// The work that the holder of the version lock has done.
enum Outcome {
    Nothing,
    Changed,
    Gone,
}

/// A page whose latch this thread holds. Dropping it unlatches without a new version, since nothing has changed.
pub(super) struct Locked<'g, F: SlotForm, P: Policy> {
    page: Page<'g, F, P>,
    outcome: Outcome,
    // Released after the version lock (by `drop`). `None` if another held latch covers the page.
    _write: Option<<P::Latch as Latch>::Write<'g>>,
}

impl<'g, F: SlotForm, P: Policy> Locked<'g, F, P> {
    /// Latches a page that is known to be in the tree, since the caller holds a latch on the level above.
    pub(super) fn child(page: Page<'g, F, P>) -> Self {
        let write = page.has_latch().then(|| page.side_latch().write());
        assert!(page.latch().lock(), "a page that a latched one leads to is in the tree");
        Locked { page, outcome: Outcome::Nothing, _write: write }
    }

    /// Latches a page if it is in the tree and `right` is its right neighbour. The caller holds only latches of upper
    /// levels.
    pub(super) fn linked_to(page: Page<'g, F, P>, right: Page<'g, F, P>) -> Option<Self> {
        let write = page.has_latch().then(|| page.side_latch().write());
        if !page.latch().lock() {
            return None;
        }
        let locked = Locked { page, outcome: Outcome::Nothing, _write: write };
        (page.right() == Some(right.address())).then_some(locked)
    }

    /// Latches a page if it still has the version `seen`. The caller holds no latch of this tree.
    pub(super) fn at((page, seen): Seen<'g, F, P>, above: Above<'g, F, P>) -> Option<Self> {
        let write = write_latch(page, above)?;
        if !page.latch().try_lock_at(seen) {
            return None;
        }
        let locked = Locked { page, outcome: Outcome::Nothing, _write: Some(write) };
        debug_assert!(is_under(page, above));
        Some(locked)
    }

    /// Latches a page that covered `key` at the version `seen`. Also returns whether the page is unchanged. If the page
    /// has changed, it may have been merged, or its keys may have moved to a neighbour. So the method waits for the
    /// latch, and then checks that the page is still in the tree and covers the key. The caller holds no latch of this
    /// tree.
    pub(super) fn covering(
        (page, seen): Seen<'g, F, P>,
        above: Above<'g, F, P>,
        level: usize,
        key: F::Probe<'_>,
    ) -> Option<(Self, bool)> {
        point(points::LATCHING);
        if let Some(locked) = Self::at((page, seen), above) {
            return Some((locked, true));
        }
        let write = write_latch(page, above)?;
        if !page.latch().lock() {
            return None;
        }
        let locked = Locked { page, outcome: Outcome::Nothing, _write: Some(write) };
        // The root's level may have changed, too.
        if page.level() != level || !page.covers(key) {
            return None;
        }
        debug_assert!(is_under(page, above));
        Some((locked, false))
    }

    #[inline]
    pub(super) fn page(&self) -> Page<'g, F, P> {
        self.page
    }

    /// Unlatches after a change.
    pub(super) fn changed(mut self) {
        self.outcome = Outcome::Changed;
    }

    /// Unlatches a removed page and marks it obsolete. The caller retires the page when it holds no latch:
    /// reclamation may run destructors of users' values, which may use the tree.
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
