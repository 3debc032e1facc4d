//! Small runs through the `unsafe` code of `HydraList`, `BLinkTree` and `Art`. Their size is chosen for Miri; natively
//! they are fast.
//!
//! Pages of both layouts are split, merged, sorted and reclaimed. Search layers are built and merged anew. Keys are
//! short, or long enough to be boxed, and some bounds are longer than a page stores. Values are words and boxes.
//! `Art`'s nodes grow through all their kinds and shrink again. Some runs have one thread, and others two concurrent
//! threads.

// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::art::{Radix, WriteSync};
use archipelago_index::blink::{Builder, Central, Dense, InnerReplicas, Latched, LogFed, Mirrored, Pages, Policy};
use archipelago_index::euno::Tree;
use archipelago_index::hydra::{Hydra, Maintainers, SearchLayerKind};
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, BLinkTree, HydraList, Key};
use archipelago_platform::thread;
use archipelago_platform::topology::Topology;
use archipelago_tested as _;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The number of keys of the larger runs.
const MANY: u64 = if cfg!(miri) { 64 } else { 4_000 };

/// Makes a map on two nodes, so that there are two search layers and two arenas (allocators of pages). The calling
/// thread does all the maintenance.
fn list<K: Key, V: Send + Sync + 'static>(layer: SearchLayerKind) -> HydraList<K, V> {
    let topology = Topology::synthetic(2, 1);
    HydraList::builder().topology(topology).search_layer(layer).maintainers(Maintainers::Clients).build()
}

/// Returns distinct numbers in no order.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn word(n: u64) -> u64 {
    scatter(n)
}

/// Returns strings with shared prefixes of a few lengths, with tails in the heap. Some keys are boxed, and some bounds
/// are too long for a page.
fn string(n: u64) -> Vec<u8> {
    let prefix: &[u8] = if n.is_multiple_of(3) { b"" } else { b"a prefix that most of the keys have in common: " };
    let middle = if n.is_multiple_of(7) { vec![b'l'; 200] } else { Vec::new() };
    [prefix, &middle, format!("{:016x}", scatter(n)).as_bytes(), &vec![b'+'; n as usize % 5]].concat()
}

/// One thread uses most operations of a session. Each answer is compared with a model.
fn alone<S: Kind, K: Key + Ord + Debug>(map: Map<S, K, String>, make: fn(u64) -> K) {
    let mut model = BTreeMap::new();
    let value = |n: u64| format!("value {n}");
    {
        let session = map.pin();
        for n in 0..MANY {
            assert_eq!(session.insert(make(n), value(n)), model.insert(make(n), value(n)));
        }
        assert!(session.iter().eq(model.clone()));
        assert!(session.iter().rev().eq(model.clone().into_iter().rev()));
        // Values are replaced, updated and removed, and keys are inserted again where pages have lost room to removed
        // keys.
        for n in (0..MANY).step_by(3) {
            assert_eq!(session.insert(make(n), value(n + 1)), model.insert(make(n), value(n + 1)));
            assert_eq!(session.update(&make(n), |old| old.clone() + "!"), Some(value(n + 1)));
            model.insert(make(n), value(n + 1) + "!");
            assert_eq!(session.remove(&make(n + 1)), model.remove(&make(n + 1)));
            let expected = model.entry(make(n + 2)).or_insert_with(|| value(0));
            assert_eq!(session.get_or_insert_with(make(n + 2), || value(0)), *expected);
        }
        map.sync();
        map.check_invariants();
        let keys: Vec<K> = (0..40).map(make).collect();
        assert_eq!(session.get_many(&keys), keys.iter().map(|key| model.get(key).cloned()).collect::<Vec<_>>());
        for n in (0..MANY).step_by(17) {
            let (low, high) = (make(n).min(make(n + 1)), make(n).max(make(n + 1)));
            let range = || model.range(&low..&high).map(|(key, value)| (key.clone(), value.clone()));
            assert!(session.range(low.clone()..high.clone()).take(30).eq(range().take(30)));
            assert!(session.range(low.clone()..high.clone()).rev().take(30).eq(range().rev().take(30)));
        }
        assert_eq!(session.pop_first(), model.pop_first());
        assert_eq!(session.pop_last(), model.pop_last());
        // Now the map shrinks: pages are merged with the next and with the previous page.
        let mut kept = 0;
        session.retain(|_, _| {
            kept += 1;
            kept % 8 == 0
        });
        let mut place = 0;
        model.retain(|_, _| {
            place += 1;
            place % 8 == 0
        });
        assert!(session.iter().eq(model.clone()));
        map.sync();
        map.check_invariants();
        // Now it grows again, this time in order.
        let sorted: BTreeMap<K, String> = (0..MANY).map(|n| (make(n), value(n))).collect();
        session.extend(sorted.clone());
        model.extend(sorted);
        map.sync();
        map.check_invariants();
        assert!(session.iter().eq(model.clone()));
    }
    // An owning iterator drops the entries that it did not yield.
    let mut entries = map.into_iter();
    assert_eq!(entries.next(), model.pop_first());
    assert_eq!(entries.next_back(), model.pop_last());
    assert_eq!(entries.len(), model.len());
}

#[test]
fn words_alone() {
    alone(list::<u64, _>(SearchLayerKind::Snapshot), word);
}

/// Pages of consecutive keys get a form of their own.
#[test]
fn consecutive_words_alone() {
    alone(list::<u64, _>(SearchLayerKind::Snapshot), |n| n);
}

#[test]
fn words_alone_by_tree() {
    alone(list::<u64, _>(SearchLayerKind::Art), word);
}

#[test]
fn strings_alone() {
    alone(list::<Vec<u8>, _>(SearchLayerKind::Snapshot), string);
}

#[test]
fn strings_alone_by_tree() {
    alone(list::<Vec<u8>, _>(SearchLayerKind::Art), string);
}

/// Two threads use one map. One makes pages split and merge all the time. The other one looks up and scans, in both
/// directions, the keys that stay.
fn together<S: Kind, K: Key + Ord + Debug>(map: &Map<S, K, u64>, make: fn(u64) -> K) {
    let stays: BTreeMap<K, u64> = (0..MANY).step_by(4).map(|n| (make(n), n)).collect();
    map.pin().extend(stays.clone());
    thread::scope(|s| {
        s.spawn(|| {
            let session = map.pin();
            let comes_and_goes = || (0..MANY).filter(|n| n % 4 != 0);
            for _ in 0..2 {
                comes_and_goes().for_each(|n| assert_eq!(session.insert(make(n), n), None));
                comes_and_goes().step_by(5).for_each(|n| assert_eq!(session.insert(make(n), n), Some(n)));
                comes_and_goes().for_each(|n| assert_eq!(session.remove(&make(n)), Some(n)));
            }
        });
        s.spawn(|| {
            let session = map.pin();
            for _ in 0..2 {
                stays.iter().step_by(3).for_each(|(key, n)| assert_eq!(session.get(key), Some(*n)));
                stays.iter().step_by(5).for_each(|(key, n)| assert_eq!(session.insert(key.clone(), *n), Some(*n)));
                let seen: Vec<_> = session.iter().filter(|(_, n)| n % 4 == 0).collect();
                assert!(seen.into_iter().eq(stays.clone()));
                let seen: Vec<_> = session.iter().rev().filter(|(_, n)| n % 4 == 0).collect();
                assert!(seen.into_iter().eq(stays.clone().into_iter().rev()));
                thread::yield_now();
            }
        });
    });
    map.sync();
    map.check_invariants();
    assert!(map.pin().iter().eq(stays));
}

#[test]
fn words_together() {
    together(&list::<u64, _>(SearchLayerKind::Snapshot), word);
}

#[test]
fn words_together_by_tree() {
    together(&list::<u64, _>(SearchLayerKind::Art), word);
}

#[test]
fn strings_together() {
    together(&list::<Vec<u8>, _>(SearchLayerKind::Snapshot), string);
}

#[test]
fn strings_together_without_maintenance() {
    let map = list::<Vec<u8>, _>(SearchLayerKind::Snapshot);
    map.pause_maintenance(true);
    together(&map, string);
}

/// Makes a tree with the smallest pages, on two nodes. Depending on the policy it has replicas, a log, or copies of
/// inner pages.
fn pages<K: Key, V: Send + Sync + 'static, P: Policy>() -> BLinkTree<K, V, P> {
    Builder::default().topology(Topology::synthetic(2, 1)).build()
}

/// Returns strings with shared prefixes and tails in the heap. None is longer than a page of 512 bytes allows.
fn short_string(n: u64) -> Vec<u8> {
    let mut string = string(n * 7 + 1);
    string.truncate(90);
    string.extend(n.to_be_bytes());
    string
}

#[test]
fn pages_alone() {
    alone(pages::<u64, _, Dense<Pages<512>>>(), word);
    alone(pages::<Vec<u8>, _, Latched<512, Central, true>>(), short_string);
}

#[test]
fn pages_together() {
    together(&pages::<u64, _, Mirrored<Dense<Pages<512>>>>(), word);
    together(&pages::<Vec<u8>, _, Pages<512>>(), short_string);
}

#[test]
fn pages_from_a_log() {
    alone(pages::<Vec<u8>, _, LogFed<Dense<Pages<512>>>>(), short_string);
    together(&pages::<u64, _, LogFed<Dense<Pages<512>>>>(), word);
}

#[test]
fn pages_below_copies() {
    alone(pages::<u64, _, InnerReplicas<Pages<512>>>(), word);
    together(&pages::<u64, _, InnerReplicas<Pages<512>>>(), word);
}

/// The radix tree: nodes of every kind, which grow and shrink, keys that end inside other keys, and both write
/// synchronizations.
#[test]
fn trees_alone() {
    let key = |n: u64| match n % 4 {
        // These keys are below a node of up to 256 children, behind a long prefix.
        0 => [&b"a prefix of more than a word: "[..], &[n as u8], b"tail"].concat(),
        // These keys end at positions at which other keys continue.
        1 => vec![b'x'; n as usize / 8],
        _ => format!("{:x}", scatter(n)).into_bytes(),
    };
    for sync in [WriteSync::Rowex, WriteSync::OptimisticLockCoupling] {
        let tree: Art<Vec<u8>, String> = Art::with_write_sync(sync);
        let session = tree.pin();
        let mut model = BTreeMap::new();
        for n in 0..2 * MANY.min(600) {
            assert_eq!(session.insert(key(n), n.to_string()), model.insert(key(n), n.to_string()));
        }
        tree.check_invariants();
        assert!(session.iter().eq(model.clone()));
        assert!(session.range(key(2)..).rev().eq(model.range(key(2)..).rev().map(|(k, v)| (k.clone(), v.clone()))));
        for n in 0..2 * MANY.min(600) {
            if n % 16 != 0 {
                assert_eq!(session.remove(&key(n)), model.remove(&key(n)));
            } else {
                assert_eq!(session.update(&key(n), |old| old.clone() + "!"), model.get(&key(n)).cloned());
                model.entry(key(n)).and_modify(|old| *old += "!");
            }
        }
        tree.check_invariants();
        assert_eq!(session.pop_first(), model.pop_first());
        assert_eq!(session.pop_last(), model.pop_last());
        assert!(session.iter().eq(model));
    }
}

/// Two threads use one tree, with interleaved keys. Nodes are replaced while the other thread uses them.
fn trees_together<K: Key + Ord + Debug>(make: fn(u64) -> K) {
    for sync in [WriteSync::Rowex, WriteSync::OptimisticLockCoupling] {
        let tree: Art<K, u64> = Art::with_write_sync(sync);
        thread::scope(|s| {
            for t in 0..2 {
                let tree = &tree;
                s.spawn(move || {
                    let session = tree.pin();
                    let mine = || (t..MANY).step_by(2);
                    mine().for_each(|n| assert_eq!(session.insert(make(n), n), None));
                    let seen: Vec<_> = session.iter().collect();
                    assert!(seen.is_sorted() && seen.iter().filter(|(_, n)| n % 2 == t).count() == mine().count());
                    mine().step_by(2).for_each(|n| assert_eq!(session.remove(&make(n)), Some(n)));
                    mine().enumerate().for_each(|(at, n)| {
                        assert_eq!(session.get(&make(n)), (at % 2 == 1).then_some(n));
                    });
                });
            }
        });
        tree.check_invariants();
    }
}

#[test]
fn trees_of_words_together() {
    trees_together(word);
}

#[test]
fn trees_of_strings_together() {
    trees_together(string);
}

/// Scans prefetch what values lead to, and iterators lend entries, while another thread replaces and removes values.
fn lent_together<S: Kind>() {
    let keys = || 0..MANY.min(24);
    let mut map: Map<S, u64, String> = Map::builder().fetch_ahead(|value: &String| value.as_ptr()).build();
    map.extend(keys().map(|n| (n, n.to_string())));
    thread::scope(|s| {
        s.spawn(|| {
            let session = map.pin();
            keys().for_each(|n| drop(session.insert(n, n.to_string())));
            keys().filter(|n| n % 4 != 0).for_each(|n| _ = session.delete(&n));
        });
        s.spawn(|| {
            let session = map.pin();
            let stays = |key: u64, value: &String| {
                assert_eq!(*value, key.to_string());
                key.is_multiple_of(4)
            };
            let staying = || keys().step_by(4).count();
            assert_eq!(session.entries::<u64, _>(..).map_refs(stays).filter(|stays| *stays).count(), staying());
            assert_eq!(session.entries::<u64, _>(..).map_refs(stays).rev().filter(|stays| *stays).count(), staying());
            session.scan(&3, 10, |key, value| _ = stays(key, value));
            session.scan_rev(&MANY, 10, |key, value| _ = stays(key, value));
        });
    });
    map.check_invariants();
}

#[test]
fn lent_entries_together() {
    lent_together::<Radix>();
    lent_together::<Tree>();
    lent_together::<Hydra>();
}
