//! Tests the map against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::btree::TreeKey;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, scaled, short_strings as strings, words};

fn check<K: SlotKey, L: Leaf<Key = K::InPlace>>(map: &mut SlottedArt<K, L>) {
    map.check_invariants();
}

#[test]
fn they_agree_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64, Sorted<u64>>);
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64, Tagged<u64>>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>, Sorted<Vec<u8>>>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>, Tagged<Vec<u8>>>);
}

#[test]
fn a_sorted_leaf_has_room_for_its_slots_and_a_bound() {
    assert_eq!((Sorted::<u64>::KEYS, Sorted::<Vec<u8>>::KEYS), (SLOTS + 1, SLOTS + 1));
}

#[test]
fn what_is_removed_leaves_its_bounds() {
    bounds_stay::<Sorted<u64>>();
    bounds_stay::<Tagged<u64>>();
}

fn bounds_stay<L: Leaf<Key = u64>>() {
    let mut map = SlottedArt::<u64, L>::default();
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
        histories::<Sorted<u64>, Sorted<Vec<u8>>>(round);
        histories::<Tagged<u64>, Tagged<Vec<u8>>>(round);
    }
}

fn histories<W: Leaf<Key = u64>, B: Leaf<Key = <Vec<u8> as TreeKey>::InPlace>>(round: u64) {
    history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64, W>);
    history(&words(scaled(1_500, 100) as u64), (4, scaled(1_000, 30)), &TURNS, round, check::<u64, W>);
    history(&strings(scaled(1_000, 60)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>, B>);
}

/// The same test under random schedules of the simulator.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64, Sorted<u64>>, check::<Vec<u8>, Sorted<Vec<u8>>>);
    crate::rivals::tests::hunt_histories(check::<u64, Tagged<u64>>, check::<Vec<u8>, Tagged<Vec<u8>>>);
}
