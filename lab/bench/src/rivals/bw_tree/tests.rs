//! Tests the tree against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::tests::{
    GROW, SHRINK, agrees_with_a_model, history, nested, scaled, short_strings as strings, words,
};

fn check<K: TreeKey>(tree: &mut BwTree<K>) {
    tree.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 80) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 40)), check::<Vec<u8>>);
    agrees_with_a_model(&nested(scaled(1_000, 40)), check::<Vec<u8>>);
}

#[test]
fn records_have_whole_cache_lines() {
    assert_eq!((size_of::<Record<u64>>(), size_of::<Record<[u64; 5]>>()), (64, 128));
}

/// Every id belongs to a node of the tree, and replaced chains are freed.
#[test]
fn nothing_is_left_over() {
    let keys = words(scaled(5_000, 100) as u64);
    let mut tree = BwTree::<u64>::default();
    keys.iter().for_each(|key| assert_eq!(tree.pin().insert(key, *key), None));
    let (nodes, count) = tree.check_invariants();
    assert_eq!((count, tree.table.nodes()), (keys.len(), nodes));
    keys.iter().for_each(|key| assert_eq!(tree.pin().remove(key), Some(*key)));
    // A removal can consolidate a leaf that is to be split.
    let (nodes, count) = tree.check_invariants();
    assert_eq!((count, tree.table.nodes()), (0, nodes));
    assert_eq!(tree.pin().scan(&0, 9, |_, _| ()), 0);
    tree.domain.drain_all();
    assert_eq!(tree.domain.stats().pending, 0);
}

/// A split whose term is missing: readers go to the right, and the next writer posts the term.
#[test]
fn a_writer_finishes_a_split_of_another() {
    let mut tree = BwTree::<u64>::default();
    (0..7).for_each(|key| _ = tree.pin().insert(&key, key));
    let guard = tree.domain.pin();
    tree.consolidate(tree.root(&guard), &guard);
    let left = tree.root(&guard);
    let upper = &left.head.items()[3..];
    let right = tree.table.add(record::base(0, None, NONE, upper));
    let change = Change { kind: Kind::Split, key: 3, word: right, until: None };
    assert!(tree.prepend(left, change, &mut None, &guard));
    (0..7).for_each(|key| assert_eq!(tree.pin().get(&key), Some(key)));
    assert_eq!(tree.pin().scan(&0, 9, |_, _| ()), 7);
    assert_eq!(tree.root(&guard).head.level(), 0, "readers change nothing");
    assert_eq!(tree.pin().insert(&1, 2), Some(1));
    assert_eq!(tree.root(&guard).head.level(), 1);
    drop(guard);
    assert_eq!(tree.check_invariants(), (3, 7));
}

#[test]
fn a_key_that_is_too_long_is_absent() {
    let tree = BwTree::<Vec<u8>>::default();
    let session = tree.pin();
    let [long, longer] = [LONGEST, LONGEST + 1].map(|len| vec![b'a'; len]);
    assert_eq!(session.insert(&long, 1), None);
    assert_eq!((session.get(&longer), session.remove(&longer), session.update(&longer, |_| 2)), (None, None, None));
    let insert = std::panic::AssertUnwindSafe(|| session.insert(&longer, 1));
    assert!(std::panic::catch_unwind(insert).is_err());
    assert_eq!(session.get(&long), Some(1));
}

#[test]
fn a_visitor_and_an_update_may_use_the_tree() {
    let tree = BwTree::<u64>::default();
    let session = tree.pin();
    let count = scaled(100, 20);
    (0..count as u64).for_each(|key| _ = session.insert(&key, key));
    let mut seen = 0;
    session.scan(&0, count, |key, _| seen += session.scan(&key, count, |_, _| ()));
    assert_eq!(seen, count * (count + 1) / 2);
    // The first attempt meets the change that the caller's code makes.
    let mut calls = 0;
    let old = session.update(&7, |old| {
        calls += 1;
        if calls == 1 {
            session.insert(&7, 70);
        }
        old + 1
    });
    assert_eq!((old, calls, session.get(&7)), (Some(70), 2, Some(71)));
}

#[test]
fn a_panic_of_the_callers_code_leaves_the_tree_whole() {
    let mut tree = BwTree::<u64>::default();
    (0..100).for_each(|key| _ = tree.pin().insert(&key, key));
    for key in 0..scaled(100, 3) as u64 {
        let update = std::panic::AssertUnwindSafe(|| tree.pin().update(&key, |_| panic!("on purpose")));
        assert!(std::panic::catch_unwind(update).is_err());
    }
    assert_eq!(tree.check_invariants().1, 100);
}

const TURNS: [Mix; 4] = [GROW, SHRINK, GROW, SHRINK];

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64>);
        history(&words(scaled(1_500, 100) as u64), (4, scaled(1_000, 30)), &TURNS, round, check::<u64>);
        history(&strings(scaled(1_000, 60)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>>);
    }
}

/// The same test under random schedules of the simulator. The keys are few, so most operations are close to a split.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64>, check::<Vec<u8>>);
}
