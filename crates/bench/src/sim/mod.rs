//! `sim`: experiments on the virtual machine. They run in the build for it only (`cargo sim …`), but are compiled in
//! every build, so that the ordinary checks see them.
//!
//! An experiment is a list of [`Contender`]s: programs that differ in one thing. [`compare`] runs each of them with each
//! number of threads; a [`Sink`] takes the rows as they are complete, and [`report`] shows what came out.

mod host;
mod limits;
mod locked;
mod locks;
mod machines;
pub mod measure;
mod nr;
mod papers;
mod report;
mod row;
mod sets;
mod sink;
pub mod steady;
mod watch;
mod ycsb;

use std::process::ExitCode;

use archipelago_platform::SIMULATED;
use archipelago_sim::{Machine, Placement};

use crate::args::{Pin, Sim, SimCommon, Warm};
use crate::failure::Failure;
use crate::interrupt;
use crate::workload::Distribution;
use measure::{Program, Setting};
use sink::Sink;
use steady::Wish;

/// One of the things compared.
pub struct Contender {
    /// Its name in reports: the index, the lock, the method.
    pub name: String,
    /// What it does.
    pub workload: String,
    /// What the workload is made of.
    pub cell: Cell,
    /// How.
    pub program: Program,
}

/// What tells experiments of one workload apart, as far as they know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Operations that change something, in percent.
    pub update_percent: Option<u32>,
    /// Which keys are popular.
    pub distribution: Option<Distribution>,
    /// Random lines written between two operations.
    pub external_work: Option<usize>,
    /// Items in the structure when the run begins.
    pub count: Option<usize>,
    /// What else differs.
    pub details: String,
}

/// Runs what the command line asks for.
///
/// # Errors
/// If the arguments make no sense, this is not the build for the virtual machine, or a run ends badly.
pub fn execute(what: &Sim) -> Result<ExitCode, Failure> {
    match what {
        Sim::Machines { name, example } => {
            let text = if *example { Machine::EXAMPLE.to_owned() } else { machines::describe(name.as_deref())? };
            print!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Host => {
            host::run()?;
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Papers(args) => return papers::execute(args),
        _ => {}
    }
    let (common, contenders) = experiment(what)?;
    only_simulated()?;
    let setting = setting(common, what)?;
    let threads = threads(common, &setting.machine)?;
    limits::check(what, &setting.machine)?;
    interrupt::install();
    if common.watch {
        return watch::execute(&contenders, &setting, &threads);
    }
    let mut sink = Sink::open(common, &setting)?;
    // What is complete is shown even if the rest came to nothing.
    let outcome = compare(&contenders, &setting, &threads, &mut sink);
    sink.finish(&setting, !matches!(outcome, Ok(true)))?;
    let interrupted = !outcome? && interrupt::requested();
    Ok(if interrupted { ExitCode::from(crate::INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// What an experiment's arguments have in common, and whom it compares.
fn experiment(what: &Sim) -> Result<(&SimCommon, Vec<Contender>), Failure> {
    Ok(match what {
        Sim::Machines { .. } | Sim::Host | Sim::Papers(_) => {
            return Err(Failure::new("this compares nothing by itself"));
        }
        Sim::Locks(args) => (&args.common, locks::contenders(args)?),
        Sim::Ycsb(args) => (&args.common, ycsb::contenders(args)?),
        Sim::Sets(args) => (&args.common, sets::contenders(args)?),
        Sim::Nr(args) => (&args.common, nr::contenders(args)?),
    })
}

fn only_simulated() -> Result<(), Failure> {
    if SIMULATED {
        return Ok(());
    }
    Err(Failure::new(
        "this program was built for the real machine; `cargo sim …` builds and runs the same command for the virtual \
         one (what it needs is RUSTFLAGS=\"--cfg archipelago_sim\")",
    ))
}

fn setting(common: &SimCommon, what: &Sim) -> Result<Setting, Failure> {
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
fn machine_name<'a>(common: &'a SimCommon, what: &Sim) -> &'a str {
    let of_paper = match what {
        Sim::Nr(_) => "xeon-e7-4850v3-4s",
        Sim::Sets(_) => "xeon-8180-8s",
        _ => DEFAULT_MACHINE,
    };
    common.machine.as_deref().unwrap_or(if common.paper { of_paper } else { DEFAULT_MACHINE })
}

/// HydraList's machine, with two threads per core.
const DEFAULT_MACHINE: &str = "xeon-8180-4s";

/// The thread counts asked for, else one, and every socket boundary with the half before the first.
fn threads(common: &SimCommon, machine: &Machine) -> Result<Vec<usize>, Failure> {
    let cpus = machine.cpus();
    if let Some(wrong) = common.threads.iter().find(|threads| **threads > 4 * cpus) {
        let name = &machine.name;
        return Err(Failure::new(format!(
            "--threads {wrong}: {name} has {cpus} CPUs; more than {} is refused",
            4 * cpus
        )));
    }
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

/// Runs each contender with each number of threads. False: it was interrupted, or nobody wants to know any more.
fn compare(contenders: &[Contender], setting: &Setting, threads: &[usize], sink: &mut Sink) -> Result<bool, Failure> {
    for contender in contenders {
        for &threads in threads {
            let row = match sink.done(contender, threads) {
                Some(row) => (row, false),
                None => match measure::figures(&contender.program, setting, threads)? {
                    Some(figures) => (row::row(contender, threads, &figures, setting), true),
                    None => return Ok(false),
                },
            };
            if !sink.take(row.0, row.1)? || interrupt::requested() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The names of a comma-separated list, or all.
///
/// # Errors
/// If a name is not known.
fn choose(option: &str, list: &str, known: &[&'static str]) -> Result<Vec<&'static str>, Failure> {
    if list == "all" {
        return Ok(known.to_vec());
    }
    let find = |name: &str| {
        let unknown = || Failure::new(format!("{option} {name} is not known; known are {} (or all)", known.join(", ")));
        known.iter().find(|known| **known == name).copied().ok_or_else(unknown)
    };
    list.split(',').map(str::trim).map(find).collect()
}

#[cfg(test)]
mod smoke;
#[cfg(test)]
mod tests;
