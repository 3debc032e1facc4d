//! What must hold of every key type: the order of encodings is the order of keys, every key comes back as it went in, and
//! both stay true of what the key is a part of.

use archipelago_index::{Art, EunoBTree, HydraList, Key, KeyForm, KeyPart};
use core::any::type_name;
use core::fmt::Debug;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Compares two keys and their encodings, and takes both there and back.
pub fn hold<K: Key + Ord + Debug>(a: &K, b: &K) {
    if let Err(broken) = holds(a, b) {
        panic!("{broken}: {a:?}, {b:?}");
    }
}

/// As [`hold`]. There are thousands of types of composites; they are cheaper to compile when they need not be shown.
fn holds<K: Key + Ord>(a: &K, b: &K) -> Result<(), String> {
    if a.encode(|x| b.encode(|y| K::Form::order(x, y))) != a.cmp(b) {
        return Err(format!("the order of {}", type_name::<K>()));
    }
    // SAFETY: just encoded.
    if [a, b].into_iter().all(|key| key.encode(|probe| unsafe { K::decode(probe) }) == *key) {
        return Ok(());
    }
    Err(format!("there and back: {}", type_name::<K>()))
}

/// As [`hold`], also between others: enough for keys of fixed width.
pub fn hold_between<K: KeyPart + Ord + Debug>(a: &K, b: &K) {
    let between = |x, y| holds(&(x, a.clone(), y), &(x, b.clone(), x));
    if let Err(broken) = holds(a, b).and(between(0_u8, 0xFF_u8)).and(between(0xFF, 0)) {
        panic!("{broken}: {a:?}, {b:?}");
    }
}

/// As [`hold`], also of what two keys may be parts of: in front of what could be taken for their end, or for more of them.
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

/// All maps hold these keys as `BTreeMap` does: put in, asked for, passed by in order, taken out.
pub fn hold_in_maps<K: Key + Ord + Debug>(keys: &[K]) {
    macro_rules! hold_in {
        ($map:expr) => {
            let map = $map;
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
        };
    }
    hold_in!(HydraList::new());
    hold_in!(Art::new());
    hold_in!(EunoBTree::new());
}
