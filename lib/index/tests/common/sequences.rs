//! Compares random sequences of a `Map`'s operations, including some that `OrderedSession` does not have, with a
//! `BTreeMap`. The invariants are checked afterwards. `maps/art_model.rs` and `trees/blink_model.rs` run the sequences
//! with keys that are difficult for their kind of map.

use archipelago_index::Key;
use archipelago_index::map::{Kind, Map};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

/// An operation with its arguments.
#[derive(Clone, Debug)]
pub enum Op<K> {
    Insert(K, u32),
    Remove(K),
    Update(K, u32),
    Replace(K, u32),
    GetOrInsert(K, u32),
    Get(K),
    Scan(K, usize),
    ScanBack(K, usize),
    Range(Bound<K>, Bound<K>, Vec<bool>),
    Ends,
    PopFirst,
    PopLast,
}

/// Returns a strategy for hundreds of operations on keys that `key` makes.
pub fn ops<K: Clone + Debug + 'static>(
    key: impl Strategy<Value = K> + Clone + 'static,
) -> impl Strategy<Value = Vec<Op<K>>> {
    let bound = prop_oneof![
        Just(Bound::Unbounded),
        key.clone().prop_map(Bound::Included),
        key.clone().prop_map(Bound::Excluded)
    ];
    let op = prop_oneof![
        12 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Op::Insert(k, v)),
        6 => key.clone().prop_map(Op::Remove),
        1 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Op::Update(k, v)),
        1 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Op::Replace(k, v)),
        1 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Op::GetOrInsert(k, v)),
        2 => key.clone().prop_map(Op::Get),
        1 => (key.clone(), 0..40usize).prop_map(|(k, n)| Op::Scan(k, n)),
        1 => (key, 0..40usize).prop_map(|(k, n)| Op::ScanBack(k, n)),
        1 => (bound.clone(), bound, proptest::collection::vec(any::<bool>(), 0..60))
            .prop_map(|(a, b, ends)| Op::Range(a, b, ends)),
        1 => Just(Op::Ends),
        1 => Just(Op::PopFirst),
        1 => Just(Op::PopLast),
    ];
    proptest::collection::vec(op, 1..if cfg!(miri) { 12 } else { 500 })
}

/// Returns the model's entries between two bounds, and none if the bounds cross.
fn model_range<K: Ord + Clone>(model: &BTreeMap<K, String>, start: &Bound<K>, end: &Bound<K>) -> Vec<(K, String)> {
    let after = |k: &K| match start {
        Bound::Unbounded => true,
        Bound::Included(s) => k >= s,
        Bound::Excluded(s) => k > s,
    };
    let before = |k: &K| match end {
        Bound::Unbounded => true,
        Bound::Included(e) => k <= e,
        Bound::Excluded(e) => k < e,
    };
    model.iter().filter(|(k, _)| after(k) && before(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Runs all operations on an empty map and on a `BTreeMap`, compares the results, and removes the remaining entries one
/// by one.
pub fn run<S: Kind, K: Key + Ord + Debug>(tree: &Map<S, K, String>, ops: &[Op<K>]) {
    let mut model = BTreeMap::new();
    let value = |v: &u32| v.to_string();
    let map = tree.pin();
    for op in ops {
        match op {
            Op::Insert(k, v) => assert_eq!(map.insert(k.clone(), value(v)), model.insert(k.clone(), value(v))),
            Op::Remove(k) => assert_eq!(map.remove(k), model.remove(k)),
            Op::Update(k, v) => {
                let longer = |old: &String| format!("{old}{v}").chars().take(20).collect::<String>();
                let old = model.get(k).cloned();
                if let Some(old) = &old {
                    model.insert(k.clone(), longer(old));
                }
                assert_eq!(map.update(k, longer), old);
            }
            Op::Replace(k, v) => {
                let expected = model.get_mut(k).map(|old| std::mem::replace(old, value(v)));
                assert_eq!(map.replace(k, value(v)), expected);
            }
            Op::GetOrInsert(k, v) => {
                let expected = model.entry(k.clone()).or_insert_with(|| value(v)).clone();
                assert_eq!(*map.get_or_insert_with(k.clone(), || value(v)), expected);
            }
            Op::Get(k) => {
                assert_eq!(map.get(k), model.get(k).cloned());
                assert_eq!(map.contains_key(k), model.contains_key(k));
            }
            Op::Scan(k, n) => {
                let mut seen = Vec::new();
                let visited = map.scan(k, *n, |_, v| seen.push(v.clone()));
                let expected: Vec<_> = model.range(k..).take(*n).map(|(_, v)| v.clone()).collect();
                assert_eq!((visited, seen), (expected.len(), expected));
            }
            Op::ScanBack(k, n) => {
                let mut seen = Vec::new();
                map.scan_rev(k, *n, |_, v| seen.push(v.clone()));
                let expected: Vec<_> = model.range(..=k).rev().take(*n).map(|(_, v)| v.clone()).collect();
                assert_eq!(seen, expected);
            }
            Op::Range(start, end, ends) => {
                let mut expected = model_range(&model, start, end).into_iter();
                let mut range = map.range::<K, _>((start.as_ref(), end.as_ref()));
                for front in ends {
                    if *front {
                        assert_eq!(range.next(), expected.next());
                    } else {
                        assert_eq!(range.next_back(), expected.next_back());
                    }
                }
            }
            Op::Ends => {
                let owned = |(k, v): (&K, &String)| (k.clone(), v.clone());
                assert_eq!(map.first_key_value(), model.first_key_value().map(owned));
                assert_eq!(map.last_key_value(), model.last_key_value().map(owned));
            }
            Op::PopFirst => assert_eq!(map.pop_first(), model.pop_first()),
            Op::PopLast => assert_eq!(map.pop_last(), model.pop_last()),
        }
    }
    check(tree, &model);
    // Removing all entries runs through every merge and every shrinking of nodes.
    for (i, key) in model.keys().cloned().collect::<Vec<_>>().iter().enumerate() {
        assert_eq!(map.remove(key), model.remove(key));
        if i % 16 == 0 {
            check(tree, &model);
        }
    }
    check(tree, &model);
}

fn check<S: Kind, K: Key + Ord + Debug>(tree: &Map<S, K, String>, model: &BTreeMap<K, String>) {
    tree.check_invariants();
    assert_eq!(tree.len(), model.len());
    assert_eq!(tree.is_empty(), model.is_empty());
    let map = tree.pin();
    assert!(tree.into_iter().eq(model.iter().map(|(k, v)| (k.clone(), v.clone()))));
    assert!(map.iter().rev().eq(model.iter().rev().map(|(k, v)| (k.clone(), v.clone()))));
    for (key, value) in model {
        assert_eq!(map.get_with(key, String::clone).as_ref(), Some(value));
    }
}
