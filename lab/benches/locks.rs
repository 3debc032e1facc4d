//! A critical section of four words of one line, and about 100 ns of work beside it: alone, with 2 threads, and with 16.
//! The column *slowest* with 16 threads is the longest of the measured samples. How long one thread may wait at worst is
//! another question: `cargo run --release -p archipelago-sync --example lock_waits`.

use archipelago_sync::lock::*;
use divan::{Bencher, black_box};
use lock_api::{RawMutex, RawRwLock};

const THREADS: [usize; 3] = [1, 2, 16];

type Line = [u64; 4];

fn main() {
    divan::main();
}

fn work(line: &mut Line) {
    line.iter_mut().for_each(|word| *word = black_box(*word + 1));
}

fn beside() {
    (0..100).for_each(|step| _ = black_box(step));
}

#[divan::bench(threads = THREADS, types = [
    parking_lot::RawMutex, RawShfl, RawTas, RawTtas, RawTicket, RawMcs, RawCna, RawCohort, RawHmcs
])]
fn mutex<R: RawMutex + Send + Sync>(bencher: Bencher) {
    let line = Mutex::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        work(&mut line.lock());
        beside();
    });
}

#[divan::bench(threads = THREADS, types = [
    parking_lot::RawRwLock, RawDistributedRwLock, RawCrwNp, RawCrwRp, RawCrwWp, RawBravo<RawCrwNp>
])]
fn read<R: RawRwLock + Send + Sync>(bencher: Bencher) {
    let line = RwLock::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        black_box(*line.read());
        beside();
    });
}

#[divan::bench(threads = THREADS, types = [
    parking_lot::RawRwLock, RawDistributedRwLock, RawCrwNp, RawCrwRp, RawCrwWp, RawBravo<RawCrwNp>
])]
fn write<R: RawRwLock + Send + Sync>(bencher: Bencher) {
    let line = RwLock::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        work(&mut line.write());
        beside();
    });
}
