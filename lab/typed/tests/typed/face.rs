//! The public interface of all maps, tested with each map: references, iterators, bulk operations, whole-map
//! operations. `hostile_face.rs` tests hostile uses of it, and `atomic.rs` concurrent ones.

use crate::common::keys::TestKey;
use crate::common::quiet::{soon, soon_shows};
use crate::common::sized;
use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::workload;
use archipelago_index::art::Radix;
use archipelago_index::blink::{BLink, Dense, LARGEST, Pages};
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Change, Entry, Key, Session};
use rand::RngExt;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Mutex;
use std::thread;

/// A B-link tree with pages that are large enough for the suite's longest keys.
type Wide = BLink<Dense<Pages<LARGEST>>>;

/// Makes tests that run over every map.
macro_rules! of_every_map {
    ($($test:ident)*) => { $(
        mod $test {
            #[test]
            fn hydralist() {
                super::$test::<super::Hydra>();
            }

            #[test]
            fn art() {
                super::$test::<super::Radix>();
            }

            #[test]
            fn b_link_tree() {
                super::$test::<super::Wide>();
            }

            #[test]
            fn euno() {
                super::$test::<super::Tree>();
                super::$test::<super::Skip>();
            }
        }
    )* };
}

of_every_map! {
    values_need_not_be_clone references_outlive_removal entries_go_anywhere iterators_are_sent seeks prefixes
    keys_and_values scans_end_early ranges_are_removed ranges_are_extracted many_are_inserted
    sorted_entries_in_parallel maps_are_cut_and_joined maps_are_compared_and_cloned points_cut_evenly
    points_cut_uneven_keys decisions_alone tasks_take_sessions_along
}

fn is_send<T: Send>(it: T) -> T {
    it
}

fn filled<S: Kind, K: TestKey>(count: usize) -> (Map<S, K, String>, BTreeMap<K, String>) {
    let model: BTreeMap<K, String> = K::pool(count).into_iter().zip((0..).map(|n: u32| n.to_string())).collect();
    (K::pool(count).into_iter().map(|key| (key.clone(), model[&key].clone())).collect(), model)
}

fn values_need_not_be_clone<S: Kind>() {
    let map: Map<S, String, Mutex<Vec<u64>>> = Map::new();
    let map = map.pin();
    for n in 0..sized(300, 20) as u64 {
        map.get_or_insert_with((n % 7).to_string(), Mutex::default).lock().unwrap().push(n);
    }
    assert_eq!(map.len(), 7);
    assert!(map.entries::<String, _>(..).all(|entry| {
        let digit: u64 = entry.key().parse().unwrap();
        entry.value().lock().unwrap().iter().all(|n| n % 7 == digit)
    }));
    assert!(map.insert_ref("0".into(), Mutex::default()).is_some_and(|old| !old.lock().unwrap().is_empty()));
    assert!(map.replace_ref("9", Mutex::default()).is_none() && map.remove_ref("9").is_none());
    assert!(map.remove_ref("0").is_some_and(|old| old.lock().unwrap().is_empty()));
    assert!(map.insert_if_absent("1".into(), Mutex::default()).is_err());
    let first = map.first().expect("there are six");
    assert_eq!((first.key(), map.last().map(|entry| entry.to_key())), ("1", Some("6".to_owned())));
    let (key, value) = map.pop_first_ref().expect("there are six");
    assert!(key == "1" && std::ptr::eq(first.value(), &*value) && value.lock().unwrap().contains(&1));
    assert_eq!(map.pop_last_ref().map(|(key, _)| key).as_deref(), Some("6"));
    assert_eq!(map.len(), 4);
}

/// A reference keeps its value alive after the value's removal. The value counts as memory that waits for readers, and
/// is freed after the reference is dropped.
fn references_outlive_removal<S: Kind>() {
    let counter = DropCounter::new();
    let map: Map<S, u64, Counted> = (0..10).map(|n| (n, counter.value(n))).collect();
    let session = map.pin();
    let (value, entry) = (session.get_ref(&3).unwrap(), session.get_entry(&3).unwrap());
    let copied: Map<S, u64, u64> = Map::from([(3, 7)]);
    let in_a_word = copied.pin().get_ref(&3).unwrap();
    copied.pin().insert(3, 8);
    assert_eq!((*in_a_word, copied.pin().get(&3)), (7, Some(8)));
    for n in 0..10 {
        assert!(session.delete(&n));
    }
    map.sync();
    assert_eq!((value.tag(), entry.tag(), entry.key(), counter.errors()), (3, 3, 3, 0));
    let waiting = map.stats().garbage;
    assert!(waiting.objects >= 10 && waiting.readers >= 1, "{waiting:?}");
    drop(value);
    map.sync();
    soon_shows(&map, |stats| stats.garbage.readers == 1);
    assert!(counter.alive() >= 10, "an entry holds a guard of its own");
    assert_eq!((entry.tag(), counter.errors()), (3, 0));
    drop(entry);
    map.sync();
    soon(|| match (counter.alive(), map.stats().garbage.readers) {
        (0, 0) => Ok(()),
        (alive, readers) => Err(format!("{alive} values alive, {readers} readers")),
    });
}

/// Entries and an iterator are made in one thread, and sent to another one, which removes everything and takes further
/// entries. The entries are sent back, read and dropped.
fn entries_go_anywhere<S: Kind>() {
    fn check<S: Kind, K: TestKey>() {
        let (map, model) = filled::<S, K>(sized(900, 60));
        let mut up = is_send(map.pin().entries::<K, _>(..));
        let first: Vec<Entry<'_, K, String>> = up.by_ref().take(model.len() / 2).collect();
        let (first, rest) = thread::scope(|s| {
            let other = s.spawn(|| {
                map.pin().remove_range::<K, _>(..);
                map.sync();
                (first, up.collect::<Vec<_>>())
            });
            other.join().unwrap()
        });
        let read = |entry: &Entry<'_, K, String>| (K::owned(entry.key()), entry.value().clone());
        assert!(first.iter().map(read).eq(model.clone().into_iter().take(model.len() / 2)));
        assert!(rest.len() <= 256, "what had been fetched is all that is left");
        assert!(rest.iter().map(read).all(|(key, value)| model[&key] == value));
        drop((first, rest));
        map.sync();
        soon_shows(&map, |stats| stats.garbage.readers == 0);
        map.check_invariants();
        // Steps from both ends.
        let (map, model) = filled::<S, K>(sized(700, 50));
        let (mut ours, mut theirs) = (map.pin().entries::<K, _>(..), model.iter());
        let lent = |(key, value): (K::Ref<'_>, &String)| (K::owned(key), value.clone());
        for turn in 0.. {
            let back = turn % 3 == 0;
            // Every other entry is borrowed, by `next_ref` or `next_back_ref`.
            let our = match (back, turn % 2 == 0) {
                (true, true) => ours.next_back_ref().map(lent),
                (true, false) => ours.next_back().map(|entry| read(&entry)),
                (false, true) => ours.next_ref().map(lent),
                (false, false) => ours.next().map(|entry| read(&entry)),
            };
            let their = if back { theirs.next_back() } else { theirs.next() };
            assert_eq!(our, their.map(|(key, value)| (key.clone(), value.clone())));
            if theirs.len() == 0 {
                break;
            }
        }
        assert!(ours.next_ref().is_none() && ours.next_back_ref().is_none());
        assert!(ours.next().is_none() && ours.next_back().is_none());
    }
    check::<S, u64>();
    check::<S, String>();
}

fn iterators_are_sent<S: Kind>() {
    let (map, model) = filled::<S, String>(sized(600, 50));
    let mut range = is_send(map.pin().range::<String, _>(..));
    let begun: Vec<_> = range.by_ref().take(10).collect();
    let rest: Vec<_> = thread::scope(|s| s.spawn(|| range.collect()).join().unwrap());
    assert!(begun.into_iter().chain(rest).eq(model.clone()));
    is_send(map.pin().keys());
    is_send(map.pin().extract_if::<String, _, _>(.., |_, _| false));
    is_send(map.into_iter());
}

fn seeks<S: Kind>() {
    let count = sized(2_000, 300) as u64;
    let map: Map<S, u64, u64> = (0..count).map(|n| (2 * n, n)).collect();
    let mut rng = workload::rng(9, 0);
    for _ in 0..sized(300, 10) {
        let model: BTreeMap<u64, u64> = (0..count).map(|n| (2 * n, n)).collect();
        let mut iter = map.pin().iter();
        let (mut low, mut high) = (0, 2 * count);
        while low < high {
            match rng.random_range(0..4) {
                0 => {
                    let key = low + rng.random_range(0..200);
                    iter.seek(&key);
                    low = low.max(key);
                }
                1 => {
                    let key = high.saturating_sub(rng.random_range(1..200));
                    iter.seek_back(&key);
                    high = high.min(key + 1);
                }
                2 => {
                    let expected = model.range(low..high.max(low)).next().map(|(key, value)| (*key, *value));
                    assert_eq!(iter.next(), expected, "{low} to {high}");
                    low = expected.map_or(high, |(key, _)| key + 1);
                }
                _ => {
                    let expected = model.range(low..high.max(low)).next_back().map(|(key, value)| (*key, *value));
                    assert_eq!(iter.next_back(), expected, "{low} to {high}");
                    high = expected.map_or(low, |(key, _)| key);
                }
            }
        }
        assert_eq!((iter.next(), iter.next_back()), (None, None));
        // Seeking backwards has no effect.
        iter.seek(&0);
        assert_eq!(iter.next(), None);
    }
}

fn prefixes<S: Kind>() {
    let (map, model) = filled::<S, Vec<u8>>(sized(900, 80));
    let extra = [vec![0xFF; 3], vec![0xFF; 4], vec![7, 0xFF], vec![7, 0xFF, 1], vec![8]];
    let model: BTreeMap<_, _> = model.into_iter().chain(extra.map(|key| (key, "extra".to_owned()))).collect();
    map.pin().extend(model.clone());
    let mut tried: Vec<Vec<u8>> = model.keys().step_by(17).map(|key| key[..key.len().min(3)].to_vec()).collect();
    tried.extend([vec![], vec![0xFF], vec![0xFF; 3], vec![7, 0xFF], vec![7]]);
    for prefix in tried {
        let expected = || model.clone().into_iter().filter(|(key, _)| key.starts_with(&prefix));
        assert!(map.pin().prefix(&prefix[..]).eq(expected()), "{prefix:?}");
        assert!(
            map.pin().prefix(&prefix[..]).rev().map(|it| it.0).eq(expected()
                .map(|it| it.0)
                .collect::<Vec<_>>()
                .into_iter()
                .rev())
        );
        assert_eq!(map.pin().prefix_entries(&prefix[..]).count(), expected().count());
    }
}

fn keys_and_values<S: Kind>() {
    let (map, model) = filled::<S, String>(sized(600, 50));
    let session = map.pin();
    assert!(session.keys().eq(model.keys().cloned()) && session.keys().rev().eq(model.keys().rev().cloned()));
    assert!(session.values().eq(model.values().cloned()));
    // Iteration over keys does not clone the values.
    let locks: Map<S, u64, Mutex<()>> = (0..5).map(|n| (n, Mutex::default())).collect();
    assert!(locks.pin().keys().eq(0..5));
}

fn scans_end_early<S: Kind>() {
    let map: Map<S, u64, String> = (0..500).map(|n| (n, n.to_string())).collect();
    let session = map.pin();
    let sum = |range: std::ops::Range<u64>, down: bool, stop: u64| {
        let mut seen = Vec::new();
        let visit = |key, value: &String| {
            assert_eq!(value.parse(), Ok(key));
            seen.push(key);
            if key == stop { ControlFlow::Break(key) } else { ControlFlow::Continue(()) }
        };
        let broke = if down { session.scan_range_rev(range, visit) } else { session.scan_range(range, visit) };
        (broke, seen)
    };
    assert_eq!(sum(10..400, false, 70), (Some(70), (10..=70).collect()));
    assert_eq!(sum(10..90, false, 90), (None, (10..90).collect()));
    assert_eq!(sum(10..400, true, 300), (Some(300), (300..400).rev().collect()));
    assert_eq!(sum(10..90, true, 9), (None, (10..90).rev().collect()));
    assert_eq!(sum(500..900, false, 0), (None, vec![]));
}

fn ranges_are_removed<S: Kind>() {
    fn check<S: Kind, K: TestKey>() {
        let (map, mut model) = filled::<S, K>(sized(700, 60));
        let keys: Vec<K> = model.keys().cloned().collect();
        let third = keys.len() / 3;
        let range = (Bound::Excluded(&keys[third]), Bound::Included(&keys[2 * third]));
        let before = model.len();
        model.retain(|key, _| *key <= keys[third] || *key > keys[2 * third]);
        assert_eq!(map.pin().remove_range::<K, _>(range), before - model.len());
        assert!(map.pin().iter().eq(model.clone()));
        map.check_invariants();
        assert_eq!(map.pin().remove_range::<K, _>(..), model.len());
        assert!(map.is_empty());
    }
    check::<S, u64>();
    check::<S, String>();
}

fn ranges_are_extracted<S: Kind>() {
    let counter = DropCounter::new();
    let count = sized(2_000, 100) as u64;
    let map: Map<S, u64, Counted> = (0..count).map(|n| (n, counter.value(n))).collect();
    let session = map.pin();
    {
        let odd = session.extract_if(10..count, |_, value| value.tag() % 2 == 1);
        // Entries that the iterator has not yielded stay in the map.
        let taken: Vec<_> = odd.take(20).collect();
        assert!(taken.iter().map(|entry| entry.tag()).eq((10..).filter(|n| n % 2 == 1).take(20)));
        assert_eq!(map.len() as u64, count - 20);
    }
    // With several threads, each entry is yielded to one of them.
    let taken = thread::scope(|s| {
        let drain = || s.spawn(|| map.pin().drain_range::<u64, _>(..).map(|entry| entry.key()).collect::<Vec<_>>());
        let threads = [drain(), drain(), drain()];
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(taken.iter().all(|keys| keys.is_sorted()));
    let mut all = taken.concat();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.len() as u64 == count - 20);
    assert!(map.is_empty());
    map.sync();
    soon(|| match counter.alive() {
        0 => Ok(()),
        alive => Err(format!("{alive} values alive")),
    });
    assert_eq!(counter.errors(), 0);
    map.check_invariants();
}

fn many_are_inserted<S: Kind>() {
    fn check<S: Kind, K: TestKey>() {
        let pool = K::pool(sized(3_000, 150));
        let (mut model, map) = (BTreeMap::new(), Map::<S, K, u64>::new());
        let mut rng = workload::rng(4, 0);
        for round in 0..3 {
            // The entries are in no order, and many of them occur twice.
            let entries: Vec<(K, u64)> = (0..2 * pool.len() as u64)
                .map(|n| (pool[rng.random_range(0..pool.len())].clone(), n + round * 1_000_000))
                .collect();
            let new = entries.iter().filter(|(key, value)| model.insert(key.clone(), *value).is_none()).count();
            assert_eq!(map.pin().insert_many(entries), new);
            assert!(map.pin().iter().eq(model.clone()));
        }
        map.check_invariants();
    }
    check::<S, u64>();
    check::<S, String>();
}

fn sorted_entries_in_parallel<S: Kind>() {
    for count in [0, 1, 1_000, sized(20_000, 600) as u64] {
        let map: Map<S, u64, String> = Map::from_sorted_parallel((0..count).map(|n| (n, n.to_string())).collect(), 4);
        assert!(map.pin().iter().eq((0..count).map(|n| (n, n.to_string()))));
        map.check_invariants();
    }
    // The border between the parts of two threads is among equal keys.
    for alike in [2, 300, 1_000, 5_000] {
        let entries: Vec<(u64, u64)> = (0..sized(5_000, 1_500) as u64).map(|n| (n / alike, n)).collect();
        let model: BTreeMap<u64, u64> = entries.iter().copied().collect();
        let map: Map<S, u64, u64> = Map::from_sorted_parallel(entries, 4);
        assert!(map.pin().iter().eq(model), "{alike} alike");
    }
}

fn maps_are_cut_and_joined<S: Kind>() {
    fn check<S: Kind, K: TestKey>() {
        let counter = DropCounter::new();
        let pool = K::pool(sized(1_500, 80));
        let mut model: BTreeMap<K, u64> = (0..).zip(&pool).map(|(n, key)| (key.clone(), n)).collect();
        let mut map: Map<S, K, Counted> = model.iter().map(|(key, n)| (key.clone(), counter.value(*n))).collect();
        let contents = |map: &Map<S, K, Counted>| {
            map.check_invariants();
            map.pin().iter().map(|(key, value)| (key, value.tag())).collect::<BTreeMap<_, _>>()
        };
        for at in [model.len() / 3, 0, model.len() - 1] {
            let key = model.keys().nth(at).unwrap().clone();
            let upper = map.split_off(&key);
            let model_upper = model.split_off(&key);
            assert_eq!((contents(&map), contents(&upper)), (model.clone(), model_upper.clone()));
            // Now `upper` also has ten keys of the lower map. When it is appended, its values replace those of the
            // lower map.
            let mut upper = upper;
            upper.extend(model.keys().take(10).map(|key| (key.clone(), counter.value(77))));
            model.extend(model.keys().take(10).map(|key| (key.clone(), 77)).collect::<Vec<_>>());
            model.extend(model_upper);
            map.append(&mut upper);
            assert_eq!((contents(&map), upper.len()), (model.clone(), 0));
            upper.pin().insert(key.clone(), counter.value(1));
            assert_eq!(upper.len(), 1);
        }
        drop(map);
        assert_eq!((counter.alive(), counter.errors()), (0, 0));
    }
    check::<S, u64>();
    check::<S, String>();
}

fn maps_are_compared_and_cloned<S: Kind>() {
    let (map, model) = filled::<S, String>(sized(700, 60));
    let clone = map.clone();
    assert!(clone == map && clone.pin().iter().eq(model.clone()));
    let key = model.keys().nth(7).unwrap();
    clone.pin().insert(key.clone(), "other".into());
    assert!(clone != map && map.pin().iter().eq(model.clone()));
    clone.pin().remove(key);
    assert_ne!(clone, map);
    map.pin().remove(key);
    assert_eq!(clone, map);
    assert_eq!(Map::<S, u64, f64>::new(), Map::new());
    // The comparison is that of `f64`, by which NaN is not equal to itself.
    assert_ne!(Map::<S, u64, f64>::from([(1, f64::NAN)]), Map::from([(1, f64::NAN)]));
}

/// Returns the numbers of entries of the ranges into which a map is divided.
fn sizes_of_parts<S: Kind, K: Key>(map: &Map<S, K, u64>, parts: usize) -> Vec<usize> {
    let points = map.split_points(parts);
    let starts = [Bound::Unbounded].into_iter().chain(points.iter().map(Bound::Included));
    let ends = points.iter().map(Bound::Excluded).chain([Bound::Unbounded]);
    starts.zip(ends).map(|range| map.pin().range::<K, _>(range).count()).collect()
}

/// One map has short keys, and many more long keys, which share a prefix. In the other map each key is a prefix of the
/// next one. In an `Art`, the long keys are all below one child of the root, and the prefixes are one below another.
fn points_cut_uneven_keys<S: Kind>() {
    let (short, long) = (0_u8..200, sized(40_000, 2_000) as u64);
    let scattered =
        (0..long).map(|n| [b"\xFFlong".as_slice(), &n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()].concat());
    let most_below_one: Map<S, Vec<u8>, u64> =
        short.map(|byte| vec![byte]).chain(scattered).map(|key| (key, 1)).collect();
    let prefixes: Map<S, Vec<u8>, u64> = (0..sized(1_200, 100)).map(|len| (vec![b'a'; len], 1)).collect();
    for map in [most_below_one, prefixes] {
        map.sync();
        for parts in [2, 8, 40] {
            let sizes = sizes_of_parts(&map, parts);
            let even = map.len() / sizes.len();
            assert!(sizes.iter().all(|&size| size <= 2 * even + 100), "{}: {sizes:?}", S::NAME);
        }
    }
}

fn points_cut_evenly<S: Kind>() {
    let count = sized(40_000, 2_000) as u64;
    let map: Map<S, u64, u64> = (0..count).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15), n)).collect();
    map.sync();
    for parts in [1, 2, 3, 8, 40] {
        let points = map.split_points(parts);
        assert!(points.is_sorted() && points.len() < parts && (parts > 8 || points.len() == parts - 1), "{parts}");
        assert!(points.iter().all(|point| map.pin().contains_key(point)));
        let sizes = sizes_of_parts(&map, parts);
        assert_eq!(sizes.iter().sum::<usize>() as u64, count);
        let even = count as usize / sizes.len();
        assert!(sizes.iter().all(|&size| size <= 2 * even + 100), "{sizes:?}");
    }
    // Entries are removed from 15/16 of the range of keys, but the map may not be compacted yet.
    map.pin().remove_range(..u64::MAX / 16 * 15);
    for parts in [2, 16, 1_000, usize::MAX] {
        assert!(map.split_points(parts).is_sorted_by(|a, b| a < b), "{parts}");
    }
    assert!(Map::<S, String, u64>::new().split_points(9).is_empty());
    let words: Map<S, String, usize> = (0..2_000).map(|n| (format!("päth/{n:05}"), n)).collect();
    words.sync();
    assert!(words.split_points(5).iter().all(|point| words.pin().contains_key(point)));
}

fn decisions_alone<S: Kind>() {
    let map: Map<S, String, String> = Map::new();
    let map = map.pin();
    let set = |to: Option<&str>| {
        let change = || to.map_or(Change::Remove, |to| Change::Put(to.to_owned()));
        let done = map.compute("key", |_| change());
        (done.old.map(|old| old.clone()), done.new.map(|new| new.clone()))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(set(None), (None, None));
    assert_eq!(set(Some("a")), (None, some("a")));
    assert_eq!(set(Some("b")), (some("a"), some("b")));
    let kept = map.compute("key", |_| Change::Keep);
    assert_eq!((kept.old.as_deref(), kept.new.as_deref()), (some("b").as_ref(), some("b").as_ref()));
    assert_eq!(set(None), (some("b"), None));
    assert!(map.compute("key", |_| Change::Keep).old.is_none() && map.is_empty());
    assert!(!map.upsert_with("key", || "made".into(), |_| unreachable!()));
    assert!(map.upsert_with("key", || unreachable!(), |old| old.clone() + "!"));
    assert!(map.remove_if("key", |value| value == "made").is_none());
    let error = map.compare_exchange("key", some("made").as_ref(), some("new")).unwrap_err();
    assert_eq!((error.current.as_deref(), error.proposed), (some("made!").as_ref(), some("new")));
    assert!(map.compare_exchange("key", some("made!").as_ref(), some("new")).is_ok_and(|old| old.is_some()));
    let error = map.insert_if_absent("key".into(), "other".into()).unwrap_err();
    assert_eq!((&*error.current, &*error.value), (&"new".to_owned(), "other"));
    assert!(map.remove_if("key", |value| value == "new").is_some_and(|value| *value == "new"));
    assert!(map.remove_if("key", |_| unreachable!()).is_none());
    assert!(map.compare_exchange("key", None, None).is_ok_and(|old| old.is_none()));
    assert!(map.insert_if_absent("key".into(), "again".into()).is_ok_and(|value| *value == "again"));
    assert_eq!(map.len(), 1);
}

fn tasks_take_sessions_along<S: Kind>() {
    let counter = DropCounter::new();
    let map: Map<S, u64, Counted> = (0..100).map(|n| (n, counter.value(n))).collect();
    let session = is_send(map.pin_owned());
    thread::scope(|s| {
        // Threads share one session.
        for t in 0..3 {
            let (session, counter) = (&session, &counter);
            s.spawn(move || {
                for n in (t..100).step_by(3) {
                    assert_eq!(session.get(&n).map(|value| value.tag()), Some(n));
                    assert!(session.insert(n + 1_000, counter.value(n)).is_none());
                    assert_eq!(session.remove(&n).map(|value| value.tag()), Some(n));
                    assert!(session.get_ref(&(n + 1_000)).is_some_and(|value| value.tag() == n));
                }
            });
        }
    });
    let moved: Vec<_> = thread::scope(|s| s.spawn(move || session.entries(1_000..).collect()).join().unwrap());
    assert!(moved.iter().map(|entry| entry.tag()).eq(0..100));
    drop(moved);
    map.check_invariants();
    drop(map);
    counter.assert_all_dropped();
}

/// This compiles only if a session's methods have the same signatures for all kinds of maps.
#[allow(dead_code, reason = "it is compiled")]
fn one_signature_for_all<S: Kind>(session: &Session<'_, S, u64, String>) -> Option<String> {
    session.insert(1, String::new()).or(session.pop_last().map(|entry| entry.1)).or(session.get(&1))
}

#[cfg(feature = "rayon")]
mod in_parallel {
    use super::*;
    use rayon::prelude::*;

    of_every_map! { everything_once }

    fn everything_once<S: Kind>() {
        let count = sized(30_000, 300) as u64;
        let map: Map<S, u64, String> = (0..count).into_par_iter().map(|n| (n, n.to_string())).collect();
        map.sync();
        map.check_invariants();
        let mut seen: Vec<u64> = map.par_range(5..).map(|(key, value)| key.min(value.parse().unwrap())).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(5..count));
        assert_eq!(map.par_iter().count() as u64, count);
    }
}
