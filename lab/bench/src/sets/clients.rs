//! The program that uses a set, on either machine: it fills the set, and its threads look up, insert and remove.

use archipelago_sets::{Set, SetSession, Visit};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::harness::program::{Done, Program, Turns};
use crate::workload::{Distribution, Sampler};

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// `list`, `hash` or `tree`.
    pub structure: &'static str,
    /// Keys in the set at the start, and on average. Operations draw from twice as many keys.
    pub items: usize,
    /// Buckets of a hash table; 0 for other structures.
    pub buckets: usize,
    /// Percentage of operations that are updates; half of the updates insert, half remove.
    pub update_percent: u32,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// The width in keys of range scans that replace look-ups; 0 for look-ups.
    pub scan: u64,
    /// Whether another thread stays in its critical section during the run; on this machine only.
    pub stuck_reader: bool,
}

/// Operations of a thread, drawn before a run and repeated. They are so many that, when the thread repeats them, their
/// data is no longer in the cache.
const STREAM: usize = 1 << 16;

#[derive(Clone, Copy)]
enum Op {
    Read(u64),
    Insert(u64),
    Remove(u64),
}

fn stream(spec: &Spec, keys: &[u64], thread: usize, seed: u64) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(thread as u64));
    let sampler = Sampler::new(spec.distribution, keys.len());
    // The keys are shuffled, so that popular keys are scattered.
    let draw = |rng: &mut SmallRng| keys[sampler.draw(rng)];
    (0..STREAM)
        .map(|_| match rng.random_range(0..200_u32) {
            n if n < spec.update_percent => Op::Insert(draw(&mut rng)),
            n if n < 2 * spec.update_percent => Op::Remove(draw(&mut rng)),
            _ => Op::Read(draw(&mut rng)),
        })
        .collect()
}

fn run(session: &mut impl SetSession, spec: &Spec, op: Op) {
    match op {
        Op::Read(key) if spec.scan > 0 => drop(session.range(key, key + spec.scan)),
        Op::Read(key) => _ = core::hint::black_box(session.get(key)),
        Op::Insert(key) => _ = core::hint::black_box(session.insert(key, key)),
        Op::Remove(key) => _ = core::hint::black_box(session.remove(key)),
    }
}

/// Returns all keys from which the operations draw, shuffled.
fn keys(spec: &Spec, seed: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..2 * spec.items as u64).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(seed));
    keys
}

/// Returns half of the keys, in the order in which a set is filled with them.
fn half(spec: &Spec, keys: &[u64]) -> Vec<u64> {
    let mut half = keys[..spec.items].to_vec();
    // A list is filled in descending order, so that each insertion is at the list's beginning.
    if spec.structure == "list" {
        half.sort_unstable_by(|a, b| b.cmp(a));
    }
    half
}

/// Returns the operations of all threads.
fn streams(spec: &Spec, keys: &[u64], threads: usize, seed: u64) -> Vec<Vec<Op>> {
    (0..threads).map(|thread| stream(spec, keys, thread, seed)).collect()
}

/// A structure over a mechanism. A function pointer makes the structure, so variants of one type share one program.
pub struct Clients<S> {
    /// What to do.
    pub spec: Spec,
    /// Makes the structure.
    pub make: fn(&Spec) -> S,
}

/// A set, the operations of every thread, and the additional reader.
pub struct Shared<S> {
    set: S,
    streams: Vec<Vec<Op>>,
    visit: Visit,
}

impl<S: Set> Program for Clients<S> {
    type Shared = Shared<S>;

    fn setup(&self, threads: usize, seed: u64) -> Shared<S> {
        let (set, keys) = ((self.make)(&self.spec), keys(&self.spec, seed));
        let mut filling = set.session();
        for key in half(&self.spec, &keys) {
            assert!(filling.insert(key, key));
        }
        drop(filling);
        Shared { set, streams: streams(&self.spec, &keys, threads, seed), visit: Visit::default() }
    }

    fn body(&self, Shared { set, streams, visit }: &Shared<S>, turns: &mut impl Turns) {
        if self.spec.stuck_reader {
            visit.wait_inside();
        }
        let mut session = set.session();
        let (ops, mut updates) = (streams[turns.thread()].as_slice(), 0);
        let op = |i: usize| {
            let op = ops[i % STREAM];
            let update = !matches!(op, Op::Read(_));
            updates += u64::from(update);
            run(&mut session, &self.spec, op);
            Done::updated(update)
        };
        turns.go(usize::MAX, op, || ());
        turns.attempts(updates, session.aborts());
    }

    fn beside<'a>(&self, Shared { set, visit, .. }: &'a Shared<S>) -> Option<Box<dyn FnOnce() + Send + 'a>> {
        self.spec.stuck_reader.then(|| Box::new(|| set.session().linger(visit)) as Box<_>)
    }

    fn stop(&self, shared: &Shared<S>) {
        shared.visit.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Pin;
    use crate::harness::driver::{self, Outcome, Ready, Settings};
    use archipelago_check::hostile::some_try;
    use archipelago_platform::time::Duration;
    use archipelago_sets::{Hash, OverMvRlu, OverRcu, Tree};

    fn spec(update_percent: u32) -> Spec {
        let distribution = Distribution::Zipf(0.9);
        Spec { structure: "hash", items: 64, buckets: 8, update_percent, distribution, scan: 0, stuck_reader: false }
    }

    /// Returns the outcome of a run in which something was done: in so short a time, it may be that no thread gets a
    /// processor.
    fn measure<S: Set>(make: fn(&Spec) -> S, spec: Spec) -> Outcome {
        let program = &Clients { spec, make };
        let shared = &program.setup(2, 1);
        let time = Some(Duration::from_millis(5));
        let settings = Settings { pinning: Pin::None.pinning(), latency: false, time, seed: 1 };
        some_try(10, || {
            let outcome = driver::run(2, settings, &Ready { program, shared }).unwrap();
            if outcome.ops > 0 { Ok(outcome) } else { Err("nothing was done".to_owned()) }
        })
    }

    #[test]
    fn a_stream_has_the_asked_for_updates_and_keys() {
        let ops = stream(&spec(20), &(0..128).collect::<Vec<u64>>(), 0, 1);
        let inserts = ops.iter().filter(|op| matches!(op, Op::Insert(_))).count();
        let removes = ops.iter().filter(|op| matches!(op, Op::Remove(_))).count();
        for part in [inserts, removes] {
            assert!((part as f64 / STREAM as f64 - 0.1).abs() < 0.01, "{part}");
        }
        assert!(ops.iter().all(|op| matches!(op, Op::Read(key) | Op::Insert(key) | Op::Remove(key) if *key < 128)));
    }

    #[test]
    fn runs_count_operations() {
        let hash = |_: &Spec| Hash::<OverMvRlu>::with_buckets(8);
        measure(hash, spec(80));
        let outcome = measure(|_: &Spec| Tree::<OverRcu>::default(), Spec { scan: 10, ..spec(2) });
        assert_eq!(outcome.attempts[1], 0);
        measure(hash, Spec { stuck_reader: true, ..spec(80) });
    }
}
