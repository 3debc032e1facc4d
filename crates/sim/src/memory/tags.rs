//! Which lines a cache has: sets of ways, least recently used goes first.
//!
//! A tag says that a line was brought in and not pushed out since. Whether the copy is still valid stands in the
//! line's own record, so that invalidating costs no search here. A line's set follows from its colour. The arrays
//! start as zeros that the operating system hands out on demand: an unused cache takes no memory.

use crate::machine::Cache;

/// Tags in a line of the host's cache.
const LINE: usize = 16;

/// The tags of several equal caches: one per core, or one per socket.
pub(crate) struct Tags {
    /// Line numbers plus one, 0 for none; each set from the most recently used.
    tags: Vec<u32>,
    /// Where in `tags` a host cache line begins: a set shall not lie across one more than it must.
    first: usize,
    sets: u64,
    ways: usize,
    /// Whether sets are picked by a hash of the colour: shared caches spread addresses over slices.
    hashed: bool,
}

/// What happened to a cache when a line was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// It was there.
    Hit,
    /// It was brought in.
    Missed,
    /// It was brought in, and pushed this line out.
    Pushed(u32),
}

impl Tags {
    pub(crate) fn new(caches: usize, cache: Cache, hashed: bool) -> Self {
        let tags = vec![0; caches * cache.sets * cache.ways + LINE];
        super::use_huge_pages(&tags);
        let first = tags.as_ptr().align_offset(64).min(LINE);
        Tags { tags, first, sets: cache.sets as u64, ways: cache.ways, hashed }
    }

    /// Uses a line in cache number `cache`: it is there afterwards, as the most recently used of its set.
    #[inline]
    pub(crate) fn touch(&mut self, cache: usize, line: u32, colour: u32) -> Used {
        let start = self.start(cache, colour);
        let ways = &mut self.tags[start..start + self.ways];
        let tag = line + 1;
        if ways[0] == tag {
            return Used::Hit;
        }
        let found = ways.iter().position(|&way| way == tag);
        let last = ways[ways.len() - 1];
        let at = found.unwrap_or(ways.len() - 1);
        ways.copy_within(..at, 1);
        ways[0] = tag;
        match (found, last) {
            (Some(_), _) => Used::Hit,
            (None, 0) => Used::Missed,
            (None, pushed) => Used::Pushed(pushed - 1),
        }
    }

    /// As [`touch`](Self::touch), but a line that isn't `valid` any more goes first.
    pub(crate) fn touch_around(&mut self, cache: usize, line: u32, colour: u32, valid: impl Fn(u32) -> bool) -> Used {
        let start = self.start(cache, colour);
        let ways = &mut self.tags[start..start + self.ways];
        let full = ways.iter().all(|&way| way != 0 && way != line + 1);
        let stale = |ways: &[u32]| ways.iter().rposition(|&way| !valid(way - 1));
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

    /// Where the set of a colour begins.
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

#[cfg(test)]
mod tests {
    use super::*;

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
