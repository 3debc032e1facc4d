//! The door of a contended chunk: one bit per group of keys, by which those that are about to change the same key in a
//! transaction go one after the other instead of aborting each other.
//!
//! The bits are advice: nothing is wrong without them. A thread holds one bit, waits for no bit or lock with it, and takes none
//! in a region; so it cannot wait in a circle, and a split does not wait for it.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sync::backoff::Backoff;

/// Bits that are set while a thread is within.
#[derive(Default)]
pub(super) struct Door(AtomicU64);

/// Leaves when dropped.
pub(super) struct Within<'d> {
    door: &'d Door,
    bit: u64,
}

impl Door {
    /// Waits until no other thread is within for such a tag.
    pub(super) fn enter(&self, tag: u8) -> Within<'_> {
        let bit = 1 << (tag % 64);
        let backoff = Backoff::new();
        // Acquire and Release: what the thread before did is seen, so that the transaction meets it in its own cache.
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
        let (door, count) = (Door::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 10 } else { 1_000 } {
                        let _within = door.enter(7);
                        let _other = door.enter(8);
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((count.into_inner() % 3, door.0.into_inner()), (0, 0));
    }
}
