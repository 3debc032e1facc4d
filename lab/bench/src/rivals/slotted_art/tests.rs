//! Tests the map against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, scaled, short_strings as strings, words};

fn check<K: SlotKey>(map: &mut SlottedArt<K>) {
    map.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>>);
}

#[test]
fn a_leaf_has_room_for_its_slots_and_a_bound() {
    assert_eq!((Leaf::<u64>::KEYS, Leaf::<Vec<u8>>::KEYS), (SLOTS + 1, SLOTS + 1));
}

#[test]
fn what_is_removed_leaves_its_bounds() {
    let mut map = SlottedArt::<u64>::default();
    let keys = words(scaled(5_000, 200) as u64);
    keys.iter().for_each(|key| _ = map.pin().insert(key, 1));
    let leaves = map.check_invariants();
    assert!(leaves > keys.len() / SLOTS, "{leaves}");
    keys.iter().for_each(|key| assert_eq!(map.pin().remove(key), Some(1)));
    assert_eq!((map.check_invariants(), map.pin().scan(&0, 9, |_, _| ())), (leaves, 0));
    keys.iter().for_each(|key| assert_eq!(map.pin().insert(key, 2), None));
    assert_eq!(map.pin().scan(&0, keys.len() + 1, |_, value| assert_eq!(*value, 2)), keys.len());
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

/// The same test under random schedules of the simulator.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64>, check::<Vec<u8>>);
}
