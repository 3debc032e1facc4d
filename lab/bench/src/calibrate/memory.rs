//! What memory and caches cost: chains of dependent loads, and streams of many cores.

use std::hint::black_box;
use std::time::Instant;

use archipelago_platform::memory::Array;
use archipelago_platform::topology::CpuId;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::effort::Effort;
use super::pinned::{alone, together};
use super::places::Core;
use crate::failure::Failure;

/// A line whose first word names another one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u32,
}

/// Bytes of a line.
const LINE: usize = size_of::<Line>();

/// What loads depend on each other.
#[derive(Clone, Copy, Debug)]
pub enum Loads {
    /// All: the latency of one, as the literature measures it and the presets have it.
    Endless,
    /// Those of an operation: a core begins the next operation before the loads of the last one are back. As the model makes one
    /// access after the other, an access so costs what it adds to the time of many operations.
    OfOperations,
}

/// Loads of an operation: about as many as a look-up makes.
const OPERATION: u64 = 8;

/// Nanoseconds of a load that waits for the one before, by `reader`, over `bytes` of memory that lie at `home`, in an order that no prefetcher
/// follows. Where the memory is larger than what the processor's address translation covers, misses there are part of it.
///
/// # Errors
/// As [`together`].
pub fn chain(reader: CpuId, home: Core, bytes: usize, loads: Loads, effort: Effort) -> Result<f64, Failure> {
    let lines = (bytes / LINE).max(2);
    let buffer = alone(home.cpu, || ring(lines, home))?;
    let turns = (lines as u64 * 2).clamp(100_000, 400_000);
    let walk = || {
        let mut rng = SmallRng::seed_from_u64(7);
        let (mut at, mut ends) = (0_u32, 0_u32);
        let time = effort.time(turns, |turn| {
            if matches!(loads, Loads::OfOperations) && turn.is_multiple_of(OPERATION) {
                ends ^= at;
                at = rng.random_range(0..lines as u32);
            }
            at = buffer[at as usize].next;
        });
        black_box((at, ends));
        time
    };
    alone(reader, walk)
}

/// Lines in a ring, in random order, touched first by the calling thread.
fn ring(lines: usize, home: Core) -> Array<Line> {
    let mut order: Vec<u32> = (1..lines as u32).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(7));
    let mut buffer = flat(lines, home);
    let mut at = 0;
    for next in order {
        buffer[at as usize].next = next;
        at = next;
    }
    buffer
}

fn flat(lines: usize, home: Core) -> Array<Line> {
    let mut buffer = Array::with_capacity(lines, Some(home.node));
    buffer.extend_with(Line { next: 0 }, lines);
    buffer
}

/// Nanoseconds from one line to the next, whoever gets it, while each of these CPUs reads `bytes` of memory at `home` from
/// end to end.
///
/// # Errors
/// As [`together`].
pub fn stream(cpus: &[CpuId], home: Core, bytes: usize, effort: Effort) -> Result<f64, Failure> {
    let lines = (bytes / LINE).max(1);
    let buffers: Vec<Array<Line>> = alone(home.cpu, || cpus.iter().map(|_| flat(lines, home)).collect())?;
    effort.least(|_| {
        let read = |thread: usize| {
            let start = Instant::now();
            black_box(buffers[thread].iter().fold(0_u32, |sum, line| sum.wrapping_add(line.next)));
            start.elapsed().as_nanos() as f64
        };
        let longest = together(cpus, read)?.into_iter().fold(0.0, f64::max);
        Ok(longest / (lines * cpus.len()) as f64)
    })
}
