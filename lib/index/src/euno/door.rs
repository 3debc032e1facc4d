//! The door of a contended chunk (a leaf to which many threads write) has one bit per group of keys. It serializes
//! threads that are about to change the same key in transactions, so that they do not abort each other.
//!
//! The bits are hints, and correctness does not depend on them. A thread holds at most one bit, does not wait for
//! another bit or a lock while it holds one, and takes no bit in a region (a transaction, or a section under a lock).
//! So threads do not wait in a circle, and a split does not wait for a bit.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sync::backoff::Backoff;

/// The bits. Each bit is set while a thread holds it.
#[derive(Default)]
pub(super) struct Door(AtomicU64);

/// A thread's presence within the door. Dropping it clears the bit.
pub(super) struct Within<'d> {
    door: &'d Door,
    bit: u64,
}

impl Door {
    /// Waits until no other thread is within for this tag's bit.
    pub(super) fn enter(&self, tag: u8) -> Within<'_> {
        let bit = 1 << (tag % 64);
        let backoff = Backoff::new();
        // Acquire and Release: the thread sees the previous thread's writes, so the transaction finds them in its own
        // cache.
        while self.0.fetch_or(bit, Ordering::Acquire) & bit != 0 {
            while self.0.load(Ordering::Relaxed) & bit != 0 {
                backoff.wait();
            }
        }
        Within { door: self, bit }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.door.0.fetch_and(!self.bit, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_platform::thread;

    #[test]
    fn one_thread_is_within_for_a_tag() {
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 1_000 };
        let (door, count) = (Door::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let _within = door.enter(7);
                        let _other = door.enter(8);
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((count.into_inner(), door.0.into_inner()), (3 * ROUNDS, 0));
    }
}
