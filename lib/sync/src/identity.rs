//! Numbers by which objects of this process are told apart.

/// A number that was given to no other object before.
pub(crate) fn fresh() -> u64 {
    #[cfg(not(loom))]
    {
        use archipelago_platform::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
    // A model has one such object.
    #[cfg(loom)]
    1
}
