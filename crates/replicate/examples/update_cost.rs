//! What one thread pays for a change and for a read when nobody else is there: the structure is a number, so all of it is
//! overhead. In nanoseconds, the median of the rounds; all methods take turns in every round.
//!
//! `cargo run --release -p archipelago-replicate --example update_cost`

fn main() {
    #[cfg(not(loom))]
    measure::all();
}

#[cfg(not(loom))]
mod measure {
    use archipelago_platform::sync::Mutex;
    use archipelago_platform::time::Instant;
    use archipelago_replicate::{Combined, Replicated, Sequential};
    use core::hint::black_box;

    const ROUNDS: usize = 9;
    const OPERATIONS: u64 = 500_000;

    struct Sum(u64);

    impl Sequential for Sum {
        type Read = ();
        type Write = u64;
        type Response = u64;

        fn read(&self, (): &()) -> u64 {
            self.0
        }

        fn write(&mut self, more: &u64) -> u64 {
            self.0 = self.0.wrapping_add(*more);
            self.0
        }
    }

    fn nanoseconds(mut once: impl FnMut(u64) -> u64) -> f64 {
        let begun = Instant::now();
        (0..OPERATIONS).for_each(|at| {
            black_box(once(black_box(at)));
        });
        begun.elapsed().as_nanos() as f64 / OPERATIONS as f64
    }

    pub fn all() {
        let mutex = Mutex::new(Sum(0));
        let mut flat = Combined::flat(Sum(0)).handle();
        let mut combined = Combined::new(Sum(0)).handle();
        let replicated = |replicas| Replicated::builder().replicas(replicas).build(|| Sum(0)).handle();
        let (mut one, mut two) = (replicated(1), replicated(2));
        let mut rounds: [(&str, Vec<[f64; 2]>); 5] =
            ["Mutex", "Combined::flat", "Combined::new", "Replicated, 1", "Replicated, 2"]
                .map(|name| (name, Vec::new()));
        for _ in 0..ROUNDS {
            let lock = || mutex.lock().unwrap();
            let figures = [
                [nanoseconds(|more| lock().write(&more)), nanoseconds(|_| lock().read(&()))],
                [nanoseconds(|more| flat.write(more).unwrap()), nanoseconds(|_| flat.read(&()).unwrap())],
                [nanoseconds(|more| combined.write(more).unwrap()), nanoseconds(|_| combined.read(&()).unwrap())],
                [nanoseconds(|more| one.write(more).unwrap()), nanoseconds(|_| one.read(&()).unwrap())],
                [nanoseconds(|more| two.write(more).unwrap()), nanoseconds(|_| two.read(&()).unwrap())],
            ];
            rounds.iter_mut().zip(figures).for_each(|((_, all), one)| all.push(one));
        }
        println!("| | ns change | ns read |\n|---|---|---|");
        for (name, figures) in &rounds {
            let median = |which: usize| {
                let mut sorted: Vec<f64> = figures.iter().map(|round| round[which]).collect();
                sorted.sort_by(f64::total_cmp);
                sorted[ROUNDS / 2]
            };
            println!("| {name} | {:.1} | {:.1} |", median(0), median(1));
        }
    }
}
