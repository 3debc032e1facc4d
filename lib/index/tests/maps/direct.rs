//! `HydraList`'s pages of consecutive keys: they get a form of their own when they are full, and lose it when they are
//! nearly empty and take over their neighbours.

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload;
use archipelago_index::HydraList;
use archipelago_index::hydra::Session;
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The number of keys for which a direct page has places.
const WINDOW: u64 = 64;

fn loaded(keys: impl IntoIterator<Item = u64>) -> HydraList<u64, u64> {
    let map = HydraList::new();
    map.pin().extend(keys.into_iter().map(|key| (key, !key)));
    map.sync();
    map.check_invariants();
    map
}

#[test]
fn consecutive_keys_take_little_memory_in_any_order() {
    let count = if cfg!(miri) { 300 } else { 200_000 };
    let entries_per_page = |map: &HydraList<u64, u64>| map.len() as f64 / map.stats().pages as f64;
    let ascending = loaded(1..=count);
    assert!(entries_per_page(&ascending) > 0.9 * WINDOW as f64 || cfg!(miri), "{:?}", ascending.stats());
    let descending = loaded((1..=count).rev());
    assert!(entries_per_page(&descending) > 40.0 || cfg!(miri), "{:?}", descending.stats());
    let mut keys: Vec<u64> = (0..count).map(|n| ((n / 2_000) << 32) | (n % 2_000)).collect();
    keys.shuffle(&mut workload::rng(1, 2));
    let runs = loaded(keys);
    assert!(entries_per_page(&runs) > 47.0 || cfg!(miri), "{:?}", runs.stats());
}

/// The last page has no upper bound that is not a key, so its range may have 65 keys where another page's has 64.
#[test]
fn the_greatest_key_has_a_place_of_its_own() {
    // The first page is full with 47 keys, and the last page begins 64 keys below the greatest one.
    let keys = u64::MAX - 64 - 47..=u64::MAX;
    assert!(loaded(keys.clone()).pin().iter().eq(keys.map(|key| (key, !key))));
}

/// Compares all ways to read a map with the model.
fn compare(session: &Session<'_, u64, u64>, model: &BTreeMap<u64, u64>, keys: &[u64]) {
    assert!(session.iter().eq(model.iter().map(|(&key, &value)| (key, value))));
    assert!(session.iter().rev().eq(model.iter().rev().map(|(&key, &value)| (key, value))));
    assert_eq!(session.get_many(keys), keys.iter().map(|key| model.get(key).copied()).collect::<Vec<_>>());
    for &key in keys {
        assert_eq!(session.get(&key), model.get(&key).copied());
        let above = model.range(key..).next().map(|(&key, &value)| (key, value));
        assert_eq!(session.range(key..).next(), above);
        let mut shown = Vec::new();
        session.scan(&key, 5, |key, value| shown.push((key, *value)));
        assert!(shown.into_iter().eq(model.range(key..).take(5).map(|(&key, &value)| (key, value))));
    }
}

/// Blocks of keys are filled and emptied, some to the last key, at both ends of the keys' range and across blocks.
#[test]
fn pages_change_their_form_and_lose_nothing() {
    let (turns, width) = if cfg!(miri) { (6, 80) } else { (400, 300) };
    for start in [0, 7, 1 << 40, u64::MAX - width, u64::MAX / 2 - 100] {
        let keys: Vec<u64> = (0..=width).map(|n| start + n).collect();
        let map: HydraList<u64, u64> = HydraList::new();
        let session = map.pin();
        let mut model = BTreeMap::new();
        let mut rng = workload::rng(start, 0);
        for turn in 0..turns {
            let (from, to) = (rng.random_range(0..keys.len()), rng.random_range(0..=keys.len()));
            let mut some = keys[from.min(to)..from.max(to)].to_vec();
            some.shuffle(&mut rng);
            for key in some {
                let value = rng.random();
                match turn % 3 {
                    0 => assert_eq!(session.insert(key, value), model.insert(key, value)),
                    1 => assert_eq!(session.remove(&key), model.remove(&key)),
                    _ if key % 3 == 0 => assert_eq!(session.remove(&key), model.remove(&key)),
                    _ => assert_eq!(session.insert(key, value), model.insert(key, value)),
                }
            }
            assert_eq!(session.pop_first(), model.pop_first());
            assert_eq!(session.pop_last(), model.pop_last());
            map.check_invariants();
            if turn % 10 < 3 {
                compare(&session, &model, &keys);
            }
        }
    }
}

/// While some keys of each block come and go, and so the blocks' pages change their form, the other keys can always be
/// found, each key has its own value, and scans are in order.
#[test]
fn readers_see_pages_of_either_form_whole() {
    const BLOCKS: u64 = if cfg!(miri) { 8 } else { 40 };
    let (turns, readers) = if cfg!(miri) { (1, 1) } else { (300, 2) };
    // Ten keys of each block stay: too few for the direct form.
    let stays = |key: u64| key % WINDOW < 10;
    let map = &loaded((0..BLOCKS * WINDOW).filter(|&key| stays(key)));
    let over = &AtomicBool::new(false);
    watchdog(USUAL, |_| {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    scope.spawn(move || {
                        let session = map.pin();
                        let mut rng = workload::rng(3, writer as usize);
                        for turn in 0..turns {
                            let mut keys: Vec<u64> = (0..BLOCKS * WINDOW).filter(|&key| !stays(key)).collect();
                            keys.retain(|key| key % 2 == writer);
                            keys.shuffle(&mut rng);
                            let missing = keys.iter().filter(|&&key| session.insert(key, !key).is_some()).count();
                            assert_eq!(missing, 0, "turn {turn}: only this thread inserts these keys");
                            for key in &keys {
                                assert_eq!(session.remove(key), Some(!key));
                            }
                        }
                    })
                })
                .collect();
            for reader in 0..readers {
                scope.spawn(move || {
                    let session = map.pin();
                    let mut rng = workload::rng(4, reader);
                    while !over.load(Ordering::Relaxed) {
                        let key = rng.random_range(0..BLOCKS * WINDOW);
                        let found = session.get(&key);
                        assert!(found == Some(!key) || found.is_none() && !stays(key), "{key}: {found:?}");
                        let (mut last, mut staying) = (None, key);
                        session.scan(&key, 100, |key, value| {
                            assert_eq!(*value, !key);
                            assert!(last < Some(key), "{last:?}, then {key}");
                            last = Some(key);
                            let skipped = (staying..key).filter(|&key| stays(key)).count();
                            assert_eq!(skipped, 0, "keys that stay are missing between {staying} and {key}");
                            staying = key + 1;
                        });
                    }
                });
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
    });
    map.sync();
    map.check_invariants();
    assert!(map.pin().iter().map(|(key, _)| key).eq((0..BLOCKS * WINDOW).filter(|&key| stays(key))));
}
