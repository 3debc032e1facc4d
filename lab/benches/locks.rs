//! A critical section that accesses four words of one cache line, and about 100 ns of work outside it: with 1, 2 and 16
//! threads. In the rows for 16 threads, the column *slowest* is the longest of the measured samples. It does not tell
//! the longest wait of a thread, which another program measures: `cargo run --release -p archipelago-sync --example
//! lock_waits`.

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
    parking_lot::RawMutex, RawShfl, RawTas, RawTtas, RawTicket, RawMcs, RawCna, RawCohort, RawHmcs,
    RawCboMcs
])]
fn mutex<R: RawMutex + Send + Sync>(bencher: Bencher) {
    let line = Mutex::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        work(&mut line.lock());
        beside();
    });
}

#[divan::bench(threads = THREADS, types = [
    parking_lot::RawRwLock, RawDistributedRwLock, RawCrwNp, RawCrwRp, RawCrwWp, RawBravo<RawCrwNp>,
    RawShflRw
])]
fn read<R: RawRwLock + Send + Sync>(bencher: Bencher) {
    let line = RwLock::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        black_box(*line.read());
        beside();
    });
}

#[divan::bench(threads = THREADS, types = [
    parking_lot::RawRwLock, RawDistributedRwLock, RawCrwNp, RawCrwRp, RawCrwWp, RawBravo<RawCrwNp>,
    RawShflRw
])]
fn write<R: RawRwLock + Send + Sync>(bencher: Bencher) {
    let line = RwLock::<R, Line>::new([0; 4]);
    bencher.bench(|| {
        work(&mut line.write());
        beside();
    });
}
