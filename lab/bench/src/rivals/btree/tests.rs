//! Tests the tree against a model, and its histories with the linearizability checker.

use archipelago_check::workload::{self, Mix};
use rand::seq::SliceRandom;

use super::*;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, scaled, strings, words};

fn check<K: TreeKey>(tree: &mut BTreeOlc<K>) {
    tree.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>>);
}

#[test]
fn what_is_removed_gives_its_nodes_back() {
    let mut keys = words(20_000);
    let mut tree = BTreeOlc::<u64>::default();
    keys.iter().for_each(|key| _ = tree.pin().insert(key, 1));
    let full = tree.check_invariants();
    assert!(full > 20_000 / FANOUT, "{full}");
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
