//! Numbers that identify objects of this process.

#[cfg(not(loom))]
use archipelago_platform::atomic::{AtomicU64, Ordering};

/// The numbers of one kind of objects. Each kind has its own, so that no kind uses up another kind's numbers.
pub(crate) struct Identities {
    #[cfg(not(loom))]
    next: AtomicU64,
}

impl Identities {
    pub(crate) const fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            next: AtomicU64::new(1),
        }
    }

    /// Returns a number that was not returned before, and is not 0.
    pub(crate) fn fresh(&self) -> u64 {
        #[cfg(not(loom))]
        return self.next.fetch_add(1, Ordering::Relaxed);
        // A loom model has only one such object.
        #[cfg(loom)]
        1
    }
}
