//! Measures how long a thread may wait for each lock when threads outnumber cores, compared with `parking_lot` in the
//! same run.
//!
//! `cargo run --release -p archipelago-sync --example lock_waits`; the arguments after `--` are a part of a lock's
//! name, seconds per run (0.5), and rounds (3).
//!
//! Each lock is measured directly after `parking_lot`'s lock of its kind, with 8 and with 16 threads, under two loads.
//! *Short*: four turns of a loop under the lock, with about 100 ns between two critical sections of a thread. *Long*:
//! about 20 µs under the lock, with no pause. Reader-writer locks are taken for writing once in ten times. The output
//! is the longest wait of any thread in any round, in milliseconds, its ratio to `parking_lot`'s, and the ratio of
//! round trips.

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

    const THREADS: [usize; 2] = [8, 16];
    /// Steps of work under the lock and outside it.
    const LOADS: [(&str, u32, u32); 2] = [("short", 4, 100), ("long", 20_000, 0)];

    struct Subject {
        name: &'static str,
        run: fn(usize, Duration, u32, u32) -> Seen,
    }

    #[derive(Clone, Copy, Default)]
    struct Seen {
        longest: Duration,
        trips: u64,
    }

    impl Seen {
        fn and(self, other: Self) -> Self {
            Self { longest: self.longest.max(other.longest), trips: self.trips + other.trips }
        }
    }

    fn work(steps: u32) {
        (0..steps).for_each(|step| _ = black_box(step));
    }

    /// `once` takes the lock, returns the time at which it had the lock, and unlocks.
    fn contend(threads: usize, time: Duration, beside: u32, once: impl Fn(u64) -> Instant + Sync) -> Seen {
        let stop = AtomicBool::new(false);
        let run = || {
            let mut seen = Seen::default();
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let got = once(seen.trips);
                seen = seen.and(Seen { longest: got - asked, trips: 1 });
                work(beside);
            }
            seen
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            running.into_iter().fold(Seen::default(), |sum, thread| sum.and(thread.join().expect("no panic")))
        })
    }

    fn mutex<R: RawMutex + Send + Sync>(name: &'static str) -> Subject {
        let run = |threads, time, under, beside| {
            let lock = Mutex::<R, ()>::new(());
            contend(threads, time, beside, |_| {
                let _guard = lock.lock();
                let got = Instant::now();
                work(under);
                got
            })
        };
        Subject { name, run }
    }

    fn rwlock<R: RawRwLock + Send + Sync>(name: &'static str) -> Subject {
        let run = |threads, time, under, beside| {
            let lock = RwLock::<R, ()>::new(());
            contend(threads, time, beside, |trip| {
                let (_write, _read) =
                    if trip % 10 == 0 { (Some(lock.write()), None) } else { (None, Some(lock.read())) };
                let got = Instant::now();
                work(under);
                got
            })
        };
        Subject { name, run }
    }

    fn table(title: &str, subjects: &[Subject]) {
        let argument = |at| std::env::args().nth(at);
        let only = argument(1).unwrap_or_default();
        let time = Duration::from_secs_f64(argument(2).map_or(0.5, |text| text.parse().expect("seconds")));
        let rounds: u32 = argument(3).map_or(3, |text| text.parse().expect("rounds"));
        println!("\n{title}: longest wait in ms, its ratio to parking_lot's, ratio of round trips");
        for (load, under, beside) in LOADS {
            for threads in THREADS {
                println!("{load}, {threads} threads");
                for subject in subjects[1..].iter().filter(|subject| subject.name.contains(&only)) {
                    let (mut peer, mut ours) = (Seen::default(), Seen::default());
                    for _ in 0..rounds {
                        peer = peer.and((subjects[0].run)(threads, time, under, beside));
                        ours = ours.and((subject.run)(threads, time, under, beside));
                    }
                    let ms = |seen: Seen| seen.longest.as_secs_f64() * 1e3;
                    let (longest, trips) = (ms(ours) / ms(peer), ours.trips as f64 / peer.trips as f64);
                    println!(
                        "  {:<26} {:>8.1} ({:>7.1}) {longest:>7.2} {trips:>7.2}",
                        subject.name,
                        ms(ours),
                        ms(peer)
                    );
                }
            }
        }
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
            mutex::<RawCboMcs>("RawCboMcs"),
        ];
        let rwlocks = [
            rwlock::<parking_lot::RawRwLock>("parking_lot"),
            rwlock::<RawDistributedRwLock>("RawDistributedRwLock"),
            rwlock::<RawShflRw>("RawShflRw"),
            rwlock::<RawCrwNp>("RawCrwNp"),
            rwlock::<RawCrwRp>("RawCrwRp"),
            rwlock::<RawCrwWp>("RawCrwWp"),
            rwlock::<RawBravo<RawCrwNp>>("RawBravo<RawCrwNp>"),
        ];
        table("mutexes", &mutexes);
        table("reader-writer locks, one write in ten", &rwlocks);
    }
}
