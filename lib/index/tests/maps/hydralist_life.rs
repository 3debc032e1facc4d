//! Tests of a HydraList that concern more than single operations: many maps, iterators, borrowed keys, idle maps, the
//! drop of maps, and pages that are moved in memory.

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::{HydraList, Key};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Permutes `0..2^64`, so that keys are distinct and far apart.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const MANY: u64 = if cfg!(miri) { 100 } else { 2_000 };

#[test]
fn an_empty_map_is_small_and_many_can_be_made() {
    for _ in 0..if cfg!(miri) { 20 } else { 10_000 } {
        let map: HydraList<u64, u64> = HydraList::new();
        map.pin().insert(1, 2);
        assert!(map.bytes() < 4096, "{} bytes", map.bytes());
    }
}

#[test]
fn iterators_meet_in_the_middle() {
    let model: BTreeMap<u64, u64> = (0..MANY).map(|n| (scatter(n), n)).collect();
    let map: HydraList<u64, u64> = model.iter().map(|(key, value)| (*key, *value)).collect();
    let session = map.pin();
    for turn in 1..7 {
        let (mut ours, mut theirs) = (session.iter(), model.iter());
        for step in 0.. {
            let (our, their) =
                if step % turn == 0 { (ours.next_back(), theirs.next_back()) } else { (ours.next(), theirs.next()) };
            assert_eq!(our, their.map(|(key, value)| (*key, *value)));
            if our.is_none() {
                break;
            }
        }
    }
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "such a range is what is tried")]
fn ranges_mean_what_they_say() {
    let map: HydraList<u64, u64> = [0, 5, 9, u64::MAX].map(|key| (key, key)).into_iter().collect();
    let session = map.pin();
    let keys = |range: archipelago_index::hydra::Range<'_, u64, u64>| range.map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(session.range(..)), [0, 5, 9, u64::MAX]);
    assert_eq!(keys(session.range(1..=9)), [5, 9]);
    assert_eq!(keys(session.range(5..9)), [5]);
    assert!(keys(session.range(9..5)).is_empty());
    assert_eq!(keys(session.range(u64::MAX..)), [u64::MAX]);
    assert_eq!(session.range(..=5).rev().map(|(key, _)| key).collect::<Vec<_>>(), [5, 0]);
    assert_eq!(session.first_key_value(), Some((0, 0)));
    assert_eq!(session.last_key_value(), Some((u64::MAX, u64::MAX)));
    assert_eq!(session.pop_first(), Some((0, 0)));
    assert_eq!(format!("{map:?}"), format!("{{5: 5, 9: 9, {0}: {0}}}", u64::MAX));
}

#[test]
fn borrowed_keys_find_owned_ones() {
    let map: HydraList<String, u32> = HydraList::from_sorted([("a".into(), 1), ("b".into(), 2)]);
    let session = map.pin();
    assert_eq!(session.get("a"), Some(1));
    assert_eq!(session.get_many(&["b".to_owned(), "c".to_owned()]), [Some(2), None]);
    assert!(!session.upsert("c", 3) && session.contains_key("c"));
    assert_eq!(session.update("c", |old| old + 1), Some(3));
    assert_eq!(session.get_or_insert_with("c".into(), || 9), 4);
    assert_eq!(session.remove("c"), Some(4));
    assert_eq!(session.range::<str, _>((Bound::Included("a"), Bound::Excluded("b"))).next(), Some(("a".to_owned(), 1)));
}

#[cfg(feature = "serde")]
#[test]
fn maps_survive_serde() {
    let map: HydraList<String, u32> = [("a".to_owned(), 1), ("b".to_owned(), 2)].into_iter().collect();
    let text = serde_json::to_string(&map).unwrap();
    assert_eq!(text, r#"{"a":1,"b":2}"#);
    let back: HydraList<String, u32> = serde_json::from_str(&text).unwrap();
    let long = format!("{{\"{}\":1}}", "x".repeat(100_000));
    let refused = serde_json::from_str::<archipelago_index::BLinkTree<String, u32>>(&long).unwrap_err();
    assert!(refused.to_string().contains("longer than the map's longest"), "{refused}");
    assert!(back.pin().iter().eq(map.pin().iter()));
}

/// A map with at least this many entries has a background thread.
const LARGE: u64 = 36_000;

/// A value that may own the map that contains it.
struct Owner {
    _counted: Counted,
    _map: Option<Arc<HydraList<u64, Owner>>>,
}

impl Owner {
    fn of(counter: DropCounter, map: Option<Arc<HydraList<u64, Owner>>>) -> Self {
        Owner { _counted: counter.value(0), _map: map }
    }
}

/// Waits until only `alive` values are alive, without any call to the map.
fn wait_for_alive(counter: DropCounter, alive: i64) {
    while counter.alive() > alive {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the map's threads sleep without a time-out.
#[cfg(not(miri))]
fn wait_for_rest(map: &HydraList<u64, Counted>) {
    loop {
        let stats = map.maintenance_stats();
        if stats.roused == stats.done {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The background thread drops a value that is the map's last owner.
#[cfg(not(miri))]
#[test]
fn a_map_whose_last_owner_is_its_own_dead_value_goes() {
    for nodes in [1, 2] {
        watchdog(USUAL, |notes| {
            let counter = DropCounter::new();
            for round in 0..200 / nodes {
                notes.note(format!("round {round} on {nodes} nodes"));
                let map = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
                let map: Arc<HydraList<u64, Owner>> = Arc::new(map);
                map.pin().extend((0..LARGE).map(|key| (key, Owner::of(counter, None))));
                assert_eq!(map.maintenance_stats().threads, nodes);
                map.pin().upsert(&7, Owner::of(counter, Some(map.clone())));
                // Sometimes the background thread still works, and sometimes it sleeps already.
                thread::sleep(Duration::from_millis(round as u64 % 4 * 2));
                map.pin().delete(&7);
                drop(map);
            }
            wait_for_alive(counter, 0);
            counter.assert_all_dropped();
        });
    }
}

/// The value that the last operation replaced or removed is dropped soon, although no other operation follows. The same
/// holds if a reader has delayed the drop at first.
#[cfg(not(miri))]
#[test]
fn garbage_of_a_resting_map_goes() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let map: HydraList<u64, Counted> = HydraList::new();
        map.pin().extend((0..LARGE).map(|key| (key, counter.value(key))));
        for round in 0..20 {
            map.pin().upsert(&round, counter.value(1));
            wait_for_alive(counter, LARGE as i64);
            if round % 5 == 4 {
                // Now the background thread sleeps without a time-out, so the next operation must wake it.
                wait_for_rest(&map);
            }
        }
        map.pin().get_with(&3, |_| {
            map.pin().delete(&3);
            map.pin().upsert(&4, counter.value(1));
            thread::sleep(Duration::from_millis(20));
            assert_eq!(counter.alive(), LARGE as i64 + 1, "a reader may still look");
        });
        wait_for_alive(counter, LARGE as i64 - 1);
    });
}

/// A value that panics when it is dropped, if its tag is 1.
struct Bomb(Counted);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0.tag() == 1 {
            panic!("as planned, in drop");
        }
    }
}

/// If the drop of a value panics in the background thread, the panic is reported and not propagated. The thread
/// continues, other values are dropped, and the map can be dropped.
#[cfg(not(miri))]
#[test]
fn the_background_thread_survives_values_that_panic() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let map: HydraList<u64, Bomb> = HydraList::new();
        map.pin().extend((0..LARGE).map(|key| (key, Bomb(counter.value(0)))));
        for key in 0..5 {
            map.pin().upsert(&key, Bomb(counter.value(1)));
            map.pin().delete(&key);
            wait_for_alive(counter, LARGE as i64 - key as i64 - 1);
        }
        let before = map.maintenance_stats().rounds;
        map.pin().extend((LARGE..3 * LARGE).map(|key| (key, Bomb(counter.value(0)))));
        while map.maintenance_stats().rounds == before {
            thread::sleep(Duration::from_millis(1));
        }
        drop(map);
        counter.assert_all_dropped();
    });
}

/// A panic drops a map whose values panic when they are dropped. The process does not abort, and the first panic is the
/// one that can be caught.
#[test]
fn a_panic_may_drop_a_map() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let count = if cfg!(miri) { 50 } else { LARGE };
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let map: HydraList<u64, Bomb> = HydraList::new();
            map.pin().extend((0..count).map(|key| (key, Bomb(counter.value(u64::from(key % 10_000 == 9))))));
            map.pin().delete(&9);
            panic!("the first");
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"the first"));
        counter.assert_all_dropped();
    });
}

/// Pages are moved to other memory all the time, while threads use the map. Each thread knows the content of its own
/// part of the keys.
fn pages_move_under_everything<K: Key + Clone + PartialEq + core::fmt::Debug>(make: fn(u64) -> K) {
    const THREADS: u64 = 3;
    let (keys, rounds) = if cfg!(miri) { (60, 2) } else { (3_000, 20) };
    watchdog(USUAL, |_| {
        for nodes in [1, 3] {
            let map: HydraList<K, u64> = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
            let ended = AtomicUsize::new(0);
            thread::scope(|s| {
                for t in 0..THREADS {
                    let (map, ended) = (&map, &ended);
                    s.spawn(move || {
                        let session = map.pin();
                        let mine = || (0..keys).map(|n| n * THREADS + t);
                        for round in 0..rounds {
                            for n in mine() {
                                assert_eq!(session.insert(make(n), round), None, "{n}");
                                assert_eq!(session.replace(&make(n), round + 1), Some(round), "{n}");
                            }
                            let seen = session.iter().filter(|(_, value)| *value == round + 1).count();
                            assert!(seen as u64 >= keys, "a scan saw {seen} of {keys}");
                            for n in mine() {
                                assert_eq!(session.get(&make(n)), Some(round + 1), "{n}");
                                assert_eq!(session.remove(&make(n)), Some(round + 1), "{n}");
                            }
                        }
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
                while ended.load(Ordering::Relaxed) < THREADS as usize {
                    map.move_pages();
                }
            });
            assert!(map.is_empty());
            map.check_invariants();
            let moved = map.maintenance_stats().moved;
            assert!(moved > if cfg!(miri) { 0 } else { 100 }, "{moved} pages moved");
        }
    });
}

#[test]
fn pages_of_words_move() {
    pages_move_under_everything(scatter);
}

#[test]
fn pages_of_strings_move() {
    pages_move_under_everything(|n| format!("user{:x}@example.org", scatter(n)));
}

/// Bounds that do not fit in a page are read from the neighbouring page, which is moved.
#[test]
fn pages_with_long_bounds_move() {
    pages_move_under_everything(|n| format!("{}{:x}", "/a/long/path".repeat(8), scatter(n)));
    pages_move_under_everything(|n| format!("{}{:x}", "/a/long/path".repeat(30), scatter(n)));
}
