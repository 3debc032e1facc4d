//! Bulk insertion by several threads at once, with long keys: page bounds of more than 64 bytes and keys of more than
//! 192 bytes are boxed, and the page stores a pointer. A look-up that trusted a page while it is being written would
//! follow an invalid pointer.
//!
//! Each test except the last takes a second. `ARCHIPELAGO_HOSTILE_SECONDS=600` makes these tests last longer.

mod common;

use archipelago_check::hostile::duration_or;
use archipelago_check::watchdog::watchdog;
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::blink::{self, Policy};
use archipelago_index::hydra::Session;
use archipelago_index::{BLinkTree, HydraList};
use archipelago_tested as _;
use common::sized;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const THREADS: usize = 4;

type Map = HydraList<String, usize>;

/// Lets several threads work on a new map, again and again, until the time has passed. `end` checks each map.
fn side_by_side(work: impl Fn(&Session<'_, String, usize>, usize) + Sync, end: impl Fn(&Map)) {
    let (work, limit) = (&work, duration_or(Duration::from_secs(sized(1, 0) as u64)));
    watchdog(limit + Duration::from_secs(240), |notes| {
        let start = Instant::now();
        let mut round = 0;
        while round == 0 || start.elapsed() < limit {
            notes.note(format!("round {round}"));
            let map = Map::new();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let map = &map;
                    scope.spawn(move || work(&map.pin(), thread));
                }
            });
            map.sync();
            map.check_invariants();
            end(&map);
            round += 1;
        }
    });
}

/// All threads append at the end of the list, and each finds its page near the page of its last insertion. The last
/// page of the list has no upper bound. Each time that it is split, it gets one.
fn ascending(key: impl Fn(usize) -> String + Sync) {
    let count = sized(2_000, 100);
    let mine = |thread: usize| (0..count).map(move |n| n * THREADS + thread);
    let end = |map: &Map| {
        assert_eq!(map.len(), THREADS * count);
        assert!(map.into_iter().enumerate().all(|(n, entry)| entry == (key(n), n)));
    };
    side_by_side(|map, thread| map.extend(mine(thread).map(|n| (key(n), n))), end);
}

/// All threads insert into and remove from the same pages, so bounds are added, removed and changed.
fn coming_and_going(key: impl Fn(usize) -> String + Sync) {
    let (count, repeats) = (sized(1_000, 60), 4);
    let mine = |thread: usize, repeat: usize| (0..count).map(move |n| (n * THREADS + thread) * repeats + repeat);
    let work = |map: &Session<'_, String, usize>, thread: usize| {
        for repeat in 0..repeats {
            map.extend(mine(thread, repeat).map(|n| (key(n), n)));
            for n in mine(thread, repeat).filter(|n| n % 64 > repeats) {
                assert_eq!(map.remove(&key(n)), Some(n));
            }
        }
    };
    let left = |n: &usize| n % 64 <= repeats;
    side_by_side(work, |map| {
        let expected = (0..THREADS * count * repeats).filter(left).map(|n| (key(n), n));
        assert!(map.into_iter().eq(expected));
    });
}

/// Returns paths that differ only after 80 bytes, so that every upper bound is boxed.
fn path(n: usize) -> String {
    format!("/srv/archive/2026/{}{n:07}", "deeper/".repeat(9))
}

/// Returns keys that are too long for a page, so that the key itself is boxed, too.
fn long(n: usize) -> String {
    format!("{}{n:07}{}", "p".repeat(70), "s".repeat(150))
}

#[test]
fn paths_of_a_deep_directory() {
    ascending(path);
}

#[test]
fn paths_come_and_go() {
    coming_and_going(path);
}

#[test]
fn keys_too_long_for_a_page() {
    ascending(long);
}

#[test]
fn keys_too_long_for_a_page_come_and_go() {
    coming_and_going(long);
}

/// A key that is too long prevents no other key from being stored: all entries before it and after it are stored, even
/// if entries are sorted first, and then the call panics. `try_extend` stops at this key, and returns its entry.
#[test]
fn a_key_that_is_too_long_takes_no_other_along() {
    type Tree<P> = BLinkTree<String, u64, P>;

    fn check<P: Policy>() {
        let is_long = |n: u64| n % 500 == 7;
        let entry = |n: u64| {
            let long = if is_long(n) { Tree::<P>::LONGEST_KEY } else { 0 };
            (format!("{:04}{}", n * 7919 % 10_000, "x".repeat(long)), n)
        };
        for count in [1, 8, 99, 5000] {
            let map: Tree<P> = BLinkTree::new();
            let too_long = (0..count).filter(|&n| is_long(n)).count();
            let stored = catch_unwind(AssertUnwindSafe(|| map.pin().insert_many((0..count).map(entry))));
            assert_eq!(stored.is_err(), too_long > 0);
            assert_eq!(map.len(), count as usize - too_long);
            (0..count).filter(|&n| !is_long(n)).for_each(|n| assert_eq!(map.pin().get(&entry(n).0), Some(n)));
            map.check_invariants();
            let map: Tree<P> = BLinkTree::new();
            match map.pin().try_extend((0..count).map(entry)) {
                Ok(stored) => assert_eq!((stored, too_long), (count as usize, 0)),
                Err(refused) => assert_eq!((refused.into_inner().1, map.len()), (7, 7)),
            };
        }
    }
    check::<blink::Standard>();
    check::<blink::Pages<512>>();
    check::<blink::Mirrored<blink::Pages<512>>>();
}
