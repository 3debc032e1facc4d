//! Statistics of background work, for tests.

/// What background work has been done so far, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Rounds of maintenance.
    pub rounds: u64,
    /// Background threads.
    pub threads: usize,
    /// How often one of them was told that there is work.
    pub roused: u64,
    /// How often one of them has finished such work. Equal to `roused`: all of them sleep, or are about to.
    pub done: u64,
    /// How often one of them has come out of its sleep, for whatever reason.
    pub wakes: u64,
    /// Pages that were moved to another place.
    pub moved: u64,
}
