//! The costs of steps on a machine, and how faults change them.

use crate::config::{Config, Fault};
use crate::machine::Machine;
use crate::memory::ps;

/// The machine's costs in picoseconds.
pub(crate) struct Costs {
    pub(crate) l1: u64,
    pub(super) locked: u64,
    pub(crate) fence: u64,
    pub(crate) pause: u64,
    pub(crate) clock: u64,
    pub(crate) call: u64,
    pub(super) wake: u64,
    /// The slowdown factor of two busy hardware threads on a core, in units of 1/256.
    pub(super) smt: u64,
    pub(super) tx_begin: u64,
    pub(super) tx_commit: u64,
    pub(super) tx_abort: u64,
    pub(super) tx_read_lines: usize,
    pub(super) tx_write_lines: usize,
    /// Picoseconds between a CPU's timer interrupts, and picoseconds of transaction per abort without a visible reason;
    /// 0 for never.
    pub(super) tx_timer: u64,
    pub(super) tx_spurious: u64,
    /// The probability of an abort by a fault.
    pub(super) tx_fault: f64,
    pub(super) l1_sets: usize,
    pub(super) l1_ways: usize,
}

impl Costs {
    /// Returns the cost of an access for whose result no thread waits. It is about a cycle; a first-level hit takes
    /// four or five.
    pub(crate) fn issue(&self) -> u64 {
        self.l1 / 4
    }

    pub(super) fn new(machine: &Machine, config: &Config) -> Costs {
        let (latency, tx) = (&machine.latency, machine.transactions);
        let mut costs = Costs {
            l1: ps(latency.l1),
            locked: ps(latency.locked),
            fence: ps(latency.fence),
            pause: ps(latency.pause),
            clock: ps(latency.clock),
            call: ps(machine.os.call),
            wake: ps(machine.os.wake),
            smt: (machine.smt_slowdown * 256.0) as u64,
            tx_begin: tx.map_or(0, |tx| ps(tx.begin)),
            tx_commit: tx.map_or(0, |tx| ps(tx.commit)),
            tx_abort: tx.map_or(0, |tx| ps(tx.abort)),
            tx_read_lines: tx.map_or(0, |tx| tx.read_lines),
            tx_write_lines: usize::MAX,
            tx_timer: tx.map_or(0, |tx| ps(tx.timer)),
            tx_spurious: tx.map_or(0, |tx| ps(tx.spurious)),
            tx_fault: 0.0,
            l1_sets: machine.caches.l1.sets,
            l1_ways: machine.caches.l1.ways,
        };
        for fault in &config.faults {
            match *fault {
                Fault::AbortTransactions { probability } => {
                    // With this fault, transactions abort with the fault's probability instead of the machine's.
                    (costs.tx_fault, costs.tx_spurious, costs.tx_timer) = (probability, 0, 0);
                }
                Fault::TransactionCapacity { read_lines, write_lines } => {
                    (costs.tx_read_lines, costs.tx_write_lines) = (read_lines, write_lines);
                }
                Fault::Stall { .. } | Fault::StallNode { .. } => {}
            }
        }
        costs
    }
}
