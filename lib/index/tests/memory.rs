//! The memory of `HydraList`s: it is freed when entries are removed, stays constant under churn, and is small for a map
//! with few entries. There are also tests with thousands of maps.

mod common;

use archipelago_check::hostile::some_try;
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::hydra::{Maintainers, SearchLayerKind};
use archipelago_index::{HydraList, Key};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_tested as _;
use common::quiet::soon_shows;
use common::sized;

/// Returns distinct keys that are far apart.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn email(n: u64) -> String {
    format!("user{:x}@example{}.org", scatter(n), n % 10)
}

/// Returns keys that are too long for a page, and are stored in boxes of their own.
fn long(n: u64) -> String {
    format!("{}{:x}", "long ".repeat(60), scatter(n))
}

/// Boxed keys count while they are in the map, whichever thread inserted them, and while they wait for
/// readers. After that they do not count any more.
#[test]
fn long_keys_are_counted() {
    const COUNT: u64 = sized(2_000, 40) as u64;
    let map: HydraList<String, u64> = HydraList::new();
    let boxes: usize = (0..COUNT).map(|n| long(n).len()).sum();
    let before = map.bytes();
    thread::scope(|s| {
        s.spawn(|| (0..COUNT / 2).for_each(|n| assert!(map.pin().insert(long(n), n).is_none())));
        s.spawn(|| map.pin().extend((COUNT / 2..COUNT).map(|n| (long(n), n))));
    });
    let full = map.bytes();
    assert!(full >= before + boxes, "{full} bytes with {boxes} in keys");
    assert!(map.pin().upsert(&long(0), 7) && map.bytes() <= full, "the key was there");
    (0..COUNT).for_each(|n| assert!(map.pin().delete(&long(n))));
    map.sync();
    println!("{full} bytes, {boxes} of them in keys");
    soon_shows(&map, |stats| stats.bytes <= full - boxes);
}

/// Loads `count` keys with four threads and removes them. With four nodes, each thread removes the keys that it has
/// inserted itself, and with one node those of another thread. Returns the memory at the peak and at the end. `sync` is
/// called only after all keys have been removed.
fn fill_and_empty<K: Key>(count: u64, make: fn(u64) -> K, nodes: usize) -> (usize, usize) {
    watchdog(USUAL, |_| {
        let map: HydraList<K, u64> = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
        let share = |t: u64, change: fn(&HydraList<K, u64>, K, u64)| {
            let map = &map;
            move || (t..count).step_by(4).for_each(|n| change(map, make(n), n))
        };
        thread::scope(|s| {
            for t in 0..4 {
                s.spawn(share(t, |map, key, n| assert_eq!(map.pin().insert(key, n), None)));
            }
        });
        let peak = map.bytes();
        thread::scope(|s| {
            for t in 0..4 {
                s.spawn(share((t + nodes as u64) % 4, |map, key, n| assert_eq!(map.pin().remove(&key), Some(n))));
            }
        });
        assert!(map.is_empty());
        // If a background thread is preempted in the middle of a round, memory is not reclaimed until it continues.
        for _ in 0..500 {
            map.sync();
            if map.bytes() <= peak / 10 {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        map.check_invariants();
        (peak, map.bytes())
    })
}

fn assert_given_back((peak, left): (usize, usize)) {
    // An arena (a node's allocator of pages) that is in use keeps one empty block of at most 2 MiB.
    assert!(left <= peak / 10, "{left} of {peak} bytes are left");
}

#[cfg(not(miri))]
#[test]
fn words_are_given_back() {
    assert_given_back(fill_and_empty(1_500_000, scatter, 1));
    assert_given_back(fill_and_empty(1_500_000, |n| n, 1));
}

#[cfg(not(miri))]
#[test]
fn strings_are_given_back() {
    assert_given_back(fill_and_empty(600_000, email, 1));
    assert_given_back(fill_and_empty(1_000_000, |n| format!("{n:08}"), 1));
}

#[test]
fn small_maps_shrink_to_nothing() {
    for nodes in [1, 4] {
        let count = sized(20_000, 200) as u64;
        for (_, left) in [fill_and_empty(count, scatter, nodes), fill_and_empty(count, long, nodes)] {
            // The arenas of each node may keep this much.
            assert!(left <= nodes << 20, "{left} bytes are left");
        }
    }
}

/// Waits until the background threads sleep.
fn rest<K: Key>(map: &HydraList<K, u64>) {
    loop {
        let stats = map.maintenance_stats();
        if stats.roused == stats.done {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Inserts `count` keys and deletes all except every `keep`-th one, in the order of `nth`. Checks that the map then
/// holds at most three times the memory of a fresh map with the remaining keys.
fn thin_out<K: Key>(map: HydraList<K, u64>, count: u64, keep: u64, make: fn(u64) -> K, nth: fn(u64, u64) -> u64) {
    watchdog(USUAL, |_| {
        map.pin().extend((0..count).map(|n| (make(n), n)));
        let full = map.bytes();
        let session = map.pin();
        (0..count)
            .map(|n| nth(n, count))
            .filter(|n| !n.is_multiple_of(keep))
            .for_each(|n| assert!(session.delete(&make(n))));
        if map.maintenance_stats().threads > 0 {
            // No thread calls `sync`, so the map itself must free the memory.
            rest(&map);
        } else {
            map.sync();
        }
        map.check_invariants();
        let mut left = Vec::new();
        map.pin().scan(&make(0), usize::MAX, |_, value| left.push(*value));
        assert!(left.into_iter().eq((0..count).step_by(keep as usize)));
        let fresh: HydraList<K, u64> = HydraList::from_sorted(map.pin().iter());
        let goal = 3 * fresh.bytes();
        println!("{full} bytes were held, a fresh map holds {}", fresh.bytes());
        // No other `sync`, which might merge more pages.
        soon_shows(&map, |stats| stats.bytes <= goal);
    });
}

#[cfg(not(miri))]
#[test]
fn few_entries_left_evenly_take_little() {
    let (in_order, scattered) = (|n, _| n, |n: u64, count: u64| n * 1_000_003 % count);
    let email = |n| format!("user{n:012}@example.org");
    for (layer, nodes) in [(SearchLayerKind::Snapshot, 1), (SearchLayerKind::Snapshot, 3), (SearchLayerKind::Art, 1)] {
        let topology = Topology::synthetic(nodes, 1);
        let builder = || HydraList::builder().search_layer(layer).topology(topology.clone());
        thin_out(builder().build(), 300_000, 1000, |n| n, in_order);
        thin_out(builder().build(), 300_000, 1000, |n| n, scattered);
        thin_out(builder().build(), 100_000, 20, |n| n, scattered);
        thin_out(builder().maintainers(Maintainers::Clients).build(), 100_000, 1000, |n| n, scattered);
        let builder = || HydraList::builder().search_layer(layer).topology(topology.clone());
        thin_out(builder().build(), 100_000, 1000, email, in_order);
        thin_out(builder().build(), 100_000, 100, email, scattered);
        // The keys are so long that bounds are read from the neighbouring page.
        thin_out(builder().build(), 30_000, 100, |n| format!("{}{n:012}", "/a/long/path".repeat(8)), scattered);
    }
}

/// Two threads use windows of keys that fill, slide and become empty. In later rounds the greatest memory must not
/// exceed what the first rounds needed. The scheduler determines how much memory waits for readers, and one round in
/// hundreds needs several times as much as the others, so there are several tries. A map that really grows does so in
/// every try.
fn churn<K: Key>(new: impl Fn() -> HydraList<K, u64>, make: fn(u64) -> K) {
    some_try(10, || churned(new(), make));
}

fn churned<K: Key>(map: HydraList<K, u64>, make: fn(u64) -> K) -> Result<(), String> {
    let window = sized(20_000, 60) as u64;
    let round = |t: u64, round: u64| {
        let session = map.pin();
        let nth = |n: u64| make((n * 2 + t) << 8 | round);
        for n in 0..2 * window {
            assert_eq!(session.insert(nth(n), n), None);
            if n >= window {
                assert_eq!(session.remove(&nth(n - window)), Some(n - window));
            }
        }
        let most = map.bytes();
        (window..2 * window).for_each(|n| assert_eq!(session.remove(&nth(n)), Some(n)));
        most
    };
    let rounds = || {
        let number = core::cell::Cell::new(0);
        let next = move || {
            number.set(number.get() + 1);
            number.get()
        };
        let together = |number: u64| {
            thread::scope(|s| {
                let threads: Vec<_> = (0..2).map(|t| s.spawn(move || round(t, number))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
            })
        };
        core::iter::repeat_with(next).map(together)
    };
    let most: Vec<usize> = rounds().take(sized(12, 3)).collect();
    let (first, later) = most.split_at(most.len() / 3);
    let limit = first.iter().max().unwrap() * 5 / 4 + (2 << 20);
    map.check_invariants();
    assert!(map.is_empty());
    if later.iter().all(|&bytes| bytes <= limit) { Ok(()) } else { Err(format!("memory grows: {most:?}")) }
}

#[test]
fn churn_of_words_is_flat() {
    churn(HydraList::new, scatter);
    churn(HydraList::new, |n| n);
    churn(|| HydraList::builder().search_layer(SearchLayerKind::Art).build(), scatter);
}

#[test]
fn churn_of_strings_is_flat() {
    churn(HydraList::new, email);
    churn(HydraList::new, |n| format!("{n:020}"));
}

/// Maps of every size are made and dropped: thousands of small ones, and some with background threads at work.
#[test]
fn ten_thousand_maps() {
    for n in 0..sized(10_000, 20) as u64 {
        let map: HydraList<u64, String> = HydraList::new();
        map.pin().extend((0..n % 50).map(|key| (scatter(key), "value".to_owned())));
        assert_eq!(map.len() as u64, n % 50);
    }
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let mut most = 0;
    for n in 0..sized(60, 0) as u64 {
        let map = HydraList::builder().topology(Topology::synthetic(1 << (n % 4), 1)).build();
        map.pin().extend((0..40_000u64).map(|key| (scatter(key), n)));
        assert_eq!(map.maintenance_stats().threads, 1 << (n % 4));
        most = most.max(threads());
    }
    // Other tests of this file run at the same time, with a few threads each. The maps had 225 threads.
    let others = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    assert!(most < 60 + 8 * others, "{most} threads: dropped maps leave theirs behind");
}
