//! `BLinkTree` under loads that the thesis and its code base were not put to: many deletes, many more threads than
//! processors, threads that come and go; with bounds on memory and on the longest operation.

use archipelago_check::drops::DropCounter;
use archipelago_check::hostile::{
    self, Longest, alone, beside, crowd, duration, in_turns, longest_gap, some_try, within,
};
use archipelago_check::watchdog::watchdog;
use archipelago_index::BLinkTree;
use archipelago_index::blink::Pages;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Small<K, V> = BLinkTree<K, V, Pages<512>>;

/// A million when run long, fewer usually.
fn entries() -> u64 {
    if cfg!(miri) {
        1_000
    } else if std::env::var_os(hostile::SECONDS).is_some() {
        1_000_000
    } else {
        100_000
    }
}

/// Numbers in no order, each once.
fn scattered(count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(move |n| n * 7_919 % count)
}

fn name(n: u64) -> String {
    format!("{n:010}")
}

/// A quarter of the keys is removed; none of them may be found after. (The code base of the thesis found 996,886 of a
/// million after it had removed 250,000: its look-up never asked whether an entry was dead.)
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

/// Three threads remove a quarter of the keys each, at the same time, while one looks up the quarter that stays. (There,
/// 240,000 of each 250,000 were still found.)
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

/// Threads fill their part of the tree and empty it again, in and against the order of keys: pages split, share and merge
/// all the time, under readers of keys that never leave.
#[test]
fn the_tree_grows_and_shrinks_under_readers() {
    let _beside = beside();
    let tree: Small<u64, u64> = BLinkTree::new();
    const THREADS: u64 = 4;
    let (width, rounds) = if cfg!(miri) { (60, 1) } else { (1_500, 12) };
    // The key of a number: neighbours belong to different threads, and every 64th stays.
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

/// What was once large does not stay large: an emptied tree is one page, whatever the order in which it was emptied.
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
        tree.sync();
        let stats = tree.stats();
        assert!(stats.bytes < full / 4, "{} bytes of {full} are left", stats.bytes);
    }
}

/// Many more threads than processors churn in few pages: no operation takes much longer than such a crowd's threads wait for
/// a processor anyway, memory stays in proportion, and no value is lost.
#[test]
fn a_crowd_in_few_pages() {
    let _alone = alone();
    watchdog(hostile::limit(), |_| {
        const THREADS: usize = 32;
        let counter = DropCounter::new();
        let tree: Small<u64, archipelago_check::drops::Counted> = BLinkTree::new();
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

/// Threads come, work and go by the hundred: nothing is kept for them, and what they left behind is freed.
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
        let bytes = tree.stats().bytes;
        if batch < threads / 12 {
            most = most.max(bytes);
        }
        assert!(
            batch < threads / 12 || bytes <= most * 2,
            "{bytes} bytes in batch {batch}, {most} at most in the first half"
        );
    }
    tree.check_invariants();
    assert!(tree.is_empty());
}
