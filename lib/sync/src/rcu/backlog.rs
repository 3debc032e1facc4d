//! The count of *sealed* objects (those in full bags, which wait for their grace period) of a domain, and the report
//! when they exceed a limit.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::thread;

use super::domain::Stats;
use super::garbage::Size;

type Report = Box<dyn Fn(Stats) + Send + Sync>;

/// The count of sealed objects and of their bytes, and the limit on the objects. It is updated once per bag, so no hot
/// path writes it. All accesses are Relaxed, since the counts are only hints.
///
/// It has a cache line of its own, since it changes with every sealed bag, and each reader that enters loads the
/// neighbouring fields of the domain. (One line, and not two as `CachePadded` takes: a domain has 512 bytes at most.)
#[repr(align(64))]
pub(super) struct Backlog {
    sealed: AtomicUsize,
    bytes: AtomicUsize,
    limit: usize,
    /// The count above which to report next: the limit at first, twice the count after each report, and the limit again
    /// once the count has fallen to the limit.
    next: AtomicUsize,
    report: Option<Report>,
}

impl Backlog {
    pub(super) fn unlimited() -> Self {
        let [sealed, bytes] = [0, 0].map(AtomicUsize::new);
        Self { sealed, bytes, limit: usize::MAX, next: AtomicUsize::new(usize::MAX), report: None }
    }

    pub(super) fn limited(limit: usize, report: Report) -> Self {
        Self { limit, next: AtomicUsize::new(limit), report: Some(report), ..Self::unlimited() }
    }

    pub(super) fn add(&self, Size { objects, bytes }: Size) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.sealed.fetch_add(objects, Ordering::Relaxed);
    }

    /// Returns the bytes of sealed objects.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn subtract(&self, Size { objects, bytes }: Size) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let before = self.sealed.fetch_sub(objects, Ordering::Relaxed);
        if before > self.limit && before - objects <= self.limit {
            self.next.store(self.limit, Ordering::Relaxed);
        }
    }

    pub(super) fn is_over_limit(&self) -> bool {
        self.sealed.load(Ordering::Relaxed) > self.limit
    }

    /// Calls the report if the count exceeds `next`, and yields the processor.
    #[cold]
    pub(super) fn press(&self, stats: impl FnOnce() -> Stats) {
        let (sealed, next) = (self.sealed.load(Ordering::Relaxed), self.next.load(Ordering::Relaxed));
        let due = sealed > next;
        // The exchange picks one reporter among several threads.
        let following = sealed.saturating_mul(2);
        let exchanged = || self.next.compare_exchange(next, following, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let Some(report) = self.report.as_ref().filter(|_| due && exchanged()) {
            report(stats());
        }
        thread::yield_now();
    }
}
