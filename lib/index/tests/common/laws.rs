//! The laws of every key type: the order of encodings is the order of keys, and decoding returns the encoded key. Both
//! laws also hold if the key is a part of another key.

use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, Bytes, Encode, EunoBTree, Form, HydraList, Key, KeyPart, Word};
use core::any::type_name;
use core::fmt::Debug;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Compares two keys and their encodings, and encodes and decodes both.
pub fn hold<K: Key + Ord + Debug>(a: &K, b: &K) {
    if let Err(broken) = holds(a, b) {
        panic!("{broken}: {a:?}, {b:?}");
    }
}

/// Checks as [`hold`] does, and returns an error. There are thousands of composite types. They are cheaper to compile
/// if they need not be printable.
fn holds<K: Key + Ord>(a: &K, b: &K) -> Result<(), String> {
    if a.encode(|x| b.encode(|y| K::Form::compare(x, y))) != a.cmp(b) {
        return Err(format!("the order of {}", type_name::<K>()));
    }
    // SAFETY: the probe has just been made by `encode`.
    if [a, b].into_iter().all(|key| key.encode(|probe| unsafe { K::decode(probe) }) == *key) {
        return Ok(());
    }
    Err(format!("there and back: {}", type_name::<K>()))
}

/// Checks as [`hold`] does, also between other parts of a composite key. This suffices for keys of fixed width.
pub fn hold_between<K: KeyPart + Ord + Debug>(a: &K, b: &K) {
    let between = |x, y| holds(&(x, a.clone(), y), &(x, b.clone(), x));
    if let Err(broken) = holds(a, b).and(between(0_u8, 0xFF_u8)).and(between(0xFF, 0)) {
        panic!("{broken}: {a:?}, {b:?}");
    }
}

/// Checks as [`hold`] does, also as parts of other keys: before parts that could be mistaken for the key's end, or for
/// more of the key.
pub fn hold_anywhere<K: KeyPart + Ord + Debug>(a: &K, b: &K) {
    if let Err(broken) = hold_as_parts(a, b) {
        panic!("{broken}: {a:?}, {b:?}");
    }
}

fn hold_as_parts<K: KeyPart + Ord>(a: &K, b: &K) -> Result<(), String> {
    holds(a, b)?;
    let (a, b) = (|| a.clone(), || b.clone());
    for (x, y) in [(0_u8, 0xFF_u8), (0xFF, 0)] {
        holds(&(x, a(), y), &(x, b(), x))?;
        holds(&(a(), vec![x; 3]), &(b(), vec![y; 2]))?;
        holds(&Reverse((a(), x)), &Reverse((b(), y)))?;
        holds(&(Reverse(a()), x), &(Reverse(b()), y))?;
    }
    for other in [Some(b()), None] {
        holds(&Some(a()), &other)?;
        holds(&(Some(a()), vec![0xFF_u8]), &(other, vec![]))?;
    }
    holds(&[a(), b()], &[b(), a()])?;
    holds(&[a(), a()], &[a(), b()])
}

/// A form of encodings (words or byte strings), with the key type whose encoding is the key itself.
pub trait Raw: Form {
    type Key: Key + Ord + Debug;

    fn key(probe: Self::Probe<'_>) -> Self::Key;
}

impl Raw for Word {
    type Key = u64;

    fn key(word: u64) -> u64 {
        word
    }
}

impl Raw for Bytes {
    type Key = Vec<u8>;

    fn key(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
}

/// Checks that maps store these keys as `BTreeMap` does. The code of `Map` for a key type is the same for all
/// structures, so it is tested with a `HydraList` only. The structures themselves know only encodings, so `Art` and
/// `EunoBTree` are tested with the encodings as keys. In this way they are not compiled for each key type.
pub fn hold_in_maps<K: Key + Encode<Form: Raw> + Ord + Debug>(keys: &[K]) {
    hold_in(HydraList::new(), keys);
    let encodings: Vec<_> = keys.iter().map(|key| key.encode(|probe| <K::Form as Raw>::key(probe))).collect();
    hold_in(Art::new(), &encodings);
    hold_in(EunoBTree::new(), &encodings);
}

/// Checks that a map stores these keys as `BTreeMap` does: they are inserted, looked up, scanned in order, and removed.
fn hold_in<S: Kind, K: Key + Ord + Debug>(map: Map<S, K, usize>, keys: &[K]) {
    let session = map.pin();
    let mut model = BTreeMap::new();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(session.insert(key.clone(), n), model.insert(key.clone(), n), "{key:?}");
    }
    assert!(session.iter().eq(model.clone()));
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(session.get(key), model.get(key).copied(), "{key:?}");
        if at % 2 == 0 {
            assert_eq!(session.remove(key), model.remove(key), "{key:?}");
            assert_eq!(session.get(key), None, "{key:?}");
        }
    }
    assert!(session.iter().eq(model));
    map.check_invariants();
}
