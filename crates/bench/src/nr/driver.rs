//! Runs one method on one workload for a fixed time, and counts.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread::{self, Pinning};
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::topology::{CpuId, Topology};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use super::methods::{Method, Session};
use super::structures::Op;
use crate::driver::{Outcome, histogram};
use crate::failure::Failure;
use crate::resources;
use crate::workload::Distribution;

/// Operations of a thread, made before the measurement and gone through again and again.
const STREAM: usize = 1 << 15;
/// Operations between two looks at the clock's flag.
const CHUNK: usize = 16;
/// Words that the external work writes to: a mebibyte, more than a core's own cache often has.
const OUTSIDE: usize = 1 << 17;

/// What all threads of a run do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub update_percent: u32,
    pub distribution: Distribution,
    /// Random words written between two operations.
    pub external_work: usize,
    /// Keys to choose from; `None` for all there are.
    pub key_space: Option<usize>,
    pub seed: u64,
}

impl Load {
    /// The operations of one thread: as many that add as that remove.
    pub fn stream(&self, thread: usize) -> Result<Vec<Op>, Failure> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ (thread as u64 + 1) << 32);
        let zipf = match (self.distribution, self.key_space) {
            (Distribution::Uniform, _) | (_, None) => None,
            // Not scattered: popular keys are neighbours, as in the paper.
            (Distribution::Zipf(s), Some(keys)) => Some(Zipf::new(keys as f64, s).expect("a positive exponent")),
            (Distribution::Latest, _) => return Err(Failure::new("bench nr knows no --distribution latest")),
        };
        let key = |rng: &mut SmallRng| match (zipf, self.key_space) {
            (Some(zipf), _) => zipf.sample(rng) as u64 - 1,
            (None, Some(keys)) => rng.random_range(0..keys as u64),
            (None, None) => rng.random(),
        };
        let op = |_| {
            let key = key(&mut rng);
            match rng.random_range(0..100) {
                dice if dice >= self.update_percent => Op::Read(key),
                _ if rng.random() => Op::Add(key),
                _ => Op::Remove(key),
            }
        };
        Ok((0..STREAM).map(op).collect())
    }
}

/// Lets `streams.len()` threads work for `duration`.
pub fn run<'s, M: Method>(
    method: &M,
    streams: &'s [Vec<Op>],
    external_work: usize,
    duration: Duration,
    latency: bool,
    pinning: Pinning,
) -> Outcome {
    let cpus = pinning.assign(Topology::current(), streams.len());
    let (stop, barrier) = (&AtomicBool::new(false), &Barrier::new(streams.len() + 1));
    let cpu_before = resources::cpu_time();
    let (tallies, wall) = thread::scope(|scope| {
        let start = |(stream, cpu): (&'s Vec<Op>, Option<CpuId>)| {
            scope.spawn(move || {
                if let Some(cpu) = cpu {
                    // Unpinned, it is measured where it happens to run.
                    let _ = thread::pin_current(cpu);
                }
                let mut session = method.session();
                barrier.wait();
                serve(&mut session, stream, external_work, latency, stop)
            })
        };
        let threads: Vec<_> = streams.iter().zip(cpus).map(start).collect();
        barrier.wait();
        let begin = Instant::now();
        thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let wall = begin.elapsed();
        let tallies: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect();
        (tallies, wall)
    });
    let cpu = resources::cpu_time().zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let mut outcome = Outcome { ops: 0, wall, cpu, misses: 0, latency: latency.then(histogram), complete: true };
    for (ops, one) in tallies {
        outcome.ops += ops;
        if let (Some(all), Some(one)) = (&mut outcome.latency, one) {
            all.add(one).expect("histograms of one shape add up");
        }
    }
    outcome
}

fn serve(
    session: &mut impl Session,
    stream: &[Op],
    external_work: usize,
    latency: bool,
    stop: &AtomicBool,
) -> (usize, Option<Histogram<u64>>) {
    let mut times = latency.then(histogram);
    let mut outside = vec![0_u64; if external_work > 0 { OUTSIDE } else { 1 }];
    let (mut ops, mut random) = (0, 1_u64);
    for chunk in stream.chunks(CHUNK).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for &op in chunk {
            match &mut times {
                None => session.execute(op),
                Some(times) => {
                    let begin = Instant::now();
                    session.execute(op);
                    times.saturating_record(begin.elapsed().as_nanos() as u64);
                }
            }
            for _ in 0..external_work {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 40) as usize % OUTSIDE;
                outside[at] = random;
            }
        }
        ops += chunk.len();
    }
    std::hint::black_box(outside);
    (ops, times)
}
