//! The lines in a cache: sets of ways with LRU replacement.
//!
//! A tag tells that a line was brought into the cache and has not been evicted since. Whether the copy is still valid
//! is in the line's own record, so an invalidation needs no search here. A line's set follows from its *colour*, the
//! number of its page and its position in the page.
//!
//! The arrays start as zeros that the operating system provides on demand, so an unused cache takes no memory. The next
//! run reuses the arrays of the previous one. It numbers its lines above all old ones, which then count as zeros. So
//! the arrays need not be cleared, which would take longer than many runs.

use std::cell::RefCell;

use crate::machine::Cache;

/// The number of tags in a cache line of the host.
const LINE: usize = 16;

/// The tags of several equal caches: one per core, or one per socket.
pub(crate) struct Tags {
    /// Line number plus `base` plus one; a value of at most `base` stands for none. Each set is ordered from the most
    /// recently used line.
    tags: Vec<u32>,
    /// The greatest tag of earlier runs. The next field is the greatest tag of this run.
    base: u32,
    greatest: u32,
    /// The index in `tags` at which a host cache line begins, so that a set is on as few host lines as possible.
    first: usize,
    sets: u64,
    ways: usize,
    /// Whether a hash of the colour selects the set. Shared caches distribute addresses over slices by a hash.
    hashed: bool,
}

/// The number of kept arrays of earlier runs, which is the number of cache levels of a machine. Each array is kept with
/// its greatest tag; the newest is the last.
const LEVELS: usize = 3;
/// Arrays that are shorter than this are filled quickly, and are not kept.
const SHORT: usize = 1 << 10;
thread_local! {
    static KEPT: RefCell<Vec<(Vec<u32>, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The result of using a line in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// The line was in the cache.
    Hit,
    /// The line was brought in.
    Missed,
    /// The line was brought in, and evicted this line.
    Pushed(u32),
}

impl Tags {
    pub(crate) fn new(caches: usize, cache: Cache, hashed: bool) -> Self {
        let len = caches * cache.sets * cache.ways + LINE;
        let (tags, base) = kept(len).unwrap_or_else(|| {
            let tags = vec![0; len];
            super::use_huge_pages(&tags);
            (tags, 0)
        });
        let first = tags.as_ptr().align_offset(64).min(LINE);
        Tags { tags, base, greatest: base, first, sets: cache.sets as u64, ways: cache.ways, hashed }
    }

    /// Uses a line in cache number `cache`. Afterwards the line is in the cache, as the most recently used line of its
    /// set.
    #[inline]
    pub(crate) fn touch(&mut self, cache: usize, line: u32, colour: u32) -> Used {
        let start = self.start(cache, colour);
        let ways = &mut self.tags[start..start + self.ways];
        let tag = self.base + line + 1;
        if ways[0] == tag {
            return Used::Hit;
        }
        self.greatest = self.greatest.max(tag);
        let found = ways.iter().position(|&way| way == tag);
        let last = ways[ways.len() - 1];
        let at = found.unwrap_or(ways.len() - 1);
        ways.copy_within(..at, 1);
        ways[0] = tag;
        match (found, last) {
            (Some(_), _) => Used::Hit,
            (None, old) if old <= self.base => Used::Missed,
            (None, pushed) => Used::Pushed(pushed - self.base - 1),
        }
    }

    /// Does the same as [`touch`](Self::touch), with one exception: if the set is full and has lines that are no longer
    /// `valid`, evicts one of these.
    pub(crate) fn touch_around(&mut self, cache: usize, line: u32, colour: u32, valid: impl Fn(u32) -> bool) -> Used {
        let start = self.start(cache, colour);
        let ways = &mut self.tags[start..start + self.ways];
        let base = self.base;
        let full = ways.iter().all(|&way| way > base && way != base + line + 1);
        let stale = |ways: &[u32]| ways.iter().rposition(|&way| !valid(way - base - 1));
        if let Some(stale) = full.then(|| stale(ways)).flatten() {
            let last = ways.len() - 1;
            ways[stale..].rotate_left(1);
            ways[last] = 0;
        }
        self.touch(cache, line, colour)
    }

    /// Brings the line's set into the host's cache.
    #[inline]
    pub(crate) fn prepare(&self, cache: usize, colour: u32) {
        super::host_prefetch(&raw const self.tags[self.start(cache, colour)]);
    }

    /// Returns the index at which the set of a colour begins.
    #[inline]
    fn start(&self, cache: usize, colour: u32) -> usize {
        self.first + (cache * self.sets as usize + self.set_of(colour)) * self.ways
    }

    #[inline]
    fn set_of(&self, colour: u32) -> usize {
        if self.hashed {
            let hash = u64::from(colour.wrapping_mul(0x9E37_79B1));
            ((hash * self.sets) >> 32) as usize
        } else {
            (u64::from(colour) & (self.sets - 1)) as usize
        }
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        if self.tags.len() < SHORT {
            return;
        }
        let kept = (std::mem::take(&mut self.tags), self.greatest);
        // A thread that is ending has no thread-local storage any more, so it keeps no array.
        _ = KEPT.try_with(|all| {
            let mut all = all.borrow_mut();
            if all.len() == LEVELS {
                all.remove(0);
            }
            all.push(kept);
        });
    }
}

/// Returns an array of this length from an earlier run with its greatest tag, if one with enough unused numbers was
/// kept.
fn kept(len: usize) -> Option<(Vec<u32>, u32)> {
    KEPT.with(|all| {
        let mut all = all.borrow_mut();
        let at = all.iter().position(|(tags, greatest)| tags.len() == len && *greatest < u32::MAX / 2)?;
        Some(all.remove(at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_finds_its_caches_empty() {
        let cache = Cache { sets: SHORT, ways: 2 };
        for run in 0..3 {
            let mut tags = Tags::new(1, cache, false);
            assert_eq!(tags.base > 0, run > 0, "the arrays of the last run are used again");
            assert_eq!(tags.touch(0, 0, 0), Used::Missed);
            assert_eq!(tags.touch(0, 1, 0), Used::Missed);
            assert_eq!(tags.touch_around(0, 2, 0, |_| false), Used::Missed);
            assert_eq!(tags.touch_around(0, 3, 0, |_| true), Used::Pushed(1));
            assert_eq!(
                tags.touch_around(0, 4, 1, |line| unreachable!("line {line} is of an earlier run")),
                Used::Missed
            );
        }
    }

    #[test]
    fn the_least_recently_used_goes() {
        let mut tags = Tags::new(2, Cache { sets: 4, ways: 2 }, false);
        assert_eq!(tags.touch(1, 10, 5), Used::Missed);
        assert_eq!(tags.touch(1, 11, 9), Used::Missed);
        assert_eq!(tags.touch(1, 10, 5), Used::Hit);
        assert_eq!(tags.touch(1, 12, 13), Used::Pushed(11));
        assert_eq!(tags.touch(1, 13, 6), Used::Missed);
        assert_eq!(tags.touch(0, 10, 5), Used::Missed);
    }

    #[test]
    fn what_is_not_valid_goes_first() {
        let mut tags = Tags::new(1, Cache { sets: 1, ways: 3 }, false);
        (1..4).for_each(|line| _ = tags.touch(0, line, 0));
        assert_eq!(tags.touch_around(0, 4, 0, |line| line != 2), Used::Missed);
        assert_eq!(tags.touch_around(0, 5, 0, |_| true), Used::Pushed(1));
        assert_eq!(tags.touch_around(0, 3, 0, |_| false), Used::Hit);
        assert_eq!(tags.touch_around(0, 6, 0, |_| true), Used::Pushed(4));
    }

    #[test]
    fn hashed_sets_use_the_whole_cache() {
        let mut tags = Tags::new(1, Cache { sets: 28_672, ways: 20 }, true);
        let lines = 28_672 * 10;
        let pushed = (0..lines).filter(|&line| matches!(tags.touch(0, line, line), Used::Pushed(_))).count();
        assert!(pushed < lines as usize / 50, "{pushed}");
    }
}
