//! A map's limits to its memory: to what waits for readers, and to all of it.
//!
//! The cap on all memory is kept by an *allowance*: a number of bytes that may be asked for before the memory is counted
//! again, a quarter of what was left when it was counted last. So counting, which looks at every thread's share, is
//! seldom, and what several threads ask for meanwhile stays below the cap.
//!
//! Pages come in blocks, and pages that are free in a block are room: what counts is what is *in use*
//! ([`Limits::left`](Limits::left)). At the cap, what needs no page is stored still.

use crate::backlog::Limit;
use archipelago_platform::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use core::fmt;

/// A `try_` operation was refused, and nothing was changed. It has what was to be stored.
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
    /// What was to be stored.
    pub fn into_inner(self) -> T {
        match self {
            Self::Backlogged(it) | Self::Full(it) | Self::TooLong(it) => it,
        }
    }

    /// The same refusal, of something else.
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

/// The limits a map is built with.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    pub(crate) backlog: Limit,
    /// `usize::MAX`: none.
    pub(crate) memory: usize,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self { backlog: Limit::NONE, memory: usize::MAX }
    }
}

/// Asking for more than this at a time, memory is counted anew.
const MOST_ALLOWANCE: usize = 4 << 20;

/// A structure's memory grows by blocks of at most this,
const MOST_BLOCK: usize = 2 << 20;

/// and by at most this part of what there is.
const BLOCK_PART: usize = 2;

/// What is stored in pages with room, above the limit, may need a page all the same, when threads compete for the room: until
/// the map is above the limit by this part of it.
const RACE_PART: usize = 32;

/// What an operation needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes in a page.
    pub(crate) page: usize,
    /// Bytes outside pages: a boxed value, a key in a box.
    pub(crate) outside: usize,
}

/// What a map holds at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// All bytes.
    pub(crate) held: usize,
    /// Of these, the bytes of pages that are free, and will be used before the map takes more memory for pages.
    pub(crate) spare: usize,
}

/// The limits of a structure.
#[derive(Debug)]
pub struct Limits {
    pub(crate) backlog: Limit,
    memory: usize,
    /// Its padding keeps what changes elsewhere in a map off the lines of the limits, which every change looks at.
    counts: CachePadded<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// For what needs room in pages only, and for what needs memory outside, too.
    allowances: [AtomicIsize; 2],
    /// The epoch from which on a thread may settle the map to make room.
    settled: AtomicU64,
}

/// By so many epochs later all is free that settling has let go of.
const EPOCHS: u64 = 4;

impl Limits {
    pub(crate) fn new(config: LimitConfig) -> Self {
        Self { backlog: config.backlog, memory: config.memory, counts: CachePadded::default() }
    }

    /// Returns whether the map may grow by what is needed; `count` says what it holds.
    #[inline]
    pub(crate) fn may_grow(&self, need: Need, count: impl FnOnce() -> Space) -> bool {
        let bytes = need.page + need.outside;
        // Relaxed: an estimate, which orders nothing.
        self.memory == usize::MAX
            || self.allowance(need).fetch_sub(bytes as isize, Relaxed) >= bytes as isize
            || self.count_anew(need, count())
    }

    fn allowance(&self, need: Need) -> &AtomicIsize {
        &self.counts.allowances[usize::from(need.outside > 0)]
    }

    #[cold]
    fn count_anew(&self, need: Need, space: Space) -> bool {
        let left = self.left(need, space);
        self.allowance(need).store((left / 4).min(MOST_ALLOWANCE) as isize, Relaxed);
        left >= need.page + need.outside
    }

    /// How many bytes more may be in use.
    ///
    /// A map takes a block for pages only if no page is spare, hence while all that it holds is in use and at most the limit: so
    /// what it holds is never more than the limit and a block. Memory outside pages cannot be had from spare ones: there
    /// the same bound is asked for.
    fn left(&self, need: Need, Space { held, spare }: Space) -> usize {
        let left = self.memory.saturating_sub(held.saturating_sub(spare));
        if need.outside == 0 {
            return left;
        }
        let block = (self.memory / BLOCK_PART).min(MOST_BLOCK);
        left.min(self.memory.saturating_add(block).saturating_sub(held))
    }

    /// Returns whether the calling thread should settle the map to make room: one does at a time, and again only when what that has let
    /// go of can be freed. Settling leaves garbage, and many threads that do it while a reader stays would only add to what is held.
    pub(crate) fn may_settle(&self, epoch: u64) -> bool {
        let settled = self.counts.settled.load(Relaxed);
        // Relaxed: it only picks a thread.
        epoch >= settled && self.counts.settled.compare_exchange(settled, epoch + EPOCHS, Relaxed, Relaxed).is_ok()
    }

    /// Returns whether what needs room in a page only may be stored where a page seems to have room, although the map may not grow.
    pub(crate) fn may_fill(&self, need: Need, Space { held, spare }: Space) -> bool {
        need.outside == 0 && held.saturating_sub(spare) <= self.memory.saturating_add(self.memory / RACE_PART)
    }
}
