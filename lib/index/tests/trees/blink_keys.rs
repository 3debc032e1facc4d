//! `BLinkTree` with keys of every form: words, byte strings, and composites of them. The pages are so small that a few
//! keys need several levels. Keys that are longer than the longest allowed are refused and change nothing.

use archipelago_index::blink::{Dense, LogFed, Pages, Policy};
use archipelago_index::map::Refused;
use archipelago_index::{BLinkTree, Key, key};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Returns numbers of every magnitude.
fn number(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 31) >> (n % 63)
}

/// Returns byte strings. Most are short and consist of few different bytes, among them 0 and 0xFF, which escaping uses.
/// Therefore many of the strings are prefixes of other strings. Some strings are long.
fn bytes(n: u64) -> Vec<u8> {
    let alphabet = [0, 1, 0xFE, 0xFF, b'a'];
    let one = |at: u64| alphabet[(number(n ^ at << 40) % 5) as usize];
    match n % 8 {
        0 => vec![one(0); (number(n) % 120) as usize],
        1 => [vec![b'p'; 60], number(n).to_be_bytes().to_vec()].concat(),
        _ => (0..n % 7).map(one).collect(),
    }
}

fn text(n: u64) -> String {
    bytes(n).into_iter().map(|byte| char::from_u32(u32::from(byte) << (n % 3 * 4)).unwrap_or('x')).collect()
}

/// Checks that the tree stores these keys as `BTreeMap` does: they are inserted, looked up, scanned in both orders, and
/// removed.
fn hold_in<K: Key + Ord + Debug, P: Policy>(tree: BLinkTree<K, usize, P>, keys: &[K]) {
    let (map, mut model) = (tree.pin(), BTreeMap::new());
    for (n, key) in keys.iter().enumerate() {
        match map.try_insert(key.clone(), n) {
            Ok(there) => assert_eq!(there, model.insert(key.clone(), n), "{key:?}"),
            Err(refused) => assert!(matches!(refused, Refused::TooLong((_, at)) if at == n), "{key:?}"),
        }
    }
    tree.check_invariants();
    assert!(tree.levels() > 1 || keys.len() < 40, "a tree");
    assert!(map.iter().eq(model.clone()));
    assert!(map.iter().rev().eq(model.clone().into_iter().rev()));
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(map.get(key), model.get(key).copied(), "{key:?}");
        // The scan may also begin at a key that is too long to be stored.
        assert!(map.range(key..).take(3).eq(model.range(key..).take(3).map(|(key, n)| (key.clone(), *n))));
        assert!(map.range(..key).rev().take(3).eq(model.range(..key).rev().take(3).map(|(key, n)| (key.clone(), *n))));
        if at % 3 > 0 {
            assert_eq!(map.remove(key), model.remove(key), "{key:?}");
            assert_eq!((map.get(key), map.remove(key)), (None, None), "{key:?}");
        }
    }
    tree.check_invariants();
    assert!(map.iter().eq(model));
}

fn hold<K: Key + Ord + Debug>(extremes: &[K], make: impl Fn(u64) -> K) {
    let count = if cfg!(miri) { 40 } else { 400 };
    let keys = [extremes, &(0..count).map(make).collect::<Vec<K>>()].concat();
    hold_in(BLinkTree::<K, usize, Pages<512>>::new(), &keys);
}

key! {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Account {
        country: String,
        kind: Option<u16>,
        number: Reverse<u64>,
    }
}

#[test]
fn words() {
    hold(&[0, 1, u64::MAX, u64::MAX - 1], number);
    hold(&[i64::MIN, -1, 0, i64::MAX], |n| number(n) as i64);
    hold(&[(0, Some(-1), false)], |n| (number(n) as u32, Some(number(n + 1) as i8).filter(|n| *n > 9), n % 2 == 0));
    hold(&[Reverse(u32::MIN), Reverse(u32::MAX)], |n| Reverse(number(n) as u32));
}

#[test]
fn arrays_and_wide_numbers() {
    hold(&[u128::MIN, u128::MAX, 1 << 64], |n| u128::from(number(n)) << (n % 64));
    hold(&[[0; 16], [0xFF; 16]], |n| (u128::from(number(n)) << (n % 64)).to_be_bytes());
    hold(&[IpAddr::V4(Ipv4Addr::BROADCAST)], |n| IpAddr::from((u128::from(number(n)) << 40).to_be_bytes()));
}

#[test]
fn byte_strings() {
    let longest = BLinkTree::<Vec<u8>, usize, Pages<512>>::LONGEST_KEY;
    assert_eq!(longest, 128);
    let edges = [vec![], vec![0], vec![0xFF; longest], vec![7; longest - 1], vec![7; longest], vec![7; longest + 1]];
    hold(&edges, bytes);
    hold(&[String::new(), "x".repeat(longest), "x".repeat(longest + 1), "x".repeat(70_000)], text);
    hold(&[Arc::from("")], |n| Arc::<str>::from(text(n)));
    hold(&[Reverse(String::new()), Reverse("\0".into())], |n| Reverse(text(n)));
}

#[test]
fn keys_of_parts() {
    hold(&[(vec![], vec![]), (vec![0], vec![]), (vec![], vec![0])], |n| (bytes(n), bytes(n + 3)));
    hold(&[None, Some(String::new())], |n| Some(text(n)).filter(|_| n % 5 > 0));
    hold(&[], |n| Account { country: text(n % 9), kind: Some(n as u16 % 3), number: Reverse(number(n)) });
}

/// Tests byte strings in replicas that are fed from a log. Refused keys change nothing, and every replica has the same
/// entries.
#[test]
fn byte_strings_from_a_log() {
    type Tree = BLinkTree<Vec<u8>, usize, LogFed<Dense<Pages<512>>>>;
    let count = if cfg!(miri) { 40 } else { 2_000 };
    let keys: Vec<_> = (0..count).map(bytes).chain([vec![7; 128], vec![7; 129], vec![]]).collect();
    hold_in(crate::blink_conformance::on_nodes(3) as Tree, &keys);
}
