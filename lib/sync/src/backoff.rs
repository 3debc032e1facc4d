//! How most wait loops of this library wait: they spin a little, then yield the processor.
//!
//! A lock holder that runs on another core releases the lock within tens of nanoseconds, so a waiter first spins,
//! doubling the pause at each step. A preempted holder may need the waiter's core, so after a few steps the waiter
//! yields at every step; this is needed when threads outnumber cores. Under loom each step yields, so that loom's
//! scheduler can run the thread that is waited for.

use core::cell::Cell;

use archipelago_platform::htm::refuse_in_regions;
use archipelago_platform::thread;

/// Steps that spin (1, 2, 4, … pauses) before a waiter starts to yield: 63 pauses, 1 to 3 µs.
const SPIN_STEPS: u32 = if cfg!(loom) { 0 } else { 6 };

/// The state of one wait loop.
///
/// ```
/// use archipelago::platform::atomic::{AtomicBool, Ordering};
/// use archipelago::platform::thread;
/// use archipelago::sync::backoff::Backoff;
///
/// let ready = AtomicBool::new(false);
/// thread::scope(|scope| {
///     scope.spawn(|| ready.store(true, Ordering::Release));
///     let backoff = Backoff::new();
///     while !ready.load(Ordering::Acquire) {
///         backoff.wait();
///     }
/// });
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    step: Cell<u32>,
}

impl Backoff {
    /// A wait that has not begun.
    pub const fn new() -> Self {
        Self { step: Cell::new(0) }
    }

    /// Waits one step, longer than the last. From the seventh step on, the call yields the processor to any other ready
    /// thread. With debug assertions, panics in the body of a [region](crate::region).
    #[inline]
    pub fn wait(&self) {
        refuse_in_regions("waiting");
        let step = self.step.get();
        if step >= SPIN_STEPS {
            return thread::yield_now();
        }
        self.step.set(step + 1);
        for _ in 0..1_u32 << step {
            archipelago_platform::hint::spin_loop();
        }
    }

    /// Returns whether the next [`wait`](Self::wait) yields. Then the caller may park or take another path instead.
    #[inline]
    pub fn is_yielding(&self) -> bool {
        self.step.get() >= SPIN_STEPS
    }

    /// Starts over with short spins: call it after progress was made.
    #[inline]
    pub fn reset(&self) {
        self.step.set(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spins_then_yields_then_starts_over() {
        let backoff = Backoff::new();
        for _ in 0..SPIN_STEPS {
            assert!(!backoff.is_yielding());
            backoff.wait();
        }
        assert!(backoff.is_yielding());
        backoff.wait();
        assert!(backoff.is_yielding());
        backoff.reset();
        assert!(!backoff.is_yielding());
    }
}
