//! Operations on a map, and the answers that `BTreeMap` gives to them.

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use archipelago_index::{Art, HydraList, Key, OrderedIndex, OrderedSession};

#[derive(Arbitrary, Clone, Debug)]
pub enum Op<K> {
    Get(K),
    Insert(K, u64),
    Replace(K, u64),
    Remove(K),
    Scan(K, u8),
    ScanBack(K, u8),
}

/// Both kinds of maps must answer as the model does.
pub fn check<K: Key + Ord + std::fmt::Debug>(ops: &[Op<K>], owned: impl Fn(K::Ref<'_>) -> K) {
    let list: HydraList<K, u64> = HydraList::new();
    run(&list, ops, &owned);
    list.sync();
    list.check_invariants();
    let art: Art<K, u64> = Art::new();
    run(&art, ops, &owned);
    art.check_invariants();
}

fn run<K: Key + Ord + std::fmt::Debug, I: OrderedIndex<K, u64>>(
    index: &I,
    ops: &[Op<K>],
    owned: &impl Fn(K::Ref<'_>) -> K,
) {
    let mut model: BTreeMap<K, u64> = BTreeMap::new();
    let session = index.pin();
    for op in ops {
        match op {
            Op::Get(key) => assert_eq!(session.get(key), model.get(key).copied(), "{op:?}"),
            Op::Insert(key, value) => {
                assert_eq!(session.insert(key, *value), model.insert(key.clone(), *value), "{op:?}");
            }
            Op::Replace(key, value) => {
                let expected = model.get_mut(key).map(|old| std::mem::replace(old, *value));
                assert_eq!(session.replace(key, *value), expected, "{op:?}");
            }
            Op::Remove(key) => assert_eq!(session.remove(key), model.remove(key), "{op:?}"),
            Op::Scan(key, limit) => {
                let mut seen = Vec::new();
                session.scan(key, usize::from(*limit), |key, value| seen.push((owned(key), *value)));
                let expected = model.range(key..).take(usize::from(*limit));
                assert!(seen.iter().map(|(key, value)| (key, value)).eq(expected), "{op:?}: {seen:?}");
            }
            Op::ScanBack(key, limit) => {
                let mut seen = Vec::new();
                let visited =
                    session.scan_rev(key, usize::from(*limit), |key, value| seen.push((owned(key), *value)));
                if visited.is_some() {
                    let expected = model.range(..=key).rev().take(usize::from(*limit));
                    assert!(seen.iter().map(|(key, value)| (key, value)).eq(expected), "{op:?}: {seen:?}");
                }
            }
        }
    }
}

impl<K> Op<K> {
    /// The same with another kind of key.
    #[allow(dead_code)]
    pub fn map<L>(self, key: impl Fn(K) -> L) -> Op<L> {
        match self {
            Op::Get(k) => Op::Get(key(k)),
            Op::Insert(k, value) => Op::Insert(key(k), value),
            Op::Replace(k, value) => Op::Replace(key(k), value),
            Op::Remove(k) => Op::Remove(key(k)),
            Op::Scan(k, limit) => Op::Scan(key(k), limit),
            Op::ScanBack(k, limit) => Op::ScanBack(key(k), limit),
        }
    }
}
