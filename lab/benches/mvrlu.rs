//! The single operations of MV-RLU, on one thread, with either clock.

// `Ok(tx.lock(link)?[0] += 1)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use archipelago_benches::counter;
use archipelago_sync::mvrlu::{ClockKind, Domain, Handle, Link};
use divan::Bencher;

const CLOCKS: [ClockKind; 2] = [ClockKind::Logical, ClockKind::Hardware];
const OBJECTS: u64 = 1_000;

fn main() {
    divan::main();
}

type Object = Link<[u64; 3]>;

/// Returns a handle, and a function that returns the objects one after another, in rotation.
fn some_objects(clock: ClockKind) -> (Handle, impl FnMut() -> Object) {
    let domain = Domain::builder().clock(clock).build();
    let links: Vec<Object> = (0..OBJECTS).map(|number| domain.alloc([number; 3])).collect();
    let mut next = counter();
    (domain.register(), move || links[(next() % OBJECTS) as usize])
}

#[divan::bench(args = CLOCKS)]
fn section(bencher: Bencher, clock: ClockKind) {
    let (mut handle, _) = some_objects(clock);
    bencher.bench_local(|| drop(handle.read()));
}

#[divan::bench]
fn read_of_a_box(bencher: Bencher) {
    let boxes: Vec<Box<[u64; 3]>> = (0..OBJECTS).map(|number| Box::new([number; 3])).collect();
    let mut next = counter();
    bencher.bench_local(|| boxes[(next() % OBJECTS) as usize][0]);
}

#[divan::bench(args = CLOCKS)]
fn read_without_versions(bencher: Bencher, clock: ClockKind) {
    let (mut handle, mut object) = some_objects(clock);
    let snapshot = handle.read();
    bencher.bench_local(|| snapshot.get(object())[0]);
}

#[divan::bench(args = CLOCKS)]
fn read_of_one_version(bencher: Bencher, clock: ClockKind) {
    let (mut handle, mut object) = some_objects(clock);
    (0..OBJECTS).for_each(|_| handle.update(|tx| Ok(tx.lock(object())?[0] += 1)).expect("memory is not capped"));
    let snapshot = handle.read();
    bencher.bench_local(|| snapshot.get(object())[0]);
}

#[divan::bench(args = CLOCKS)]
fn update_of_one_object(bencher: Bencher, clock: ClockKind) {
    let (mut handle, mut object) = some_objects(clock);
    bencher.bench_local(|| handle.update(|tx| Ok(tx.lock(object())?[0] += 1)));
}

#[divan::bench(args = CLOCKS)]
fn update_of_two_objects(bencher: Bencher, clock: ClockKind) {
    let (mut handle, mut object) = some_objects(clock);
    bencher.bench_local(|| {
        handle.update(|tx| {
            tx.lock(object())?[0] += 1;
            Ok(tx.lock(object())?[0] += 1)
        })
    });
}
