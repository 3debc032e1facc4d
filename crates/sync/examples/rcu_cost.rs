//! What a read-side critical section costs, and what retiring costs: both flavours beside crossbeam-epoch.
//!
//! `cargo run --release -p archipelago-sync --example rcu_cost`
//!
//! Each figure is the median of several rounds, in nanoseconds per operation of one thread.

fn main() {
    #[cfg(not(loom))]
    measure::all();
}

#[cfg(not(loom))]
mod measure {
    use archipelago_platform::atomic::{AtomicPtr, Ordering};
    use archipelago_platform::sync::Barrier;
    use archipelago_platform::thread;
    use archipelago_platform::time::Instant;
    use archipelago_sync::rcu::{Domain, Flavour};
    use core::hint::black_box;

    const READS: usize = 2_000_000;
    const RETIRES: usize = 200_000;
    const ROUNDS: usize = 7;

    /// The median over rounds of the slowest thread's nanoseconds per operation.
    fn median(threads: usize, operations: usize, work: impl Fn() + Sync) -> f64 {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(threads, &work) / operations as f64).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    }

    fn round(threads: usize, work: &(impl Fn() + Sync)) -> f64 {
        let start = Barrier::new(threads);
        let timed = || {
            start.wait();
            let begun = Instant::now();
            work();
            begun.elapsed().as_nanos() as f64
        };
        thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).fold(0.0, f64::max)
        })
    }

    fn line(name: &str, threads: usize, ns: [f64; 5]) {
        let columns: String = ns.iter().map(|ns| format!(" {ns:>12.2}")).collect();
        println!("{name:<16} {threads:>7}{columns}");
    }

    fn rcu(flavour: Flavour, shared: &AtomicPtr<u64>, threads: usize) {
        let domain = Domain::with_flavour(flavour);
        // SAFETY: the object lives as long as `shared`, and is never retired.
        let read = || unsafe { *shared.load(Ordering::Acquire) };
        let entered = median(threads, READS, || {
            let reader = domain.reader();
            for _ in 0..READS {
                let _guard = reader.enter();
                black_box(read());
            }
        });
        let pinned = median(threads, READS, || {
            for _ in 0..READS {
                let _guard = domain.pin();
                black_box(read());
            }
        });
        let empty = median(threads, READS, || {
            let reader = domain.reader();
            for _ in 0..READS {
                drop(reader.enter());
            }
        });
        let quiescent = median(threads, READS, || {
            let mut reader = domain.quiescent_reader();
            for _ in 0..READS {
                reader.enter();
                reader.quiescent();
            }
        });
        let retired = median(threads, RETIRES, || {
            let reader = domain.reader();
            for number in 0..RETIRES as u64 {
                // SAFETY: a fresh box that nobody else knows.
                unsafe { reader.enter().retire_box(Box::into_raw(Box::new(number))) };
            }
        });
        line(&format!("{:?}", domain.flavour()), threads, [empty, quiescent, entered, pinned, retired]);
    }

    fn crossbeam(shared: &AtomicPtr<u64>, threads: usize) {
        use crossbeam_epoch::{self as epoch, Owned};
        let collector = epoch::Collector::new();
        // SAFETY: as in `rcu`.
        let read = || unsafe { *shared.load(Ordering::Acquire) };
        let entered = median(threads, READS, || {
            let handle = collector.register();
            for _ in 0..READS {
                let _guard = handle.pin();
                black_box(read());
            }
        });
        let pinned = median(threads, READS, || {
            for _ in 0..READS {
                let _guard = epoch::pin();
                black_box(read());
            }
        });
        let retired = median(threads, RETIRES, || {
            let handle = collector.register();
            for number in 0..RETIRES as u64 {
                let guard = handle.pin();
                // SAFETY: a fresh box that nobody else knows.
                unsafe { guard.defer_destroy(Owned::new(number).into_shared(&guard)) };
            }
        });
        let empty = median(threads, READS, || {
            let handle = collector.register();
            for _ in 0..READS {
                drop(handle.pin());
            }
        });
        line("crossbeam-epoch", threads, [empty, f64::NAN, entered, pinned, retired]);
    }

    pub fn all() {
        let columns = ["enter+leave", "quiescent", "enter+read", "pin+read", "retire+free"];
        let columns: String = columns.iter().map(|name| format!(" {name:>12}")).collect();
        println!("{:<16} {:>7}{columns}", "ns per operation", "threads");
        let shared = AtomicPtr::new(Box::into_raw(Box::new(7)));
        for threads in [1, 2] {
            rcu(Flavour::Membarrier, &shared, threads);
            rcu(Flavour::Epoch, &shared, threads);
            crossbeam(&shared, threads);
        }
        // SAFETY: made above, and all threads have ended.
        drop(unsafe { Box::from_raw(shared.into_inner()) });
    }
}
