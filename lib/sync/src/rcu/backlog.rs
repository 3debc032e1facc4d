//! How many sealed objects a domain holds back, and who is told when they are too many.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::thread;

use super::domain::Stats;
use super::garbage::Size;

type Report = Box<dyn Fn(Stats) + Send + Sync>;

/// The count of sealed objects and their bytes (kept per bag, so it is off every hot path), and the former's limit. All
/// Relaxed: it is advice.
///
/// On a line of its own: it changes with every bag that is sealed, and each reader that enters looks at the domain's fields beside
/// it. (One line, and not two as `CachePadded` takes: a domain has 512 bytes at most.)
#[repr(align(64))]
pub(super) struct Backlog {
    sealed: AtomicUsize,
    bytes: AtomicUsize,
    limit: usize,
    /// The count at which to report next: the limit, doubled with each report, and the limit again after a recovery.
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

    /// Bytes of what is sealed.
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

    /// Reports if it is time to, and lets other threads run.
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
