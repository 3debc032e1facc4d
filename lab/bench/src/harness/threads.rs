//! How many threads a run may have.

use archipelago_platform::thread::{Pinning, available_parallelism};

use super::driver::{self, Drive, Native, Settings};
use super::program::{Done, Turns};
use crate::failure::Failure;

/// The limit on threads: `PER_CPU` for each CPU, but at least `ON_FEW`.
const PER_CPU: usize = 16;
const ON_FEW: usize = 1024;

/// Checks that none of these numbers of threads is above the limit.
///
/// # Errors
/// If one of the numbers is above the limit.
pub fn check(threads: &[usize]) -> Result<(), Failure> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let most = ON_FEW.max(PER_CPU * cpus);
    let refused = |threads: &usize| {
        Failure::new(format!("--threads {threads}: this machine has {cpus} CPUs; more than {most} is refused"))
    };
    threads.iter().find(|threads| **threads > most).map_or(Ok(()), |threads| Err(refused(threads)))
}

/// Checks that the machine can run this many threads at once, by starting them without work. Called before the keys
/// are made, so that no time is spent on keys if the threads cannot be started.
///
/// # Errors
/// If the threads cannot all be started.
pub fn try_to_start(threads: usize) -> Result<(), Failure> {
    driver::run(threads, Settings { pinning: Pinning::None, latency: false, time: None, seed: 1 }, &Nothing).map(drop)
}

/// A workload whose operations do nothing.
struct Nothing;

impl Drive for Nothing {
    fn body(&self, turns: &mut Native<'_>) {
        turns.go(0, |_| Done::Found, || ());
    }
}
