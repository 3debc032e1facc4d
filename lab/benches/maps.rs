//! One operation on a map, with a session that is kept and with one made for it.

use archipelago_benches::{counter, scatter};
use archipelago_index::{Art, HydraList, OrderedIndex, OrderedSession};
use divan::{Bencher, black_box};

/// Entries: in the first-level caches, and far beyond the last one.
const SIZES: [u64; 2] = [1_000, 1_000_000];

fn main() {
    divan::main();
}

fn list(size: u64) -> HydraList<u64, u64> {
    let list = HydraList::new();
    list.pin().extend((0..size).map(|number| (scatter(number), number)));
    list.sync();
    list
}

fn art(size: u64) -> Art<u64, u64> {
    let art = Art::new();
    let session = OrderedIndex::pin(&art);
    (0..size).for_each(|number| _ = OrderedSession::insert(&session, &scatter(number), number));
    art
}

/// Keys that are there, in no order.
fn keys(size: u64) -> impl FnMut() -> u64 {
    let mut next = counter();
    move || scatter(scatter(next()) % size)
}

#[divan::bench]
fn hydralist_pin(bencher: Bencher) {
    let list = list(1_000);
    bencher.bench(|| _ = black_box(list.pin()));
}

#[divan::bench(args = SIZES)]
fn hydralist_get(bencher: Bencher, size: u64) {
    let (list, mut key) = (list(size), keys(size));
    let session = list.pin();
    bencher.bench_local(|| session.get(&key()));
}

#[divan::bench(args = SIZES)]
fn hydralist_pin_and_get(bencher: Bencher, size: u64) {
    let (list, mut key) = (list(size), keys(size));
    bencher.bench_local(|| list.pin().get(&key()));
}

#[divan::bench(args = SIZES)]
fn hydralist_next_in_range(bencher: Bencher, size: u64) {
    let (list, mut key) = (list(size), keys(size));
    let session = list.pin();
    bencher.bench_local(|| session.range(key()..).next());
}

#[divan::bench(args = SIZES)]
fn hydralist_overwrite(bencher: Bencher, size: u64) {
    let (list, mut key) = (list(size), keys(size));
    let session = list.pin();
    bencher.bench_local(|| session.upsert(&key(), 7));
}

#[divan::bench]
fn art_pin(bencher: Bencher) {
    let art = art(1_000);
    bencher.bench(|| _ = black_box(art.pin()));
}

#[divan::bench(args = SIZES)]
fn art_get(bencher: Bencher, size: u64) {
    let (art, mut key) = (art(size), keys(size));
    let session = art.pin();
    bencher.bench_local(|| session.get(&key()));
}

#[divan::bench(args = SIZES)]
fn art_pin_and_get(bencher: Bencher, size: u64) {
    let (art, mut key) = (art(size), keys(size));
    bencher.bench_local(|| art.pin().get(&key()));
}
