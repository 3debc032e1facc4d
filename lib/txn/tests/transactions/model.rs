//! Sequences of operations on every map, compared with a `BTreeMap`.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use archipelago_txn::{Database, Error, Hekaton, Index, MvRlu, NoWait, Row, Scheme, Silo, TicToc, WaitDie, on};
use proptest::prelude::*;

struct Item<M> {
    key: u16,
    value: u8,
    map: PhantomData<fn() -> M>,
}

impl<M> Clone for Item<M> {
    fn clone(&self) -> Self {
        Self { key: self.key, value: self.value, map: self.map }
    }
}

impl<M: on::Kind> Row for Item<M> {
    type Key = u16;
    type Map = M;
    type Indexes = (ByValue<M>,);
    fn key(&self) -> u16 {
        self.key
    }
}

struct ByValue<M>(PhantomData<M>);

impl<M: on::Kind> Index for ByValue<M> {
    type Row = Item<M>;
    type Key = u8;
    type Map = M;
    fn key(row: &Item<M>) -> u8 {
        row.value
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Put(u16, u8),
    Insert(u16, u8),
    Update(u16, u8),
    Remove(u16),
    Get(u16),
    Range(u16, u16),
    RangeBy(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let (key, value) = (0..40_u16, 0..6_u8);
    prop_oneof![
        (key.clone(), value.clone()).prop_map(|(key, value)| Op::Put(key, value)),
        (key.clone(), value.clone()).prop_map(|(key, value)| Op::Insert(key, value)),
        (key.clone(), value.clone()).prop_map(|(key, value)| Op::Update(key, value)),
        key.clone().prop_map(Op::Remove),
        key.clone().prop_map(Op::Get),
        (key.clone(), key).prop_map(|(from, to)| Op::Range(from, to)),
        (value.clone(), value).prop_map(|(from, to)| Op::RangeBy(from, to)),
    ]
}

/// Transactions: their operations, and whether they commit.
fn program() -> impl Strategy<Value = Vec<(Vec<Op>, bool)>> {
    prop::collection::vec((prop::collection::vec(op(), 1..20), prop::bool::weighted(0.7)), 1..12)
}

type Model = BTreeMap<u16, u8>;

fn agree<S: Scheme, M: on::Kind>(program: &[(Vec<Op>, bool)]) {
    let db = Database::<S>::new();
    let table = db.table::<Item<M>>();
    let item = |key, value| Item { key, value, map: PhantomData };
    let mut model = Model::new();
    for (ops, commits) in program {
        let before = db.snapshot();
        let mut next = model.clone();
        let done: Result<(), Option<Error>> = db.transact(|tx| {
            next.clone_from(&model);
            for &op in ops {
                match op {
                    Op::Put(key, value) => {
                        let old = tx.upsert(&table, item(key, value))?.map(|row| row.value);
                        assert_eq!(old, next.insert(key, value));
                    }
                    Op::Insert(key, value) => {
                        let inserted = tx.insert(&table, item(key, value)).is_ok();
                        assert_eq!(inserted, !next.contains_key(&key));
                        next.entry(key).or_insert(value);
                    }
                    Op::Update(key, value) => {
                        let updated = tx.update(&table, &key, |row| row.value = value)?;
                        assert_eq!(updated, next.get_mut(&key).map(|old| *old = value).is_some());
                    }
                    Op::Remove(key) => {
                        assert_eq!(tx.remove(&table, &key)?.map(|row| row.value), next.remove(&key));
                    }
                    Op::Get(key) => {
                        assert_eq!(tx.get(&table, &key)?.map(|row| row.value), next.get(&key).copied());
                        let keys = [key.wrapping_add(1), key, key.wrapping_mul(3), key];
                        let rows = tx.get_many(&table, &keys)?.into_iter().map(|row| row.map(|row| row.value));
                        assert!(rows.eq(keys.iter().map(|key| next.get(key).copied())));
                        let rows = before.get_many(&table, &keys).into_iter().map(|row| row.map(|row| row.value));
                        assert!(rows.eq(keys.iter().map(|key| model.get(key).copied())));
                    }
                    Op::Range(from, to) => {
                        let rows = tx.range(&table, from..to).map(|row| row.map(|row| (row.key, row.value)));
                        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
                        let wanted = next.iter().map(|(&key, &value)| (key, value));
                        let mut wanted: Vec<_> = wanted.filter(|&(key, _)| from <= key && key < to).collect();
                        assert_eq!(rows, wanted);
                        let rows = tx.range_rev(&table, from..to).map(|row| row.map(|row| (row.key, row.value)));
                        wanted.reverse();
                        assert_eq!(rows.collect::<Result<Vec<_>, _>>()?, wanted);
                    }
                    Op::RangeBy(from, to) => {
                        let rows = tx.range_by::<ByValue<M>>(&table, from..=to).collect::<Result<Vec<_>, _>>()?;
                        assert!(rows.is_sorted_by_key(|row| row.value));
                        let wanted = next.values().filter(|&&value| from <= value && value <= to).count();
                        assert_eq!(rows.len(), wanted);
                    }
                }
            }
            if *commits { Ok(()) } else { Err(None) }
        });
        let shown = |view: &archipelago_txn::Snapshot<'_, S>| {
            view.range(&table, ..).map(|row| (row.key, row.value)).collect::<Model>()
        };
        assert_eq!(shown(&before), model, "a snapshot stays");
        if done.is_ok() {
            model = next;
        }
        assert_eq!(shown(&db.snapshot()), model);
        assert_eq!(db.snapshot().range_by::<ByValue<M>>(&table, ..).count(), model.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_map(program in program()) {
        agree::<Silo, on::HydraList>(&program);
        agree::<Silo, on::Art>(&program);
        agree::<Silo, on::BLinkTree>(&program);
        agree::<Silo, on::EunoBTree>(&program);
        agree::<Silo, on::EunoSkipList>(&program);
    }

    #[test]
    fn every_scheme(program in program()) {
        agree::<Silo, on::Art>(&program);
        agree::<TicToc, on::Art>(&program);
        agree::<NoWait, on::Art>(&program);
        agree::<WaitDie, on::Art>(&program);
        agree::<Hekaton, on::Art>(&program);
        agree::<MvRlu, on::Art>(&program);
    }
}
