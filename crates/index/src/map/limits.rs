//! A map's limits to its memory: to what waits for readers, and to all of it.
//!
//! The cap on all memory is kept by an *allowance*: a number of bytes that may be asked for before the memory is counted
//! again, a quarter of what was left when it was counted last. So counting, which looks at every thread's share, is
//! seldom, and what several threads ask for meanwhile stays below the cap.

use crate::backlog::Limit;
use archipelago_platform::atomic::{AtomicIsize, Ordering::Relaxed};
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
    /// The key is longer than the map's [`LONGEST_KEY`](super::Map::LONGEST_KEY).
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

/// The limits of a structure.
#[derive(Debug)]
pub struct Limits {
    pub(crate) backlog: Limit,
    memory: usize,
    /// Its padding keeps what changes elsewhere in a map off the lines of the limits, which every change looks at.
    allowance: CachePadded<AtomicIsize>,
}

impl Limits {
    pub(crate) fn new(config: LimitConfig) -> Self {
        Self { backlog: config.backlog, memory: config.memory, allowance: CachePadded::new(AtomicIsize::new(0)) }
    }

    /// Whether the map may grow by `bytes`; `held` counts what it holds.
    #[inline]
    pub(crate) fn may_grow(&self, bytes: usize, held: impl FnOnce() -> usize) -> bool {
        // Relaxed: an estimate, which orders nothing.
        self.memory == usize::MAX
            || self.allowance.fetch_sub(bytes as isize, Relaxed) >= bytes as isize
            || self.count_anew(bytes, held())
    }

    #[cold]
    fn count_anew(&self, bytes: usize, held: usize) -> bool {
        let left = self.memory.saturating_sub(held);
        self.allowance.store((left / 4).min(MOST_ALLOWANCE) as isize, Relaxed);
        left >= bytes
    }
}
