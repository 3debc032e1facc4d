//! Numbers that identify objects of this process.

/// Returns a number that was not returned before.
pub(crate) fn fresh() -> u64 {
    #[cfg(not(loom))]
    {
        use archipelago_platform::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
    // A loom model has only one such object.
    #[cfg(loom)]
    1
}
