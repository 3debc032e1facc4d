//! `sim … --watch`: which shared memory an experiment's programs use plainly without announcing it, and so for nothing.

use std::process::ExitCode;

use archipelago_sim::{Config, Unannounced};

use super::Contender;
use super::measure::Setting;
use crate::failure::Failure;

/// Lines that may be read without announcement if nothing changes them: so few stay in every core's first-level cache.
const FEW: usize = 64;
/// Accesses of a thread that don't matter: those of its start and its end.
const ONCE: u64 = 4;

/// Runs each contender once with each number of threads and prints what it found; fails if it found anything that
/// changes, or much that is only read.
///
/// # Errors
/// If a run does not end well.
pub fn execute(contenders: &[Contender], setting: &Setting, threads: &[usize]) -> Result<ExitCode, Failure> {
    let mut good = true;
    for contender in contenders {
        for &threads in threads {
            let found = found(contender, setting, threads)?;
            println!("{} {} with {threads} threads: {} places", contender.workload, contender.name, found.len());
            for place in &found {
                let (kind, lines) = (if place.writes { "writes" } else { "reads" }, place.lines);
                let changing = if place.changing { "changing" } else { "unchanging" };
                println!("  {kind} {lines} {changing} lines {} times: {}", place.accesses, place.place);
            }
            good &= found.is_empty();
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What one contender forgets to announce.
///
/// # Errors
/// If the run does not end well.
pub fn found(contender: &Contender, setting: &Setting, threads: usize) -> Result<Vec<Unannounced>, Failure> {
    let config = Config { watch: true, ..setting.config() };
    let run = (contender.program)(&setting.machine, &config, setting, threads)?;
    let matters = |place: &Unannounced| place.accesses > ONCE * threads as u64 && (place.changing || place.lines > FEW);
    Ok(run.unannounced.into_iter().filter(matters).collect())
}
