//! The ticket lock (Reed and Kanodia 1979; Mellor-Crummey and Scott 1991): draw a number, wait until it is called.
//!
//! First come, first served, in eight bytes. All waiters read one word, so each hand-over costs every waiter a cache
//! miss: good for few waiters, and as the part that the cohort lock is built from. When threads outnumber cores, the
//! thread whose turn it is may not be running; waiters yield the processor to it.

use archipelago_platform::atomic::{AtomicU32, Ordering};
use lock_api::{GuardSend, RawMutex};

use super::cohort::Part;
use super::wait::{locked_in_region, wait_until};

/// Ticket lock: eight bytes, first come, first served. For few threads that must be served in order.
///
/// Tickets wrap around, which does no harm as long as fewer than 2^32 threads wait.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawTicket};
///
/// let count: Mutex<RawTicket, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
#[derive(Debug)]
pub struct RawTicket {
    /// The ticket that the next arriving thread will draw.
    next: AtomicU32,
    /// The ticket whose thread holds the lock; equal to `next` if no thread holds it.
    serving: AtomicU32,
}

constructors!(RawTicket = Self { next: AtomicU32::new(0), serving: AtomicU32::new(0) });

impl RawTicket {
    #[inline]
    fn wait_for(&self, ticket: u32) {
        // Acquire pairs with the Release in `unlock`.
        wait_until(|| self.serving.load(Ordering::Acquire) == ticket);
    }
}

// SAFETY: each ticket is drawn once per 2^32, and `serving` moves on only when the holder of the ticket served unlocks.
unsafe impl RawMutex for RawTicket {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if locked_in_region(|| self.try_lock()) {
            return;
        }
        // Relaxed: the ticket is only a number; `wait_for` orders the accesses.
        self.wait_for(self.next.fetch_add(1, Ordering::Relaxed));
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let ticket = self.serving.load(Ordering::Relaxed);
        let next = ticket.wrapping_add(1);
        let drawn = self.next.compare_exchange(ticket, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if drawn {
            // The ticket is served at once, unless the tickets wrapped around since `serving` was read. Then it is
            // a valid ticket, and the thread must wait for it.
            self.wait_for(ticket);
        }
        drawn
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder changes `serving`. Release pairs with `wait_for`.
        self.serving.store(self.serving.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // `serving` is loaded first, and never exceeds `next`. Acquire pairs with the Release in `unlock`: the load of
        // `next` sees each ticket whose draw happens before the unlock. So equal values mean that the lock was free at
        // one moment. The answer may be out of date.
        let serving = self.serving.load(Ordering::Acquire);
        self.next.load(Ordering::Relaxed) != serving
    }
}

impl Part for RawTicket {
    #[inline]
    fn has_waiters(&self) -> bool {
        let serving = self.serving.load(Ordering::Relaxed);
        self.next.load(Ordering::Relaxed).wrapping_sub(serving) > 1
    }
}

#[cfg(all(test, loom))]
mod model {
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;

    use super::*;

    /// The holder hands the lock over to a thread that has drawn a ticket, so the lock is held all the time.
    #[test]
    fn a_lock_that_is_handed_over_is_never_seen_free() {
        loom::model(|| {
            let lock = Arc::new(RawTicket::new());
            assert!(lock.try_lock());
            let looks = {
                let lock = lock.clone();
                thread::spawn(move || lock.is_locked())
            };
            // The other thread's draw, of which this thread knows.
            lock.next.fetch_add(1, Ordering::Relaxed);
            // SAFETY: locked above.
            unsafe { lock.unlock() };
            assert!(looks.join().unwrap());
        });
    }
}
