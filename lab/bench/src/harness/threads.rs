//! How many threads a run may have, and how one is started.

use archipelago_platform::thread::{Builder, Pinning, Scope, ScopedJoinHandle, available_parallelism};

use super::driver::{self, Drive, Native, Settings};
use super::program::{Done, Turns};
use crate::failure::Failure;
use crate::resources;

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

/// What must be left of the address space when a thread is started: more than its stack and its allocator's first segment need. A
/// thread that has no room for what it makes of itself ends the process.
const ROOM: usize = 128 << 20;

/// Starts a thread of a scope.
///
/// # Errors
/// If the operating system refuses, or there would be next to no room left.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Failure> {
    let refused = |why| Failure::new(format!("a thread cannot be started: {why}; try fewer --threads"));
    if !resources::has_room(ROOM) {
        return Err(refused("there is no room for another in the address space".to_owned()));
    }
    Builder::new().spawn_scoped(scope, body).map_err(|error| refused(error.to_string()))
}
