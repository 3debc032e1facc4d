//! Threads that stay on their CPUs and begin together.
//!
//! The measurements use the atomics of `std` in every build. In a build for the virtual machine (a simulator), the
//! platform crate's atomics check at each access whether they run in a simulation. The check takes time, and no
//! measurement runs in a simulation.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use archipelago_platform::thread::pin_current;
use archipelago_platform::topology::CpuId;

use crate::failure::Failure;

/// A word that is alone in its cache line and in the adjacent line, which processors may prefetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart(pub AtomicU64);

/// Spins until `so` returns true. It yields once per 10 000 turns, in case the thread for which it waits shares its
/// processor.
pub fn spin_until(so: impl Fn() -> bool) {
    let mut turns = 0_u32;
    while !so() {
        spin_loop();
        turns += 1;
        if turns.is_multiple_of(10_000) {
            thread::yield_now();
        }
    }
}

/// Starts a thread on each of these CPUs. All threads run `body` at the same time, each with its index in `cpus`.
/// Returns the results in the order of `cpus`.
///
/// # Errors
/// If a thread cannot be started or pinned to its CPU. Then no `body` runs.
pub fn together<R: Send>(cpus: &[CpuId], body: impl Fn(usize) -> R + Sync) -> Result<Vec<R>, Failure> {
    let (here, failure) = (AtomicUsize::new(0), OnceLock::new());
    // A thread that could not be started or pinned counts as arrived, too; otherwise the others would wait for it
    // forever.
    let arrive = |pinned: Result<(), String>| {
        let _ = pinned.map_err(|what| failure.set(what));
        // Release, paired with the acquire load below: a thread that sees the full count sees every failure.
        here.fetch_add(1, Ordering::Release);
    };
    let run = |number: usize| -> Result<R, Failure> {
        let cpu = cpus[number];
        arrive(pin_current(cpu).map_err(|error| format!("cannot pin a thread to CPU {}: {error}", cpu.0)));
        spin_until(|| here.load(Ordering::Acquire) == cpus.len());
        match failure.get() {
            None => Ok(body(number)),
            Some(what) => Err(Failure::new(what.as_str())),
        }
    };
    let run = &run;
    thread::scope(|scope| {
        let start = |number| {
            let started = thread::Builder::new().spawn_scoped(scope, move || run(number));
            started.map_err(|error| arrive(Err(format!("cannot start a thread: {error}"))))
        };
        // If a thread could not be started, `failure` is set, and no other thread runs `body`.
        let threads: Vec<_> = (0..cpus.len()).filter_map(|number| start(number).ok()).collect();
        let all: Result<Vec<R>, Failure> =
            threads.into_iter().map(|thread| thread.join().expect("a measurement does not panic")).collect();
        match failure.get() {
            None => all,
            Some(what) => Err(Failure::new(what.as_str())),
        }
    })
}

/// As [`together`], with one thread.
///
/// # Errors
/// As [`together`].
pub fn alone<R: Send>(cpu: CpuId, body: impl Fn() -> R + Sync) -> Result<R, Failure> {
    Ok(together(&[cpu], |_| body())?.remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_one_cannot_be_pinned_none_begins() {
        let begun = AtomicUsize::new(0);
        let here = archipelago_platform::topology::Topology::current().cpus()[0].id;
        let both = together(&[here, CpuId(8000)], |_| begun.fetch_add(1, Ordering::Relaxed));
        let failure = both.unwrap_err().to_string();
        assert!(failure.starts_with("cannot pin a thread to CPU 8000: ") && begun.into_inner() == 0, "{failure}");
        assert_eq!(together(&[here, here], |number| number).unwrap(), [0, 1]);
    }
}
