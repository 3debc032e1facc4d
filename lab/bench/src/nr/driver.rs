//! What one thread does to one method: the operations, and the work beside them.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::methods::{Method, Session};
use super::structures::Op;
use crate::harness::driver::{Drive, Native};
use crate::harness::program::{Done, Turns};
use crate::workload::{Distribution, Sampler};

/// Operations of a thread, made before the measurement and gone through again and again.
const STREAM: usize = 1 << 15;
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
    pub fn stream(&self, thread: usize) -> Vec<Op> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ (thread as u64 + 1) << 32);
        // Not scattered: popular keys are neighbours, as in the paper.
        let sampler = self.key_space.map(|keys| Sampler::new(self.distribution, keys));
        let key = |rng: &mut SmallRng| match sampler {
            // In the width of keys, which decides about what a seed gives.
            Some(Sampler::Uniform(keys)) => rng.random_range(0..keys as u64),
            Some(sampler) => sampler.draw(rng) as u64,
            None => rng.random(),
        };
        let op = |_| {
            let key = key(&mut rng);
            match rng.random_range(0..100) {
                dice if dice >= self.update_percent => Op::Read(key),
                _ if rng.random() => Op::Add(key),
                _ => Op::Remove(key),
            }
        };
        (0..STREAM).map(op).collect()
    }

    /// The operations of each thread.
    pub fn streams(&self, threads: usize) -> Vec<Vec<Op>> {
        (0..threads).map(|thread| self.stream(thread)).collect()
    }
}

/// A method with the operations of every thread.
pub struct Driven<'a, M> {
    pub method: &'a M,
    pub streams: &'a [Vec<Op>],
    pub external_work: usize,
}

impl<M: Method> Drive for Driven<'_, M> {
    fn body(&self, turns: &mut Native<'_>) {
        if !Native::EXISTS {
            return;
        }
        let mut session = self.method.session();
        let stream: &[Op; STREAM] = self.streams[turns.thread()].as_slice().try_into().expect("it was made so long");
        let mut outside = vec![0_u64; if self.external_work > 0 { OUTSIDE } else { 1 }];
        let mut random = 1_u64;
        let op = |i: usize| {
            session.execute(stream[i % STREAM]);
            Done::Found
        };
        turns.go(usize::MAX, op, || {
            for _ in 0..self.external_work {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                outside[(random >> 40) as usize % OUTSIDE] = random;
            }
        });
        std::hint::black_box(outside);
    }
}
