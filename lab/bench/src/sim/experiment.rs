//! What the arguments ask for: the contenders, the setting, the numbers of threads.

use std::path::Path;

use archipelago_sim::{Machine, Placement};

use super::machines;
use crate::args::{Pin, Sim, SimCommon, Warm};
use crate::failure::Failure;
use crate::harness::simulated::{Contender, Setting};
use crate::harness::steady::Wish;
use crate::{blink, cache, euno, locks, nr, ranges, sets, txn, ycsb};

/// What an experiment's arguments have in common, and what it compares.
pub fn experiment(what: &Sim) -> Result<(&SimCommon, Vec<Contender>), Failure> {
    Ok(match what {
        Sim::Machines { .. } | Sim::Host | Sim::Papers(_) => {
            return Err(Failure::new("this compares nothing by itself"));
        }
        Sim::Locks(args) => (&args.common, locks::simulated(args)?),
        Sim::Blink(args) => (&args.common, blink::simulated(args)?),
        Sim::Euno(args) => (&args.common, euno::simulated(args)?),
        Sim::Cache(args) => (&args.common, cache::simulated(args)?),
        Sim::Ranges(args) => (&args.common, ranges::simulated(args)?),
        Sim::Txn(args) => (&args.common, txn::simulated(args)?),
        Sim::Ycsb(args) => (&args.common, ycsb::simulated(args)?),
        Sim::Sets(args) => (&args.common, sets::simulated(args)?),
        Sim::Nr(args) => (&args.common, nr::simulated(args)?),
    })
}

/// How the arguments want it to be measured.
///
/// # Errors
/// If they name a machine or a fault that is not known.
pub fn setting(common: &SimCommon, what: &Sim) -> Result<Setting, Failure> {
    let faults = match what {
        Sim::Ycsb(args) => ycsb::faults(args)?,
        _ => Vec::new(),
    };
    let wish = Wish {
        warm_ns: match common.warm {
            // Faults strike at times that are known beforehand.
            Warm::Auto if faults.is_empty() => None,
            Warm::Auto => Some(ycsb::WARM_BEFORE_FAULTS * 1000),
            Warm::Micros(micros) => Some(micros * 1000),
        },
        measured_ns: common.micros * 1000,
        min_ops: common.min_ops,
        patience_ns: common.patience * 1000,
    };
    Ok(Setting {
        machine: machines::named(machine_name(common, what))?,
        placement: if common.pin == Pin::Spread { Placement::Spread } else { Placement::Fill },
        wish,
        seed: common.seed,
        seeds: common.runs as u64,
        sweep: common.sweep,
        faults,
    })
}

/// The machine asked for, or the paper's.
fn machine_name<'a>(common: &'a SimCommon, what: &Sim) -> &'a Path {
    let of_paper = match what {
        Sim::Nr(_) => "xeon-e7-4850v3-4s",
        Sim::Sets(_) => "xeon-8180-8s",
        Sim::Blink(_) => "xeon-e5-4620-4s",
        Sim::Ranges(_) => "xeon-e7-8870v3-4s",
        Sim::Cache(_) => "xeon-8180-8s",
        Sim::Euno(_) => "xeon-e5-2650v3-2s",
        _ => DEFAULT_MACHINE,
    };
    common.machine.as_deref().unwrap_or(Path::new(if common.paper { of_paper } else { DEFAULT_MACHINE }))
}

/// HydraList's machine, with two threads per core.
const DEFAULT_MACHINE: &str = "xeon-8180-4s";

/// Whether that number of threads is not far beyond the machine.
///
/// # Errors
/// If they are.
pub fn check_threads(threads: usize, machine: &Machine) -> Result<(), Failure> {
    let (name, cpus) = (&machine.name, machine.cpus());
    let refused =
        || Failure::new(format!("--threads {threads}: {name} has {cpus} CPUs; more than {} is refused", 4 * cpus));
    if threads > 4 * cpus { Err(refused()) } else { Ok(()) }
}

/// The thread counts asked for, else one, and every socket boundary with the half before the first.
///
/// # Errors
/// If one is far beyond the machine.
pub fn threads(common: &SimCommon, machine: &Machine) -> Result<Vec<usize>, Failure> {
    let cpus = machine.cpus();
    common.threads.iter().try_for_each(|threads| check_threads(*threads, machine))?;
    if !common.threads.is_empty() {
        return Ok(common.threads.clone());
    }
    let socket = cpus / machine.sockets;
    let mut threads = vec![1, 2, socket / 4, socket / 2];
    threads.extend((1..=machine.sockets).map(|sockets| sockets * socket));
    threads.retain(|threads| *threads > 0);
    threads.sort_unstable();
    threads.dedup();
    Ok(threads)
}
