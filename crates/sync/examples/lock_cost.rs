//! What each lock costs: uncontended, and its throughput beside `parking_lot`'s with 2 and with 16 threads.
//!
//! `cargo run --release -p archipelago-sync --example lock_cost`, with a part of a name behind `--` to measure only the
//! locks called so (and `parking_lot`).
//!
//! All locks are measured in turn in every round of one run, and each ratio is the median of the rounds' ratios, so that a
//! noisy machine hits all alike. A critical section changes four words of one cache line; between two of them a thread
//! does about 100 ns of work of its own. Reader-writer locks are taken for writing once in ten times. *Longest* is the
//! longest time that a thread took for one round trip with 16 threads: the median over rounds, in milliseconds.

fn main() {
    #[cfg(not(loom))]
    measure::all();
}

#[cfg(not(loom))]
mod measure {
    use archipelago_platform::atomic::{AtomicBool, Ordering};
    use archipelago_platform::thread;
    use archipelago_platform::time::{Duration, Instant};
    use archipelago_sync::lock::*;
    use core::hint::black_box;
    use lock_api::{RawMutex, RawRwLock};

    const ROUNDS: usize = 9;
    const UNCONTENDED: u32 = 200_000;
    const RUN: Duration = Duration::from_millis(40);
    const THREADS: [usize; 2] = [2, 16];

    type Line = [u64; 4];

    /// One lock, as the measurements need it.
    struct Subject {
        name: &'static str,
        bytes: usize,
        /// Nanoseconds for taking and releasing it alone: as a mutex or for reading, and for writing.
        uncontended: fn() -> [f64; 2],
        /// Round trips per second with so many threads, and the longest in ms.
        contended: fn(usize) -> [f64; 2],
    }

    fn work(line: &mut Line) {
        line.iter_mut().for_each(|word| *word = black_box(*word + 1));
    }

    fn pause() {
        for step in 0..100 {
            black_box(step);
        }
    }

    fn nanoseconds(mut once: impl FnMut()) -> f64 {
        let begun = Instant::now();
        (0..UNCONTENDED).for_each(|_| once());
        begun.elapsed().as_nanos() as f64 / f64::from(UNCONTENDED)
    }

    fn throughput(threads: usize, once: impl Fn(u64) + Sync) -> [f64; 2] {
        let stop = AtomicBool::new(false);
        let run = || {
            let (mut trips, mut longest, mut before) = (0, Duration::ZERO, Instant::now());
            while !stop.load(Ordering::Relaxed) {
                once(trips);
                trips += 1;
                let now = Instant::now();
                longest = longest.max(now - before);
                before = now;
                pause();
            }
            (trips, longest)
        };
        let begun = Instant::now();
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            thread::sleep(RUN);
            stop.store(true, Ordering::Relaxed);
            let done = running.into_iter().map(|thread| thread.join().expect("no panic"));
            let (trips, longest) = done.fold((0, Duration::ZERO), |sum, one| (sum.0 + one.0, sum.1.max(one.1)));
            [trips as f64 / begun.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3]
        })
    }

    fn mutex<R: RawMutex + Send + Sync>(name: &'static str) -> Subject {
        Subject {
            name,
            bytes: size_of::<R>(),
            uncontended: || {
                let line = Mutex::<R, Line>::new([0; 4]);
                [nanoseconds(|| work(&mut line.lock())), f64::NAN]
            },
            contended: |threads| {
                let line = Mutex::<R, Line>::new([0; 4]);
                throughput(threads, |_| work(&mut line.lock()))
            },
        }
    }

    fn rwlock<R: RawRwLock + Send + Sync>(name: &'static str) -> Subject {
        Subject {
            name,
            bytes: size_of::<R>(),
            uncontended: || {
                let line = RwLock::<R, Line>::new([0; 4]);
                let read = nanoseconds(|| _ = black_box(*line.read()));
                [read, nanoseconds(|| work(&mut line.write()))]
            },
            contended: |threads| {
                let line = RwLock::<R, Line>::new([0; 4]);
                throughput(threads, |trip| match trip % 10 {
                    0 => work(&mut line.write()),
                    _ => _ = black_box(*line.read()),
                })
            },
        }
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Measures all subjects; ratios are to the first.
    fn table(title: &str, subjects: &[Subject]) {
        println!(
            "\n{title}\n{:<26} {:>6} {:>9} {:>9} {:>7} {:>7} {:>12}",
            "lock", "bytes", "ns", "ns write", "x2", "x16", "longest, ms"
        );
        let only = std::env::args().nth(1).unwrap_or_default();
        let subjects: Vec<&Subject> = subjects
            .iter()
            .enumerate()
            .filter(|(at, subject)| *at == 0 || subject.name.contains(&only))
            .map(|(_, subject)| subject)
            .collect();
        let rounds: Vec<Vec<[f64; 5]>> = (0..ROUNDS).map(|_| subjects.iter().map(|s| measure(s)).collect()).collect();
        for (at, subject) in subjects.iter().enumerate() {
            let over_rounds = |of: &dyn Fn(&[[f64; 5]]) -> f64| median(rounds.iter().map(|round| of(round)).collect());
            let plain = |column: usize| over_rounds(&|round| round[at][column]);
            let ratio = |column: usize| over_rounds(&|round| round[at][column] / round[0][column]);
            let (name, bytes) = (subject.name, subject.bytes);
            let write = if plain(1).is_nan() { String::new() } else { format!("{:.1}", plain(1)) };
            println!(
                "{name:<26} {bytes:>6} {:>9.1} {write:>9} {:>7.2} {:>7.2} {:>12.1}",
                plain(0),
                ratio(2),
                ratio(3),
                plain(4)
            );
        }
    }

    fn measure(subject: &Subject) -> [f64; 5] {
        let [ns, ns_write] = (subject.uncontended)();
        let [few, many] = THREADS.map(|threads| (subject.contended)(threads));
        [ns, ns_write, few[0], many[0], many[1]]
    }

    pub fn all() {
        let mutexes = [
            mutex::<parking_lot::RawMutex>("parking_lot"),
            mutex::<RawShfl>("RawShfl"),
            mutex::<RawTas>("RawTas"),
            mutex::<RawTtas>("RawTtas"),
            mutex::<RawTicket>("RawTicket"),
            mutex::<RawMcs>("RawMcs"),
            mutex::<RawCna>("RawCna"),
            mutex::<RawCohort>("RawCohort"),
            mutex::<RawHmcs>("RawHmcs"),
        ];
        let rwlocks = [
            rwlock::<parking_lot::RawRwLock>("parking_lot"),
            rwlock::<RawDistributedRwLock>("RawDistributedRwLock"),
            rwlock::<RawCrwNp>("RawCrwNp"),
            rwlock::<RawCrwRp>("RawCrwRp"),
            rwlock::<RawCrwWp>("RawCrwWp"),
            rwlock::<RawBravo<RawCrwNp>>("RawBravo<RawCrwNp>"),
            rwlock::<RawBravo<parking_lot::RawRwLock>>("RawBravo<parking_lot>"),
        ];
        println!(
            "{} CPUs; ratios of throughput to parking_lot's, medians of {ROUNDS} rounds",
            thread::available_parallelism().map_or(0, usize::from)
        );
        table("mutexes", &mutexes);
        table("reader-writer locks, one write in ten", &rwlocks);
    }
}
