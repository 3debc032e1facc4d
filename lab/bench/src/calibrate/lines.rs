//! The costs of one cache line that several cores use: transfers between two cores, reads by many cores, and increments
//! by many cores.

use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::thread;
use std::time::Instant;

use archipelago_platform::topology::CpuId;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::effort::Effort;
use super::pinned::{Apart, spin_until, together};
use crate::failure::Failure;
use crate::stats;

/// Returns the nanoseconds of one transfer of a line that two cores exchange by compare-and-exchange (half a round
/// trip).
///
/// # Errors
/// As [`together`].
pub fn ping_pong(cpus: [CpuId; 2], effort: Effort) -> Result<f64, Failure> {
    let turns = effort.turns(20_000);
    effort.least(|_| {
        let word = Apart::default();
        let body = |thread: usize| {
            for turn in 0..turns {
                let mine = 2 * turn + thread as u64;
                let mut patience = 0_u32;
                while word.0.compare_exchange(mine, mine + 1, SeqCst, Relaxed).is_err() {
                    patience += 1;
                    if patience.is_multiple_of(10_000) {
                        thread::yield_now();
                    }
                }
            }
        };
        Ok(longest(&cpus, body)? / (2 * turns) as f64)
    })
}

/// Returns the nanoseconds between successive increments of one line, by any of these CPUs, while all of them increment
/// the line without pause.
///
/// # Errors
/// As [`together`].
pub fn increments(cpus: &[CpuId], effort: Effort) -> Result<f64, Failure> {
    let turns = effort.turns(500_000 / cpus.len() as u64).max(1000);
    effort.least(|_| {
        let word = Apart::default();
        let time = longest(cpus, |_| (0..turns).for_each(|_| _ = word.0.fetch_add(1, Relaxed)))?;
        Ok(time / (turns * cpus.len() as u64) as f64)
    })
}

/// Runs `body` on all of these CPUs, and returns the time of the slowest in nanoseconds.
fn longest(cpus: &[CpuId], body: impl Fn(usize) + Sync) -> Result<f64, Failure> {
    let timed = |thread| {
        let start = Instant::now();
        body(thread);
        start.elapsed().as_nanos() as f64
    };
    Ok(together(cpus, timed)?.into_iter().fold(0.0, f64::max))
}

/// Returns the median nanoseconds from a store by the first CPU until the last of the other CPUs, which spin on the
/// line, has seen the store.
///
/// # Errors
/// As [`together`].
pub fn broadcast(cpus: &[CpuId], effort: Effort) -> Result<f64, Failure> {
    let rounds = effort.turns(2_000).max(50);
    let (word, start) = (Apart::default(), Instant::now());
    let seen: Vec<[Apart; 2]> = cpus.iter().map(|_| Default::default()).collect();
    let now = || start.elapsed().as_nanos() as u64;
    let write = |round: u64| {
        let begin = now();
        word.0.store(round, Release);
        let when = |[at, of]: &[Apart; 2]| {
            spin_until(|| of.0.load(Acquire) == round);
            at.0.load(Relaxed)
        };
        seen[1..].iter().map(when).max().unwrap_or(begin).saturating_sub(begin) as f64
    };
    let body = |thread: usize| -> Vec<f64> {
        if thread == 0 {
            return (1..=rounds).map(write).collect();
        }
        let [at, of] = &seen[thread];
        for round in 1..=rounds {
            spin_until(|| word.0.load(Acquire) == round);
            at.0.store(now(), Relaxed);
            // Release: the writer sees this round's time once it sees the round's number.
            of.0.store(round, Release);
        }
        Vec::new()
    };
    let times = together(cpus, body)?.remove(0);
    Ok(stats::median(&times).expect("there are rounds"))
}

/// A cache line that contains the index of the next one.
#[repr(align(64))]
struct Link(AtomicU64);

/// Returns the nanoseconds in which the first CPU reads a line that the second CPU has written and the third CPU has
/// read since. The second and the third CPU share a third-level cache. The result is the least mean of a round's 512
/// dependent loads.
///
/// # Errors
/// As [`together`].
pub fn unchanged(cpus: [CpuId; 3], effort: Effort) -> Result<f64, Failure> {
    const LINES: usize = 512;
    let mut order: Vec<usize> = (1..LINES).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(7));
    let links: Vec<Link> = (0..LINES).map(|_| Link(AtomicU64::new(0))).collect();
    let mut at = 0;
    for next in order {
        links[at].0.store(next as u64, Relaxed);
        at = next;
    }
    let (phase, rounds) = (Apart::default(), effort.turns(200).max(5));
    // Each thread's position within a round: the second thread writes, then the third reads, then the first reads and
    // measures.
    let turn_of = [2, 0, 1];
    let body = |thread: usize| {
        let mut least = f64::INFINITY;
        for round in 0..rounds {
            let mine = 3 * round + turn_of[thread];
            spin_until(|| phase.0.load(Acquire) == mine);
            match thread {
                1 => links.iter().for_each(|link| link.0.store(link.0.load(Relaxed), Relaxed)),
                2 => links.iter().for_each(|link| _ = black_box(link.0.load(Relaxed))),
                _ => {
                    let (start, mut at) = (Instant::now(), 0);
                    (0..LINES).for_each(|_| at = links[at].0.load(Relaxed) as usize);
                    black_box(at);
                    least = least.min(start.elapsed().as_nanos() as f64 / LINES as f64);
                }
            }
            // The stores have left the store buffer before the next thread begins.
            fence(SeqCst);
            phase.0.store(mine + 1, Release);
        }
        least
    };
    Ok(together(&cpus, body)?.remove(0))
}
