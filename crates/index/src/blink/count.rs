//! How many entries a map has, counted by each thread for itself: no two threads write a line, and no count is a locked
//! instruction.

use archipelago_platform::atomic::{AtomicIsize, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

/// See the module's text.
pub(super) struct Count(PerThread<CachePadded<AtomicIsize>>);

impl Count {
    pub(super) fn new() -> Self {
        Count(PerThread::new())
    }

    /// Only the thread that has the cell's slot writes it, so no read-modify-write is needed.
    #[inline]
    pub(super) fn add(&self, change: isize) {
        let cell = self.0.get_or(thread::slot().index, || CachePadded::new(AtomicIsize::new(0)));
        // Relaxed: the count orders nothing.
        cell.store(cell.load(Relaxed) + change, Relaxed);
    }

    /// The sum: exact while no thread changes the map.
    pub(super) fn sum(&self) -> usize {
        let sum: isize = self.0.iter().map(|cell| cell.load(Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}
