//! Workloads, drivers, measurement and reports: the `archipelago` command as a library, without `main` and without
//! peers (maps by other authors).
//!
//! A caller adds peers: an adapter implements [`BenchIndex`](contender::BenchIndex) (or [`Method`](method::Method)), a
//! [`Roster`] lists the adapters, and [`run`] takes the roster as a type.

// A full or closed stream must not cause a panic: see `output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod blink;
mod cache;
mod calibrate;
mod choose;
pub mod contender;
mod euno;
mod failure;
mod harness;
mod interrupt;
mod keys;
mod locked;
mod locks;
mod machine;
pub mod method;
mod nr;
mod output;
mod ranges;
mod report;
mod resources;
pub mod rivals;
pub mod roster;
#[cfg(not(archipelago_sim))]
mod serve;
mod sets;
mod sim;
mod stats;
mod tour;
mod txn;
mod verify;
mod workload;
mod ycsb;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Bench, Cli, Command};
use failure::Failure;
use harness::simulated::only_native;
use output::{emit, print, tell};
use roster::Roster;

pub use keys::BenchKey;

/// The exit code for wrong arguments, and for other failures that one sentence explains.
const WRONG: u8 = 2;

/// Runs the command line `args` (the first is the program's name) with the peers of `R` ([`Own`](roster::Own): none).
///
/// `release_memory` makes the program's allocator give free memory back to the system; it is called around
/// measurements of resident memory.
///
/// Returns one of these exit codes:
///
/// - 0 on success;
/// - 1 if one of this library's indexes fails the exam; if `--fail-on-slower` is given, and anything is slower or
///   nothing could be compared; or if `sim … --watch` finds accesses that are not announced;
/// - 2, with a message on standard error, if the arguments are wrong or the command fails otherwise;
/// - 130 after Ctrl-C, 143 after SIGTERM, and 129 after SIGHUP.
pub fn run<R: Roster>(args: impl IntoIterator<Item = impl Into<OsString> + Clone>, release_memory: fn()) -> ExitCode {
    let done = match parse::<R>(args) {
        Ok(cli) => execute::<R>(&cli, release_memory),
        Err(error) => explain(&error),
    };
    done.unwrap_or_else(|failure| {
        tell(format!("archipelago: {failure}"));
        ExitCode::from(WRONG)
    })
}

/// Parses the command line. Its help names the indexes that this program has.
fn parse<R: Roster>(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let takes_indexes = |command: clap::Command| command.mut_arg("index", |index| index.help(roster::help::<R>()));
    let command = Cli::command().mut_subcommand("bench", |bench| {
        bench.mut_subcommand("ycsb", takes_indexes).mut_subcommand("verify", takes_indexes)
    });
    Cli::from_arg_matches(&command.try_get_matches_from(args)?)
}

/// Prints the message of the parser of arguments. `--help` and `--version` are errors to the parser, too; the parser
/// knows the stream and the exit code of each.
fn explain(error: &clap::Error) -> Result<ExitCode, Failure> {
    if let Some(line) = one_line(error) {
        return Err(Failure::new(line));
    }
    if error.use_stderr() {
        let _ = error.print();
    } else {
        emit(|_| error.print())?;
    }
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG)))
}

/// Returns a one-line message for an argument whose number is out of limits, and `None` for other errors. The limits in
/// the message are enough to correct the argument, so no help follows.
fn one_line(error: &clap::Error) -> Option<String> {
    let text = (error.kind() == clap::error::ErrorKind::ValueValidation).then(|| error.to_string())?;
    Some(text.lines().next()?.trim_start_matches("error: ").to_owned())
}

fn execute<R: Roster>(cli: &Cli, release_memory: fn()) -> Result<ExitCode, Failure> {
    machine::check_environment()?;
    match &cli.command {
        None => only_native().and_then(|()| tour::run::<R>(release_memory)),
        Some(Command::Machine) => print(machine::describe()).map(|_| ExitCode::SUCCESS),
        Some(Command::Calibrate(args)) => only_native().and_then(|()| calibrate::run(args)),
        #[cfg(not(archipelago_sim))]
        Some(Command::Serve(args)) => serve::run(args),
        #[cfg(archipelago_sim)]
        Some(Command::Serve(_)) => only_native().map(|()| ExitCode::SUCCESS),
        Some(Command::Sim { what }) => sim::execute(what),
        Some(Command::Bench { what: Bench::Verify(args) }) => verify::run::<R>(args),
        Some(Command::Bench { what }) => only_native().and_then(|()| measure::<R>(what, release_memory)),
    }
}

fn measure<R: Roster>(what: &Bench, release_memory: fn()) -> Result<ExitCode, Failure> {
    match what {
        Bench::Ycsb(args) => ycsb::run::<R>(args, release_memory),
        Bench::Nr(args) => nr::run::<R>(args, release_memory),
        Bench::Sets(args) => sets::run(args),
        Bench::Locks(args) => locks::run(args),
        Bench::Blink(args) => blink::run(args),
        Bench::Euno(args) => euno::run(args),
        Bench::Txn(args) => txn::run::<R>(args),
        Bench::Cache(args) => cache::run::<R>(args),
        Bench::Ranges(args) => ranges::run::<R>(args),
        Bench::Verify(args) => verify::run::<R>(args),
    }
}
