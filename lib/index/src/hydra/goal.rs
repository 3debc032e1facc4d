//! The page at which a walk along the list ends.
//!
//! A goal is given by an upper bound of its `low`: the goal is the page with the greatest `low` within the bound. So a
//! search for the page before a key does not need the greatest key below that key, and a search for the last page does
//! not need the greatest key of all. Byte strings have no such keys: below `b` are `a`, `a\xFF`, `a\xFF\xFF` and so on.

use super::page::{Changed, Page as _, Seen};
use crate::hydra::HydraForm;
use archipelago_sync::version_lock::Version;
use core::ops::Bound;

/// A kind of goal. It is a type, so that walks to a key, which are most walks, test for nothing else.
pub(super) trait Goal<'k, F: HydraForm>: Copy {
    /// Returns whether the goal is to the right of `page`, which has `version`.
    fn is_right_of(self, page: &F::Page, version: Version) -> Result<bool, Changed>;

    /// Returns the upper bound of the goal's `low`.
    fn upper(self) -> Bound<F::Probe<'k>>;
}

/// The page whose range holds a key.
pub(super) struct At<'k, F: HydraForm>(pub F::Probe<'k>);

/// The page with the greatest keys below a bound: `low < bound <= high`. Without a bound it is the last page.
pub(super) struct Below<'k, F: HydraForm>(pub Option<F::Probe<'k>>);

impl<F: HydraForm> Clone for At<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: HydraForm> Copy for At<'_, F> {}

impl<F: HydraForm> Clone for Below<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: HydraForm> Copy for Below<'_, F> {}

impl<'k, F: HydraForm> Goal<'k, F> for At<'k, F> {
    #[inline(always)]
    fn is_right_of(self, page: &F::Page, version: Version) -> Result<bool, Changed> {
        page.is_beyond(self.0, Seen::At(version))
    }

    #[inline(always)]
    fn upper(self) -> Bound<F::Probe<'k>> {
        Bound::Included(self.0)
    }
}

impl<'k, F: HydraForm> Goal<'k, F> for Below<'k, F> {
    #[inline]
    fn is_right_of(self, page: &F::Page, version: Version) -> Result<bool, Changed> {
        match self.0 {
            Some(bound) => page.ends_before(bound, Seen::At(version)),
            None => Ok(!page.next().is_null()),
        }
    }

    #[inline]
    fn upper(self) -> Bound<F::Probe<'k>> {
        self.0.map_or(Bound::Unbounded, Bound::Excluded)
    }
}

/// Returns whether a page with this `low` is the goal with this upper bound, or is left of it.
#[inline(always)]
pub(super) fn is_within<F: HydraForm>(low: F::Probe<'_>, upper: Bound<F::Probe<'_>>) -> bool {
    match upper {
        Bound::Included(key) => F::compare(low, key).is_le(),
        Bound::Excluded(bound) => F::compare(low, bound).is_lt(),
        Bound::Unbounded => true,
    }
}
