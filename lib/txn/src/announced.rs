//! The announcements of commits that are logged, for threads that end an epoch.
//!
//! A commit announces itself, passes a SeqCst fence and loads its epoch. A thread that ends an epoch advances the
//! clock, passes a fence and loads the announcements. So either the commit gets a later epoch, or the thread sees the
//! commit and waits until it has appended to the log or failed.
//!
//! (A commit of MV-RLU draws its epoch from the counter and passes no fence. If the epoch is not later, the advance
//! reads what the draw or a later change of the counter wrote, with Acquire, so the thread sees the announcement.)

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;
#[cfg(all(feature = "durable", not(archipelago_sim)))]
use archipelago_sync::backoff::Backoff;

use crate::epochs::{Epochs, Keeps};

#[cfg(all(test, loom, feature = "durable"))]
mod model;

/// For each thread slot: 0 while the thread does not commit; during a commit, the clock's epoch before the commit
/// latched any record.
pub(crate) struct Announced(PerThread<CachePadded<AtomicU64>>);

impl Announced {
    pub(crate) fn new() -> Self {
        Self(PerThread::new())
    }

    /// Announces a commit of this thread until the result is dropped. The caller then passes a SeqCst fence and loads
    /// the commit's epoch.
    #[inline]
    pub(crate) fn step_up<S: Keeps>(&self, epochs: &Epochs<S>) -> Committing<'_> {
        let cell = self.0.get_or(thread::slot().index, CachePadded::default);
        cell.store(epochs.now(), Ordering::Relaxed);
        Committing(cell)
    }

    /// Ends the clock's epoch, and returns it once no announced commit has this or an earlier epoch.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn seal<S: Keeps>(&self, epochs: &Epochs<S>) -> u64 {
        let sealed = epochs.advance();
        for cell in self.0.iter() {
            let backoff = Backoff::new();
            // Acquire: pairs with the Release of `Committing`'s drop, after the append.
            while (1..=sealed).contains(&cell.load(Ordering::Acquire)) {
                backoff.wait();
            }
        }
        sealed
    }
}

/// The announcement of a commit.
pub(crate) struct Committing<'a>(&'a AtomicU64);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
