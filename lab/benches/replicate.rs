//! The cost of a change and of a read by a single thread. The structure is a number, so all of the cost is overhead.

use archipelago_platform::sync::Mutex;
use archipelago_replicate::{Combined, Handle, Replicated, Sequential};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

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

fn replicated(replicas: usize) -> Handle<Sum> {
    Replicated::builder().replicas(replicas).build(|| Sum(0)).handle()
}

#[divan::bench_group]
mod write {
    use super::*;

    #[divan::bench]
    fn mutex(bencher: Bencher) {
        let sum = Mutex::new(Sum(0));
        bencher.bench_local(|| sum.lock().map(|mut sum| sum.write(&black_box(7))).ok());
    }

    #[divan::bench]
    fn flat_combining(bencher: Bencher) {
        let mut sum = Combined::flat(Sum(0)).handle();
        bencher.bench_local(|| sum.write(black_box(7)));
    }

    #[divan::bench]
    fn combining_with_a_readers_lock(bencher: Bencher) {
        let mut sum = Combined::new(Sum(0)).handle();
        bencher.bench_local(|| sum.write(black_box(7)));
    }

    #[divan::bench(args = [1, 2])]
    fn replicas(bencher: Bencher, replicas: usize) {
        let mut sum = replicated(replicas);
        bencher.bench_local(|| sum.write(black_box(7)));
    }
}

#[divan::bench_group]
mod read {
    use super::*;

    #[divan::bench]
    fn mutex(bencher: Bencher) {
        let sum = Mutex::new(Sum(0));
        bencher.bench_local(|| sum.lock().map(|sum| sum.read(&())).ok());
    }

    #[divan::bench]
    fn flat_combining(bencher: Bencher) {
        let mut sum = Combined::flat(Sum(0)).handle();
        bencher.bench_local(|| sum.read(&()));
    }

    #[divan::bench]
    fn combining_with_a_readers_lock(bencher: Bencher) {
        let mut sum = Combined::new(Sum(0)).handle();
        bencher.bench_local(|| sum.read(&()));
    }

    #[divan::bench(args = [1, 2])]
    fn replicas(bencher: Bencher, replicas: usize) {
        let mut sum = replicated(replicas);
        bencher.bench_local(|| sum.read(&()));
    }
}
