//! The horizon, and what finds it out: no section of a domain, now or later, has a local time below it.
//!
//! This is the bottom of a domain: its clock, what its handles publish, what memory it may take, and how eager it is.

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::membarrier;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Arc;

use super::chain::Cuts;
use super::grown::Grown;
use super::patience::Patience;
use super::pool::Budget;
use super::record::Record;
use crate::clock::{Clock, ClockKind};
use crate::crowd::processors;

/// When the domain collects, and how. The defaults need no reading.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes of versions in a log at which its thread looks for a grace period: the paper's capacity watermark. 8 KiB
    /// (the paper: half of a 512 KiB ring), and beside many objects more: an eighth of their bytes, divided by the handles,
    /// up to 64 KiB. A larger log saves membarriers, a smaller one saves memory, and readers the chains.
    pub low_watermark: usize,
    /// How often a handle reads a copy instead of a master before it has every thread's log collected: the paper's
    /// dereference watermark (there a ratio, 50 % by the text and 33 % by the code). 4096 such reads cost what one
    /// collection does. `u32::MAX` turns it off.
    pub dereference_watermark: u32,
    /// Each thread collects its own log, and one that rests in passing. Off, for measurements of what it gives:
    /// one thread at a time collects all logs.
    pub concurrent: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { low_watermark: 8 * 1024, dereference_watermark: 4096, concurrent: true }
    }
}

/// The highest low watermark that many objects lead to.
const HIGHEST_LOW: usize = 64 * 1024;

/// See the text of this file.
pub(super) struct Horizon {
    clock: Clock,
    /// No section has a local time below this, now or later. Only grows.
    known: CachePadded<AtomicU64>,
    settled: CachePadded<Settled>,
    /// The low watermark, as the objects allow.
    low: AtomicUsize,
    /// Handles that there were at a time.
    handles: AtomicUsize,
    budget: Budget,
    records: Grown<Arc<Record>>,
}

/// What never changes, apart from what does: every section begins and ends with a look at it.
struct Settled {
    /// Readers enter without a fence, and scans pay for it.
    membarrier: bool,
    two_versions: Option<usize>,
    tuning: Tuning,
}

impl Horizon {
    /// `two_versions`: how many commits may be put off, with two versions only.
    pub(super) fn new(clock: ClockKind, memory_cap: usize, tuning: Tuning, two_versions: Option<usize>) -> Self {
        Self {
            clock: Clock::new(clock),
            known: CachePadded::new(AtomicU64::new(0)),
            settled: CachePadded::new(Settled {
                // With two versions every commit scans.
                membarrier: two_versions.is_none() && membarrier::available(),
                two_versions,
                tuning,
            }),
            low: AtomicUsize::new(tuning.low_watermark),
            handles: AtomicUsize::new(0),
            budget: Budget::new(memory_cap),
            records: Grown::new(),
        }
    }

    #[inline]
    pub(super) fn is_multi_version(&self) -> bool {
        self.settled.two_versions.is_none()
    }

    /// With two versions: how many commits may be put off.
    pub(super) fn deferrable(&self) -> usize {
        self.settled.two_versions.unwrap_or(0)
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(super) fn tuning(&self) -> &Tuning {
        &self.settled.tuning
    }

    /// The low watermark now.
    #[inline]
    pub(super) fn low(&self) -> usize {
        self.low.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// As of the last scan.
    pub(super) fn has_more_handles_than_processors(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > processors()
    }

    /// The reader's half of the barrier that [`scan_barrier`](Self::scan_barrier) is the other half of.
    #[inline]
    pub(super) fn reader_barrier(&self) {
        if self.settled.membarrier { membarrier::light() } else { fence(Ordering::SeqCst) }
    }

    /// The same between what a section publishes and its reading of the clock, which a fence does not order.
    #[inline]
    pub(super) fn entry_barrier(&self) {
        if self.settled.membarrier { membarrier::light() } else { self.clock.barrier() }
    }

    fn scan_barrier(&self) {
        if self.settled.membarrier { membarrier::heavy() } else { fence(Ordering::SeqCst) }
    }

    /// A record that scans see from now on. One that a scan misses was added, and its sections are published, before the barrier at
    /// their entry, which so comes after the scan's: they begin at or above the floor that the scan has read.
    pub(super) fn add_record(&self) -> Arc<Record> {
        self.records.push(|at| Arc::new(Record::new(at as u32))).clone()
    }

    /// The horizon as it is known.
    pub(super) fn known(&self) -> u64 {
        // Acquire: pairs with `look`, so that the sections it found ended have ended for us too.
        self.known.load(Ordering::Acquire)
    }

    /// Finds the horizon out: the earliest time that a section has now or may have later.
    pub(super) fn look(&self) -> u64 {
        let floor = self.clock.floor();
        self.scan_barrier();
        let oldest = self.records.iter().filter_map(|record| record.section()).map(|section| section.local).min();
        self.raise(oldest.map_or(floor, |oldest| oldest.min(floor)))
    }

    /// The same, with all that is known about sections and walks.
    pub(super) fn scan(&self) -> Cuts {
        let floor = self.clock.floor();
        self.scan_barrier();
        let mut cuts = Cuts::of(&self.records, floor);
        let records = self.records.len();
        set(&self.handles, records);
        let more = self.budget.objects() / (8 * records).max(1);
        let base = self.tuning().low_watermark;
        set(&self.low, base.max((base + more).min(HIGHEST_LOW)));
        cuts.horizon = self.raise(cuts.horizon);
        cuts
    }

    fn raise(&self, found: u64) -> u64 {
        self.known.fetch_max(found, Ordering::AcqRel).max(found)
    }

    /// Waits until every section is at or above the stamp, as the caller's is, if it is in one.
    pub(super) fn wait_for(&self, stamp: u64) -> u64 {
        let mut patience = Patience::new();
        loop {
            let horizon = self.look();
            if horizon >= stamp {
                return horizon;
            }
            patience.wait();
        }
    }
}

/// Changes a word that every commit reads: only if it is to be another one.
fn set(word: &AtomicUsize, to: usize) {
    if word.load(Ordering::Relaxed) != to {
        word.store(to, Ordering::Relaxed);
    }
}
