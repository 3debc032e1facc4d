//! `sim`: experiments on the virtual machine (a simulator). They run only in the build for the virtual machine (`cargo
//! sim …`), but are compiled in every build, so that ordinary checks include them.
//!
//! An experiment is a list of [`Contender`]s: programs that differ in one thing. [`compare`] runs each contender with
//! each number of threads. A [`Sink`] takes each row when it is complete, and [`report`] shows the results.

mod experiment;
mod host;
mod limits;
mod machines;
mod measure;
mod papers;
mod report;
mod row;
mod sink;
mod watch;

use std::process::ExitCode;

use archipelago_sim::Machine;

use crate::args::Sim;
use crate::failure::Failure;
use crate::harness::Progress;
use crate::harness::simulated::{self, Contender, Setting, only_simulated};
use crate::interrupt;
use crate::output::print;
use experiment::{contenders, setting, threads};
use sink::Sink;

/// Runs a `sim` command.
///
/// # Errors
/// If the arguments make no sense, this is not the build for the virtual machine, or a run ends badly.
pub fn execute(what: &Sim) -> Result<ExitCode, Failure> {
    match what {
        Sim::Machines { name, example } => {
            let text = if *example { Machine::EXAMPLE.to_owned() } else { machines::describe(name.as_deref())? };
            print(text.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Host => {
            host::run()?;
            return Ok(ExitCode::SUCCESS);
        }
        Sim::Papers(args) => return papers::execute(args),
        _ => {}
    }
    let common = experiment::common(what)?;
    only_simulated()?;
    let setting = setting(common, what)?;
    let threads = threads(common, &setting.machine)?;
    limits::check(what, &setting.machine, threads.iter().copied().max().unwrap_or(1))?;
    let contenders = contenders(what)?;
    interrupt::install();
    if common.watch {
        return watch::execute(&contenders, &setting, &threads);
    }
    let mut sink = Sink::open(common, &setting)?;
    // The complete rows are shown even if the rest fails.
    let progress = Progress::new();
    progress.steps(contenders.len() * threads.len());
    let outcome = compare(&contenders, &setting, &threads, &mut sink, &progress);
    progress.end();
    let compared = sink.finish(&setting, !matches!(outcome, Ok(true)))?;
    let interrupted = !outcome? && interrupt::requested();
    Ok(if interrupted { interrupt::exit_code() } else { compared })
}

/// Runs each contender with each number of threads. Returns false if it was interrupted, or if the reader has closed
/// standard output.
fn compare(
    contenders: &[Contender],
    setting: &Setting,
    threads: &[usize],
    sink: &mut Sink,
    progress: &Progress,
) -> Result<bool, Failure> {
    for contender in contenders {
        for &threads in threads {
            progress.say(format!("{}: {}, {threads} threads", contender.cell.column(), contender.name));
            let row = match sink.done(contender, threads, setting) {
                Some(row) => (row, false),
                None => match simulated::figures(contender, setting, threads)? {
                    Some(figures) => (row::row(contender, threads, &figures, setting), true),
                    None => return Ok(false),
                },
            };
            progress.step();
            if !sink.take(row.0, row.1)? || interrupt::requested() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
use archipelago_platform::SIMULATED;

#[cfg(all(test, target_os = "linux"))]
mod branched;
#[cfg(test)]
mod smoke;
#[cfg(test)]
mod tests;
