//! Tests the map against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, nested, scaled, strings, words};

fn check<K>(map: &mut Wormhole<K>) {
    map.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 300) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(3_000, 300)), check::<Vec<u8>>);
    agrees_with_a_model(&nested(scaled(2_000, 300)), check::<Vec<u8>>);
}

/// The anchors of these keys are prefixes of each other.
#[test]
fn an_anchor_may_begin_another() {
    let keys: Vec<Vec<u8>> = (0..600).map(|len| vec![7; len]).collect();
    let mut map = Wormhole::<Vec<u8>>::default();
    for (value, key) in keys.iter().enumerate() {
        assert_eq!(map.pin().insert(key, value as u64), None);
    }
    let (leaves, count) = map.check_invariants();
    assert!(leaves > 4 && count == keys.len());
    for (value, key) in keys.iter().enumerate() {
        assert_eq!(map.pin().get(key), Some(value as u64));
        let absent = [key, &[6][..]].concat();
        assert_eq!(map.pin().get(&absent), None);
    }
}

const TURNS: [Mix; 4] = [GROW, SHRINK, GROW, SHRINK];

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64>);
        history(&words(scaled(1_500, 300) as u64), (4, scaled(1_000, 60)), &TURNS, round, check::<u64>);
        history(&strings(scaled(1_000, 200)), (4, scaled(500, 40)), &TURNS, round, check::<Vec<u8>>);
    }
}

/// The same test under random schedules of the simulator.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64>, check::<Vec<u8>>);
}
