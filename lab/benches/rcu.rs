//! Readers' critical sections, and retiring, beside `crossbeam-epoch`.

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_sync::rcu::{Domain, Flavour};
use crossbeam_epoch::{self as epoch, Collector, Owned};
use divan::{Bencher, black_box};

const THREADS: [usize; 2] = [1, 2];
const FLAVOURS: [Flavour; 2] = [Flavour::Membarrier, Flavour::Epoch];

fn main() {
    divan::main();
}

/// A number behind a pointer. It is read in critical sections and never replaced.
struct Shared(AtomicPtr<u64>);

impl Shared {
    fn new() -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(7))))
    }

    #[inline]
    fn read(&self) -> u64 {
        // SAFETY: the box was made in `new`, and is freed only in `drop`.
        unsafe { *self.0.load(Ordering::Acquire) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the box was made in `new`; no thread uses it any more.
        drop(unsafe { Box::from_raw(self.0.load(Ordering::Relaxed)) });
    }
}

#[divan::bench(args = FLAVOURS)]
fn enter_and_leave(bencher: Bencher, flavour: Flavour) {
    let domain = Domain::with_flavour(flavour);
    let reader = domain.reader();
    bencher.bench_local(|| drop(reader.enter()));
}

#[divan::bench]
fn enter_and_leave_crossbeam(bencher: Bencher) {
    let handle = Collector::new().register();
    bencher.bench_local(|| drop(handle.pin()));
}

#[divan::bench(args = FLAVOURS)]
fn quiescent_state(bencher: Bencher, flavour: Flavour) {
    let domain = Domain::with_flavour(flavour);
    let mut reader = domain.quiescent_reader();
    bencher.bench_local(|| {
        black_box(reader.enter());
        reader.quiescent();
    });
}

#[divan::bench(args = FLAVOURS, threads = THREADS)]
fn pin_and_read(bencher: Bencher, flavour: Flavour) {
    let (domain, shared) = (Domain::with_flavour(flavour), Shared::new());
    bencher.bench(|| {
        let _guard = domain.pin();
        shared.read()
    });
}

#[divan::bench(threads = THREADS)]
fn pin_and_read_crossbeam(bencher: Bencher) {
    let shared = Shared::new();
    bencher.bench(|| {
        let _guard = epoch::pin();
        shared.read()
    });
}

#[divan::bench(args = FLAVOURS, threads = THREADS)]
fn retire_and_free(bencher: Bencher, flavour: Flavour) {
    let domain = Domain::with_flavour(flavour);
    bencher.bench(|| {
        // SAFETY: a fresh box, to which nothing else refers.
        unsafe { domain.pin().retire_box(Box::into_raw(Box::new(7_u64))) };
    });
}

#[divan::bench(threads = THREADS)]
fn retire_and_free_crossbeam(bencher: Bencher) {
    bencher.bench(|| {
        let guard = epoch::pin();
        // SAFETY: a fresh box, to which nothing else refers.
        unsafe { guard.defer_destroy(Owned::new(7_u64).into_shared(&guard)) };
    });
}
