//! Detection of thin maps. A map is thin if entries have been removed all over it. Then neighbouring pages fit together
//! into one page, but no page alone is so empty that a removal from it would look for a neighbour to merge with.
//!
//! A walk over all pages merges the neighbours. It takes time in proportion to the number of pages. So in a thin map a
//! walk is due only when, since the last walk, the entries have become fewer by an eighth, or the pages more by an
//! eighth. This is O(1) for each change.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};

/// The result of the last walk, which determines when the next one is due.
#[derive(Debug, Default)]
pub(crate) struct Thin {
    /// The number of entries when the last walk ended; `pages` is the number of pages.
    entries: AtomicUsize,
    pages: AtomicUsize,
}

/// A walk merges neighbours that fit into this fraction of a page together (in a `HydraList`: into three quarters of a
/// page's slots). So after a walk, pages are on average at least about as full as half of this fraction.
pub(crate) const WELL: (usize, usize) = (7, 8);

impl Thin {
    /// Returns whether a walk is due, in a map of `entries` entries in `pages` pages with room for `room` entries each.
    pub(crate) fn is_due(&self, entries: usize, pages: usize, room: usize) -> bool {
        let is_thin = 2 * WELL.1 * entries < WELL.0 * room * pages;
        // Relaxed: two estimates, which order nothing.
        let (before, pages_before) = (self.entries.load(Relaxed), self.pages.load(Relaxed));
        is_thin && pages > 1 && (8 * entries <= 7 * before || 8 * pages > 9 * pages_before)
    }

    /// Records that a walk has ended.
    pub(crate) fn walked(&self, entries: usize, pages: usize) {
        self.entries.store(entries, Relaxed);
        self.pages.store(pages, Relaxed);
    }
}
