//! Detection of thin maps. A map is thin if entries have been removed all over it. Then neighbouring pages fit together
//! into one page. But no page is underfull by itself, so removals do not look for a neighbour to merge with.
//!
//! A walk over all pages merges the neighbours. It takes time in proportion to the number of pages. So in a thin map a
//! walk is due only after a change by an eighth since the last walk: fewer entries, or more pages. So the walks cost
//! O(1) for each change.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};

/// The numbers of a map's entries and pages at one time.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub entries: usize,
    pub pages: usize,
}

/// The result of the last walk, which determines when the next one is due.
#[derive(Debug, Default)]
pub(crate) struct Thin {
    /// The number of entries at the last walk; `pages` is the number of pages.
    entries: AtomicUsize,
    pages: AtomicUsize,
}

/// A walk merges neighbours that fit into this fraction of a page together (in a `HydraList`: into three quarters of a
/// page's slots). So after a walk, pages are on average at least about as full as half of this fraction.
pub(crate) const WELL: (usize, usize) = (7, 8);

impl Thin {
    /// Returns whether a walk is due, in a map of this extent whose pages have room for `room` entries each.
    pub(crate) fn is_due(&self, Extent { entries, pages }: Extent, room: usize) -> bool {
        let is_thin = 2 * WELL.1 * entries < WELL.0 * room * pages;
        // Relaxed: two estimates, which order nothing.
        let (before, pages_before) = (self.entries.load(Relaxed), self.pages.load(Relaxed));
        is_thin && pages > 1 && (8 * entries <= 7 * before || 8 * pages > 9 * pages_before)
    }

    /// Records a walk, by the map's extents when it began and when it ended.
    ///
    /// Other threads may change pages that the walk has already passed, and the walk may take long, since its thread
    /// may be preempted. Such changes must make the next walk due. So the greater number of entries and the smaller
    /// number of pages are recorded.
    pub(crate) fn walked(&self, began: Extent, ended: Extent) {
        self.entries.store(began.entries.max(ended.entries), Relaxed);
        self.pages.store(began.pages.min(ended.pages), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of a page; a map with fewer than 35 entries a page is thin.
    const ROOM: usize = 80;

    const fn extent(entries: usize, pages: usize) -> Extent {
        Extent { entries, pages }
    }

    /// Returns whether a walk is due in the second map, after a walk that began and ended in the first one.
    fn is_due_after(walk: Extent, now: Extent) -> bool {
        let thin = Thin::default();
        thin.walked(walk, walk);
        thin.is_due(now, ROOM)
    }

    #[test]
    fn a_walk_is_due_after_changes_of_an_eighth() {
        let walk = extent(2_400, 80);
        assert!(!is_due_after(walk, walk) && !is_due_after(walk, extent(2_101, 90)));
        assert!(is_due_after(walk, extent(2_100, 80)) && is_due_after(walk, extent(2_400, 91)));
        assert!(!is_due_after(walk, extent(1_750, 50)), "pages are well filled");
    }

    #[test]
    fn changes_during_a_walk_make_the_next_one_due() {
        let (few, many, wide) = (extent(2_100, 80), extent(2_400, 80), extent(2_400, 91));
        for (began, ended, now) in [(many, few, few), (few, many, few), (many, wide, wide), (wide, many, wide)] {
            let thin = Thin::default();
            thin.walked(began, ended);
            assert!(thin.is_due(now, ROOM));
        }
    }
}
