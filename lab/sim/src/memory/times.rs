//! The times of memory operations, in picoseconds.

use crate::machine::Machine;

/// Converts nanoseconds of the machine's description to picoseconds of the model.
pub(crate) fn ps(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

/// Times of the machine in picoseconds.
pub(super) struct Times {
    pub(super) l1: u64,
    pub(super) l2: u64,
    pub(super) l3: u64,
    pub(super) core_to_core: u64,
    pub(super) dirty_remote: Vec<u64>,
    pub(super) clean_remote: Vec<u64>,
    pub(super) memory: Vec<u64>,
    pub(super) shared_read: u64,
    /// The part of the latency for which a transfer occupies the line, in units of 1/256.
    pub(super) transfer: u64,
    pub(super) hold: u64,
}

impl Times {
    pub(super) fn of(machine: &Machine) -> Self {
        let (latency, occupancy) = (&machine.latency, &machine.occupancy);
        let list = |times: &[f64]| times.iter().map(|&time| ps(time)).collect();
        Times {
            l1: ps(latency.l1),
            l2: ps(latency.l2),
            l3: ps(latency.l3),
            core_to_core: ps(latency.core_to_core),
            dirty_remote: list(&latency.dirty_remote),
            clean_remote: list(&latency.clean_remote),
            memory: list(&latency.memory),
            shared_read: ps(occupancy.shared_read),
            transfer: (occupancy.transfer * 256.0) as u64,
            hold: ps(occupancy.hold),
        }
    }

    /// Returns the longest latency.
    pub(super) fn slowest(&self) -> u64 {
        let lists = [&self.dirty_remote, &self.clean_remote, &self.memory];
        lists.into_iter().flatten().copied().chain([self.l3, self.core_to_core]).max().expect("they are not empty")
    }
}

/// The cost of an access.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) latency: u64,
    /// The time during which the line cannot be given to the next core.
    pub(crate) occupancy: u64,
    /// Whether the data came from another socket.
    pub(crate) remote: bool,
}
