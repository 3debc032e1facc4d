//! `sim host`: four small programs, on this machine in the ordinary build, and in the build for the virtual machine on a
//! model of it that is measured at once. Side by side they say how far the model's figures may be trusted on the one
//! machine where both can be had.

use archipelago_index::HydraList;
use archipelago_platform::SIMULATED;
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread::{self, Pinning};
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::topology::Topology;
use archipelago_sim::{Config, Machine, world};
use archipelago_sync::lock::{Mutex, RawTtas};

use super::measure::{self, Setting};
use super::steady::Wish;
use crate::failure::Failure;
use crate::stats;

/// A program of some threads; `next` says whether to go on, before every operation.
trait Program {
    const NAME: &str;
    type Shared: Send + Sync;

    fn shared() -> Self::Shared;
    fn body(shared: &Self::Shared, thread: usize, next: &mut dyn FnMut() -> bool);
}

struct Private;
struct Contended;
struct Lock;
struct LookUp;

impl Program for Private {
    const NAME: &str = "private increments";
    type Shared = [CachePadded<AtomicU64>; 2];

    fn shared() -> Self::Shared {
        Default::default()
    }

    fn body(words: &Self::Shared, thread: usize, next: &mut dyn FnMut() -> bool) {
        while next() {
            words[thread].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Program for Contended {
    const NAME: &str = "contended fetch_add";
    type Shared = CachePadded<AtomicU64>;

    fn shared() -> Self::Shared {
        Default::default()
    }

    fn body(word: &Self::Shared, _: usize, next: &mut dyn FnMut() -> bool) {
        while next() {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Program for Lock {
    const NAME: &str = "TTAS lock, two lines written";
    type Shared = (CachePadded<Mutex<RawTtas, ()>>, [CachePadded<AtomicU64>; 2]);

    fn shared() -> Self::Shared {
        (CachePadded::new(Mutex::new(())), Default::default())
    }

    fn body((lock, words): &Self::Shared, _: usize, next: &mut dyn FnMut() -> bool) {
        while next() {
            let _held = lock.lock();
            words.iter().for_each(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        }
    }
}

/// Keys of the map, and the odd number that scatters them.
const KEYS: u64 = 100_000;
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

impl Program for LookUp {
    const NAME: &str = "HydraList look-up, 100k keys";
    type Shared = HydraList<u64, u64>;

    fn shared() -> Self::Shared {
        let map = HydraList::new();
        let session = map.pin();
        (0..KEYS).for_each(|key| _ = session.upsert(&key.wrapping_mul(SCATTER), key));
        map.sync();
        map
    }

    fn body(map: &Self::Shared, thread: usize, next: &mut dyn FnMut() -> bool) {
        let session = map.pin();
        let mut key = thread as u64 * 7919;
        while next() {
            key = (key * 69_069 + 1) % KEYS;
            assert_eq!(session.get(&key.wrapping_mul(SCATTER)), Some(key));
        }
    }
}

/// Threads that are compared.
const THREADS: [usize; 2] = [1, 2];
/// Measurements of each, of which the median counts.
const RUNS: u64 = 5;

/// Prints the four programs' nanoseconds per operation and thread.
///
/// # Errors
/// If a simulation ends badly.
pub fn run() -> Result<(), Failure> {
    // Outside of a run this build is native too.
    let machine = SIMULATED.then(Machine::measured);
    let what = if SIMULATED { "this-host as measured just now (simulated)" } else { "this machine" };
    println!("ns per operation of a thread, on {what}, medians of {RUNS}:");
    println!("{:<30} {:>10} {:>10}", "", "1 thread", "2 threads");
    line::<Private>(machine.as_ref())?;
    line::<Contended>(machine.as_ref())?;
    line::<Lock>(machine.as_ref())?;
    line::<LookUp>(machine.as_ref())
}

fn line<P: Program>(machine: Option<&Machine>) -> Result<(), Failure> {
    print!("{:<30}", P::NAME);
    for threads in THREADS {
        let times: Vec<f64> = (1..=RUNS)
            .map(|seed| machine.map_or_else(|| Ok(native::<P>(threads)), |it| simulated::<P>(it, threads, seed)))
            .collect::<Result<_, _>>()?;
        print!(" {:>10.1}", stats::median(&times).expect("at least one run"));
    }
    println!();
    Ok(())
}

fn native<P: Program>(threads: usize) -> f64 {
    const TIME: Duration = Duration::from_millis(100);
    let (shared, stop, start) = (P::shared(), AtomicBool::new(false), Barrier::new(threads + 1));
    let cpus = Pinning::FillNodeFirst.assign(Topology::current(), threads);
    let (ops, elapsed) = thread::scope(|scope| {
        let (shared, stop, start) = (&shared, &stop, &start);
        let spawn = |(thread, cpu): (usize, Option<_>)| {
            scope.spawn(move || {
                // Unpinned, it is measured where it happens to run.
                let _ = cpu.map(thread::pin_current);
                let mut ops = 0;
                start.wait();
                P::body(shared, thread, &mut || {
                    ops += 1;
                    !stop.load(Ordering::Relaxed)
                });
                ops
            })
        };
        let threads: Vec<_> = cpus.into_iter().enumerate().map(spawn).collect();
        start.wait();
        let begin = Instant::now();
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
        let elapsed = begin.elapsed();
        let ops = threads.into_iter().map(|thread| thread.join().expect("a program does not panic"));
        (ops.sum::<u64>(), elapsed)
    });
    elapsed.as_nanos() as f64 * threads as f64 / ops as f64
}

fn simulated<P: Program>(machine: &Machine, threads: usize, seed: u64) -> Result<f64, Failure> {
    let (warm_ns, measured_ns) = (Some(1_000_000), 1_000_000);
    let wish = Wish { warm_ns, measured_ns, min_ops: 0, patience_ns: 0 };
    let placement = archipelago_sim::Placement::Fill;
    let (sweep, faults) = (false, Vec::new());
    let setting = Setting { machine: machine.clone(), placement, wish, seed, seeds: 1, sweep, faults };
    let config = Config::seeded(seed);
    let setup = || {
        let shared = P::shared();
        // Natively everything has been touched often enough to be there.
        world::warm_all(0);
        shared
    };
    let run = measure::run(machine, &config, &setting, threads, setup, |shared, turns| {
        let thread = turns.client().index;
        P::body(shared, thread, &mut || turns.next());
    })?;
    Ok(threads as f64 * 1000.0 / run.mops)
}
