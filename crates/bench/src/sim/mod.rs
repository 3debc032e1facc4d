//! `sim`: experiments on the virtual machine. They run in the build for it only (`cargo sim …`), but are compiled in
//! every build, so that the ordinary checks see them.
//!
//! An experiment is a list of [`Contender`]s: programs that differ in one thing. [`compare`] runs each of them with each
//! number of threads; [`report`] shows what came out.

mod host;
mod locked;
mod locks;
mod machines;
pub mod measure;
mod nr;
mod report;
mod sets;
mod watch;
mod ycsb;

use std::process::ExitCode;

use archipelago_platform::SIMULATED;
use archipelago_sim::{Machine, Placement};

use crate::args::{Pin, Sim, SimCommon};
use crate::failure::Failure;
use crate::workload::Distribution;
use measure::{Figures, Program, Setting};

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
}

/// One contender with so many threads.
pub struct Point {
    /// Its name.
    pub name: String,
    /// What it does.
    pub workload: String,
    /// What that is made of.
    pub cell: Cell,
    /// Threads.
    pub threads: usize,
    /// What was measured.
    pub figures: Figures,
}

/// Runs what the command line asks for.
///
/// # Errors
/// If the arguments make no sense, this is not the build for the virtual machine, or a run ends badly.
pub fn execute(what: &Sim) -> Result<ExitCode, Failure> {
    let (common, contenders) = match what {
        Sim::Machines { name, example } => {
            let text = if *example { Machine::EXAMPLE.to_owned() } else { machines::describe(name.as_deref())? };
            print!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Host => {
            host::run()?;
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Locks { common, lock } => (common, locks::contenders(lock)?),
        Sim::Ycsb(args) => (&args.common, ycsb::contenders(args)?),
        Sim::Sets(args) => (&args.common, sets::contenders(args)?),
        Sim::Nr(args) => (&args.common, nr::contenders(args)?),
    };
    if !SIMULATED {
        return Err(Failure::new(
            "this program was built for the real machine; `cargo sim …` builds and runs the same command for the \
             virtual one (what it needs is RUSTFLAGS=\"--cfg archipelago_sim\")",
        ));
    }
    let setting = setting(common, what)?;
    if common.watch {
        return watch::execute(&contenders, &setting, &threads(common, &setting.machine)?);
    }
    let points = compare(&contenders, &setting, &threads(common, &setting.machine)?)?;
    report::show(&points, &setting, common)?;
    Ok(ExitCode::SUCCESS)
}

fn setting(common: &SimCommon, what: &Sim) -> Result<Setting, Failure> {
    let faults = match what {
        Sim::Ycsb(args) => ycsb::faults(args)?,
        _ => Vec::new(),
    };
    Ok(Setting {
        machine: machines::named(&common.machine)?,
        placement: if common.pin == Pin::Spread { Placement::Spread } else { Placement::Fill },
        warm_ns: common.warm * 1000,
        measured_ns: common.micros * 1000,
        seed: common.seed,
        seeds: common.runs as u64,
        sweep: common.sweep,
        faults,
    })
}

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

fn compare(contenders: &[Contender], setting: &Setting, threads: &[usize]) -> Result<Vec<Point>, Failure> {
    let mut points = Vec::new();
    for contender in contenders {
        for &threads in threads {
            let figures = measure::figures(&contender.program, setting, threads)?;
            let (name, workload, cell) = (contender.name.clone(), contender.workload.clone(), contender.cell.clone());
            points.push(Point { name, workload, cell, threads, figures });
        }
    }
    Ok(points)
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
