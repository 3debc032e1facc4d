//! Tests of the exam: a correct map passes, and each part finds a map with the fault for which the part is meant.

use std::collections::BTreeMap;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::sync::RwLock;

use super::*;
use crate::roster::Own;

/// The faults of a [`Faulty`] map.
const NONE: u8 = 0;
/// Every tenth removal does not remove.
const REMOVE_FORGETS: u8 = 1;
/// `insert` returns the new value.
const WRONG_OLD_VALUE: u8 = 2;
/// A scan begins behind its first key.
const SCAN_SKIPS_FIRST: u8 = 3;
/// A scan with a limit of 3 or more stops one entry early.
const SCAN_STOPS_SHORT: u8 = 4;
/// A write changes a copy of the map, which then replaces the map. Concurrent writes are lost.
const LOSES_WRITES: u8 = 5;
/// An overwrite removes and inserts in two steps.
const OVERWRITE_HIDES: u8 = 6;
/// An overwrite sometimes replaces a neighbour's value.
const OVERWRITE_STRAYS: u8 = 7;
/// A scan continues by position, so that a removal before the position makes the scan skip a key.
const SCAN_BY_POSITION: u8 = 8;
/// A removal removes the next key too, if the map is large.
const REMOVE_TAKES_TWO: u8 = 9;
/// A look-up panics.
const PANICS: u8 = 10;

/// A `BTreeMap` behind one lock, with a fault.
struct Faulty<K, const FAULT: u8>(RwLock<BTreeMap<K, u64>>);

impl<K: BenchKey, const FAULT: u8> BenchIndex<K> for Faulty<K, FAULT> {
    fn empty() -> Self {
        Faulty(RwLock::new(BTreeMap::new()))
    }
}

impl<K: BenchKey, const FAULT: u8> OrderedIndex<K, u64> for Faulty<K, FAULT> {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: BenchKey, const FAULT: u8> OrderedSession<K, u64> for &Faulty<K, FAULT> {
    fn get(&self, key: &K) -> Option<u64> {
        assert!(FAULT != PANICS, "this is what the exam must survive");
        self.0.read().unwrap().get(key).copied()
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        if FAULT == LOSES_WRITES {
            let mut copy = self.0.read().unwrap().clone();
            let old = copy.insert(key.clone(), value);
            archipelago_platform::thread::yield_now();
            *self.0.write().unwrap() = copy;
            return old;
        }
        if FAULT == OVERWRITE_HIDES {
            let old = self.0.write().unwrap().remove(key);
            archipelago_platform::thread::yield_now();
            self.0.write().unwrap().insert(key.clone(), value);
            return old;
        }
        let mut map = self.0.write().unwrap();
        if FAULT == OVERWRITE_STRAYS
            && value.is_multiple_of(64)
            && map.contains_key(key)
            && let Some((_, neighbour)) = map.range_mut(key..).nth(1)
        {
            *neighbour = value;
        }
        let old = map.insert(key.clone(), value);
        if FAULT == WRONG_OLD_VALUE && old.is_some() { Some(value) } else { old }
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let old = self.0.read().unwrap().get(key).copied()?;
        self.0.write().unwrap().insert(key.clone(), f(&old));
        Some(old)
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let mut map = self.0.write().unwrap();
        if FAULT == REMOVE_FORGETS && map.len() % 10 == 9 {
            return map.get(key).copied();
        }
        if FAULT == REMOVE_TAKES_TWO
            && map.len() % 16 == 15
            && let Some(next) = map.range(key..).nth(1).map(|(next, _)| next.clone())
        {
            map.remove(&next);
        }
        map.remove(key)
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let limit = if FAULT == SCAN_STOPS_SHORT && limit >= 3 { limit - 1 } else { limit };
        let skipped = usize::from(FAULT == SCAN_SKIPS_FIRST);
        let at_once = if FAULT == SCAN_BY_POSITION { 8 } else { limit };
        let mut seen = 0;
        while seen < limit {
            let wanted = at_once.min(limit - seen);
            let part: Vec<(K, u64)> = {
                let map = self.0.read().unwrap();
                map.range(from..).skip(skipped + seen).take(wanted).map(|(key, value)| (key.clone(), *value)).collect()
            };
            part.iter().for_each(|(key, value)| visit(key.shown(), value));
            seen += part.len();
            if part.len() < wanted {
                break;
            }
            archipelago_platform::thread::yield_now();
        }
        seen
    }
}

const SEED: u64 = 5;

/// The time limit of one try at a part.
const SHORT: Clock = Clock { time: Duration::from_millis(30) };

fn some_words(count: u64) -> Vec<u64> {
    (0..count).map(|n| n * 7).collect()
}

fn some_strings(count: usize) -> Vec<Vec<u8>> {
    let mut keys = [keys::emails(count, 0, SEED).loaded, awkward_strings()].concat();
    keys.sort();
    keys
}

/// Repeats the part until it finds a fault: threads meet by chance, and a part stops at its time limit.
fn assert_found(part: impl Fn() -> Verdict, says: &str) {
    let finding = (0..500).find_map(|_| part().err()).expect("a fault went unnoticed");
    assert!(finding.contains(says), "{finding:?} should say {says:?}");
}

#[test]
fn right_maps_pass_every_part() {
    fn pass<K: BenchKey>(keys: &[K]) {
        model::examine(&Faulty::<K, NONE>::empty(), keys, SEED, SHORT).unwrap();
        own::examine(&Faulty::<K, NONE>::empty(), keys, SHORT).unwrap();
        concurrent::overwrites(&Faulty::<K, NONE>::empty(), keys, SEED, SHORT).unwrap();
        concurrent::neighbours(&Faulty::<K, NONE>::empty(), keys, SEED, SHORT).unwrap();
    }
    pass(&some_words(2000));
    pass(&some_strings(2000));
}

#[test]
fn indexes_of_the_roster_pass() {
    let mut reports = Vec::new();
    let names = "ours,btree-olc,art-slotted,art-slotted-tags,masstree-like,wormhole-like,bw-tree-like,cuckoo-like,\
        rwlock-btreemap,mutex-btreemap";
    for info in roster::select::<Own>(names, false).unwrap() {
        examine::<Own, u64>(info, "u64", &[some_words(3000), vec![u64::MAX]].concat(), SEED, SHORT.time, &mut reports);
        examine::<Own, Vec<u8>>(info, "email", &some_strings(1000), SEED, SHORT.time, &mut reports);
    }
    assert_eq!(reports.len(), 32);
    for report in reports {
        assert_eq!(
            report.verdicts,
            [const { Some(Ok(())) }; PARTS.len()],
            "{} with {} keys",
            report.info.name,
            report.keys
        );
    }
}

#[test]
fn the_model_finds_wrong_answers() {
    let (words, strings) = (&some_words(500), &some_strings(500));
    assert_found(|| model::examine(&Faulty::<u64, REMOVE_FORGETS>::empty(), words, SEED, SHORT), "should be");
    assert_found(|| model::examine(&Faulty::<u64, WRONG_OLD_VALUE>::empty(), words, SEED, SHORT), "insert");
    assert_found(|| model::examine(&Faulty::<u64, SCAN_SKIPS_FIRST>::empty(), words, SEED, SHORT), "scan of");
    assert_found(|| model::examine(&Faulty::<u64, SCAN_STOPS_SHORT>::empty(), words, SEED, SHORT), "should be Some");
    assert_found(
        || model::examine(&Faulty::<Vec<u8>, REMOVE_TAKES_TWO>::empty(), strings, SEED, SHORT),
        "should be Some",
    );
}

#[test]
fn own_writes_finds_lost_writes() {
    let words = &some_words(200);
    assert_found(|| own::examine(&Faulty::<u64, LOSES_WRITES>::empty(), words, SHORT), "its own key");
    assert_found(|| own::examine(&Faulty::<u64, REMOVE_FORGETS>::empty(), words, SHORT), "just removed");
    assert_found(|| own::examine(&Faulty::<u64, SCAN_SKIPS_FIRST>::empty(), words, SHORT), "scan from its own key");
    assert_found(|| own::examine(&Faulty::<Vec<u8>, LOSES_WRITES>::empty(), &some_strings(200), SHORT), "its own key");
}

#[test]
fn overwrites_finds_keys_that_hide() {
    let words = &some_words(500);
    assert_found(
        || concurrent::overwrites(&Faulty::<u64, OVERWRITE_HIDES>::empty(), words, SEED, SHORT),
        "which is always there",
    );
    assert_found(
        || concurrent::overwrites(&Faulty::<u64, OVERWRITE_STRAYS>::empty(), words, SEED, SHORT),
        "never written to it",
    );
    let strings = &some_strings(500);
    let part = || concurrent::overwrites(&Faulty::<Vec<u8>, OVERWRITE_HIDES>::empty(), strings, SEED, SHORT);
    assert_found(part, "which is always there");
}

#[test]
fn neighbours_finds_what_removals_take_along() {
    let words = &some_words(1000);
    assert_found(|| concurrent::neighbours(&Faulty::<u64, SCAN_BY_POSITION>::empty(), words, SEED, SHORT), "scan");
    assert_found(|| concurrent::neighbours(&Faulty::<u64, REMOVE_TAKES_TWO>::empty(), words, SEED, SHORT), "");
    assert_found(
        || concurrent::neighbours(&Faulty::<Vec<u8>, SCAN_BY_POSITION>::empty(), &some_strings(900), SEED, SHORT),
        "scan",
    );
}

#[test]
fn a_map_that_panics_has_failed_and_the_exam_goes_on() {
    let keys = &some_words(100)[..];
    let verdicts = examined::<PANICS>(keys, || false);
    assert_eq!(verdicts, [(); PARTS.len()].map(|()| Some(Err("it panicked".to_owned()))));
}

/// Returns the verdicts on a map.
fn examined<const FAULT: u8>(keys: &[u64], interrupted: fn() -> bool) -> Vec<Option<Verdict>> {
    let mut exam = Exam { keys, seed: SEED, time: SHORT.time, interrupted, verdicts: Vec::new() };
    Visit::<u64>::visit::<Faulty<u64, FAULT>>(&mut exam, roster::indexes::<Own>(false).next().unwrap());
    exam.verdicts
}

#[test]
fn what_is_cut_off_has_passed_nothing() {
    let keys = &some_words(100)[..];
    assert_eq!(examined::<NONE>(keys, || false), [(); PARTS.len()].map(|()| Some(Ok(()))));
    assert_eq!(examined::<NONE>(keys, || true), [(); PARTS.len()].map(|()| None));
    assert!(examined::<PANICS>(keys, || true).iter().all(|verdict| matches!(verdict, Some(Err(_)))), "it has failed");
}

#[test]
fn awkward_strings_are_distinct_and_prefixes_of_each_other() {
    let mut strings = awkward_strings();
    assert!(strings.contains(&Vec::new()));
    assert!(strings.iter().any(|string| string.len() > 200));
    let count = strings.len();
    strings.sort();
    strings.dedup();
    assert_eq!(strings.len(), count);
    assert!(strings.windows(2).filter(|pair| pair[1].starts_with(&pair[0])).count() > 20);
}
