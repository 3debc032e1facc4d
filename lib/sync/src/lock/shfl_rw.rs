//! The readers-writer lock of the ShflLock family (Kashyap et al. 2019): one word with a count of readers and a writer's
//! bit, and a [`RawShfl`] in which those wait that found the word taken.
//!
//! A reader adds itself to the count. If no writer is inside, the reader has entered. Otherwise it takes itself off and
//! joins the queue. A writer enters an unused lock by one compare-and-exchange; otherwise it joins the queue. The holder
//! of the queue alone waits for the word: a reader counts itself and waits for the writer inside, a writer waits until
//! the lock is unused. Both then leave the queue to the next waiter.
//!
//! The lock follows the authors' program for Linux 4.19 (<https://github.com/sslab-gatech/shfllock>). Differences from
//! it: the queue is this library's, so only the first waiter shuffles, and it moves readers as well as writers. A writer
//! leaves by an atomic subtraction instead of a store to one byte of the word, since Rust has no atomic accesses of two
//! sizes to one place.
//!
//! Fairness: a writer that waits does not say so in the word. (In the authors' program, the lines that would say so are
//! commented out.) So newcomers that read keep entering beside the readers inside, and a writer may starve. A reader that is
//! first in the queue enters when the writer inside leaves.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use lock_api::{GuardNoSend, RawMutex, RawRwLock};

use super::shfl::RawShfl;
use super::wait::{refuse_to_wait, wait_until};

/// A writer is inside.
const WRITER: usize = 1;
/// One reader, inside or about to notice that a writer is inside.
const READER: usize = 2;

/// ShflLock's readers-writer lock: 24 bytes, readers counted on one cache line. For comparison;
/// [`RawDistributedRwLock`](super::RawDistributedRwLock) and [`RawBravo`](super::RawBravo) have reads that scale, and
/// [`RawCrwWp`](super::RawCrwWp) does not let writers starve.
///
/// ```
/// use archipelago::sync::lock::{RawShflRw, RwLock};
///
/// static NAMES: RwLock<RawShflRw, Vec<&str>> = RwLock::new(Vec::new());
/// NAMES.write().push("islands");
/// assert_eq!(NAMES.read().len(), 1);
/// ```
#[derive(Debug)]
pub struct RawShflRw {
    /// [`WRITER`], and [`READER`] times the readers.
    word: AtomicUsize,
    /// Held by the one thread that waits for the word.
    queue: RawShfl,
}

constructors!(RawShflRw = Self { word: AtomicUsize::new(0), queue: RawShfl::new() });

impl RawShflRw {
    /// Counts a reader. Returns whether the reader has entered: whether no writer is inside.
    #[inline]
    fn count_in(&self) -> bool {
        // Acquire pairs with the Release in `unlock_exclusive`.
        self.word.fetch_add(READER, Ordering::Acquire) & WRITER == 0
    }

    #[inline]
    fn count_out(&self) {
        // Release pairs with the Acquire in `try_lock_exclusive`. Every change of the word is a read-modify-write, so
        // the writer that finds the count at zero synchronizes with all readers that left.
        self.word.fetch_sub(READER, Ordering::Release);
    }

    #[cold]
    fn lock_shared_slowly(&self) {
        refuse_to_wait();
        self.queue.lock();
        if !self.count_in() {
            // Acquire pairs with the Release in `unlock_exclusive`. No other writer can enter before this reader leaves.
            wait_until(|| self.word.load(Ordering::Acquire) & WRITER == 0);
        }
        // SAFETY: locked above.
        unsafe { self.queue.unlock() };
    }

    #[cold]
    fn lock_exclusive_slowly(&self) {
        refuse_to_wait();
        self.queue.lock();
        wait_until(|| self.try_lock_exclusive());
        // SAFETY: locked above.
        unsafe { self.queue.unlock() };
    }
}

// SAFETY: a writer sets `WRITER` by compare-and-exchange from a word without a writer and without a reader. A reader has
// entered when it is counted in a word without `WRITER`: then no writer can enter before the reader is counted out.
unsafe impl RawRwLock for RawShflRw {
    const INIT: Self = initial!();
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.count_in() {
            self.count_out();
            self.lock_shared_slowly();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        // A thread that only tries does not disturb a writer that is seen to be inside.
        if self.is_locked_exclusive() {
            return false;
        }
        let entered = self.count_in();
        if !entered {
            self.count_out();
        }
        entered
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.count_out();
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.try_lock_exclusive() {
            self.lock_exclusive_slowly();
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        // The word is read first, so that a waiter does not take the cache line from the readers. Acquire pairs with the
        // Release in `unlock_exclusive` and `count_out`.
        self.word.load(Ordering::Relaxed) == 0
            && self.word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // Release pairs with the Acquire in `count_in`, `lock_shared_slowly` and `try_lock_exclusive`.
        self.word.fetch_sub(WRITER, Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WRITER != 0
    }
}
