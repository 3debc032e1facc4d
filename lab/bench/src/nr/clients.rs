//! What threads do to a method, on either machine: operations, and the work beside them.

use std::hint::black_box;
use std::sync::OnceLock;

use archipelago_platform::pad::CachePadded;
use archipelago_platform::{SIMULATED, touch_mut};
use archipelago_sim::world;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::structures::Measured;
use crate::harness::program::{Dice, Done, Program, Turns};
use crate::method::{Method, Op, Session};
use crate::workload::{Distribution, Sampler};

/// Operations of a thread, made before the measurement and gone through again and again.
const STREAM: usize = 1 << 15;
/// Words that the external work writes to: a mebibyte, more than a core's own cache often has.
const OUTSIDE: usize = 1 << 17;

/// What all threads of a run do, and to what.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Items in the structure.
    pub items: usize,
    pub update_percent: u32,
    pub distribution: Distribution,
    /// Random words written between two operations.
    pub external_work: usize,
    /// Replicas of node replication; `None` for one per NUMA node.
    pub replicas: Option<usize>,
}

impl Load {
    /// The operations of one thread: as many that add as that remove. Keys are below `key_space`, if there is one.
    fn stream(&self, key_space: Option<usize>, thread: usize, seed: u64) -> Vec<Op> {
        let mut rng = SmallRng::seed_from_u64(seed ^ (thread as u64 + 1) << 32);
        // Not scattered: popular keys are neighbours, as in the paper.
        let sampler = key_space.map(|keys| Sampler::new(self.distribution, keys));
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
}

/// Makes a method, of structures that the function makes.
pub type Make<T, M> = fn(&Load, &(dyn Fn() -> T + Sync)) -> M;

/// Threads that do operations by a method to structures of a type.
pub struct Clients<T, M> {
    load: Load,
    make: Make<T, M>,
    /// On the virtual machine, what the structures of all runs are copied from. Outside of these, and so not behind the door.
    first: OnceLock<T>,
}

/// A method with the operations of every thread.
pub struct Shared<M> {
    pub method: M,
    /// On no line of the method, which operations change.
    pub streams: CachePadded<Vec<Vec<Op>>>,
}

impl<T: Measured, M: Method> Clients<T, M> {
    pub fn new(load: Load, make: Make<T, M>) -> Self {
        Clients { load, make, first: OnceLock::new() }
    }

    /// The method, filled.
    pub fn method(&self) -> M {
        let items = self.load.items;
        (self.make)(&self.load, &|| {
            if !SIMULATED {
                return T::filled(items);
            }
            let first = self.first.get_or_init(|| world::outside(|| T::filled(items)));
            // Replicas are made in threads of their own.
            world::untimed(|| first.copy(items))
        })
    }

    /// The operations of each thread.
    pub fn streams(&self, threads: usize, seed: u64) -> Vec<Vec<Op>> {
        let keys = T::key_space(self.load.items);
        (0..threads).map(|thread| self.load.stream(keys, thread, seed)).collect()
    }
}

impl<T: Measured, M: Method> Program for Clients<T, M> {
    type Shared = Shared<M>;

    fn setup(&self, threads: usize, seed: u64) -> Shared<M> {
        Shared { method: self.method(), streams: CachePadded::new(self.streams(threads, seed)) }
    }

    fn body(&self, shared: &Shared<M>, turns: &mut impl Turns) {
        let (mut session, work) = (shared.method.session(), self.load.external_work);
        let stream: &[Op; STREAM] = shared.streams[turns.thread()].as_slice().try_into().expect("it was made so long");
        let (mut outside, dice) = (vec![0; if work > 0 { OUTSIDE } else { 0 }], Dice::of(turns.thread()));
        let op = |i: usize| {
            session.execute(stream[i % STREAM]);
            Done::Found
        };
        turns.go(usize::MAX, op, || {
            for _ in 0..work {
                let random = dice.roll();
                let word: &mut u64 = &mut outside[random as usize % OUTSIDE];
                touch_mut(&raw const *word, size_of::<u64>());
                *word = random;
            }
        });
        black_box(outside);
    }
}
