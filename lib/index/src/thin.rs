//! When pages have become thin: entries have been removed all over a map, so that neighbours fit together into one page, and
//! no page is so empty by itself that its removals look for a neighbour.
//!
//! A walk over all pages mends it. It costs time in proportion to the pages, so one comes only when an eighth of what the map
//! has has changed since the last one: O(1) for each change.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a walk left, and when there should be another.
#[derive(Debug, Default)]
pub(crate) struct Thin {
    /// Counts when the last walk had ended.
    entries: AtomicUsize,
    pages: AtomicUsize,
}

/// Neighbours that fit into this part of a page together are merged by a walk, so afterwards pages are fuller than half of
/// that.
pub(crate) const WELL: (usize, usize) = (7, 8);

impl Thin {
    /// Returns whether a walk is due, in a map of so many entries in so many pages with room for `room` each.
    pub(crate) fn is_due(&self, entries: usize, pages: usize, room: usize) -> bool {
        let is_thin = 2 * WELL.1 * entries < WELL.0 * room * pages;
        // Relaxed: two estimates, which order nothing.
        let (before, pages_before) = (self.entries.load(Relaxed), self.pages.load(Relaxed));
        is_thin && pages > 1 && (8 * entries <= 7 * before || 8 * pages > 9 * pages_before)
    }

    /// A walk has ended.
    pub(crate) fn walked(&self, entries: usize, pages: usize) {
        self.entries.store(entries, Relaxed);
        self.pages.store(pages, Relaxed);
    }
}
