//! What a handle publishes: where its section stands in time, and whether it walks a chain.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;

use super::points;
use crate::clock::{Clock, ClockKind};

/// Not in a section.
const IDLE: u64 = u64::MAX;
/// In a section whose local time is not known yet, but is not below what the word says.
const INEXACT: u64 = 1;

/// Written by the handle that has it; read by collectors.
struct Published {
    /// `local time << 1 | INEXACT`, or `IDLE`.
    local: AtomicU64,
    /// Odd while the owner walks a chain; grows.
    walk: AtomicU64,
}

pub(super) struct Record {
    published: CachePadded<Published>,
    /// The number that lock words name the owner by.
    pub(super) owner: u32,
}

/// A section as a collector sees it.
pub(super) struct Section {
    pub(super) local: u64,
    pub(super) is_exact: bool,
}

impl Record {
    pub(super) fn new(owner: u32) -> Self {
        let published = Published { local: AtomicU64::new(IDLE), walk: AtomicU64::new(0) };
        Self { published: CachePadded::new(published), owner }
    }

    /// Owner only: begins a section and answers its local time. `last` is not above any earlier answer.
    ///
    /// A collector's scan either sees what is published first, or comes before `barrier`; then the second reading of the
    /// clock is not below the floor that the collector read before its scan. Release on every store: the thread that
    /// sees it has seen the end of all earlier sections.
    #[inline]
    pub(super) fn enter(&self, clock: &Clock, last: u64, barrier: impl FnOnce()) -> u64 {
        // A second reading of the hardware clock would cost more than an old bound does.
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

    /// The section that the owner is in. Acquire: its earlier sections have ended.
    pub(super) fn section(&self) -> Option<Section> {
        let word = self.published.local.load(Ordering::Acquire);
        (word != IDLE).then_some(Section { local: word >> 1, is_exact: word & INEXACT == 0 })
    }

    /// Owner only: walks a chain between a `barrier` and the end, so that what a pruner unlinks is kept meanwhile.
    #[inline]
    pub(super) fn walk<R>(&self, barrier: impl FnOnce(), walk: impl FnOnce() -> R) -> R {
        let count = self.published.walk.load(Ordering::Relaxed);
        self.published.walk.store(count + 1, Ordering::Release);
        barrier();
        let result = walk();
        self.published.walk.store(count + 2, Ordering::Release);
        result
    }

    /// The number of the walk that the owner is on. Acquire: earlier walks have ended.
    pub(super) fn walk_in_progress(&self) -> Option<u64> {
        let count = self.published.walk.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }
}
