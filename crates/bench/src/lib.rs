//! Workloads, drivers, measurement and reports: the `archipelago` command without its `main` and without peers.
//!
//! Peers come from outside: an adapter implements [`Contender`](contender::Contender) (or [`Method`](method::Method)), a
//! [`Roster`] lists the adapters, and [`run`] takes the roster as a type.

mod args;
mod blink;
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
mod nr;
mod report;
mod resources;
pub mod rivals;
pub mod roster;
mod sets;
mod sim;
mod stats;
mod tour;
mod verify;
mod workload;
mod ycsb;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Bench, Cli, Command};
use failure::Failure;
use roster::Roster;

pub use keys::BenchKey;

/// What a method of `bench nr` must offer.
pub mod method {
    pub use crate::nr::methods::{Method, Session};
    pub use crate::nr::structures::Op;
}

/// The exit code for wrong arguments and everything else that one sentence explains.
const WRONG: u8 = 2;

/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs the command line `args` (the first is the program's name) with the peers of `R` ([`Own`](roster::Own): none).
///
/// `release_memory` makes the program's allocator give free memory back to the system; it is called around
/// measurements of resident memory.
///
/// Returns 0 when all went well, 1 when one of this library's indexes fails the exam, 2 after one sentence on standard
/// error when the arguments or the surroundings do not permit it, 130 when interrupted.
pub fn run<R: Roster>(args: impl IntoIterator<Item = impl Into<OsString> + Clone>, release_memory: fn()) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Also --help and --version, which are errors to clap only; it knows the stream and the code.
        Err(error) => {
            if let Some(line) = one_line(&error) {
                eprintln!("archipelago: {line}");
                return ExitCode::from(WRONG);
            }
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG));
        }
    };
    execute::<R>(&cli, release_memory).unwrap_or_else(|failure| {
        eprintln!("archipelago: {failure}");
        ExitCode::from(WRONG)
    })
}

/// The sentence for an argument that is a number outside of its limits, or none: no help is needed to mend it.
fn one_line(error: &clap::Error) -> Option<String> {
    let text = (error.kind() == clap::error::ErrorKind::ValueValidation).then(|| error.to_string())?;
    Some(text.lines().next()?.trim_start_matches("error: ").to_owned())
}

fn execute<R: Roster>(cli: &Cli, release_memory: fn()) -> Result<ExitCode, Failure> {
    machine::check_environment()?;
    match &cli.command {
        None => tour::run::<R>(release_memory),
        Some(Command::Machine) => {
            println!("{}", machine::describe());
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Sim { what }) => sim::execute(what),
        Some(Command::Bench { what: Bench::Ycsb(args) }) => ycsb::run::<R>(args, release_memory),
        Some(Command::Bench { what: Bench::Nr(args) }) => nr::run::<R>(args, release_memory),
        Some(Command::Bench { what: Bench::Sets(args) }) => sets::run(args),
        Some(Command::Bench { what: Bench::Locks(args) }) => locks::run(args),
        Some(Command::Bench { what: Bench::Blink(args) }) => blink::run(args),
        Some(Command::Bench { what: Bench::Euno(args) }) => euno::run(args),
        Some(Command::Bench { what: Bench::Verify(args) }) => verify::run::<R>(args),
    }
}
