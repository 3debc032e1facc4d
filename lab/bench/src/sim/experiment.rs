//! Turns the arguments of an experiment into its contenders, its setting and its numbers of threads.

use archipelago_sim::{Machine, Placement};

use super::machines;
use crate::args::{Pin, Sim, SimCommon, Warm};
use crate::failure::Failure;
use crate::harness::instructions::{Charge, Counted, Instructions};
use crate::harness::simulated::{Contender, Setting};
use crate::harness::steady::Wish;
use crate::{blink, cache, euno, locks, nr, ranges, sets, txn, ycsb};

/// Returns an experiment's common arguments.
///
/// # Errors
/// If it is no experiment.
pub fn common(what: &Sim) -> Result<&SimCommon, Failure> {
    Ok(match what {
        Sim::Machines { .. } | Sim::Host | Sim::Papers(_) => return Err(no_experiment()),
        Sim::Locks(args) => &args.common,
        Sim::Blink(args) => &args.common,
        Sim::Euno(args) => &args.common,
        Sim::Cache(args) => &args.common,
        Sim::Ranges(args) => &args.common,
        Sim::Txn(args) => &args.common,
        Sim::Ycsb(args) => &args.common,
        Sim::Sets(args) => &args.common,
        Sim::Nr(args) => &args.common,
    })
}

/// Returns the contenders that an experiment compares. Making them may take memory, so [`limits`](super::limits) are
/// checked before.
///
/// # Errors
/// If it is no experiment, or its arguments make no sense.
pub fn contenders(what: &Sim) -> Result<Vec<Contender>, Failure> {
    match what {
        Sim::Machines { .. } | Sim::Host | Sim::Papers(_) => Err(no_experiment()),
        Sim::Locks(args) => locks::simulated(args),
        Sim::Blink(args) => blink::simulated(args),
        Sim::Euno(args) => euno::simulated(args),
        Sim::Cache(args) => cache::simulated(args),
        Sim::Ranges(args) => ranges::simulated(args),
        Sim::Txn(args) => txn::simulated(args),
        Sim::Ycsb(args) => ycsb::simulated(args),
        Sim::Sets(args) => sets::simulated(args),
        Sim::Nr(args) => nr::simulated(args),
    }
}

fn no_experiment() -> Failure {
    Failure::new("this compares nothing by itself")
}

/// Returns the setting of the measurements.
///
/// # Errors
/// If the arguments name an unknown machine or fault, ask for threads without a place, or charge instructions of
/// operations whose instructions were not counted.
pub fn setting(common: &SimCommon, what: &Sim) -> Result<Setting, Failure> {
    let (faults, stall) = match what {
        Sim::Ycsb(args) => (ycsb::faults(args)?, args.stall.clone()),
        _ => (Vec::new(), None),
    };
    let placement = match common.pin {
        Pin::Fill => Placement::Fill,
        Pin::Cores => Placement::Cores,
        Pin::Spread => Placement::Spread,
        Pin::None => {
            return Err(Failure::new(
                "--pin none: a simulated thread has a place of its own; try fill, cores or spread",
            ));
        }
    };
    let instructions = common.instructions.map(|per_cycle| instructions(per_cycle, what)).transpose()?;
    let wish = Wish {
        warm_ns: match common.warm {
            // Faults happen at fixed times, so the warm-up must have a fixed length.
            Warm::Auto if faults.is_empty() => None,
            Warm::Auto => Some(ycsb::WARM_BEFORE_FAULTS * 1000),
            Warm::Micros(micros) => Some(micros * 1000),
        },
        measured_ns: common.micros * 1000,
        min_ops: common.min_ops,
        patience_ns: common.patience * 1000,
    };
    Ok(Setting {
        machine: machine(common, what)?,
        placement,
        wish,
        seed: common.seed,
        seeds: common.runs as u64,
        sweep: common.sweep,
        faults,
        stall,
        instructions,
        charge: Charge::default(),
    })
}

/// Returns the instructions to charge in this experiment, at this many per cycle.
///
/// # Errors
/// If the experiment's instructions were not counted.
fn instructions(per_cycle: f64, what: &Sim) -> Result<Instructions, Failure> {
    let counted = match what {
        Sim::Euno(args) if euno::SKEWED.contains(&args.workload.as_str()) => Counted::Euno,
        Sim::Ycsb(args) if args.keys == "int" => Counted::Ints,
        Sim::Ycsb(args) if args.keys == "email" => Counted::Emails,
        Sim::Nr(args) => of_nr(&args.workload).ok_or_else(|| {
            Failure::new("--instructions: `sim nr` charges those of one workload at a time; name it with --workload")
        })?,
        _ => {
            return Err(Failure::new(
                "--instructions: those of `sim euno --workload ycsb` or `batches`, of `sim ycsb --keys int` and \
                 `email`, and of `sim nr` were counted, and no others",
            ));
        }
    };
    Ok(Instructions { per_cycle, counted })
}

/// Returns the counts of a workload of `sim nr`; `None` if it is not one workload.
pub fn of_nr(workload: &str) -> Option<Counted> {
    match workload {
        "pqueue" => Some(Counted::Queue),
        "dictionary" => Some(Counted::Dictionary),
        "sorted-set" => Some(Counted::SortedSet),
        "server" => Some(Counted::Server),
        _ => None,
    }
}

/// Returns the machine of `--machine`; without this option the default machine, or with `--paper` the machine of the
/// experiment's paper. Its caches are divided by `--caches`.
///
/// # Errors
/// If the machine is not known, or its caches cannot be divided so.
fn machine(common: &SimCommon, what: &Sim) -> Result<Machine, Failure> {
    let machine = match &common.machine {
        Some(name) => machines::named(name),
        None if common.paper => machines::of_paper(paper(what)),
        None => machines::named(DEFAULT_MACHINE),
    }?;
    let divided = machine.with_caches_divided(common.caches.unwrap_or(1));
    divided.map_err(|error| Failure::new(format!("--caches: {error}")))
}

/// Returns the file of the experiment's paper, or HydraList's file if the experiment is from no paper.
fn paper(what: &Sim) -> &'static str {
    match what {
        Sim::Nr(_) => include_str!("../../papers/node-replication.toml"),
        Sim::Sets(_) | Sim::Cache(_) => include_str!("../../papers/mv-rlu.toml"),
        Sim::Blink(_) => include_str!("../../papers/numa-btree.toml"),
        Sim::Ranges(_) => include_str!("../../papers/rcx.toml"),
        Sim::Euno(_) => include_str!("../../papers/eunomia.toml"),
        Sim::Locks(_) => include_str!("../../papers/locks.toml"),
        _ => include_str!("../../papers/hydralist.toml"),
    }
}

/// The machine if the arguments name none.
const DEFAULT_MACHINE: &str = "xeon-8180-4s";

/// Checks that there are at most four threads for each CPU of the machine.
///
/// # Errors
/// If there are more.
pub fn check_threads(threads: usize, machine: &Machine) -> Result<(), Failure> {
    let (name, cpus) = (&machine.name, machine.cpus());
    let refused =
        || Failure::new(format!("--threads {threads}: {name} has {cpus} CPUs; more than {} is refused", 4 * cpus));
    if threads > 4 * cpus { Err(refused()) } else { Ok(()) }
}

/// Returns the thread counts of `--threads`. Without this option they are 1, 2, a quarter and half of a socket's CPUs,
/// and every socket boundary.
///
/// # Errors
/// If a number is refused by [`check_threads`].
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
