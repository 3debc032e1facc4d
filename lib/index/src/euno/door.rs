//! The door of a contended chunk (a leaf to which many threads write) has one bit per group of keys. It serializes
//! threads that are about to replace the value of the same key in a part, in transactions, so that these threads do not
//! abort each other.
//!
//! The bits are hints, and correctness does not depend on them. A thread holds at most one bit, and while it holds the
//! bit, it may wait for a page's lock but not for another bit. No thread takes a bit while it holds a lock or is in a
//! transaction. So threads do not wait in a circle, and a split does not wait for a bit.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sync::backoff::Backoff;

/// The bits. Each bit is set while a thread holds it.
#[derive(Default)]
pub(super) struct Door(AtomicU64);

/// A thread's hold of a bit. Dropping it clears the bit.
pub(super) struct Within<'d> {
    door: &'d Door,
    bit: u64,
}

impl Door {
    /// Waits until no other thread holds this tag's bit, and takes the bit.
    pub(super) fn enter(&self, tag: u8) -> Within<'_> {
        let bit = 1 << (tag % 64);
        let backoff = Backoff::new();
        // Acquire and Release: the thread sees the writes of the previous holder of the bit before its own transaction
        // begins.
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
