//! `BLinkTree` compared with `BTreeMap`: random operations on keys that are long for their pages. Invariants are
//! checked after the operations, and while the remaining entries are removed.

use crate::common::quiet::soon_shows;
use crate::common::sequences::{self, Op, ops};
use archipelago_check::drops::{Counted, DropCounter};
use archipelago_index::blink::{CohortNp, Granular, Latched, Pages, Policy};
use archipelago_index::map::Stats;
use archipelago_index::{BLinkTree, Change, Key, Refused};
use proptest::prelude::*;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs operations on a tree with this policy.
fn run<K: Key + Ord + Debug, P: Policy>(ops: &[Op<K>]) -> BLinkTree<K, String, P> {
    let tree = BLinkTree::new();
    sequences::run(&tree, ops);
    tree
}

/// Runs operations as [`run`] does, with keys that are short for their pages. Then an emptied tree is one page. (A page
/// stores its two bounds, the fences. If they take half of the page or more, two nearly empty pages may not fit into
/// one.)
fn run_and_shrink<K: Key + Ord + Debug>(ops: &[Op<K>]) {
    assert_eq!(run::<K, Pages<512>>(ops).levels(), 1, "only the root is left");
}

/// Returns keys up to a quarter of a page of 512 bytes. They consist of few letters in long runs, so that they have
/// long common prefixes.
fn long_keys() -> impl Strategy<Value = Vec<u8>> + Clone {
    let run = (prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xFF)], 0..70usize);
    let runs = proptest::collection::vec(run, 0..5);
    let made = runs.prop_map(|runs| {
        let mut key: Vec<u8> = runs.into_iter().flat_map(|(byte, count)| vec![byte; count]).collect();
        key.truncate(128);
        key
    });
    prop_oneof![
        6 => made,
        2 => (0..200u16).prop_map(|n| [&[b'p'; 120][..], &n.to_be_bytes()].concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..3),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 60 },
        ..ProptestConfig::default() })]

    #[test]
    fn words(ops in ops(prop_oneof![0..400u64, any::<u64>()])) {
        run_and_shrink(&ops);
    }

    #[test]
    fn long_byte_strings(ops in ops(long_keys())) {
        run::<Vec<u8>, Pages<512>>(&ops);
    }

    #[test]
    fn words_without_latched_leaves(ops in ops(0..400u64)) {
        run::<u64, Granular<Latched<512, CohortNp, true>, 1>>(&ops);
    }

    #[test]
    fn strings(ops in ops("[a-c]{0,6}|common/prefix/[0-9]{1,3}")) {
        run_and_shrink(&ops);
    }
}

/// All keys have the same length, up to the greatest allowed one, and are inserted in an order that splits every page
/// in its middle. So both fences of a page have the greatest possible length, and pages have one key. When the tree is
/// emptied, it is one page again.
#[test]
fn pages_full_of_long_keys() {
    type Tree = BLinkTree<Vec<u8>, u64, Pages<512>>;
    let count = if cfg!(miri) { 40 } else { 1500 };
    for length in [96, 112, Tree::LONGEST_KEY] {
        let tree = Tree::new();
        let map = tree.pin();
        // Neighbouring keys differ only in their last bytes, so that fences cannot be shortened.
        let key = |n: u64| {
            let mut key = vec![(n / 40) as u8; length];
            key[length - 8..].copy_from_slice(&n.to_be_bytes());
            key
        };
        let order = |n: u64| n * 7919 % count;
        for n in 0..count {
            assert_eq!(map.insert(key(order(n)), n), None);
        }
        tree.check_invariants();
        for n in 0..count {
            assert_eq!(map.get(&key(order(n))), Some(n));
        }
        for n in 0..count {
            assert_eq!(map.remove(&key(order(n))), Some(n));
        }
        tree.check_invariants();
        assert!(tree.is_empty());
        assert_eq!(tree.levels(), 1, "only the root is left of a tree of keys of {length} bytes");
    }
}

/// Keys of every length arrive in descending order and differ only in their last bytes, so fences are as long as keys.
/// A full first page is split off whole only if it has room for its new lower fence.
#[test]
fn long_keys_in_descending_order() {
    type Tree = BLinkTree<Vec<u8>, u64, Pages<512>>;
    let count = if cfg!(miri) { 20 } else { 100 };
    for length in (8..=Tree::LONGEST_KEY).step_by(if cfg!(miri) { 40 } else { 1 }) {
        let tree = Tree::new();
        let map = tree.pin();
        let key = |n: u64| [vec![b'k'; length - 8], n.to_be_bytes().to_vec()].concat();
        (0..count).rev().for_each(|n| assert_eq!(map.insert(key(n), n), None));
        tree.check_invariants();
        assert!(map.iter().map(|(_, n)| n).eq(0..count), "keys of {length} bytes");
    }
}

/// The room that a page's fences take does not count as used by entries. So pages with few remaining long keys are
/// merged into one.
#[test]
fn pages_with_long_fences_become_one() {
    let tree: BLinkTree<Vec<u8>, u64, Pages<512>> = BLinkTree::new();
    let map = tree.pin();
    let key = |n: u64| [vec![b'k'; 72], n.to_be_bytes().to_vec()].concat();
    let count = 400;
    (0..count).for_each(|n| _ = map.insert(key(n * 7919 % count), n));
    let pages = |stats: &Stats| stats.pages.saturating_sub(stats.garbage.objects);
    let before = pages(&tree.stats());
    map.retain(|key, _| key[79] % 20 == 0);
    tree.check_invariants();
    println!("{before} pages before");
    // Pages that the thread for idle maps is about to free still count as pages, but no longer as garbage.
    soon_shows(&tree, |stats| pages(stats) < before / 3);
}

#[test]
fn a_key_that_is_too_long_is_an_error() {
    let tree: BLinkTree<String, String, Pages<512>> = BLinkTree::new();
    let map = tree.pin();
    let (longest, longer) = ("k".repeat(128), "k".repeat(129));
    assert_eq!(map.try_insert(longest.clone(), "fits".into()), Ok(None));
    let refused = Refused::TooLong((longer.clone(), "does not".to_string()));
    assert_eq!(map.try_upsert(longer.clone(), "does not".into()), Err(refused.clone()));
    assert_eq!(map.try_insert(longer.clone(), "does not".into()), Err(refused));
    assert_eq!((map.get(&longer), map.remove(&longer), map.replace(&longer, "x".into())), (None, None, None));
    assert_eq!(map.range(longer..).count(), 0);
    assert_eq!((map.get(&longest), tree.len()), (Some("fits".into()), 1));
    tree.check_invariants();
}

/// If a key is too long, every method that would store it (except the `try_` methods) panics, stores nothing under the
/// key, and drops the value once. (`extend` stores its other entries.)
#[test]
fn storing_a_key_that_is_too_long_panics() {
    type Tree = BLinkTree<String, Counted, Pages<512>>;
    let counter = DropCounter::new();
    let tree = Tree::new();
    let (long, map) = ("k".repeat(Tree::LONGEST_KEY + 1), tree.pin());
    map.insert("a".into(), counter.value(0));
    let value = || counter.value(1);
    let stores: [&dyn Fn(); 8] = [
        &|| drop(map.insert(long.clone(), value())),
        &|| _ = map.upsert(&long, value()),
        &|| drop(map.insert_ref(long.clone(), value())),
        &|| drop(map.insert_if_absent(long.clone(), value())),
        &|| drop(map.get_or_insert_with(long.clone(), value)),
        &|| _ = map.upsert_with(&long, value, |_| value()),
        &|| drop(map.compute(&long, |_| Change::Put(value()))),
        &|| map.extend([("b".into(), value()), (long.clone(), value())]),
    ];
    for store in stores {
        assert!(catch_unwind(AssertUnwindSafe(store)).is_err(), "it was stored");
        assert!(map.replace(&long, value()).is_none() && !map.contains_key(&long));
    }
    assert!(map.keys().eq(["a", "b"]));
    tree.check_invariants();
    drop(tree);
    counter.assert_all_dropped();
}

/// Keys are in groups that are far apart. So in each page keys are far, on either side, from the positions that they
/// would have if all keys were uniformly distributed.
#[test]
fn keys_in_crowds_are_found() {
    let crowds = [0, 1 << 40, u64::MAX / 3, u64::MAX - 4_000];
    let width = if cfg!(miri) { 40 } else { 1_000 };
    let order = (0..width * 4).map(|n| n * 7_919 % (width * 4));
    let keys: Vec<u64> = order.map(|n| crowds[(n / width) as usize] + 4 * (n % width)).collect();
    let tree: BLinkTree<u64, u64> = BLinkTree::new();
    let map = tree.pin();
    for &key in &keys {
        assert_eq!(map.get(&key), None);
        map.insert(key, !key);
        assert_eq!((map.get(&key), map.get(&(key + 1))), (Some(!key), None));
    }
    tree.check_invariants();
    assert!(keys.iter().all(|key| map.get(key) == Some(!key) && !map.contains_key(&(key + 2))));
    assert!(keys.iter().all(|key| map.remove(key) == Some(!key)) && tree.is_empty());
    tree.check_invariants();
}

#[test]
fn keys_in_order_fill_their_pages() {
    let tree: BLinkTree<u64, u64, Pages<1024>> = (0..10_000).map(|key| (key, key)).collect();
    tree.check_invariants();
    let stats = tree.stats();
    assert!(stats.pages * 1024 < 10_000 * 16 * 11 / 10, "{} pages for 10,000 entries of 16 bytes", stats.pages);
}
