//! `sim host`: four small programs. The ordinary build runs them on this machine. The build for the virtual machine
//! simulates them on a model of this machine, which it measures first. The two results together show how far the
//! model's figures can be trusted, on the one machine where both are available.

use archipelago_index::HydraList;
use archipelago_platform::SIMULATED;
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::thread::Pinning;
use archipelago_platform::time::Duration;
use archipelago_sim::{Config, Machine, world};
use archipelago_sync::lock::{Mutex, RawTtas};

use crate::calibrate;
use crate::failure::Failure;
use crate::harness::driver::{self, Ready, Settings};
use crate::harness::instructions::Charge;
use crate::harness::program::{Done, Program, Turns};
use crate::harness::simulated::{self, Variant};
use crate::harness::steady::Wish;
use crate::output::print;
use crate::stats;

#[derive(Clone, Copy)]
struct Private;
#[derive(Clone, Copy)]
struct Contended;
#[derive(Clone, Copy)]
struct Lock;
#[derive(Clone, Copy)]
struct LookUp;

impl Program for Private {
    type Shared = [CachePadded<AtomicU64>; 2];

    fn setup(&self, _: usize, _: u64) -> Self::Shared {
        Default::default()
    }

    fn body(&self, words: &Self::Shared, turns: &mut impl Turns) {
        let word = &words[turns.thread()];
        let op = |_| {
            word.fetch_add(1, Ordering::Relaxed);
            Done::Found
        };
        turns.go(usize::MAX, op, || ());
    }
}

impl Program for Contended {
    type Shared = CachePadded<AtomicU64>;

    fn setup(&self, _: usize, _: u64) -> Self::Shared {
        Default::default()
    }

    fn body(&self, word: &Self::Shared, turns: &mut impl Turns) {
        let op = |_| {
            word.fetch_add(1, Ordering::Relaxed);
            Done::Found
        };
        turns.go(usize::MAX, op, || ());
    }
}

impl Program for Lock {
    type Shared = (CachePadded<Mutex<RawTtas, ()>>, [CachePadded<AtomicU64>; 2]);

    fn setup(&self, _: usize, _: u64) -> Self::Shared {
        (CachePadded::new(Mutex::new(())), Default::default())
    }

    fn body(&self, (lock, words): &Self::Shared, turns: &mut impl Turns) {
        let op = |_| {
            let _held = lock.lock();
            words.iter().for_each(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
            Done::Found
        };
        turns.go(usize::MAX, op, || ());
    }
}

/// The number of keys in the map, and an odd factor that scatters the keys.
const KEYS: u64 = 100_000;
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the key that is looked up after this one. All keys follow each other in one cycle: the factor less one is
/// divisible by four and by each prime factor of the number of keys.
fn after(key: u64) -> u64 {
    (key * 69_061 + 1) % KEYS
}

impl Program for LookUp {
    type Shared = HydraList<u64, u64>;

    fn setup(&self, _: usize, _: u64) -> Self::Shared {
        let map = HydraList::new();
        let session = map.pin();
        (0..KEYS).for_each(|key| _ = session.upsert(&key.wrapping_mul(SCATTER), key));
        map.sync();
        map
    }

    fn body(&self, map: &Self::Shared, turns: &mut impl Turns) {
        let session = map.pin();
        let mut key = turns.thread() as u64 * 7919;
        let op = |_| {
            key = after(key);
            Done::found(session.get(&key.wrapping_mul(SCATTER)) == Some(key))
        };
        turns.go(usize::MAX, op, || ());
    }
}

/// The thread counts that are compared.
const THREADS: [usize; 2] = [1, 2];
/// Measurements of each program, of which the median is reported.
const RUNS: u64 = 5;

/// Prints the four programs' nanoseconds per operation and thread.
///
/// # Errors
/// If a run ends badly, or standard output cannot be written to.
pub fn run() -> Result<(), Failure> {
    // Outside of a run this build is native too.
    let machine = SIMULATED.then(calibrate::host).transpose()?;
    let what = if SIMULATED { "this machine as measured just now (simulated)" } else { "this machine" };
    print(format!("ns per operation of a thread, on {what}, medians of {RUNS}:"))?;
    print(format!("{:<30} {:>10} {:>10}", "", "1 thread", "2 threads"))?;
    line("private increments", machine.as_ref(), Private)?;
    line("contended fetch_add", machine.as_ref(), Contended)?;
    line("TTAS lock, two lines written", machine.as_ref(), Lock)?;
    line("HydraList look-up, 100k keys", machine.as_ref(), LookUp)
}

fn line<P: Program + Copy + Sync + 'static>(name: &str, machine: Option<&Machine>, program: P) -> Result<(), Failure> {
    let mut text = format!("{name:<30}");
    for threads in THREADS {
        let times: Vec<f64> = (1..=RUNS)
            .map(|seed| {
                machine.map_or_else(|| native(program, threads, seed), |it| simulated(program, it, threads, seed))
            })
            .collect::<Result<_, _>>()?;
        text += &format!(" {:>10.1}", stats::median(&times).expect("at least one run"));
    }
    print(text).map(drop)
}

fn native<P: Program + Sync>(program: P, threads: usize, seed: u64) -> Result<f64, Failure> {
    let time = Some(Duration::from_millis(100));
    let settings = Settings { pinning: Pinning::FillNodeFirst, latency: false, time, seed };
    let (program, shared) = (&program, &program.setup(threads, 1));
    let outcome = driver::run(threads, settings, &Ready { program, shared })?;
    assert_eq!(outcome.misses, 0, "a look-up misses a key that is there");
    Ok(outcome.wall.as_nanos() as f64 * threads as f64 / outcome.ops as f64)
}

fn simulated<P: Program + Copy + 'static>(
    program: P,
    machine: &Machine,
    threads: usize,
    seed: u64,
) -> Result<f64, Failure> {
    let (warm_ns, measured_ns) = (Some(1_000_000), 1_000_000);
    let wish = Wish { warm_ns, measured_ns, min_ops: 0, patience_ns: 0 };
    let setup = || {
        let shared = program.setup(threads, seed);
        // On the real machine everything has been accessed before, so it is in the caches.
        world::warm_all(0);
        shared
    };
    let body = |_, shared: &P::Shared, turns: &mut simulated::Turns<'_>| program.body(shared, turns);
    let variant = Variant { machine: machine.clone(), charge: Charge::default(), wish };
    let mut runs = simulated::run(&[variant], &Config::seeded(seed), threads, setup, body, |_, _| Ok(None));
    Ok(threads as f64 * 1000.0 / runs.remove(0)?.mops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_turn() {
        let cycle = std::iter::successors(Some(0), |key| Some(after(*key)));
        assert_eq!(cycle.skip(1).position(|key| key == 0), Some(KEYS as usize - 1));
    }
}
