//! The figures by which an experiment's contenders can be compared: throughput, counts per operation, and memory. A
//! paper may state that one contender has more of a figure than another.

use serde::Deserialize;

use crate::harness::simulated::Run;

/// A figure of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Million operations per virtual second.
    #[default]
    Throughput,
    /// Aborted hardware transactions, per operation.
    Aborts,
    /// Transactions aborted by another thread's access, per operation.
    Conflicts,
    /// Transactions aborted because their cache lines did not fit, per operation.
    Capacity,
    /// Accesses that left the socket, per operation.
    Remote,
    /// Accesses that the caches of the thread's socket did not serve, per operation: misses of the third level.
    Misses,
    /// Read-modify-writes that changed nothing, per operation: compare-and-exchanges that failed, mostly.
    FailedExchanges,
    /// Restarted reads or transactions, in percent of the operations.
    Retries,
    /// Repeated attempts at updates, in percent of all attempts: the abort ratio of a software mechanism.
    Repeats,
    /// Bytes of the heap that the program holds at the end of the measured span, set-up included.
    Memory,
}

impl Measure {
    /// The figures that rows keep beside the throughput, for every run.
    pub const COUNTS: [Measure; 9] = [
        Measure::Aborts,
        Measure::Conflicts,
        Measure::Capacity,
        Measure::Remote,
        Measure::Misses,
        Measure::FailedExchanges,
        Measure::Retries,
        Measure::Repeats,
        Measure::Memory,
    ];

    /// Returns the name in the papers' files.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Throughput => "throughput",
            Measure::Aborts => "aborts",
            Measure::Conflicts => "conflicts",
            Measure::Capacity => "capacity",
            Measure::Remote => "remote",
            Measure::Misses => "misses",
            Measure::FailedExchanges => "failed-exchanges",
            Measure::Retries => "retries",
            Measure::Repeats => "repeats",
            Measure::Memory => "memory",
        }
    }

    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Measure::Throughput => "operations a second",
            Measure::Aborts => "aborts an operation",
            Measure::Conflicts => "conflicts an operation",
            Measure::Capacity => "aborts for capacity an operation",
            Measure::Remote => "accesses that leave the socket, an operation",
            Measure::Misses => "misses of the third level, an operation",
            Measure::FailedExchanges => "exchanges that fail, an operation",
            Measure::Retries => "reads begun anew",
            Measure::Repeats => "attempts repeated",
            Measure::Memory => "bytes held",
        }
    }

    /// Returns the figure of a run, or `None` if the program does not count it.
    pub fn of(self, run: &Run) -> Option<f64> {
        let stats = &run.stats;
        let per_op = |count: u64| Some(count as f64 / run.ops.max(1) as f64);
        match self {
            Measure::Throughput => Some(run.mops),
            Measure::Aborts => per_op(stats.tx_aborts()),
            Measure::Conflicts => per_op(stats.tx_conflicts),
            Measure::Capacity => per_op(stats.tx_capacity),
            Measure::Remote => per_op(stats.remote()),
            Measure::Misses => per_op(stats.remote() + stats.memory_local),
            Measure::FailedExchanges => per_op(stats.unchanged),
            Measure::Retries => run.retry_percent,
            Measure::Repeats => run.abort_percent,
            Measure::Memory => run.held_bytes.map(|bytes| bytes as f64),
        }
    }
}
