//! Statistics of background work, for tests.

/// The background work that has been done so far, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// The number of rounds of maintenance.
    pub rounds: u64,
    /// The number of background threads.
    pub threads: usize,
    /// How often a background thread was told that there is work.
    pub roused: u64,
    /// How often a background thread has finished such work. If this equals `roused`, all threads sleep or are about to
    /// sleep.
    pub done: u64,
    /// How often a background thread has woken, for any reason.
    pub wakes: u64,
    /// The number of pages that were moved to another chunk (a memory region of up to 2 MiB).
    pub moved: u64,
}
