//! `Art` compared with `BTreeMap`: random operations, hostile keys, both write synchronizations. Invariants are checked
//! after the operations.

use crate::common::sequences::{self, Op, ops};
use archipelago_index::art::{Art, WriteSync};
use archipelago_index::{Bytes, Encode, Key, Probe};
use proptest::prelude::*;
use std::fmt::Debug;
use std::ops::Bound;

const BOTH: [WriteSync; 2] = [WriteSync::OptimisticLockCoupling, WriteSync::Rowex];

fn run<K: Key + Ord + Debug>(sync: WriteSync, ops: &[Op<K>]) {
    let art = Art::with_write_sync(sync);
    sequences::run(&art, ops);
    assert!(art.is_empty());
}

/// Returns keys with few distinct bytes, many shared prefixes, keys that are prefixes of other keys, zero bytes, and
/// the empty key.
fn short_bytes() -> impl Strategy<Value = Vec<u8>> + Clone {
    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(127), Just(255)], 0..6)
}

/// Returns keys from which nodes of every kind arise, behind prefixes of 0 to 300 bytes.
fn wide_bytes() -> impl Strategy<Value = Vec<u8>> + Clone {
    let stem = prop_oneof![Just(0usize), Just(1), Just(4), Just(5), Just(40), Just(300)];
    (stem, any::<u8>(), proptest::option::of(0..3u8)).prop_map(|(len, byte, tail)| {
        let mut key = vec![7; len];
        key.push(byte);
        key.extend(tail);
        key
    })
}

/// Returns keys of up to 10 kB that differ at every depth.
fn long_bytes() -> impl Strategy<Value = Vec<u8>> + Clone {
    let longest = if cfg!(miri) { 300 } else { 10_000 };
    (0..longest, any::<bool>(), any::<bool>()).prop_map(move |(at, other, cut)| {
        let mut key = vec![0; longest];
        key[at] = u8::from(other);
        if cut {
            key.truncate(at);
        }
        key
    })
}

fn clustered_u64() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        0..600u64,
        any::<u64>(),
        (0..300u64).prop_map(|x| x << 40),
        (0..300u64).prop_map(|x| u64::MAX - x * 257),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 60 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn u64_keys(ops in ops(clustered_u64())) {
        for sync in BOTH { run(sync, &ops); }
    }

    #[test]
    fn i64_keys(ops in ops(clustered_u64().prop_map(|x| x as i64))) {
        for sync in BOTH { run(sync, &ops); }
    }

    #[test]
    fn string_keys(ops in ops("[a-c]{0,5}(@(x|xy|xyz)\\.com)?")) {
        for sync in BOTH { run(sync, &ops); }
    }

    #[test]
    fn short_byte_keys(ops in ops(short_bytes())) {
        for sync in BOTH { run(sync, &ops); }
    }

    #[test]
    fn wide_byte_keys(ops in ops(wide_bytes())) {
        for sync in BOTH { run(sync, &ops); }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 10 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn long_byte_keys(ops in ops(long_bytes())) {
        for sync in BOTH { run(sync, &ops); }
    }
}

/// A chain of keys, each a prefix of the next one. The tree has one node per byte, so it is too deep for recursion on a
/// thread's stack.
#[test]
fn staircase() {
    let steps = if cfg!(miri) { 20 } else { 3_000 };
    for sync in BOTH {
        let art: Art<Vec<u8>, u64> = Art::with_write_sync(sync);
        let map = art.pin();
        let longest = vec![9u8; steps];
        for len in 0..steps {
            // The keys are inserted from both ends, so that some prefixes are divided and some stay.
            let len = if len % 2 == 0 { len / 2 } else { steps - 1 - len / 2 };
            assert_eq!(map.insert(longest[..len].to_vec(), len as u64), None);
        }
        art.check_invariants();
        assert!(map.iter().map(|(key, _)| key.len()).eq(0..steps));
        assert!(map.iter().rev().map(|(key, _)| key.len()).eq((0..steps).rev()));
        for len in (0..steps).step_by(3) {
            assert_eq!(map.remove(&longest[..len]), Some(len as u64));
        }
        art.check_invariants();
        assert!(map.iter().map(|(key, _)| key.len()).eq((0..steps).filter(|len| len % 3 != 0)));
    }
}

/// Every kind of node has every number of children, while it grows and shrinks, with a terminal and without.
#[test]
fn every_fanout() {
    for sync in BOTH {
        for terminal in [false, true] {
            let art: Art<Vec<u8>, u64> = Art::with_write_sync(sync);
            let map = art.pin();
            if terminal {
                map.upsert(&b"stem"[..], 1000);
            }
            let key = |byte: u64| [b"stem", &[byte as u8 ^ 0x5a][..], b"tail"].concat();
            // Under Miri, whose steps are slow, the greatest number of children is just above the least number of a
            // Node256.
            let step = if cfg!(miri) { 5 } else { 1 };
            let check = |byte: u64| {
                if !cfg!(miri) || byte.is_multiple_of(50) {
                    art.check_invariants();
                }
            };
            for byte in (0..256).step_by(step) {
                assert_eq!(map.insert(key(byte), byte), None);
                check(byte);
            }
            for byte in (0..256).step_by(step) {
                assert_eq!(map.get(&key(byte)), Some(byte));
                assert_eq!(map.remove(&key(byte)), Some(byte));
                check(byte);
            }
            assert_eq!(art.len(), usize::from(terminal));
        }
    }
}

#[test]
fn integers_of_every_width_keep_their_order() {
    fn run<K: Key + Ord + Debug + Copy>(keys: &[K]) {
        let art: Art<K, ()> = keys.iter().map(|&key| (key, ())).collect();
        let mut sorted = keys.to_vec();
        sorted.sort();
        assert!(art.pin().iter().map(|entry| entry.0).eq(sorted));
        art.check_invariants();
    }
    run(&[u8::MAX, 0, 1, 127, 128]);
    run(&[u16::MAX, 0, 1, 255, 256]);
    run(&[u64::MAX, 0, 1, 255, 256, 1 << 63]);
    run(&[i8::MIN, i8::MAX, 0, -1, 1]);
    run(&[i64::MIN, i64::MAX, 0, -1, 1]);
    run(&[u128::MAX, 0, 1, 1 << 127]);
    run(&[i128::MIN, i128::MAX, 0, -1]);
    run(&['a', 'é', '\u{10ffff}', '\0']);
}

#[test]
fn borrowed_keys_and_traits() {
    let mut art: Art<String, Vec<u8>> = [("b".to_owned(), vec![2]), ("a".to_owned(), vec![1])].into_iter().collect();
    art.extend([("c".to_owned(), vec![3])]);
    assert_eq!(format!("{art:?}"), r#"{"a": [1], "b": [2], "c": [3]}"#);
    let map = art.pin();
    assert_eq!(map.get("b"), Some(vec![2]));
    assert_eq!(map.range::<str, _>((Bound::Included("b"), Bound::Unbounded)).count(), 2);
    assert_eq!(map.remove("b"), Some(vec![2]));
    let mut keys = Vec::new();
    map.scan("", 10, |key, _| keys.push(key.to_owned()));
    assert_eq!(keys, ["a", "c"]);
    art.clear();
    assert!(art.is_empty());
    assert_eq!(art.len(), 0);
    art.check_invariants();
}

/// A user's type is a key.
#[test]
fn keys_of_a_users_type() {
    #[derive(Clone, Debug, PartialEq)]
    struct Pair(u16, String);
    impl Encode for Pair {
        type Form = Bytes;
        fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
            f(&[&self.0.to_be_bytes(), self.1.as_bytes()].concat())
        }
    }
    impl Key for Pair {
        type Ref<'a> = Pair;
        unsafe fn decode_ref<'a>(probe: Probe<'a, Self>) -> Self::Ref<'a> {
            // SAFETY: the caller guarantees the same contract.
            unsafe { Self::decode(probe) }
        }
        unsafe fn decode(probe: &[u8]) -> Pair {
            Pair(u16::from_be_bytes([probe[0], probe[1]]), String::from_utf8(probe[2..].to_vec()).expect("as encoded"))
        }
    }
    let art: Art<Pair, u64> = Art::new();
    let map = art.pin();
    map.insert(Pair(300, "b".into()), 1);
    map.insert(Pair(2, "z".into()), 2);
    assert_eq!(map.iter().collect::<Vec<_>>(), [(Pair(2, "z".into()), 2), (Pair(300, "b".into()), 1)]);
}

#[test]
fn a_leaf_has_room_for_the_longest_key() {
    assert_eq!(Art::<String, ()>::LONGEST_KEY, u32::MAX as usize);
    assert_eq!(Art::<u64, ()>::LONGEST_KEY, usize::MAX);
}
