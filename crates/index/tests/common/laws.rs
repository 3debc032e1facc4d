//! What must hold of every key type: the order of encodings is the order of keys, every key comes back as it went in, and
//! both stay true of what the key is a part of.

use super::sized;
use archipelago_index::{Art, HydraList, Key, KeyForm, KeyPart};
use core::fmt::Debug;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Compares two keys and their encodings, and takes both there and back.
pub fn hold<K: Key + Ord + Debug>(a: &K, b: &K) {
    let order = a.encode(|x| b.encode(|y| (K::Form::order(x, y), format!("{x:02x?}, {y:02x?}"))));
    assert_eq!(order.0, a.cmp(b), "{a:?}, {b:?} -> {}", order.1);
    for key in [a, b] {
        // SAFETY: just encoded.
        let back = key.encode(|probe| unsafe { K::decode(probe) });
        assert_eq!(&back, key, "{}", order.1);
    }
}

/// As [`hold`], also of what two keys may be parts of: in front of what could be taken for their end, or for more of them.
pub fn hold_anywhere<K: KeyPart + Ord + Debug>(a: &K, b: &K) {
    hold(a, b);
    let (a, b) = (|| a.clone(), || b.clone());
    hold(&(a(),), &(b(),));
    for (x, y) in [(0_u8, 0xFF_u8), (0xFF, 0)] {
        hold(&(a(), x), &(b(), y));
        hold(&(a(), x), &(a(), y));
        hold(&(a(), vec![x; 3]), &(b(), vec![y; 2]));
        hold(&(x, a()), &(y, b()));
        hold(&(Some(a()), x), &(Some(b()), y));
        hold(&(Some(a()), x), &(None, y));
        hold(&(Reverse(a()), x), &(Reverse(b()), y));
        hold(&([a(), b()], x), &([b(), a()], y));
        hold(&Reverse((a(), x)), &Reverse((b(), y)));
    }
    hold(&(String::from("x"), a()), &(String::from("x"), b()));
    hold(&(String::from("x"), a()), &(String::from("x\0"), b()));
    hold(&Some(a()), &Some(b()));
    hold(&Some(a()), &None);
    hold(&Some(Some(a())), &Some(None));
    hold(&Reverse(a()), &Reverse(b()));
    hold(&Reverse(Reverse(a())), &Reverse(Reverse(b())));
    hold(&Reverse(Some(a())), &Reverse(None));
    hold(&[a(), b()], &[b(), a()]);
    hold(&[a(), a()], &[a(), b()]);
    hold(&((a(), b()), a()), &((a(), b()), b()));
}

/// Both maps hold these keys as `BTreeMap` does: put in, asked for, passed by in order, taken out.
pub fn hold_in_maps<K: Key + Ord + Debug>(keys: &[K]) {
    macro_rules! hold_in {
        ($map:expr, $insert:ident) => {
            let map = $map;
            let session = map.pin();
            let mut model = BTreeMap::new();
            for (n, key) in keys.iter().enumerate() {
                assert_eq!(session.$insert(key.clone(), n), model.insert(key.clone(), n), "{key:?}");
            }
            assert!(session.iter().eq(model.clone()));
            assert!(session.iter().rev().eq(model.clone().into_iter().rev()));
            for (at, key) in keys.iter().enumerate() {
                assert_eq!(session.get(key), model.get(key).copied(), "{key:?}");
                assert!(session.range(key..).take(3).map(|entry| entry.1).eq(model.range(key..).take(3).map(|e| *e.1)));
                if at % 2 == 0 {
                    assert_eq!(session.remove(key), model.remove(key), "{key:?}");
                    assert_eq!(session.get(key), None, "{key:?}");
                }
            }
            assert_eq!((session.pop_first(), session.pop_last()), (model.pop_first(), model.pop_last()));
            assert!(session.iter().eq(model));
            map.check_invariants();
        };
    }
    hold_in!(HydraList::new(), insert);
    let tree = Art::new();
    hold_in!(&tree, insert_owned);

    trait InsertOwned<K, V> {
        fn insert_owned(&self, key: K, value: V) -> Option<V>;
    }
    impl<K: Key> InsertOwned<K, usize> for archipelago_index::art::ArtSession<'_, K, usize> {
        fn insert_owned(&self, key: K, value: usize) -> Option<usize> {
            self.insert(&key, value)
        }
    }
}

/// How many cases of each law.
pub const CASES: u32 = sized(200, 2) as u32;
