//! The costs of memory and caches: chains of dependent loads, and sequential reads by many cores.

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

/// A cache line whose first word is the index of the next line of a chain.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u32,
}

/// Bytes of a line.
const LINE: usize = size_of::<Line>();

/// Which loads of a chain depend on each other.
#[derive(Clone, Copy, Debug)]
pub enum Loads {
    /// All loads. The result is the latency of one load, as the literature measures it and the presets contain it.
    Endless,
    /// Only the loads of one operation: a core begins the next operation before the previous one's loads are complete.
    /// The result is the time that one load adds to many operations. The model needs this time when it is compared with
    /// native runs, since it makes one access after the other.
    OfOperations,
}

/// The number of loads of an operation: about as many as an index makes for a look-up.
const OPERATION: u64 = 8;

/// Returns the nanoseconds of a load by `reader` that waits for the previous load (see [`Loads`]). The loads are from
/// `bytes` of memory at `home`, in random order, which no prefetcher predicts. If the memory is larger than the
/// translation look-aside buffers cover, their misses are part of the time.
///
/// # Errors
/// As [`together`].
pub fn chain(reader: CpuId, home: Core, bytes: usize, loads: Loads, effort: Effort) -> Result<f64, Failure> {
    let lines = (bytes / LINE).max(2);
    let buffer = alone(home.cpu, || ring(lines, 1, home))?;
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

/// The number of lines of a group of neighbours, as in a node of an index.
pub const GROUP: usize = 16;

/// Returns the nanoseconds that a core takes for all lines of a group of [`GROUP`] neighbouring lines. The groups are
/// in `bytes` of memory at `home`, in random order; a group's address depends on all lines of the group before it.
///
/// # Errors
/// As [`together`].
pub fn neighbours(home: Core, bytes: usize, effort: Effort) -> Result<f64, Failure> {
    let groups = (bytes / LINE / GROUP).max(2);
    alone(home.cpu, || {
        let buffer = ring(groups, GROUP, home);
        let mut at = 0_u32;
        let time = effort.time((groups as u64 * 2).clamp(50_000, 200_000), |_| {
            let group = &buffer[at as usize..][..GROUP];
            at = group.iter().fold(0, |next, line| next ^ line.next);
        });
        black_box(at);
        time
    })
}

/// Returns groups of neighbouring lines. The groups' first lines are linked into a ring in random order, and the others
/// lead nowhere. The calling thread touches them first, which places them in its node's memory.
fn ring(groups: usize, lines: usize, home: Core) -> Array<Line> {
    let mut order: Vec<u32> = (1..groups as u32).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(7));
    let mut buffer = flat(groups * lines, home);
    let mut at = 0;
    for next in order.into_iter().map(|group| group * lines as u32) {
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

/// Returns the nanoseconds between successive lines that arrive at any of these CPUs, while each CPU reads its own
/// `bytes` of memory at `home` sequentially.
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
