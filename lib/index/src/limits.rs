//! A map's limits on memory: on memory that waits for readers, and on all memory.
//!
//! The cap on all memory is kept by an *allowance*: a number of bytes that may be requested before the memory is
//! counted again. There are two allowances: of operations that need room in pages only, and of operations that need
//! memory outside pages, too. Each is at most a quarter of what was left at the last count, and at most 4 MiB. So the
//! requests of several threads between two counts stay below the cap. Counting reads the counters of all threads, but
//! is rare with an allowance.
//!
//! Pages are allocated in blocks of many pages. For an entry that needs room in pages only, free pages of a block do
//! not count: only memory *in use* counts ([`Limits::left`](Limits::left)). At the cap, entries that need no new page
//! and no memory outside pages are still stored.

use crate::backlog::Limit;
use archipelago_platform::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use core::fmt;

/// A `try_` operation was refused, and nothing was changed. What was to be stored is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused<T = ()> {
    /// More memory waits for readers than the map's `backlog_limit`.
    Backlogged(T),
    /// The map holds as much memory as its `memory_limit` allows.
    Full(T),
    /// The key is longer than the map's [`LONGEST_KEY`](crate::Map::LONGEST_KEY).
    TooLong(T),
}

impl<T> Refused<T> {
    /// Returns what was to be stored.
    ///
    /// ```
    /// use archipelago::index::{BLinkTree, Refused};
    ///
    /// let map: BLinkTree<String, u64> = BLinkTree::new();
    /// let refused: Refused<(String, u64)> = map.pin().try_insert("x".repeat(10_000), 7).unwrap_err();
    /// let (key, value) = refused.into_inner(); // nothing is lost
    /// assert_eq!((key.len(), value), (10_000, 7));
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            Self::Backlogged(it) | Self::Full(it) | Self::TooLong(it) => it,
        }
    }

    /// Returns the same refusal of something else.
    pub(crate) fn of<U>(&self, it: U) -> Refused<U> {
        match self {
            Self::Backlogged(_) => Refused::Backlogged(it),
            Self::Full(_) => Refused::Full(it),
            Self::TooLong(_) => Refused::TooLong(it),
        }
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backlogged(_) => "Backlogged(..)",
            Self::Full(_) => "Full(..)",
            Self::TooLong(_) => "TooLong(..)",
        })
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backlogged(_) => {
                "more removed memory waits for readers than the map's limit: end the reads under way, and try again"
            }
            Self::Full(_) => "the map holds as much memory as its limit allows",
            Self::TooLong(_) => "the key is longer than the map's longest",
        })
    }
}

impl<T> core::error::Error for Refused<T> {}

/// The limits with which a map is built.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    pub(crate) backlog: Limit,
    /// The limit on all memory in bytes; `usize::MAX` means no limit.
    pub(crate) memory: usize,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self { backlog: Limit::NONE, memory: usize::MAX }
    }
}

/// The largest allowance in bytes: the memory is counted again after at most this many requested bytes.
const MOST_ALLOWANCE: usize = 4 << 20;

/// The greatest block in bytes by which a structure's memory grows.
const MOST_BLOCK: usize = 2 << 20;

/// A block has at most 1/`BLOCK_PART` (one half) of the size of the structure's memory.
const BLOCK_PART: usize = 2;

/// At the limit, an entry may be stored if its page has room. If threads compete for the room, such an entry may still
/// need a new page. This is allowed until the map exceeds the limit by 1/`RACE_PART` of the limit.
const RACE_PART: usize = 32;

/// The memory that an operation needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes in a page.
    pub(crate) page: usize,
    /// Bytes outside pages: a boxed value, a boxed key.
    pub(crate) outside: usize,
}

/// The [kind](Need::kind) of operations that need room in pages only. The other kind, 1, needs memory outside pages,
/// too.
const IN_PAGES: usize = 0;

impl Need {
    /// Returns the kind of operations that have this need: the index of their allowance.
    #[inline]
    fn kind(&self) -> usize {
        IN_PAGES + usize::from(self.outside > 0)
    }
}

/// The memory that a map holds at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// All bytes.
    pub(crate) held: usize,
    /// The part of `held` in free pages, which are used before the map allocates more memory for pages.
    pub(crate) spare: usize,
}

/// The limits of a structure.
#[derive(Debug)]
pub struct Limits {
    pub(crate) backlog: Limit,
    memory: usize,
    /// The padding separates the limits, which every change reads, from other variables of the map.
    counts: CachePadded<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// The remaining allowances: of operations that need room in pages only, and of operations that need memory outside
    /// pages, too. A map may have operations of both kinds: keys of a `HydraList` are stored in pages or outside.
    allowances: [AtomicIsize; 2],
    /// The first epoch in which another thread may settle the map (merge and move pages) to make room.
    settled: AtomicU64,
}

/// After this many epochs all memory that settling has retired can be freed.
const EPOCHS: u64 = 4;

impl Limits {
    pub(crate) fn new(config: LimitConfig) -> Self {
        Self { backlog: config.backlog, memory: config.memory, counts: CachePadded::default() }
    }

    /// Returns whether the map may grow by `need`; `count` returns the memory that it holds.
    #[inline]
    pub(crate) fn may_grow(&self, need: Need, count: impl FnOnce() -> Space) -> bool {
        let bytes = need.page + need.outside;
        // Relaxed: an estimate, which orders nothing.
        self.memory == usize::MAX
            || self.counts.allowances[need.kind()].fetch_sub(bytes as isize, Relaxed) >= bytes as isize
            || self.count_anew(need, count())
    }

    /// Renews the allowance of operations of this kind, and returns whether the map may grow by `need`. The other
    /// allowance is lowered to what a renewal would give, since it was a part of what was left at an earlier count.
    #[cold]
    fn count_anew(&self, need: Need, space: Space) -> bool {
        let allowance = |kind| (self.left(kind, space) / 4).min(MOST_ALLOWANCE) as isize;
        let (own, other) = (need.kind(), 1 - need.kind());
        self.counts.allowances[own].store(allowance(own), Relaxed);
        self.counts.allowances[other].fetch_min(allowance(other), Relaxed);
        self.left(own, space) >= need.page + need.outside
    }

    /// Returns how many more bytes may be in use by operations of a [kind](Need::kind).
    ///
    /// A map allocates a block for pages only if no page is spare. At that time all its memory is in use, and is at
    /// most the limit. So it exceeds the limit by at most a block, apart from races (`RACE_PART`). Memory outside pages
    /// cannot come from spare pages, so for such memory the spare pages count as used.
    fn left(&self, kind: usize, Space { held, spare }: Space) -> usize {
        let left = self.memory.saturating_sub(held.saturating_sub(spare));
        if kind == IN_PAGES {
            return left;
        }
        let block = (self.memory / BLOCK_PART).min(MOST_BLOCK);
        left.min(self.memory.saturating_add(block).saturating_sub(held))
    }

    /// Returns whether the calling thread should settle the map (merge and move pages) to make room. One thread does so
    /// at a time, and the next one only when the memory that the previous settling retired can be freed. Settling makes
    /// garbage, so if many threads settled while a reader does not end, the memory would only grow.
    pub(crate) fn may_settle(&self, epoch: u64) -> bool {
        let settled = self.counts.settled.load(Relaxed);
        // Relaxed: the exchange only selects a thread.
        epoch >= settled && self.counts.settled.compare_exchange(settled, epoch + EPOCHS, Relaxed, Relaxed).is_ok()
    }

    /// Returns whether a map that may not grow may still store an entry, if the entry's page seems to have room. The
    /// entry must need no memory outside pages.
    pub(crate) fn may_fill(&self, need: Need, Space { held, spare }: Space) -> bool {
        need.outside == 0 && held.saturating_sub(spare) <= self.memory.saturating_add(self.memory / RACE_PART)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn free_pages_are_room_for_pages_only() {
        let may_grow = |need: Need, held: usize, spare: usize| {
            // New limits have no allowance, so they count the memory.
            let limits = Limits::new(LimitConfig { memory: 1 << 20, ..LimitConfig::default() });
            limits.may_grow(need, || Space { held, spare })
        };
        let (page, boxed) = (Need { page: 1000, outside: 0 }, Need { page: 0, outside: 1000 });
        assert!(may_grow(page, (1 << 20) - 1000, 0));
        assert!(!may_grow(page, 1 << 20, 0));
        assert!(may_grow(page, 1 << 20, 1000) && may_grow(page, 3 << 20, 5 << 19));
        assert!(!may_grow(page, 1 << 20, 999));
        // At most a block of free pages lets memory outside pages exceed the limit.
        assert!(may_grow(boxed, 5 << 18, 1 << 20));
        assert!(!may_grow(boxed, 3 << 19, 1 << 20));
    }

    #[test]
    fn no_allowance_outlives_the_memory_that_it_was_a_part_of() {
        let (page, boxed) = (Need { page: 1000, outside: 0 }, Need { page: 0, outside: 1000 });
        for (first, second) in [(page, boxed), (boxed, page)] {
            let limits = Limits::new(LimitConfig { memory: 1 << 20, ..LimitConfig::default() });
            let empty = Space { held: 0, spare: 0 };
            let full = Space { held: 1 << 20, spare: 0 };
            assert!(limits.may_grow(first, || empty));
            // Operations of the second kind fill the memory. The last of them counts it.
            assert!(limits.may_grow(second, || empty));
            while limits.may_grow(second, || full) {}
            assert!(!limits.may_grow(first, || full));
        }
    }
}
