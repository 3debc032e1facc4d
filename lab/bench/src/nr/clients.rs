//! The threads that use a method, on either machine: their operations, and the external work between operations.

use std::hint::black_box;
use std::sync::OnceLock;

use archipelago_platform::{SIMULATED, touch_mut};
use archipelago_sim::world;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::structures::Measured;
use crate::harness::instructions::Charge;
use crate::harness::program::{Dice, Done, Program, Turns};
use crate::method::{Method, Op, Session};
use crate::workload::{Distribution, OpKind, Sampler};

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
    /// Returns the draws of one thread. Keys are below `key_space`, if it is given.
    fn draws(&self, key_space: Option<usize>, thread: usize, seed: u64) -> Draws {
        let rng = SmallRng::seed_from_u64(seed ^ (thread as u64 + 1) << 32);
        // Keys are not scattered: popular keys are neighbours, as in the paper.
        let sampler = key_space.map(|keys| Sampler::new(self.distribution, keys));
        Draws { rng, sampler, update_percent: self.update_percent }
    }
}

/// The operations of a thread, drawn one by one. If operations were repeated, the same few keys would stay in every
/// core's cache, and no new keys would be inserted.
struct Draws {
    rng: SmallRng,
    /// Draws keys. If it is `None`, every number of the keys' type can be a key.
    sampler: Option<Sampler>,
    update_percent: u32,
}

impl Draws {
    /// Returns the next operation. Additions and removals are equally frequent.
    #[inline]
    fn draw(&mut self) -> Op {
        let rng = &mut self.rng;
        let key = match self.sampler {
            // The key is drawn as a `u64`, the type of the keys, since another type would give other numbers for the
            // same seed.
            Some(Sampler::Uniform(keys)) => rng.random_range(0..keys as u64),
            Some(sampler) => sampler.draw(rng) as u64,
            None => rng.random(),
        };
        match rng.random_range(0..100) {
            dice if dice >= self.update_percent => Op::Read(key),
            _ if rng.random() => Op::Add(key),
            _ => Op::Remove(key),
        }
    }
}

/// Makes a method over structures; the function argument makes each structure.
pub type Make<T, M> = fn(&Load, &(dyn Fn() -> T + Sync)) -> M;

/// Threads that run operations on a structure of type `T`, which the method `M` makes concurrent.
pub struct Clients<T, M> {
    load: Load,
    make: Make<T, M>,
    /// On the virtual machine (a simulator): a structure that is made once, outside of the runs, so that its memory is
    /// not simulated. If the structures can be copied, those of each run are copies of this one.
    first: OnceLock<T>,
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
}

impl<T: Measured, M: Method> Program for Clients<T, M> {
    type Shared = M;

    fn setup(&self, _: usize, _: u64) -> M {
        self.method()
    }

    fn body(&self, method: &M, turns: &mut impl Turns) {
        let (mut session, work) = (method.session(), self.load.external_work);
        let mut draws = self.load.draws(T::key_space(self.load.items), turns.thread(), turns.seed());
        let (mut outside, dice) = (vec![0; if work > 0 { OUTSIDE } else { 0 }], Dice::of(turns));
        let charge = turns.charge();
        let op = |_| {
            let op = draws.draw();
            charge.begins(if let Op::Read(_) = op { OpKind::Read } else { OpKind::Update });
            session.execute(op);
            Done::Found
        };
        turns.go(usize::MAX, op, || {
            Charge::ends();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::program::Alone;
    use crate::nr::methods::SingleLock;
    use crate::nr::structures::{PriorityQueue, QueueWrite};
    use archipelago_replicate::Sequential;

    /// Insertions insert, however long a run is: the queue's size is a random walk around its first size.
    #[test]
    fn a_queue_keeps_its_size() {
        let (items, replicas) = (20_000, None);
        let load = Load { items, update_percent: 100, distribution: Distribution::Uniform, external_work: 0, replicas };
        let clients: Clients<PriorityQueue, SingleLock<archipelago_sync::lock::RawTtas, PriorityQueue>> =
            Clients::new(load, |_, filled| SingleLock::over(filled()));
        let queue = clients.setup(1, 1);
        clients.body(&queue, &mut Alone { ops: 150_000, seed: 1 });
        let mut queue = queue.into_inner();
        let left = std::iter::from_fn(|| queue.write(&QueueWrite::DeleteMin)).count();
        // The standard deviation is 387.
        assert!(left.abs_diff(items) < 1_500, "{left}");
    }
}
