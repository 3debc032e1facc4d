//! The topology of the simulated machine of the current run.

use core::cell::Cell;
use std::sync::{Mutex, PoisonError};

use archipelago_sim::{Machine, world};

use super::Topology;

std::thread_local! {
    /// The run for which the topology was last requested, and its topology.
    static LAST: Cell<Option<(u64, &'static Topology)>> = const { Cell::new(None) };
}

/// Returns the topology of the machine of the current run, or `None` outside a run.
pub(super) fn of_this_run() -> Option<&'static Topology> {
    let run = world::run_number()?;
    if let Some((last, topology)) = LAST.get()
        && last == run
    {
        return Some(topology);
    }
    // The topology outlives the run, and its allocation must not appear in the run's memory.
    let topology = world::machine().map(|machine| world::outside(|| kept(of_machine(&machine))));
    LAST.set(topology.map(|topology| (run, topology)));
    topology
}

/// Returns an equal topology that lives for ever. A process simulates only a few different machines.
fn kept(topology: Topology) -> &'static Topology {
    static KEPT: Mutex<Vec<&Topology>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = all.iter().find(|same| ***same == topology) {
        return same;
    }
    let leaked = Box::leak(Box::new(topology));
    all.push(leaked);
    leaked
}

fn of_machine(machine: &Machine) -> Topology {
    let mut builder = Topology::builder();
    for socket in 0..machine.sockets {
        builder = builder.node(socket, machine.cpus_of(socket));
    }
    for core in 0..machine.cores() {
        builder = builder.core((0..machine.threads_per_core).map(|rank| rank * machine.cores() + core));
    }
    // The firmware's convention: 10 is local. Each link adds about as much again.
    let distances =
        machine.hops.iter().map(|row| row.iter().map(|&hops| 10 + 11 * u32::from(hops)).collect::<Vec<_>>());
    builder.distances(distances).real().build().expect("a checked machine is a topology")
}
