//! A handle's record: the local time of its section (the snapshot or transaction in progress), and whether it is
//! walking a chain of versions.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;

use super::points;
use crate::clock::{Clock, ClockKind};

/// Not in a section.
const IDLE: u64 = u64::MAX;
/// The flag of a section whose exact local time is not yet published; the word has a lower bound of this time.
const INEXACT: u64 = 1;

/// Written by the record's handle, and read by collectors.
struct Published {
    /// `local time << 1 | INEXACT`, or `IDLE`.
    local: AtomicU64,
    /// The number of the walk, which only grows; odd while the owner walks a chain.
    walk: AtomicU64,
}

pub(super) struct Record {
    published: CachePadded<Published>,
    /// The owner's number in lock words.
    pub(super) owner: u32,
}

/// What a collector knows of a section.
pub(super) struct Section {
    pub(super) local: u64,
    pub(super) is_exact: bool,
}

impl Record {
    pub(super) fn new(owner: u32) -> Self {
        let published = Published { local: AtomicU64::new(IDLE), walk: AtomicU64::new(0) };
        Self { published: CachePadded::new(published), owner }
    }

    /// Owner only: begins a section and returns its local time. `last` is a lower bound of the present time: the result
    /// of an earlier call.
    ///
    /// A collector's scan either sees the first publication, or precedes `barrier`. If the scan precedes `barrier`, the
    /// second read of the clock is not below the floor that the collector read before its scan. Release on every store:
    /// a thread that sees the store also sees the end of all earlier sections.
    #[inline]
    pub(super) fn enter(&self, clock: &Clock, last: u64, barrier: impl FnOnce()) -> u64 {
        // A second read of the hardware clock would cost more than an older bound does.
        let bound = if clock.kind() == ClockKind::Logical { clock.begin() } else { last };
        self.published.local.store(bound << 1 | INEXACT, Ordering::Release);
        barrier();
        let local = clock.begin();
        point(points::ENTERING);
        self.published.local.store(local << 1, Ordering::Release);
        local
    }

    /// Owner only: ends the section.
    #[inline]
    pub(super) fn leave(&self) {
        self.published.local.store(IDLE, Ordering::Release);
    }

    /// Returns the section that the owner is in. Acquire: its earlier sections have ended.
    pub(super) fn section(&self) -> Option<Section> {
        let word = self.published.local.load(Ordering::Acquire);
        (word != IDLE).then_some(Section { local: word >> 1, is_exact: word & INEXACT == 0 })
    }

    /// Owner only: runs a walk of a chain. `barrier` runs before the walk, so that a pruner that unlinks copies sees
    /// the walk, and waits for the walk's end before it frees the copies.
    #[inline]
    pub(super) fn walk<R>(&self, barrier: impl FnOnce(), walk: impl FnOnce() -> R) -> R {
        let count = self.published.walk.load(Ordering::Relaxed);
        self.published.walk.store(count + 1, Ordering::Release);
        barrier();
        let result = walk();
        self.published.walk.store(count + 2, Ordering::Release);
        result
    }

    /// Returns the number of the walk that the owner is making. Acquire: earlier walks have ended.
    pub(super) fn walk_in_progress(&self) -> Option<u64> {
        let count = self.published.walk.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }
}
