//! `BLinkTree` under loads with which its original, a thesis and its code base, was not tested: many deletes, many more
//! threads than processors, threads that start and end. The last tests run under several policies. The tests bound
//! memory and the duration of the longest operation.

#[path = "common/crowds.rs"]
mod crowds;
#[path = "common/quiet.rs"]
#[allow(dead_code)]
mod quiet;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{
    self, Longest, alone, beside, crowd, duration, in_turns, longest_gap, some_try, within,
};
use archipelago_check::watchdog::watchdog;
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::blink::{
    Builder, Central, Dense, Granular, InnerReplicas, Latched, LogFed, Mirrored, Pages, Policy,
};
use archipelago_index::{BLinkTree, Change, Key};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::topology::Topology;
use archipelago_tested as _;
use crowds::in_a_crowd;
use quiet::soon_shows;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Small<K, V> = BLinkTree<K, V, Pages<512>>;

/// Returns the number of entries: a million if the environment requests a long run, and fewer otherwise.
fn entries() -> u64 {
    if cfg!(miri) {
        1_000
    } else if std::env::var_os(hostile::SECONDS).is_some() {
        1_000_000
    } else {
        100_000
    }
}

/// Returns the numbers below `count` in no order, each once.
fn scattered(count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(move |n| n * 7_919 % count)
}

fn name(n: u64) -> String {
    format!("{n:010}")
}

/// A quarter of the keys is removed, and none of them may be found afterwards. (The code base of the thesis found
/// 996,886 of a million keys after it had removed 250,000, since its look-up never checked whether an entry was dead.)
#[test]
fn removed_keys_are_not_found() {
    let _beside = beside();
    let tree: BLinkTree<String, u64> = BLinkTree::new();
    let map = tree.pin();
    let count = entries();
    scattered(count).for_each(|n| assert_eq!(map.insert(name(n), n), None));
    let removed = |n: u64| n % 4 == 1;
    scattered(count).filter(|&n| removed(n)).for_each(|n| assert_eq!(map.remove(&name(n)), Some(n)));
    let found = (0..count).filter(|&n| map.get(&name(n)).is_some()).count() as u64;
    assert_eq!(found, count * 3 / 4);
    assert!((0..count).all(|n| map.get(&name(n)) == (!removed(n)).then_some(n)));
    assert_eq!(map.scan("", usize::MAX, |key, _| assert!(!removed(key.parse().unwrap()))), found as usize);
    tree.check_invariants();
}

/// Three threads remove a quarter of the keys each, at the same time, while one thread looks up the quarter that stays.
/// (In the thesis's code base, 240,000 of each 250,000 removed keys were still found.)
#[test]
fn keys_removed_by_three_threads_are_not_found() {
    let _beside = beside();
    let tree: BLinkTree<String, u64> = BLinkTree::new();
    let count = entries();
    let map = tree.pin();
    scattered(count).for_each(|n| assert_eq!(map.insert(name(n), n), None));
    thread::scope(|scope| {
        for third in 0..3 {
            let tree = &tree;
            scope.spawn(move || {
                let map = tree.pin();
                let mine = scattered(count).filter(|n| n % 4 == third);
                mine.clone().for_each(|n| assert_eq!(map.remove(&name(n)), Some(n)));
                mine.for_each(|n| assert_eq!(map.get(&name(n)), None));
            });
        }
        let map = tree.pin();
        scattered(count).filter(|n| n % 4 == 3).for_each(|n| assert_eq!(map.get(&name(n)), Some(n)));
    });
    assert!((0..count).all(|n| map.get(&name(n)) == (n % 4 == 3).then_some(n)));
    assert_eq!(tree.len() as u64, count / 4);
    tree.check_invariants();
}

/// Threads fill their part of the tree and empty it again, in the order of keys and against it. So pages are split and
/// merged, and neighbours balance their entries, all the time. Meanwhile readers look up keys that are never removed.
#[test]
fn the_tree_grows_and_shrinks_under_readers() {
    let _beside = beside();
    let tree: Small<u64, u64> = BLinkTree::new();
    const THREADS: u64 = 4;
    let (width, rounds) = if cfg!(miri) { (60, 1) } else { (1_500, 12) };
    // The keys of neighbouring numbers belong to different threads, and every 64th key stays.
    let stays = |n: u64| n.is_multiple_of(64);
    let map = tree.pin();
    (0..THREADS * width).filter(|&n| stays(n)).for_each(|n| assert_eq!(map.insert(n, n), None));
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                let map = tree.pin();
                let mine = (0..width).map(|n| n * THREADS + me).filter(|&n| !stays(n));
                for round in 0..rounds {
                    mine.clone().for_each(|n| assert_eq!(map.insert(n, n + round), None));
                    mine.clone().for_each(|n| assert_eq!(map.get(&n), Some(n + round)));
                    if round % 2 == 0 {
                        mine.clone().for_each(|n| assert_eq!(map.remove(&n), Some(n + round)));
                    } else {
                        mine.clone().rev().for_each(|n| assert_eq!(map.remove(&n), Some(n + round)));
                    }
                }
                done.fetch_add(1, Relaxed);
            });
        }
        for down in [false, true] {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                let map = tree.pin();
                while done.load(Relaxed) < THREADS {
                    (0..THREADS * width).filter(|&n| stays(n)).for_each(|n| assert_eq!(map.get(&n), Some(n)));
                    let mut seen = Vec::new();
                    let visit = |key: u64, _: &u64| seen.push(key);
                    if down {
                        map.scan_rev(&u64::MAX, usize::MAX, visit);
                        seen.reverse();
                    } else {
                        map.scan(&0, usize::MAX, visit);
                    }
                    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "a key twice or out of order");
                    assert!(seen.into_iter().filter(|&n| stays(n)).eq((0..THREADS * width).filter(|&n| stays(n))));
                }
            });
        }
    });
    tree.check_invariants();
    assert_eq!(tree.len() as u64, (THREADS * width).div_ceil(64));
}

/// A tree that has become large and is emptied becomes small again: it is one page, whatever the order in which it was
/// emptied.
#[test]
fn an_emptied_tree_is_small() {
    let _alone = alone();
    for order in 0..3 {
        let tree: BLinkTree<u64, u64> = BLinkTree::new();
        let map = tree.pin();
        let count = entries();
        scattered(count).for_each(|n| assert_eq!(map.insert(n, n), None));
        let full = tree.stats().bytes;
        match order {
            0 => (0..count).for_each(|n| assert_eq!(map.remove(&n), Some(n))),
            1 => (0..count).rev().for_each(|n| assert_eq!(map.remove(&n), Some(n))),
            _ => scattered(count).for_each(|n| assert_eq!(map.remove(&n), Some(n))),
        }
        tree.check_invariants();
        assert_eq!((tree.levels(), tree.len()), (1, 0));
        // While the thread that maintains idle maps reclaims memory of this map, `sync` may free nothing, so this is
        // tried again.
        some_try(500, || {
            tree.sync();
            let bytes = tree.stats().bytes;
            thread::sleep(Duration::from_millis(2));
            if bytes < full / 4 { Ok(()) } else { Err(format!("{bytes} bytes of {full} are left")) }
        });
    }
}

/// Many more threads than processors insert and remove in few pages. In any crowd of this size, threads wait a long
/// time for a processor; no operation takes much longer than this. The memory stays in proportion to the entries, and
/// no value is lost.
#[test]
fn a_crowd_in_few_pages() {
    let _alone = alone();
    watchdog(hostile::limit(), |_| {
        const THREADS: usize = 32;
        let counter = DropCounter::new();
        let tree: Small<u64, Counted> = BLinkTree::new();
        some_try(3, || {
            let time = duration().min(Duration::from_secs(600));
            let longest = Longest::default();
            let (_, control) = in_turns(
                || longest_gap(THREADS, time / 2),
                || {
                    crowd(THREADS, time, |me, end| {
                        let map = tree.pin();
                        let mut random = me as u64 + 1;
                        while Instant::now() < end {
                            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                            let key = (random >> 40) % 200;
                            let start = Instant::now();
                            if random >> 33 & 1 == 0 {
                                map.insert(key, counter.value(key));
                            } else {
                                map.remove(&key);
                            }
                            longest.note(start.elapsed());
                        }
                    })
                },
            );
            tree.check_invariants();
            assert!(tree.len() <= 200);
            within("an operation in a crowd", 10, longest.get(), control)
        });
        drop(tree);
        counter.assert_all_dropped();
    });
}

/// Hundreds of threads start, work and end. The map keeps no memory for ended threads, and frees what they have
/// removed.
#[test]
fn threads_that_come_and_go() {
    let _alone = alone();
    let tree: BLinkTree<u64, String> = BLinkTree::new();
    let threads = if cfg!(miri) { 6 } else { 600 };
    let mut most = 0;
    for batch in 0..threads / 6 {
        thread::scope(|scope| {
            for me in 0..6 {
                let tree = &tree;
                scope.spawn(move || {
                    let map = tree.pin();
                    for n in 0..200 {
                        let key = n * 6 + me;
                        assert_eq!(map.insert(key, name(batch)), None);
                    }
                    for n in 0..200 {
                        assert_eq!(map.remove(&(n * 6 + me)), Some(name(batch)));
                    }
                });
            }
        });
        tree.sync();
        let bytes = soon_shows(&tree, |stats| batch < threads / 12 || stats.bytes <= most * 2).bytes;
        if batch < threads / 12 {
            most = most.max(bytes);
        }
    }
    tree.check_invariants();
    assert!(tree.is_empty());
}

fn on_nodes<K: Key, V: Send + Sync + 'static, P: Policy>(nodes: usize) -> BLinkTree<K, V, P> {
    Builder::default().topology(Topology::synthetic(nodes, 1)).build()
}

/// Inserts keys, and waits until the number of pages that all replicas together take for them, on two nodes, is as
/// expected. Returns the number.
#[track_caller]
fn pages_for<P: Policy>(keys: impl Iterator<Item = u64>, expected: impl Fn(u64) -> bool) -> u64 {
    let tree: BLinkTree<u64, u64, P> = on_nodes(2);
    let map = tree.pin();
    keys.for_each(|n| assert_eq!(map.insert(n, n), None));
    tree.sync();
    tree.check_invariants();
    soon_shows(&tree, |stats| expected(stats.pages as u64)).pages as u64
}

/// If keys are inserted in ascending order, the pages become full. The same holds for descending order.
#[test]
fn keys_in_either_order_fill_pages() {
    let _beside = beside();
    let count = if cfg!(miri) { 300 } else { 20_000 };
    // A page has room for 28 entries, and there are inner pages.
    let are_few = |pages| pages <= count / 25;
    pages_for::<Pages<512>>(0..count, are_few);
    pages_for::<Pages<512>>((0..count).rev(), are_few);
}

/// Each replica's pages are as full as those of a single tree of the same policy.
#[test]
fn replicas_are_dense() {
    let _beside = beside();
    let count = if cfg!(miri) { 300 } else { 20_000 };
    let split_at_once = pages_for::<Pages<512>>(scattered(count), |_| true);
    println!("{split_at_once} pages where none are shared");
    let one = pages_for::<Dense<Pages<512>>>(scattered(count), |one| cfg!(miri) || one * 10 < split_at_once * 9);
    println!("{one} pages in one tree");
    let are_dense = |two| two * 100 <= one * 2 * 103;
    pages_for::<Mirrored<Dense<Pages<512>>>>(scattered(count), are_dense);
    pages_for::<LogFed<Dense<Pages<512>>>>(scattered(count), are_dense);
}

fn crowded<P: Policy>(keys: u64) {
    let counter = DropCounter::new();
    let time = duration().min(Duration::from_secs(600)) / 4;
    in_a_crowd(on_nodes::<u64, Counted, P>(3), counter, keys, 48, (3, time));
}

/// Closures use the map that calls them, change the key about which they decide, or panic. References to values are
/// kept meanwhile.
fn closures<P: Policy>() {
    let counter = DropCounter::new();
    let tree: BLinkTree<u64, Counted, P> = on_nodes(2);
    let map = tree.pin();
    let count = if cfg!(miri) { 100 } else { 1_000 };
    (0..count).for_each(|n| assert!(map.insert(n, counter.value(n)).is_none()));
    let kept = map.get_ref(&40).expect("it is there");
    let mut calls = 0;
    map.compute(&7, |there| {
        calls += 1;
        if calls < 3 {
            assert!(tree.pin().insert(7, counter.value(calls)).is_some());
        }
        tree.pin().pop_first();
        there.map_or(Change::Keep, |_| Change::Put(counter.value(70)))
    });
    assert_eq!((calls, map.get(&7).map(|value| value.tag())), (3, Some(70)));
    let made = map.get_or_insert_with(count, || {
        drop(tree.pin().insert(count, counter.value(1)));
        counter.value(2)
    });
    assert_eq!(made.tag(), 1, "the one that was there first stays");
    drop(made);
    map.retain(|key, _| {
        if key % 3 == 0 {
            tree.pin().remove(&(key + 1));
            tree.pin().remove_range(key + 20..key + 24);
        }
        key % 2 == 0
    });
    let left = tree.len();
    let first = map.first().expect("there are some").key();
    let panics: [&dyn Fn(); 5] = [
        &|| _ = map.compute(&first, |_| panic!("in compute")),
        &|| map.retain(|key, _| if key > 50 { panic!("in retain") } else { true }),
        &|| _ = map.get_or_insert_with(77_777, || panic!("in get_or_insert_with")),
        &|| _ = map.update(&first, |_| panic!("in update")),
        &|| _ = map.scan(&0, 9, |_, _| panic!("in scan")),
    ];
    for panics in panics {
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        // Nothing has changed, and no lock is held.
        assert!(map.insert(77_777, counter.value(0)).is_none() && map.remove(&77_777).is_some());
        assert_eq!((tree.len(), map.iter().count()), (left, left));
    }
    assert_eq!(kept.tag(), 40);
    drop(kept);
    tree.check_invariants();
    drop(tree);
    counter.assert_all_dropped();
}

/// Several threads run all bulk operations over the same keys. Keys that no thread removes are present throughout.
fn bulk<P: Policy>() {
    let counter = DropCounter::new();
    let count = if cfg!(miri) { 100 } else { 2_000 };
    let stays = |n: u64| n.is_multiple_of(100);
    let entry = |n: u64| (n, counter.value(n));
    let some = || {
        let tree: BLinkTree<u64, Counted, P> = on_nodes(2);
        tree.pin().extend((0..count).map(entry));
        tree
    };
    let tree = some();
    crowd(5, Duration::default(), |me, _| {
        let map = tree.pin();
        for turn in 0..10 {
            match (me + turn) % 5 {
                0 => map.extend((count / 4..count).filter(|&n| !stays(n)).map(entry)),
                1 => (0..count).step_by(100).for_each(|n| _ = map.remove_range(n + 1..n + 100)),
                2 => map.retain(|key, _| stays(key) || key % 3 != 0),
                3 => map.drain_range(1..100).for_each(|entry| assert!(!stays(entry.key()))),
                _ => {
                    let mut lower = some();
                    lower.pin().retain(|key, _| !stays(key));
                    let mut upper = lower.split_off(&(count / 2));
                    tree.append(&mut upper);
                    tree.append(&mut lower);
                    assert!(upper.is_empty() && lower.is_empty());
                }
            }
            let seen: Vec<u64> = map.iter().map(|(key, _)| key).collect();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "a key twice or out of order");
            assert!(seen.into_iter().filter(|&n| stays(n)).eq((0..count).filter(|&n| stays(n))));
        }
    });
    tree.check_invariants();
    drop(tree);
    counter.assert_all_dropped();
}

/// The threads of some nodes have ended, and no thread runs on these nodes again. The nodes' replicas delay no update,
/// and the map does not grow.
fn idle_nodes<P: Policy>() {
    let tree: BLinkTree<u64, u64, P> = on_nodes(3);
    let count = if cfg!(miri) { 50 } else { 2_000 };
    crowd(6, Duration::default(), |me, _| (0..count).for_each(|n| _ = tree.pin().insert(n, me as u64)));
    let map = tree.pin();
    let mut most = 0;
    // These are more operations than the logs can contain.
    for round in 0..20 {
        (0..count).for_each(|n| assert!(map.insert(n, round).is_some()));
        (0..count).for_each(|n| assert_eq!(map.remove(&n), Some(round)));
        (0..count).for_each(|n| assert_eq!(map.insert(n, round), None));
        let bytes = soon_shows(&tree, |stats| round < 4 || stats.bytes <= most * 2).bytes;
        most = most.max(bytes);
    }
    tree.check_invariants();
}

/// When the map is dropped, only one replica contains the values that were inserted last.
#[test]
fn values_that_one_replica_alone_has_go_with_the_map() {
    let _alone = alone();
    let counter = DropCounter::new();
    let tree: BLinkTree<u64, Counted, LogFed<Dense<Pages<512>>>> = on_nodes(3);
    // The threads exist at the same time, since threads that follow one another would be on one node.
    let together = Barrier::new(6);
    let insert = |me: u64| {
        together.wait();
        (0..10).for_each(|n| drop(tree.pin().insert(10 * me + n, counter.value(n))));
        together.wait();
    };
    thread::scope(|scope| (0..6).for_each(|me| _ = scope.spawn(move || insert(me))));
    drop(tree);
    counter.assert_all_dropped();
}

macro_rules! under {
    ($($name:ident: $policy:ty;)*) => { $(
        #[test]
        fn $name() {
            let _alone = alone();
            watchdog(hostile::limit(), |notes| {
                closures::<$policy>();
                notes.note("many at a time");
                bulk::<$policy>();
                notes.note("nodes without threads");
                idle_nodes::<$policy>();
                notes.note("crowds");
                [200, 20_000].into_iter().for_each(crowded::<$policy>);
            });
        }
    )* };
}

under! {
    everything_under_latched_parents: Granular<Latched<512, Central, true>, 1>;
    everything_in_replicas: Mirrored<Dense<Pages<512>>>;
    everything_in_replicas_from_a_log: LogFed<Dense<Pages<512>>>;
    everything_below_copies: InnerReplicas<Pages<512>>;
}
