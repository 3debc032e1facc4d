//! One run: fill a set, let threads at it for a while, count.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_sets::{Set, SetSession, Visit};
use archipelago_sim::{Config, Machine};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use crate::failure::Failure;
use crate::resources::resident_bytes;
use crate::sim;
use crate::sim::measure::{Run, Setting};
use crate::workload::Distribution;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Keys in the set at the start, and on average: keys are drawn from twice as many.
    pub items: usize,
    /// Buckets of a hash table.
    pub buckets: usize,
    /// Operations that insert or remove, half each.
    pub update_percent: u32,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// Look-ups are ranges of so many keys' width instead; 0 for look-ups.
    pub scan: u64,
    /// Threads.
    pub threads: usize,
    /// Beside them, a reader that stays in its section.
    pub stuck_reader: bool,
    /// How long.
    pub time: Duration,
    /// Of keys and operations.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Million operations per second, all threads together.
    pub mops: f64,
    /// Attempts at updates that were repeated, in percent of all attempts.
    pub abort_percent: f64,
    /// By how much the process's resident memory has grown meanwhile, in bytes, where the system tells.
    pub grown: Option<f64>,
}

/// Drawn before a run and gone through again and again: long enough that the cache does not know it by heart.
const STREAM: usize = 1 << 16;

#[derive(Clone, Copy)]
enum Op {
    Read(u64),
    Insert(u64),
    Remove(u64),
}

fn stream(spec: &Spec, keys: &[u64], thread: usize) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(spec.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64));
    let exponent = if let Distribution::Zipf(s) = spec.distribution { s } else { 0.99 };
    let zipf = Zipf::new(keys.len() as f64, exponent).expect("at least one key and a positive exponent");
    let draw = |rng: &mut SmallRng| match spec.distribution {
        Distribution::Uniform => keys[rng.random_range(0..keys.len())],
        // The keys are shuffled, so that popular ones lie anywhere.
        _ => keys[(zipf.sample(rng) as usize).min(keys.len()) - 1],
    };
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

/// All keys that the operations draw from, shuffled.
fn keys(spec: &Spec) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..2 * spec.items as u64).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(spec.seed));
    keys
}

/// Inserts half of the keys.
fn fill(set: &impl Set, spec: &Spec, keys: &[u64]) {
    let mut filling = set.session();
    let mut fill = keys[..spec.items].to_vec();
    // A list is filled from its end, which is its beginning to an insertion.
    if spec.buckets == 0 {
        fill.sort_unstable_by(|a, b| b.cmp(a));
    }
    fill.iter().for_each(|key| assert!(filling.insert(*key, *key)));
}

/// A run on the virtual machine.
pub struct Simulation<'a> {
    /// What to do; its time is not used.
    pub spec: &'a Spec,
    /// The machine, maybe varied.
    pub machine: &'a Machine,
    /// Seed, schedule, faults.
    pub config: &'a Config,
    /// What all runs share.
    pub setting: &'a Setting,
}

/// Makes a set on the virtual machine, fills it and drives it.
///
/// # Errors
/// If the run does not end well.
pub fn simulate<S: Set>(simulation: &Simulation<'_>, make: impl Fn(&Spec) -> S) -> Result<Run, Failure> {
    let Simulation { spec, machine, config, setting } = *simulation;
    let setup = || {
        let (set, keys) = (make(spec), keys(spec));
        fill(&set, spec, &keys);
        let streams: Vec<Vec<Op>> = (0..spec.threads).map(|thread| stream(spec, &keys, thread)).collect();
        (set, streams)
    };
    sim::measure::run(machine, config, setting, spec.threads, setup, |(set, streams), turns| {
        let mut session = set.session();
        let mut ops = streams[turns.client().index].iter().cycle();
        while turns.next() {
            let op = *ops.next().expect("a cycle has no end");
            turns.updates(!matches!(op, Op::Read(_)));
            run(&mut session, spec, op);
        }
    })
}

/// Fills the set and drives it.
pub fn measure(set: &impl Set, spec: &Spec) -> Sample {
    let keys = keys(spec);
    fill(set, spec, &keys);
    let (start, stop) = (Barrier::new(spec.threads + 1), AtomicBool::new(false));
    let visit = Visit::default();
    thread::scope(|scope| {
        if spec.stuck_reader {
            scope.spawn(|| set.session().linger(&visit));
            visit.wait_inside();
        }
        let handles: Vec<_> = (0..spec.threads)
            .map(|thread| {
                let (start, stop, keys) = (&start, &stop, &keys);
                scope.spawn(move || {
                    let (ops, mut session) = (stream(spec, keys, thread), set.session());
                    let (mut done, mut updates) = (0_u64, 0_u64);
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let op = ops[done as usize % STREAM];
                        updates += u64::from(!matches!(op, Op::Read(_)));
                        run(&mut session, spec, op);
                        done += 1;
                    }
                    (done, updates, session.aborts())
                })
            })
            .collect();
        start.wait();
        let (begun, before) = (Instant::now(), resident_bytes());
        thread::sleep(spec.time);
        let grown = resident_bytes().zip(before).map(|(after, before)| after as f64 - before as f64);
        stop.store(true, Ordering::Relaxed);
        visit.end();
        let elapsed = begun.elapsed();
        let totals = handles.into_iter().map(|handle| handle.join().expect("an operation panicked"));
        let (done, updates, aborts) = totals.fold((0, 0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1, sum.2 + it.2));
        Sample {
            mops: done as f64 / elapsed.as_secs_f64() / 1e6,
            abort_percent: 100.0 * aborts as f64 / (updates + aborts).max(1) as f64,
            grown,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_sets::{Hash, OverMvRlu, OverRcu, Tree};

    fn spec(update_percent: u32) -> Spec {
        let (items, buckets, scan, threads, stuck_reader) = (64, 8, 0, 2, false);
        let (distribution, time) = (Distribution::Zipf(0.9), Duration::from_millis(5));
        Spec { items, buckets, update_percent, distribution, scan, threads, stuck_reader, time, seed: 1 }
    }

    #[test]
    fn a_stream_has_the_asked_for_updates_and_keys() {
        let ops = stream(&spec(20), &(0..128).collect::<Vec<u64>>(), 0);
        let inserts = ops.iter().filter(|op| matches!(op, Op::Insert(_))).count();
        let removes = ops.iter().filter(|op| matches!(op, Op::Remove(_))).count();
        for part in [inserts, removes] {
            assert!((part as f64 / STREAM as f64 - 0.1).abs() < 0.01, "{part}");
        }
        assert!(ops.iter().all(|op| matches!(op, Op::Read(key) | Op::Insert(key) | Op::Remove(key) if *key < 128)));
    }

    #[test]
    fn runs_count_operations() {
        assert!(measure(&Hash::<OverMvRlu>::with_buckets(8), &spec(80)).mops > 0.0);
        let sample = measure(&Tree::<OverRcu>::default(), &Spec { scan: 10, ..spec(2) });
        assert!(sample.mops > 0.0 && sample.abort_percent == 0.0);
        let sample = measure(&Hash::<OverMvRlu>::with_buckets(8), &Spec { stuck_reader: true, ..spec(80) });
        assert!(sample.mops > 0.0);
    }
}
