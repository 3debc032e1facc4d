//! The number of entries, kept in stripes so that inserting threads do not share a line.

use archipelago_platform::atomic::{AtomicI64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::thread;

const STRIPES: usize = 16;

/// A counter that many threads change and few read.
#[derive(Default)]
pub(crate) struct Counter {
    stripes: [CachePadded<AtomicI64>; STRIPES],
}

impl Counter {
    pub(crate) fn add(&self, by: i64) {
        // Relaxed: the count orders nothing.
        self.stripes[thread::slot().index % STRIPES].fetch_add(by, Ordering::Relaxed);
    }

    /// The sum. While others count it may be off by what they count meanwhile; a negative sum is shown as 0.
    pub(crate) fn sum(&self) -> usize {
        let sum: i64 = self.stripes.iter().map(|stripe| stripe.load(Ordering::Relaxed)).sum();
        sum.max(0) as usize
    }

    pub(crate) fn reset(&mut self) {
        *self = Counter::default();
    }
}
