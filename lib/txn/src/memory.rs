//! The memory of records and versions, in a database with a limit.
//!
//! Each record and version is counted from its allocation until it is freed. So the count includes live ones, old ones
//! that are kept for readers, and new ones that a transaction has not committed yet. Each thread keeps a sum of the
//! bytes that it allocates (positive) and frees (negative). It adds the sum to the total in steps, so that threads
//! rarely write a common cache line.

use archipelago_platform::atomic::{AtomicIsize, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

/// The value of `limit` in a database without a limit, whose memory is not counted.
const NONE: usize = usize::MAX;

/// The largest step in bytes. A step is a thousandth of the limit, if a thousandth is less.
const STEP: usize = 64 << 10;

/// The content of a version: a row, or the link of an index entry.
pub trait Payload: Send + Sync + 'static {
    /// Returns how many bytes the content owns on the heap. May run users' code.
    #[doc(hidden)]
    fn heap_bytes(&self) -> usize;
}

pub(crate) struct Memory {
    limit: AtomicUsize,
    /// The total, without the bytes that threads have not added yet.
    told: CachePadded<AtomicIsize>,
    /// For each thread slot, the bytes that the thread has not added to the total yet.
    own: PerThread<CachePadded<AtomicIsize>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { limit: AtomicUsize::new(NONE), told: CachePadded::new(AtomicIsize::new(0)), own: PerThread::new() }
    }

    /// Sets the limit. Nothing has been allocated yet.
    pub(crate) fn set_limit(&self, bytes: usize) {
        // Sums are signed. No machine has more memory than `isize::MAX` bytes.
        self.limit.store(bytes.min(isize::MAX as usize), Ordering::Relaxed);
    }

    /// Returns whether the database has a limit, and so counts its memory.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != NONE
    }

    /// Counts an allocation.
    pub(crate) fn add(&self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.change(bytes() as isize);
        }
    }

    /// Counts a deallocation.
    pub(crate) fn subtract(&self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.change(-(bytes() as isize));
        }
    }

    // Relaxed, here and below: the counts publish no data.
    fn change(&self, bytes: isize) {
        let own = self.own.get_or(thread::slot().index, || CachePadded::new(AtomicIsize::new(0)));
        let sum = own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let step = STEP.min(self.limit.load(Ordering::Relaxed) / 1000) as isize;
        if sum.abs() > step {
            self.told.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns whether the total has reached the limit. The total lacks the bytes that threads have not added yet.
    pub(crate) fn is_full(&self) -> bool {
        self.is_limited() && self.told.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) as isize
    }

    /// Returns the counted bytes, or `None` without a limit.
    pub(crate) fn used(&self) -> Option<usize> {
        let own = self.own.iter().map(|own| own.load(Ordering::Relaxed)).sum::<isize>();
        self.is_limited().then(|| (self.told.load(Ordering::Relaxed) + own).max(0) as usize)
    }
}
