//! How many threads a run may have.

use archipelago_platform::thread::{Pinning, available_parallelism};

use super::driver::{self, Drive, Native, Settings};
use super::program::{Done, Turns};
use crate::failure::Failure;

/// The most threads for each CPU, and the most on a machine of few.
const PER_CPU: usize = 16;
const ON_FEW: usize = 1024;

/// Returns whether these numbers of threads are not far beyond the machine.
///
/// # Errors
/// If one of them is.
pub fn check(threads: &[usize]) -> Result<(), Failure> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let most = ON_FEW.max(PER_CPU * cpus);
    let refused = |threads: &usize| {
        Failure::new(format!("--threads {threads}: this machine has {cpus} CPUs; more than {most} is refused"))
    };
    threads.iter().find(|threads| **threads > most).map_or(Ok(()), |threads| Err(refused(threads)))
}

/// Returns whether this many threads can be there at once, tried by a run of nothing before keys are made for them.
///
/// # Errors
/// If they cannot.
pub fn try_to_start(threads: usize) -> Result<(), Failure> {
    driver::run(threads, Settings { pinning: Pinning::None, latency: false, time: None }, &Nothing).map(drop)
}

/// No work.
struct Nothing;

impl Drive for Nothing {
    fn body(&self, turns: &mut Native<'_>) {
        turns.go(0, |_| Done::Found, || ());
    }
}
