//! One-byte locks: test-and-set, and test-and-test-and-set with backoff.
//!
//! Each lock is one flag. A waiter of [`RawTas`] writes to the lock's cache line at every try, which takes the line
//! away from the holder; this lock is the baseline for every other lock. A waiter of [`RawTtas`] reads until the lock
//! looks free and backs off exponentially between its looks (Anderson 1990; Mellor-Crummey and Scott 1991).
//!
//! Neither is fair: the thread whose write reaches the line first has the lock, which favours the node of the last
//! holder. A waiter may starve. In exchange, a preempted waiter delays no other thread.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::{hint, thread};
use lock_api::{GuardSend, RawMutex};

use crate::backoff::Backoff;

/// Test-and-set lock: one byte, no fairness, a write per try. For comparison; [`RawTtas`] is better under contention.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawTas};
///
/// let count: Mutex<RawTas, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
#[derive(Debug)]
pub struct RawTas {
    held: AtomicBool,
}

/// Test-and-test-and-set lock with exponential backoff: one byte, no fairness. For short critical sections with little
/// contention.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawTtas};
///
/// static HITS: Mutex<RawTtas, u64> = Mutex::new(0);
/// *HITS.lock() += 1;
/// assert_eq!(*HITS.lock(), 1);
/// ```
#[derive(Debug)]
pub struct RawTtas {
    held: AtomicBool,
}

constructors!(RawTas = Self { held: AtomicBool::new(false) });
constructors!(RawTtas = Self { held: AtomicBool::new(false) });

/// How many times a waiter of [`RawTas`] tries before it yields the processor.
const TRIES: u32 = if cfg!(loom) { 0 } else { 64 };

// SAFETY: `held` changes from false to true only by the read-modify-write of the thread that then holds the lock, and
// back only by `unlock`, which its holder calls once.
unsafe impl RawMutex for RawTas {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    fn lock(&self) {
        let mut tries = 0;
        while !self.try_lock() {
            // Not `Backoff`: pauses that double would turn this lock into `RawTtas`.
            if tries < TRIES {
                tries += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        !self.held.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

// SAFETY: as for `RawTas`.
unsafe impl RawMutex for RawTtas {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.take() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.is_locked() && self.take()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

impl RawTtas {
    #[inline]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`. Relaxed on failure: nothing is concluded from it.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let backoff = Backoff::new();
        while !self.try_lock() {
            backoff.wait();
        }
    }
}
