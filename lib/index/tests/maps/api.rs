//! The parts of the interface that users of `BTreeMap` expect: names, traits, whole-map operations, type inference.

use crate::common::keys::TestKey;
use crate::common::sized;
use archipelago_check::workload;
use archipelago_index::hydra::{Builder, IntoIter, Maintainers, Range, Session};
use archipelago_index::{Art, HydraList, OrderedSession};
use archipelago_platform::thread;
use archipelago_platform::topology::Topology;
use rand::RngExt;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn maps_can_be_shared_and_sent() {
    is_send::<HydraList<String, Vec<u8>>>();
    is_sync::<HydraList<String, Vec<u8>>>();
    is_send::<Art<u64, String>>();
    is_sync::<Art<u64, String>>();
    is_send::<IntoIter<(u32, String), Box<str>>>();
    is_send::<Builder<u64, u64>>();
    is_sync::<Builder<u64, u64>>();
}

#[test]
fn types_are_inferred() {
    let map = HydraList::<u64, u64>::builder().build();
    assert_eq!(map.pin().insert(1, 2), None);
    let map = HydraList::builder().maintainers(Maintainers::Clients).topology(Topology::synthetic(2, 1)).build();
    map.pin().insert("key".to_owned(), 'v');
    let map = HydraList::from([(1u8, "one"), (2, "two")]);
    assert_eq!(map.pin().get(&2), Some("two"));
    let map: HydraList<_, _> = (0..10u16).map(|n| (n, n)).collect();
    assert_eq!(map.len(), 10);
    let mut map = HydraList::default();
    map.extend([((1u8, 2u8), ())]);
    assert!(map.pin().contains_key(&(1, 2)) && !map.is_empty());
    let map = Art::from([(1u64, 'a'), (2, 'b')]);
    assert_eq!((&map).into_iter().next_back(), Some((2, 'b')));
}

#[test]
fn everything_can_be_debugged() {
    fn shows(what: &dyn Debug, expected: &str) {
        assert_eq!(format!("{what:?}"), expected);
    }
    let map = HydraList::from([(1u64, "a"), (2, "b")]);
    shows(&map, r#"{1: "a", 2: "b"}"#);
    shows(&map.pin(), r#"Session { of: "HydraList", .. }"#);
    shows(&map.pin().iter(), "Range { .. }");
    shows(&map.pin().entries::<u64, _>(..).map_refs(|_, _| ()), "MapRefs { .. }");
    shows(&map.into_iter(), "IntoIter { left: 2, .. }");
    assert!(format!("{:?}", HydraList::<u64, u64>::builder()).contains("Snapshot"));
    let map = Art::from([(1u64, "a"), (2, "b")]);
    shows(&map, r#"{1: "a", 2: "b"}"#);
    shows(&map.pin(), r#"Session { of: "Art", .. }"#);
    shows(&map.pin().iter(), "Range { .. }");
}

/// Returns a map of `count` keys, inserted in no order, with its model.
fn filled<K: TestKey>(count: usize) -> (HydraList<K, String>, BTreeMap<K, String>) {
    let model: BTreeMap<K, String> = K::pool(count).into_iter().zip((0..).map(|n: u32| n.to_string())).collect();
    let map: HydraList<K, String> = HydraList::new();
    for key in K::pool(count) {
        map.pin().insert(key.clone(), model[&key].clone());
    }
    (map, model)
}

/// Runs a test with both forms of keys.
macro_rules! with_both_forms {
    ($($test:ident)*) => { $(
        mod $test {
            #[test]
            fn with_words() {
                super::$test::<u64>();
            }

            #[test]
            fn with_strings() {
                super::$test::<String>();
            }
        }
    )* };
}

with_both_forms! { both_ends_are_popped maps_are_taken_apart retain_keeps_what_it_is_told clear_leaves_a_usable_map extended }

fn both_ends_are_popped<K: TestKey>() {
    let (map, mut model) = filled::<K>(sized(600, 60));
    let session = map.pin();
    let mut rng = workload::rng(5, 0);
    while !model.is_empty() {
        let (ours, theirs) = match rng.random_ratio(1, 2) {
            true => (session.pop_first(), model.pop_first()),
            false => (session.pop_last(), model.pop_last()),
        };
        assert_eq!(ours, theirs);
        assert_eq!(session.len(), model.len());
        assert_eq!(session.first_key_value().as_ref().map(|(k, v)| (k, v)), model.first_key_value());
        assert_eq!(session.last_key_value().as_ref().map(|(k, v)| (k, v)), model.last_key_value());
    }
    assert_eq!((session.pop_first(), session.pop_last()), (None, None));
    map.check_invariants();
}

fn maps_are_taken_apart<K: TestKey>() {
    for turn in 1..5 {
        let (map, model) = filled::<K>(sized(500, 60));
        let (mut ours, mut theirs) = (map.into_iter(), model.into_iter());
        for step in 0.. {
            assert_eq!(ours.len(), theirs.len());
            let (our, their) =
                if step % turn == 0 { (ours.next_back(), theirs.next_back()) } else { (ours.next(), theirs.next()) };
            assert_eq!(our, their);
            if our.is_none() || step == 300 * turn / 2 {
                break;
            }
        }
    }
}

fn retain_keeps_what_it_is_told<K: TestKey>() {
    let (map, mut model) = filled::<K>(sized(700, 60));
    let session = map.pin();
    for digit in 0..10 {
        let ends = |value: &str| value.ends_with(char::from(b'0' + digit));
        session.retain(|_, value| !ends(value));
        model.retain(|_, value| !ends(value));
        assert!(session.iter().eq(model.clone()), "after digit {digit}");
        map.check_invariants();
    }
    assert!(map.is_empty());
}

fn clear_leaves_a_usable_map<K: TestKey>() {
    let (mut map, model) = filled::<K>(sized(700, 60));
    let held = map.bytes();
    map.clear();
    assert!(map.is_empty() && map.bytes() < held && map.pin().iter().next().is_none());
    map.extend(model.clone());
    assert!(map.pin().iter().eq(model));
}

/// Inserts entries into an empty map in order, in reverse, and in rotated runs; and the rotated runs into a full map.
fn extended<K: TestKey>() {
    let (full, model) = filled::<K>(sized(900, 60));
    let sorted: Vec<(K, String)> = model.clone().into_iter().collect();
    let mut runs = sorted.clone();
    runs.chunks_mut(37).for_each(|run| run.rotate_left(11));
    runs.extend(sorted[..30].iter().map(|(key, _)| (key.clone(), "again".to_owned())));
    let expected: BTreeMap<K, String> = runs.iter().cloned().collect();
    for entries in [sorted.clone(), sorted.iter().rev().cloned().collect(), runs.clone()] {
        let expected: BTreeMap<K, String> = entries.iter().cloned().collect();
        let fresh: HydraList<K, String> = entries.iter().cloned().collect();
        assert!(fresh.pin().iter().eq(expected.clone()));
        fresh.check_invariants();
        let fresh = HydraList::from_sorted(entries);
        assert!(fresh.pin().iter().eq(expected));
        fresh.check_invariants();
    }
    full.pin().extend(runs);
    assert!(full.pin().iter().eq(expected));
    full.check_invariants();
}

#[test]
fn sorted_entries_fill_pages_to_the_brim() {
    let count = sized(100_000, 1000) as u64;
    let map = HydraList::from_sorted((0..count).map(|n| (n, n)));
    let scattered: HydraList<u64, u64> = (0..count).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15), n)).collect();
    scattered.sync();
    if !cfg!(miri) {
        let bytes = |map: &HydraList<u64, u64>| map.bytes() as f64 / count as f64;
        assert!(bytes(&map) < 0.85 * bytes(&scattered), "{} and {} bytes per key", bytes(&map), bytes(&scattered));
    }
}

/// Four threads pop entries, two of them from each end. Each entry is popped once, and each thread pops its keys in
/// order.
#[test]
fn popping_together_takes_everything_once() {
    let count = sized(6000, 120) as u64;
    for nodes in [1, 4] {
        let map = HydraList::builder().topology(Topology::synthetic(nodes, 2)).build();
        map.pin().extend((0..count).map(|n| (n, n)));
        let mut taken = thread::scope(|s| {
            let pop = |t: usize| {
                let session = map.pin();
                let pop = || if t.is_multiple_of(2) { session.pop_first() } else { session.pop_last() };
                let taken: Vec<u64> = core::iter::from_fn(pop).map(|(key, _)| key).collect();
                let ordered = |pair: &[u64]| if t.is_multiple_of(2) { pair[0] < pair[1] } else { pair[0] > pair[1] };
                assert!(taken.windows(2).all(ordered), "what is left only shrinks towards the middle");
                taken
            };
            let threads: Vec<_> = (0..4).map(|t| s.spawn(move || pop(t))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..count), "every entry was popped once");
        map.check_invariants();
    }
}

/// A queue: one thread inserts ascending keys, and another thread pops the first entry again and again. It pops all
/// keys in ascending order.
#[test]
fn a_queue_keeps_its_order() {
    let count = sized(20_000, 200) as u64;
    let map: HydraList<u64, ()> = HydraList::new();
    thread::scope(|s| {
        s.spawn(|| {
            let session = map.pin();
            (0..count).for_each(|n| assert!(!session.upsert(&n, ())));
        });
        s.spawn(|| {
            let session = map.pin();
            for expected in 0..count {
                let (key, ()) = loop {
                    match session.pop_first() {
                        Some(entry) => break entry,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(key, expected);
            }
        });
    });
    assert!(map.is_empty());
    map.check_invariants();
}

#[test]
fn iterators_outlive_the_session_they_came_from() {
    fn range<'m>(map: &'m HydraList<u64, u64>) -> Range<'m, u64, u64> {
        let session: Session<'m, u64, u64> = map.pin();
        session.range(1..)
    }
    let map = HydraList::from([(0, 0), (1, 1)]);
    assert_eq!(range(&map).collect::<Vec<_>>(), [(1, 1)]);
    let mut sum = 0;
    for (key, value) in &map {
        sum += key + value;
    }
    assert_eq!(sum, 2);
    let art = Art::from([(0u64, 0u64), (1, 1)]);
    let last = || art.pin().range(1..);
    assert_eq!(last().next(), Some((1, 1)));
    assert_eq!(OrderedSession::get(&art.pin(), &1), Some(1));
}

/// Tests every combination of bounds, forwards, backwards and from both ends, with present keys and keys between them.
fn ranges_are_those_of_a_btreemap<K: TestKey>(key: impl Fn(u64) -> K) {
    const COUNT: u64 = 300;
    let model: BTreeMap<K, u64> = (0..COUNT).map(|number| (key(2 * number), number)).collect();
    let map: HydraList<K, u64> = model.clone().into_iter().collect();
    let session = map.pin();
    let bounds = |number: u64| [Bound::Included(key(number)), Bound::Excluded(key(number)), Bound::Unbounded];
    let (mut rng, owned) = (workload::rng(3, 0), |(key, value): (&K, &u64)| (key.clone(), *value));
    for _ in 0..150 {
        let start = rng.random_range(0..2 * COUNT);
        let end = start + 1 + rng.random_range(0..100);
        for (low, high) in bounds(start).into_iter().flat_map(|low| bounds(end).map(|high| (low.clone(), high))) {
            let range = || (low.clone(), high.clone());
            assert!(session.range(range()).eq(model.range(range()).map(owned)), "{low:?} to {high:?}");
            assert!(
                session.range(range()).rev().eq(model.range(range()).rev().map(owned)),
                "back, {low:?} to {high:?}"
            );
            let (mut ours, mut theirs) = (session.range(range()), model.range(range()));
            while let Some(expected) = theirs.next() {
                assert_eq!(ours.next(), Some(owned(expected)));
                assert_eq!(ours.next_back(), theirs.next_back().map(owned));
            }
            assert_eq!((ours.next(), ours.next_back()), (None, None));
        }
    }
}

#[test]
fn ranges_of_words_are_those_of_a_btreemap() {
    ranges_are_those_of_a_btreemap(|number| number);
    ranges_are_those_of_a_btreemap(|number| u64::MAX - 1000 + number);
}

#[test]
fn ranges_of_strings_are_those_of_a_btreemap() {
    ranges_are_those_of_a_btreemap(|number| format!("user{number:04}"));
}
