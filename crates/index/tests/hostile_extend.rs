//! Bulk insertion by several threads at once, with keys that pages don't hold whole: bounds of more than 64 bytes and
//! keys of more than 192 are boxed, so whoever believes a page that is being written follows a pointer to nowhere.
//!
//! Each test takes a second. `ARCHIPELAGO_HOSTILE_SECONDS=600` makes it last longer, and
//! `ARCHIPELAGO_HOSTILE_THREADS=2` changes the number of threads.

mod common;

use archipelago_check::watchdog::watchdog;
use archipelago_index::HydraList;
use archipelago_index::hydra::Session;
use common::sized;
use std::time::{Duration, Instant};

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn threads() -> usize {
    from_env("ARCHIPELAGO_HOSTILE_THREADS").unwrap_or(4) as usize
}

fn seconds() -> u64 {
    from_env("ARCHIPELAGO_HOSTILE_SECONDS").unwrap_or(if cfg!(miri) { 0 } else { 1 })
}

type Map = HydraList<String, usize>;

/// Has several threads work on a map, on a new one again and again until the time is up; `end` looks at each.
fn side_by_side(work: impl Fn(&Session<'_, String, usize>, usize) + Sync, end: impl Fn(&Map)) {
    let (work, limit) = (&work, Duration::from_secs(seconds()));
    watchdog(limit + Duration::from_secs(240), |notes| {
        let start = Instant::now();
        let mut round = 0;
        while round == 0 || start.elapsed() < limit {
            notes.note(format!("round {round}"));
            let map = Map::new();
            std::thread::scope(|scope| {
                for thread in 0..threads() {
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

/// All threads add at the end of the list, each finding its page near the last one: there a page without an upper bound
/// gets one again and again.
fn ascending(key: impl Fn(usize) -> String + Sync) {
    let (threads, count) = (threads(), sized(2_000, 100));
    let mine = |thread: usize| (0..count).map(move |n| n * threads + thread);
    let end = |map: &Map| {
        assert_eq!(map.len(), threads * count);
        assert!(map.into_iter().enumerate().all(|(n, entry)| entry == (key(n), n)));
    };
    side_by_side(|map, thread| map.extend(mine(thread).map(|n| (key(n), n))), end);
}

/// All threads add to and take from the same pages, so bounds come, go and move.
fn coming_and_going(key: impl Fn(usize) -> String + Sync) {
    let (threads, count, repeats) = (threads(), sized(1_000, 60), 4);
    let mine = |thread: usize, repeat: usize| (0..count).map(move |n| (n * threads + thread) * repeats + repeat);
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
        let expected = (0..threads * count * repeats).filter(left).map(|n| (key(n), n));
        assert!(map.into_iter().eq(expected));
    });
}

/// 80 bytes before keys differ: every upper bound is boxed.
fn path(n: usize) -> String {
    format!("/srv/archive/2026/{}{n:07}", "deeper/".repeat(9))
}

/// Too long for a page: the key itself is boxed, too.
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
