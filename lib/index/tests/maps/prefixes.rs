//! Strings that share prefixes of any length. Pages of a HydraList do not store the prefix that all their keys share.
//! They store long strings in boxes, and compare strings word by word.

use crate::common::{contents, sized};
use archipelago_check::workload;
use archipelago_index::{Art, HydraList, OrderedIndex, OrderedSession};
use rand::RngExt;
use std::collections::BTreeMap;

/// Returns endings. Some differ in the first bytes, some in the last bytes, some only in length, and some only by the
/// least or the greatest byte.
fn endings() -> Vec<Vec<u8>> {
    let mut rng = workload::rng(7, 0);
    let mut endings: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![0xFF], vec![0xFF; 9]];
    for len in 1..sized(40, 12) {
        endings.push(vec![b'e'; len]);
        endings.push([vec![b'e'; len], vec![0]].concat());
        endings.push((0..len).map(|_| rng.random()).collect());
    }
    endings
}

/// Inserts keys in no order, looks them up, scans them, and removes half of them. Similar absent keys are not found.
fn hold(map: &impl OrderedIndex<Vec<u8>, u64>, keys: &BTreeMap<Vec<u8>, u64>, shuffled: &[Vec<u8>]) {
    let session = map.pin();
    for key in shuffled {
        assert_eq!(session.insert(key, keys[key]), None);
    }
    assert!(contents(&session).into_iter().eq(keys.clone()));
    for (place, key) in shuffled.iter().enumerate() {
        assert_eq!(session.get(key), Some(keys[key]));
        for near in [[&key[..], b"\0"].concat(), key[..key.len().saturating_sub(1)].to_vec()] {
            assert_eq!(session.get(&near), keys.get(&near).copied(), "next to a key of {} bytes", key.len());
            let mut first = None;
            session.scan(&near, 1, |key, _| first = Some(key.to_vec()));
            assert_eq!(first.as_ref(), keys.range(near.clone()..).next().map(|(key, _)| key));
            let mut last = None;
            session.scan_rev(&near, 1, |key, _| last = Some(key.to_vec()));
            assert_eq!(last.as_ref(), keys.range(..=near).next_back().map(|(key, _)| key));
        }
        if place % 2 == 1 {
            assert_eq!(session.remove(key), Some(keys[key]));
            assert_eq!(session.insert(key, keys[key]), None);
        }
    }
    for key in &shuffled[..shuffled.len() / 2] {
        assert_eq!(session.remove(key), Some(keys[key]));
    }
    let left: Vec<_> =
        keys.iter().filter(|(key, _)| session.get(key).is_some()).map(|(k, v)| (k.clone(), *v)).collect();
    assert_eq!(left.len(), shuffled.len().div_ceil(2));
    assert_eq!(contents(&session), left);
}

fn try_prefixes(prefixes: &[Vec<u8>]) {
    let mut keys = BTreeMap::new();
    for prefix in prefixes {
        for ending in endings() {
            keys.insert([&prefix[..], &ending].concat(), keys.len() as u64);
        }
    }
    let mut shuffled: Vec<Vec<u8>> = keys.keys().cloned().collect();
    let mut rng = workload::rng(8, prefixes.len());
    (1..shuffled.len()).for_each(|at| shuffled.swap(at, rng.random_range(0..=at)));
    let map = HydraList::new();
    hold(&map, &keys, &shuffled);
    map.check_invariants();
    let tree = Art::new();
    hold(&tree, &keys, &shuffled);
    tree.check_invariants();
}

fn prefix(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"common prefix "[at % 14]).collect()
}

#[test]
fn prefixes_of_every_length() {
    for len in (0..sized(280, 40)).step_by(sized(1, 9)) {
        try_prefixes(&[prefix(len)]);
    }
}

#[test]
fn prefixes_of_all_lengths_in_one_map() {
    let lengths = (0..sized(260, 30)).step_by(sized(3, 10));
    try_prefixes(&lengths.map(prefix).collect::<Vec<_>>());
}

/// Tests prefixes around the limits of the 16-bit lengths that a page stores.
#[test]
fn enormous_prefixes() {
    for len in [1_000, 0xFFFE, 0xFFFF, 0x1_0000, 0x1_0001, 70_000] {
        if !cfg!(miri) || len == 1_000 {
            try_prefixes(&[prefix(len)]);
        }
    }
}
