//! One thread's count of look-ups, in a cache line of its own.

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct Hits {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Hits {
    /// Only the thread to which this count belongs calls the method, so a load and a store suffice instead of an atomic
    /// read-modify-write.
    #[inline]
    pub fn count(&self, hit: bool) {
        let count = if hit { &self.hits } else { &self.misses };
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }
}
