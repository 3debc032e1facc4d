//! The MCS lock (Mellor-Crummey and Scott 1991): a queue in which every thread waits on a word of its own.
//!
//! A hand-over touches the lock's line and the next waiter's, however many threads wait. First come, first served.
//! Unlike in the paper, the queue nodes are on the waiters' stacks: see [`queue`](super::queue).

use core::ptr;

use lock_api::{GuardSend, RawMutex};

use super::cohort::Part;
use super::queue::Queue;

/// MCS lock: 16 bytes, first come, first served, constant cost per hand-over. For many threads on one NUMA node, each
/// with a core of its own, that must be served in order.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawMcs};
///
/// let count: Mutex<RawMcs, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
#[derive(Debug)]
pub struct RawMcs {
    queue: Queue,
}

constructors!(RawMcs = Self { queue: Queue::new() });

// SAFETY: `Queue` has one holder at a time, and `unlock` is called by it.
unsafe impl RawMutex for RawMcs {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.queue.try_enter() {
            self.queue.enter(0);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.queue.try_enter()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, and null is no waiter.
        let first = unsafe { self.queue.first_waiter_or(ptr::null_mut()) };
        if !first.is_null() {
            // SAFETY: the first waiter, with the others behind it in the order of arrival.
            unsafe { self.queue.grant(first) };
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.queue.is_taken()
    }
}

impl Part for RawMcs {
    #[inline]
    fn has_waiters(&self) -> bool {
        self.queue.has_waiters()
    }
}
