//! One operation on a map, with a session that is reused and with a session that is made for the operation.

use archipelago_benches::{counter, scatter};
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, OrderedIndex, OrderedSession};
use divan::{Bencher, black_box};

/// Numbers of entries: a map that fits a core's own caches, and a map that does not.
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

/// Returns a function that returns present keys, in no order.
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

/// The number of entries in a queue.
const QUEUED: u64 = 10_000;

/// Inserts an entry at one end of `map`, and removes the oldest entry at the other end, or by its key: two operations.
fn queue<S: Kind>(map: &Map<S, u64, u64>, bencher: Bencher, by_key: bool) {
    let map = map.pin();
    (0..QUEUED).for_each(|key| _ = map.insert(key, key));
    let mut next = counter();
    bencher.bench_local(|| {
        let oldest = next();
        map.insert(oldest + QUEUED, oldest);
        if by_key { map.remove(&oldest) } else { map.pop_first().map(|(_, value)| value) }
    });
}

#[divan::bench(args = [false, true])]
fn hydralist_queue(bencher: Bencher, by_key: bool) {
    queue(&HydraList::new(), bencher, by_key);
}

#[divan::bench(args = [false, true])]
fn blink_queue(bencher: Bencher, by_key: bool) {
    let map: BLinkTree<u64, u64> = BLinkTree::new();
    queue(&map, bencher, by_key);
}

#[divan::bench(args = [false, true])]
fn euno_queue(bencher: Bencher, by_key: bool) {
    queue(&EunoBTree::new(), bencher, by_key);
}

#[divan::bench(args = [false, true])]
fn euno_skip_list_queue(bencher: Bencher, by_key: bool) {
    queue(&EunoSkipList::new(), bencher, by_key);
}
