//! Tests with one thread: every result must be the one that `BTreeMap` returns.

use super::keys::TestKey;
use super::tested::{Invariants, Make};
use super::{contents, scan, scan_rev, sized};
use archipelago_check::map::{MapOp, MapRet, apply};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Choice, Mix, OpKind};
use archipelago_index::{OrderedIndex, OrderedSession};
use core::cell::RefCell;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rand::RngExt;
use std::collections::BTreeMap;

/// Runs one operation. Returns `None` if the index cannot scan backwards.
pub fn perform<K: TestKey>(session: &impl OrderedSession<K, u64>, op: &MapOp<K, u64>) -> Option<MapRet<K, u64>> {
    Some(match op {
        MapOp::Get(key) => MapRet::Value(session.get(key)),
        MapOp::Insert(key, value) => MapRet::Value(session.insert(key, *value)),
        MapOp::Remove(key) => MapRet::Value(session.remove(key)),
        MapOp::Update(key, value) => {
            let mut given = None;
            let old = session.update(key, |old| {
                given = Some(*old);
                *value
            });
            assert!(old.is_none() || old == given, "update returned {old:?}, its closure last saw {given:?}");
            MapRet::Value(old)
        }
        MapOp::Scan(from, limit) => MapRet::Entries(scan(session, from, *limit)),
        MapOp::ScanRev(from, limit) => MapRet::Entries(scan_rev(session, from, *limit)?),
    })
}

/// A map and its model, to which the same operations are applied.
struct Pair<'a, K, S> {
    session: &'a S,
    model: BTreeMap<K, u64>,
}

impl<K: TestKey, S: OrderedSession<K, u64>> Pair<'_, K, S> {
    fn perform(&mut self, op: &MapOp<K, u64>) -> Result<(), String> {
        let Some(answer) = perform(self.session, op) else { return Ok(()) };
        let expected = apply(&mut self.model, op);
        if answer == expected { Ok(()) } else { Err(format!("{op:?} answered {answer:?}, should be {expected:?}")) }
    }

    fn get_many(&self, keys: &[K]) -> Result<(), String> {
        let mut found = vec![Some(7); 3];
        self.session.get_many(keys, &mut found);
        let expected: Vec<_> = keys.iter().map(|key| self.model.get(key).copied()).collect();
        if found == expected { Ok(()) } else { Err(format!("get_many({keys:?}) found {found:?}, not {expected:?}")) }
    }

    fn contents(&self) -> Result<(), String> {
        let found = contents(self.session);
        if found.iter().map(|(k, v)| (k, v)).eq(&self.model) {
            Ok(())
        } else {
            Err(format!("the map holds {found:?}, should be {:?}", self.model))
        }
    }
}

/// Runs random short sequences over hostile keys. A sequence that fails is reduced to a small one.
pub fn any_sequence<K: TestKey>(make: Make<K, u64>) {
    let pool = K::pool(48);
    let config = Config { cases: sized(40, 2) as u32, failure_persistence: None, ..Config::default() };
    let action = (0..8u8, 0..pool.len(), prop_oneof![0..5usize, Just(usize::MAX)]);
    let actions = proptest::collection::vec(action, 1..sized(200, 30));
    let outcome = watchdog(USUAL, |notes| {
        let round = RefCell::new(0);
        TestRunner::new(config).run(&actions, |actions| {
            *round.borrow_mut() += 1;
            notes.note(format!("case {}", round.borrow()));
            let index = make();
            sequence(&index.pin(), &pool, &actions).map_err(TestCaseError::fail)?;
            index.check();
            Ok(())
        })
    });
    outcome.unwrap_or_else(|error| panic!("(kind, key's place in the pool, limit)\n{error}"));
}

fn sequence<K: TestKey>(
    session: &impl OrderedSession<K, u64>,
    pool: &[K],
    actions: &[(u8, usize, usize)],
) -> Result<(), String> {
    let mut pair = Pair { session, model: BTreeMap::new() };
    for (value, &(kind, key, limit)) in (1000..).zip(actions) {
        let (key, place) = (pool[key].clone(), key);
        match kind {
            0 => pair.perform(&MapOp::Get(key))?,
            1..=3 => pair.perform(&MapOp::Insert(key, value))?,
            4 => pair.perform(&MapOp::Update(key, value))?,
            5 => pair.perform(&MapOp::Remove(key))?,
            6 => {
                pair.perform(&MapOp::Scan(key.clone(), limit))?;
                pair.perform(&MapOp::ScanRev(key, limit))?;
            }
            // The pool's first two keys are requested in addition, so that some keys may be requested twice. If the
            // limit is 0, only these two keys are requested.
            _ => pair.get_many(&[&pool[place..(place + limit.min(20)).min(pool.len())], &pool[..2]].concat())?,
        }
    }
    pair.get_many(&[])?;
    pair.contents()
}

/// There are enough keys for pages to be split and merged: the map grows, shrinks and is emptied.
pub fn many_keys<K: TestKey>(make: Make<K, u64>) {
    watchdog(USUAL, |notes| {
        let pool = K::pool(sized(1000, 80));
        let index = make();
        let session = index.pin();
        let mut pair = Pair { session: &session, model: BTreeMap::new() };
        let (mut rng, choice) = (workload::rng(3, 0), Choice::uniform(pool.len()));
        let grow = Mix { get: 1, insert: 6, update: 1, remove: 1, scan: 1 };
        let shrink = Mix { insert: 1, remove: 6, ..grow };
        for (round, mix) in [grow, shrink, grow, Mix::EVEN, shrink].into_iter().enumerate() {
            for i in 0..2 * pool.len() {
                let (key, value) = (pool[choice.next(&mut rng)].clone(), (round * 1_000_000 + i) as u64);
                let limit = rng.random_range(0..40);
                let op = match mix.next(&mut rng) {
                    OpKind::Get => MapOp::Get(key),
                    OpKind::Insert => MapOp::Insert(key, value),
                    OpKind::Update => MapOp::Update(key, value),
                    OpKind::Remove => MapOp::Remove(key),
                    OpKind::Scan if i % 2 == 0 => MapOp::Scan(key, limit),
                    OpKind::Scan => MapOp::ScanRev(key, limit),
                };
                pair.perform(&op).unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
            index.quiesce();
            pair.contents()
                .and_then(|()| pair.get_many(&pool))
                .unwrap_or_else(|error| panic!("round {round}: {error}"));
            index.check();
            notes.note(format!("round {round} is over"));
        }
        for key in &pool {
            pair.perform(&MapOp::Remove(key.clone())).unwrap_or_else(|error| panic!("{error}"));
        }
        index.quiesce();
        assert_eq!(contents(&session), [], "everything was removed");
        index.check();
    });
}

/// Scans from every present key and from absent keys, with limits around the number of remaining entries.
pub fn bounds<K: TestKey>(make: Make<K, u64>) {
    watchdog(USUAL, |_| {
        let pool = K::pool(sized(240, 24));
        let index = make();
        let session = index.pin();
        let mut pair = Pair { session: &session, model: BTreeMap::new() };
        assert_eq!(contents(&session), [], "a new map is empty");
        for (value, key) in pool.iter().enumerate().filter(|(i, _)| i % 3 > 0) {
            pair.perform(&MapOp::Insert(key.clone(), value as u64)).unwrap();
        }
        for key in &pool {
            let above = pair.model.range(key..).count();
            let below = pair.model.range(..=key).count();
            let limits = |left: usize| [0, 1, 2, left.saturating_sub(1), left, left + 1, usize::MAX];
            for (up, down) in limits(above).into_iter().zip(limits(below)) {
                pair.perform(&MapOp::Scan(key.clone(), up)).unwrap_or_else(|error| panic!("{error}"));
                pair.perform(&MapOp::ScanRev(key.clone(), down)).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        index.check();
    });
}
