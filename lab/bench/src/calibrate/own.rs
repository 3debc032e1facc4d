//! The costs of instructions on one core, and the operating system's costs of blocking.

use std::hint::{black_box, spin_loop};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use archipelago_platform::topology::CpuId;

use super::effort::Effort;
use super::pinned::{Apart, alone, spin_until, together};
use crate::failure::Failure;
use crate::stats;

/// Times of one thread that shares nothing with others, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// A locked increment of a line that is in the core's first-level cache.
    pub increment: f64,
    /// A store and a full fence.
    pub fence: f64,
    /// A turn of a spin loop.
    pub pause: f64,
    /// Reading the clock.
    pub clock: f64,
    /// Yielding while no other thread waits for the processor.
    pub call: f64,
}

/// Measures these times on one CPU.
///
/// # Errors
/// As [`together`].
pub fn own(cpu: CpuId, effort: Effort) -> Result<Own, Failure> {
    alone(cpu, || {
        let word = Apart::default();
        Own {
            increment: effort.time(200_000, |_| _ = word.0.fetch_add(1, Relaxed)),
            fence: effort.time(200_000, |turn| {
                word.0.store(turn, Relaxed);
                fence(SeqCst);
            }),
            pause: effort.time(20_000, |_| spin_loop()),
            clock: effort.time(100_000, |_| _ = black_box(Instant::now())),
            call: effort.time(20_000, |_| thread::yield_now()),
        }
    })
}

/// Returns the factor by which a hardware thread is slower while the core's other hardware thread works too. The work
/// is four chains of multiplications and first-level loads.
///
/// # Errors
/// As [`together`].
pub fn slowdown(threads: [CpuId; 2], effort: Effort) -> Result<f64, Failure> {
    let table: Vec<u64> = (0..256).map(|k| k * 0x9E37_79B9_7F4A_7C15).collect();
    let work = |_| {
        let mut chains = [1_u64, 2, 3, 4];
        let time = effort.time(400_000, |_| {
            for chain in &mut chains {
                *chain = chain.wrapping_mul(0xD129_0DDB_53C4_3E49) ^ table[(*chain >> 56) as usize];
            }
        });
        black_box(chains);
        time
    };
    let by_itself = together(&threads[..1], work)?[0];
    Ok(together(&threads, work)?.into_iter().fold(0.0, f64::max) / by_itself)
}

/// Returns the median nanoseconds from just before the call that wakes a parked thread until the parked thread runs
/// again.
///
/// # Errors
/// As [`together`].
pub fn wake(cpus: [CpuId; 2], effort: Effort) -> Result<f64, Failure> {
    /// The time after which a thread that is about to park is taken to be asleep.
    const ASLEEP: Duration = Duration::from_micros(50);
    let rounds = effort.turns(400).max(20);
    let (sleeper, [parked, called, at], start) = (OnceLock::new(), <[Apart; 3]>::default(), Instant::now());
    let now = || start.elapsed().as_nanos() as u64;
    let call = |round| {
        spin_until(|| parked.0.load(Acquire) == round);
        thread::sleep(ASLEEP);
        at.0.store(now(), Relaxed);
        // Release: the sleeper sees this round's time once it sees the round's number. The release store of `parked`
        // below does the same for the sleeper's handle.
        called.0.store(round, Release);
        sleeper.get().map(Thread::unpark);
    };
    let sleep = |round| {
        sleeper.get_or_init(thread::current);
        parked.0.store(round, Release);
        // `park` may return spuriously.
        while called.0.load(Acquire) < round {
            thread::park();
        }
        (now() - at.0.load(Relaxed)) as f64
    };
    let body = |thread: usize| -> Vec<f64> {
        match thread {
            0 => (1..=rounds).map(sleep).collect(),
            _ => {
                (1..=rounds).for_each(call);
                Vec::new()
            }
        }
    };
    let times = together(&cpus, body)?.remove(0);
    Ok(stats::median(&times).expect("there are rounds"))
}
