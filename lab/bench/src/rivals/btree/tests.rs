//! Tests the tree against a model, and its histories with the linearizability checker.

use archipelago_check::workload::{self, Mix};
use rand::seq::SliceRandom;

use super::*;
use crate::keys::emails;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, scaled, short_strings as strings, words};

fn check<K: TreeKey>(tree: &mut BTreeOlc<K>) {
    tree.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>>);
}

#[test]
fn the_forms_in_nodes_have_the_order_of_the_keys() {
    let mut keys = strings(1_000);
    // Zeros at the end decide, and so do the bytes around the words' ends.
    keys.extend((0..=LONGEST).flat_map(|len| [0, 1, b'~', 0xff].map(|last| [vec![b'~'; len], vec![last]].concat())));
    keys.retain(|key| key.len() <= LONGEST);
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.is_sorted_by(|left, right| left.in_place() < right.in_place()));
    for key in &keys {
        assert_eq!(<Vec<u8> as TreeKey>::show(key.in_place(), <[u8]>::to_vec), *key);
    }
}

#[test]
fn a_key_that_is_too_long_is_absent() {
    let tree = BTreeOlc::<Vec<u8>>::default();
    let session = tree.pin();
    let [shorter, long, longer] = [LONGEST - 1, LONGEST, LONGEST + 1].map(|len| vec![b'a'; len]);
    let behind = [vec![b'a'; LONGEST - 1], vec![b'b']].concat();
    [&shorter, &long, &behind].into_iter().for_each(|key| _ = session.insert(key, 1));
    assert_eq!((session.get(&longer), session.remove(&longer), session.update(&longer, |_| 2)), (None, None, None));
    let mut seen = Vec::new();
    session.scan(&longer, 9, |key, _| seen.push(key.to_vec()));
    assert_eq!(seen, [behind]);
    let insert = std::panic::AssertUnwindSafe(|| session.insert(&longer, 1));
    assert!(std::panic::catch_unwind(insert).is_err());
    assert_eq!(session.get(&long), Some(1));
}

#[test]
fn a_visitor_may_scan() {
    let tree = BTreeOlc::<u64>::default();
    let session = tree.pin();
    (0..100).for_each(|key| _ = session.insert(&key, key));
    let mut seen = 0;
    session.scan(&0, 100, |key, _| seen += session.scan(&key, 100, |_, _| ()));
    assert_eq!(seen, 5_050);
}

#[test]
fn nodes_have_the_intended_sizes() {
    assert_eq!((Node::<u64>::KEYS, Node::<<Vec<u8> as TreeKey>::InPlace>::KEYS), (30, 84));
    assert_eq!((size_of::<Node<u64>>(), size_of::<Node<<Vec<u8> as TreeKey>::InPlace>>()), (512, 4096));
}

#[test]
fn what_is_removed_gives_its_nodes_back() {
    gives_its_nodes_back(words(20_000));
    gives_its_nodes_back(emails(20_000, 0, 1).loaded);
}

fn gives_its_nodes_back<K: TreeKey>(mut keys: Vec<K>) {
    let mut tree = BTreeOlc::<K>::default();
    keys.iter().for_each(|key| _ = tree.pin().insert(key, 1));
    let full = tree.check_invariants();
    assert!(full > 20_000 / BTreeOlc::<K>::KEYS, "{full}");
    keys.shuffle(&mut workload::rng(2, 0));
    let (most, few) = keys.split_at(19_800);
    most.iter().for_each(|key| _ = tree.pin().remove(key));
    let left = tree.check_invariants();
    // A leaf has at least one key, and neighbours that fit into one node were merged.
    assert!(!tree.has_empty_leaves() && left < full / 20, "{left} nodes of {full} for 200 keys");
    few.iter().for_each(|key| assert_eq!(tree.pin().remove(key), Some(1)));
    assert_eq!(tree.check_invariants(), 1, "an empty tree is one leaf");
    tree.domain.drain_all();
    assert_eq!(tree.domain.stats().pending, 0);
}

const TURNS: [Mix; 4] = [GROW, SHRINK, GROW, SHRINK];

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64>);
        history(&words(scaled(400, 60) as u64), (4, scaled(1_000, 30)), &TURNS, round, check::<u64>);
        history(&strings(scaled(300, 30)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>>);
    }
}

/// The same test under random schedules of the simulator. The tree is small, so most operations are close to a split or
/// a merge.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    use archipelago_sim::{Machine, hunt, run};
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let mixes = [GROW, SHRINK];
    hunt(300, |config| run(&machine, &config, 1, |_| history(&words(90), (4, 12), &mixes, config.seed, check::<u64>)));
}
