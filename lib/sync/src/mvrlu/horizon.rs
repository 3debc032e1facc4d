//! The horizon, and the scans and glances that compute it. A *section* is a snapshot or a transaction in progress, and sees the
//! objects as of its *local time*. No present or future section of a domain has a local time below the horizon.
//!
//! This is the lowest layer of a domain: its clock, its handles' records, its memory budget, and its settings.

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
use crate::identity::Identities;

static IDENTITIES: Identities = Identities::new();

/// When the domain collects, and how. The defaults suit most uses.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes of versions in a log at which its thread looks for a grace period: the paper's capacity watermark. At half
    /// of it the thread looks without interrupting other threads, which suffices unless a handle rests. The default is
    /// 8 KiB (the paper: half of a 512 KiB ring). The domain adds as much again for each 64 handles (for each 64
    /// processors, if these are fewer), and an eighth of the objects' bytes divided by the number of handles, up to a total
    /// of 64 KiB. A larger log needs fewer scans and membarriers; a smaller log saves memory and keeps chains short for
    /// readers.
    pub low_watermark: usize,
    /// The number of times that a handle reads a copy instead of a master before it collects all threads' logs. This is
    /// the paper's dereference watermark (in the paper a ratio, 50 % by its text and 33 % by its code). 4096 such reads
    /// cost as much as one collection. `u32::MAX` turns it off.
    pub dereference_watermark: u32,
    /// Whether each thread collects its own log, and helps with a log whose owner rests. If it is off, one
    /// thread at a time collects all logs, for measurements of the difference.
    pub concurrent: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { low_watermark: 8 * 1024, dereference_watermark: 4096, concurrent: true }
    }
}

/// The upper bound of the low watermark, which grows with the bytes of the objects and the number of handles.
const HIGHEST_LOW: usize = 64 * 1024;

/// The number of handles for which the domain adds the user's low watermark once more. A scan reads each handle's record,
/// and other processors have just written most records, so more handles need longer logs between scans. The domain counts
/// at most as many handles as processors: the other handles have mostly not run since the last scan.
const HANDLES_PER_LOW: usize = 64;

/// The upper bound of the low watermark that a user sets: sums and small multiples of it do not overflow.
const MOST_LOW: usize = usize::MAX / 16;

/// The domain's horizon and the state from which it is computed: see the top of this file.
pub(super) struct Horizon {
    clock: Clock,
    found: CachePadded<Found>,
    settled: CachePadded<Settled>,
    /// The low watermark, which grows with the bytes of the objects and the number of handles.
    low: AtomicUsize,
    /// The number of records at the last scan, which includes those that dropped handles have left.
    handles: AtomicUsize,
    budget: Budget,
    records: Grown<Arc<Record>>,
}

/// What every scan changes, in one cache line.
struct Found {
    /// No present or future section has a local time below this. It only grows.
    known: AtomicU64,
    /// The number of scans that have begun.
    scans: AtomicU64,
}

/// Constants, in a cache line without variables, since every section loads them at its begin and end.
struct Settled {
    id: u64,
    /// Whether readers enter without a fence, and scans use membarrier.
    membarrier: bool,
    two_versions: Option<usize>,
    tuning: Tuning,
}

impl Horizon {
    /// `two_versions`: how many commits may be deferred, if the domain has only two versions per object (RLU).
    pub(super) fn new(clock: ClockKind, memory_cap: usize, tuning: Tuning, two_versions: Option<usize>) -> Self {
        let tuning = Tuning { low_watermark: tuning.low_watermark.min(MOST_LOW), ..tuning };
        Self {
            clock: Clock::new(clock),
            found: CachePadded::new(Found { known: AtomicU64::new(0), scans: AtomicU64::new(0) }),
            settled: CachePadded::new(Settled {
                id: IDENTITIES.fresh(),
                // With two versions commits scan often, so the scan's half of the barrier must be cheap.
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

    /// Returns the number by which objects identify their domain. Unlike an address, it is never used again.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.settled.id
    }

    #[inline]
    pub(super) fn is_multi_version(&self) -> bool {
        self.settled.two_versions.is_none()
    }

    /// With two versions: returns how many commits may be deferred.
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

    /// Returns the present low watermark.
    #[inline]
    pub(super) fn low(&self) -> usize {
        self.low.load(Ordering::Relaxed)
    }

    /// Returns by how many bytes a log grows from one glance to the next. With a shorter step, versions are reused while
    /// they are in the first-level cache, and readers meet fewer chains.
    pub(super) fn glance_step(&self) -> usize {
        self.tuning().low_watermark / 2
    }

    #[inline]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns whether there were more records of handles than processors at the last scan.
    pub(super) fn has_more_handles_than_processors(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > processors()
    }

    /// The reader's half of a barrier; [`scan_barrier`](Self::scan_barrier) is the other half.
    #[inline]
    pub(super) fn reader_barrier(&self) {
        if self.settled.membarrier { membarrier::light() } else { fence(Ordering::SeqCst) }
    }

    /// As `reader_barrier`, between a section's publication and its read of the hardware clock, which a fence does not
    /// order.
    #[inline]
    pub(super) fn entry_barrier(&self) {
        if self.settled.membarrier { membarrier::light() } else { self.clock.barrier() }
    }

    fn scan_barrier(&self) {
        if self.settled.membarrier { membarrier::heavy() } else { fence(Ordering::SeqCst) }
    }

    /// Adds a record, which scans see from now on. If a scan misses the record, the barrier at the entry of the
    /// record's sections comes after the scan's barrier. So these sections begin at or above the floor that the scan
    /// has read.
    pub(super) fn add_record(&self) -> Arc<Record> {
        let record = self.records.push(|at| Arc::new(Record::new(at as u32))).clone();
        self.clock.barrier();
        record
    }

    /// Gives a record that was vacated to another handle.
    pub(super) fn occupy(&self, record: &Record) {
        record.occupy();
        self.clock.barrier();
    }

    /// Returns the known horizon.
    pub(super) fn known(&self) -> u64 {
        // Acquire: pairs with `look`, so that sections whose end `look` has seen have ended for the caller, too.
        self.found.known.load(Ordering::Acquire)
    }

    /// Computes the horizon, the earliest time that a present or future section may have, and returns it.
    pub(super) fn look(&self) -> u64 {
        let floor = self.clock.floor();
        self.scan_barrier();
        let oldest = self.records.iter().filter_map(|record| record.section()).map(|section| section.local).min();
        self.raise(oldest.map_or(floor, |oldest| oldest.min(floor)))
    }

    /// Computes a horizon that may be older than that of [`look`](Self::look), and interrupts no other thread.
    ///
    /// No barrier orders a section's publication before the section's accesses. So this function may miss a section,
    /// and does not conclude from an idle record that its handle is in no section. It uses that a handle's times do not
    /// fall: a missed section is later in its record's order than the word that was read, so its time is at or above
    /// that word's time. If no handle had the record, then the barrier of the handle that gets it
    /// ([`occupy`](Self::occupy), [`add_record`](Self::add_record)) comes after this function's barrier, or this
    /// function would have seen the handle. So that handle's sections begin at or above the floor.
    ///
    /// If a handle is used rarely, the result is its last section's time, and only a scan finds a later horizon.
    pub(super) fn glance(&self) -> u64 {
        let floor = self.clock.floor();
        fence(Ordering::SeqCst);
        self.raise(self.records.iter().map(|record| record.bound()).fold(floor, u64::min))
    }

    /// As [`look`](Self::look), and returns all that is known about sections and walks.
    pub(super) fn scan(&self) -> Cuts {
        // Acquire: pairs with `scans`.
        let number = self.found.scans.fetch_add(1, Ordering::Acquire) + 1;
        let floor = self.clock.floor();
        self.scan_barrier();
        let mut cuts = Cuts::of(&self.records, floor, number);
        let records = self.records.len();
        set(&self.handles, records);
        set(&self.low, low(self.tuning().low_watermark, self.budget.objects(), records, processors()));
        cuts.horizon = self.raise(cuts.horizon);
        cuts
    }

    /// Returns the number of scans that have begun. A scan with a greater number begins after the call: its barrier
    /// comes after the caller's earlier stores, so walks that the scan misses see these stores.
    pub(super) fn scans(&self) -> u64 {
        // An exchange and not a load, which might miss scans that have begun. Release: pairs with `scan`.
        self.found.scans.fetch_add(0, Ordering::Release)
    }

    fn raise(&self, found: u64) -> u64 {
        self.found.known.fetch_max(found, Ordering::AcqRel).max(found)
    }

    /// Waits until every section is at or above the stamp, and returns the horizon. The caller is in no section, or its
    /// section is already at or above the stamp.
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

/// Returns the low watermark of a domain with the user's watermark `base`, objects of this many bytes, and this many
/// records of handles.
fn low(base: usize, objects: usize, records: usize, processors: usize) -> usize {
    let of_objects = objects / (8 * records).max(1);
    let of_handles = base.min(HIGHEST_LOW) * (records.min(processors) / HANDLES_PER_LOW);
    base.max((base + of_objects + of_handles).min(HIGHEST_LOW))
}

/// Stores a word that commits load, but only if its value changes.
fn set(word: &AtomicUsize, to: usize) {
    if word.load(Ordering::Relaxed) != to {
        word.store(to, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The watermark grows with the objects, and with the handles that can run at a time, up to its bound.
    #[test]
    fn the_watermark_grows_with_objects_and_handles() {
        const LEAST: usize = 8 * 1024;
        assert_eq!(low(LEAST, 0, 0, 448), LEAST);
        assert_eq!(low(LEAST, 0, HANDLES_PER_LOW - 1, 448), LEAST);
        assert_eq!(low(LEAST, 0, 2 * HANDLES_PER_LOW, 448), 3 * LEAST);
        assert_eq!(low(LEAST, 0, 10_000, 2), LEAST);
        assert_eq!(low(LEAST, 0, 10_000, 448), HIGHEST_LOW);
        assert_eq!(low(LEAST, 8 * LEAST, 1, 448), 2 * LEAST);
        assert_eq!(low(LEAST, usize::MAX / 16, 1, 448), HIGHEST_LOW);
        assert_eq!(low(MOST_LOW, usize::MAX / 16, 10_000, 448), MOST_LOW);
    }
}

/// The proof of [`Horizon::glance`] under the weak memory model. The sections have no barrier at all: loom's `light` is
/// a fence, with which a glance would be a scan.
#[cfg(all(test, loom))]
mod model {
    use archipelago_platform::model::model;
    use archipelago_platform::thread;

    use super::*;
    use crate::watch::Watch;

    /// An object with two versions, the second of which supersedes the first.
    struct Object {
        horizon: Horizon,
        newest: AtomicUsize,
        versions: [Watch; 2],
    }

    impl Object {
        fn new() -> Arc<Self> {
            let horizon = Horizon::new(ClockKind::Logical, usize::MAX, Tuning::default(), None);
            Arc::new(Self { horizon, newest: AtomicUsize::new(0), versions: [Watch::new(), Watch::new()] })
        }

        /// Reads the newest version in a section. Returns the section's time.
        fn read(&self, record: &Record, last: u64) -> u64 {
            let local = record.enter(self.horizon.clock(), last, || ());
            self.versions[self.newest.load(Ordering::Acquire)].read();
            record.leave();
            local
        }

        /// Supersedes the first version, and ends it if a glance allows this.
        fn supersede(&self) {
            self.newest.store(1, Ordering::Release);
            let tick = self.horizon.clock().stamp();
            if self.horizon.glance() >= tick {
                self.versions[0].gone();
            }
        }
    }

    fn against_supersession(before: fn(&Horizon) -> Arc<Record>, read: fn(&Object, &Record)) {
        model(3, move || {
            let object = Object::new();
            let record = before(&object.horizon);
            let reader = {
                let object = object.clone();
                thread::spawn(move || read(&object, &record))
            };
            object.supersede();
            reader.join().unwrap();
        });
    }

    /// A handle begins sections while another thread glances.
    #[test]
    fn glances_miss_no_section_below_their_result() {
        against_supersession(Horizon::add_record, |object, record| {
            let last = object.read(record, 0);
            object.read(record, last);
        });
    }

    /// A handle gets a record that another handle has left while another thread glances.
    #[test]
    fn glances_miss_no_handle_that_gets_a_vacant_record() {
        let vacant = |horizon: &Horizon| {
            let record = horizon.add_record();
            record.vacate();
            record
        };
        against_supersession(vacant, |object, record| {
            object.horizon.occupy(record);
            object.read(record, 0);
        });
    }

    /// A handle gets a new record while another thread glances.
    #[test]
    fn glances_miss_no_handle_that_gets_a_new_record() {
        let vacant = |_: &Horizon| Arc::new(Record::new(0));
        against_supersession(vacant, |object, _| _ = object.read(&object.horizon.add_record(), 0));
    }
}
