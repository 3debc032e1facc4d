//! The threads that use a method, on either machine: their operations, and the external work between operations.

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

/// Operations of a thread. They are made before the measurement, and the thread repeats them.
const STREAM: usize = 1 << 15;
/// Words that the external work writes: one mebibyte, more than many cores' private caches hold.
const OUTSIDE: usize = 1 << 17;

/// The parameters of a run, which all of its threads share.
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
    /// Returns the operations of one thread. Additions and removals are equally frequent. Keys are below `key_space`,
    /// if it is given.
    fn stream(&self, key_space: Option<usize>, thread: usize, seed: u64) -> Vec<Op> {
        let mut rng = SmallRng::seed_from_u64(seed ^ (thread as u64 + 1) << 32);
        // Keys are not scattered: popular keys are neighbours, as in the paper.
        let sampler = key_space.map(|keys| Sampler::new(self.distribution, keys));
        let key = |rng: &mut SmallRng| match sampler {
            // The key is drawn as a `u64`, the type of the keys, since another type would give other numbers for the
            // same seed.
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

/// Makes a method over structures; the function argument makes each structure.
pub type Make<T, M> = fn(&Load, &(dyn Fn() -> T + Sync)) -> M;

/// Threads that run operations on a structure of type `T`, which the method `M` makes concurrent.
pub struct Clients<T, M> {
    load: Load,
    make: Make<T, M>,
    /// On the virtual machine (a simulator): a structure that is made once, and from which the structures of each run
    /// are copied. It is made outside of the runs, so its memory is not simulated.
    first: OnceLock<T>,
}

/// A method, and the operations of every thread.
pub struct Shared<M> {
    pub method: M,
    /// The operations have cache lines of their own, since running them writes the method's cache lines.
    pub streams: CachePadded<Vec<Vec<Op>>>,
}

impl<T: Measured, M: Method> Clients<T, M> {
    pub fn new(load: Load, make: Make<T, M>) -> Self {
        Clients { load, make, first: OnceLock::new() }
    }

    /// Returns the method over a filled structure.
    pub fn method(&self) -> M {
        let items = self.load.items;
        (self.make)(&self.load, &|| {
            if !SIMULATED {
                return T::filled(items);
            }
            let first = self.first.get_or_init(|| world::outside(|| T::filled(items)));
            // Each replica is made in a thread of its own, in which virtual time passes. So each copy is made without
            // virtual time.
            world::untimed(|| first.copy(items))
        })
    }

    /// Returns the operations of each thread.
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
