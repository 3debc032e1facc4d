//! What records and versions take, in a database with a limit.
//!
//! Each is counted from its allocation until it is freed: what is live, what waits for readers, and what a transaction has not
//! committed yet. Threads add up what they allocate and free, and tell it in steps, so that those of different rows share no line.

use archipelago_platform::atomic::{AtomicIsize, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

/// No limit: nothing is counted.
const NONE: usize = usize::MAX;

/// The longest step in bytes; it is a thousandth of the limit, if that is less.
const STEP: usize = 64 << 10;

/// What is in a version: a row, or where an entry leads to.
pub trait Payload: Send + Sync + 'static {
    /// Bytes that it owns elsewhere. May be the user's code.
    #[doc(hidden)]
    fn heap_bytes(&self) -> usize;
}

pub(crate) struct Memory {
    limit: AtomicUsize,
    /// Bytes that threads have told.
    told: CachePadded<AtomicIsize>,
    /// By thread slot: what the thread has not told yet.
    own: PerThread<CachePadded<AtomicIsize>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { limit: AtomicUsize::new(NONE), told: CachePadded::new(AtomicIsize::new(0)), own: PerThread::new() }
    }

    /// Sets the limit. Nothing has been allocated yet.
    pub(crate) fn set_limit(&self, bytes: usize) {
        // Sums are signed, and no machine has more.
        self.limit.store(bytes.min(isize::MAX as usize), Ordering::Relaxed);
    }

    /// Returns whether anything is counted.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != NONE
    }

    /// Counts what is allocated.
    pub(crate) fn add(&self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.change(bytes() as isize);
        }
    }

    /// Counts what is freed.
    pub(crate) fn subtract(&self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.change(-(bytes() as isize));
        }
    }

    // Relaxed, here and below: counts, which publish nothing.
    fn change(&self, bytes: isize) {
        let own = self.own.get_or(thread::slot().index, || CachePadded::new(AtomicIsize::new(0)));
        let sum = own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let step = STEP.min(self.limit.load(Ordering::Relaxed) / 1000) as isize;
        if sum.abs() > step {
            self.told.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns whether the limit has been reached, as far as threads have told.
    pub(crate) fn is_full(&self) -> bool {
        self.is_limited() && self.told.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) as isize
    }

    /// The bytes that are counted, if any are.
    pub(crate) fn used(&self) -> Option<usize> {
        let own = self.own.iter().map(|own| own.load(Ordering::Relaxed)).sum::<isize>();
        self.is_limited().then(|| (self.told.load(Ordering::Relaxed) + own).max(0) as usize)
    }
}
