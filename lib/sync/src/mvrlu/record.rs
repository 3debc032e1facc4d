//! A handle's record: the local time of its section (the snapshot or transaction in progress), and whether it is
//! walking a chain of versions.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;

use super::points;
use crate::clock::{Clock, ClockKind};

/// No handle has the record.
const VACANT: u64 = u64::MAX;
/// The flag of a section whose exact local time is not yet published; the word has a lower bound of this time.
const INEXACT: u64 = 1;
/// The flag of a record whose handle is in no section; the word has a lower bound of the times of its later sections.
const IDLE: u64 = 2;
/// The place of the time in the word.
const TIME: u32 = 2;

/// Written by the record's handle, and read by collectors.
struct Published {
    /// `time << TIME`, with `INEXACT` or `IDLE` or no flag, or `VACANT`. The time does not fall while a handle has the
    /// record.
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
    /// Makes a record that a handle has: see [`occupy`](Self::occupy).
    pub(super) fn new(owner: u32) -> Self {
        let published = Published { local: AtomicU64::new(IDLE), walk: AtomicU64::new(0) };
        Self { published: CachePadded::new(published), owner }
    }

    /// Begins a handle's use of a record that was [vacated](Self::vacate). The caller executes a barrier before the
    /// first section, for which see [`Horizon::glance`](super::horizon::Horizon::glance).
    pub(super) fn occupy(&self) {
        self.published.local.store(IDLE, Ordering::Release);
    }

    /// Ends a handle's use of the record, and the section that it may be in. Release: as in `enter`.
    pub(super) fn vacate(&self) {
        self.published.local.store(VACANT, Ordering::Release);
    }

    /// Owner only: begins a section and returns its local time. `last` is the result of the handle's previous call, or
    /// 0.
    ///
    /// A collector's scan either sees the first publication, or precedes `barrier`. If the scan precedes `barrier`, the
    /// second read of the clock is not below the floor that the collector read before its scan. Release on every store:
    /// a thread that sees the store also sees the end of all earlier sections.
    #[inline]
    pub(super) fn enter(&self, clock: &Clock, last: u64, barrier: impl FnOnce()) -> u64 {
        // A second read of the hardware clock would cost more than an older bound does.
        let bound = if clock.kind() == ClockKind::Logical { clock.begin() } else { last };
        self.published.local.store(bound << TIME | INEXACT, Ordering::Release);
        barrier();
        // The hardware clock of another processor may be behind `last`. At `last`, this handle's snapshot was complete.
        let local = clock.begin().max(last);
        point(points::ENTERING);
        self.published.local.store(local << TIME, Ordering::Release);
        local
    }

    /// Owner only: ends the section.
    #[inline]
    pub(super) fn leave(&self) {
        let word = self.published.local.load(Ordering::Relaxed);
        self.published.local.store(word | IDLE, Ordering::Release);
    }

    /// Returns a lower bound of the times of the section that the owner is in, and of its later sections. If no handle
    /// has the record, the result is above all times. Acquire: the owner's sections below the result have ended.
    pub(super) fn bound(&self) -> u64 {
        self.published.local.load(Ordering::Acquire) >> TIME
    }

    /// Returns the section that the owner is in. Acquire: its earlier sections have ended.
    pub(super) fn section(&self) -> Option<Section> {
        let word = self.published.local.load(Ordering::Acquire);
        (word & IDLE == 0).then_some(Section { local: word >> TIME, is_exact: word & INEXACT == 0 })
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The clock of the processor to which a thread has moved may be behind: the times of a handle's sections do not
    /// fall. The idle record has the last section's time.
    #[test]
    fn times_of_a_handle_do_not_fall() {
        for kind in [ClockKind::Logical, ClockKind::Hardware] {
            let (clock, record) = (Clock::new(kind), Record::new(0));
            let last = clock.begin() + (1 << 60);
            assert_eq!(record.enter(&clock, last, || ()), last);
            record.leave();
            assert!(record.section().is_none() && record.bound() == last);
            record.vacate();
            assert!(record.section().is_none() && record.bound() > last);
        }
    }
}
