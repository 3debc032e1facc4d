//! The tree against a model, and its histories against the checker.

use std::collections::BTreeMap;

use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::workload::{self, Choice, Kind, Mix};
use archipelago_platform::thread;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::*;
use crate::keys;

fn words(count: u64) -> Vec<u64> {
    (0..count).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
}

fn strings(count: usize) -> Vec<Vec<u8>> {
    let mut keys = keys::emails(count, 0, 1).loaded;
    keys.extend([Vec::new(), vec![0], vec![0, 0], vec![0xff; 300]]);
    keys
}

/// As `miri` would have it: smaller.
const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn agrees_with_a_model<K: TreeKey>(keys: &[K]) {
    let mut rng = workload::rng(1, 0);
    let mut tree = BTreeOlc::<K>::default();
    let mut model = BTreeMap::new();
    // Up, then down, then up: the tree grows by levels and shrinks to one leaf.
    for (phase, removes) in [10_u32, 90, 30].into_iter().enumerate() {
        step_by_step(&tree.pin(), keys, &mut model, phase, removes, &mut rng);
        tree.check_invariants();
    }
}

fn step_by_step<K: TreeKey>(
    session: &Session<'_, K>,
    keys: &[K],
    model: &mut BTreeMap<K, u64>,
    phase: usize,
    removes: u32,
    rng: &mut workload::Rng,
) {
    for step in 0..keys.len() * 6 {
        let (key, value) = (&keys[rng.random_range(0..keys.len())], (phase * 1_000_000 + step) as u64);
        match rng.random_range(0..100_u32) {
            dice if dice < removes => assert_eq!(session.remove(key), model.remove(key)),
            dice if dice < 93 => assert_eq!(session.insert(key, value), model.insert(key.clone(), value)),
            93..96 => {
                let old = session.update(key, |old| old ^ 1);
                assert_eq!(old, model.get_mut(key).map(|value| core::mem::replace(value, *value ^ 1)));
            }
            96..98 => assert_eq!(session.get(key), model.get(key).copied()),
            _ => {
                let (mut seen, limit) = (Vec::new(), rng.random_range(0..90));
                session.scan(key, limit, |key, value| seen.push((K::from_shown(key), *value)));
                let expected: Vec<_> =
                    model.range(key..).take(limit).map(|(key, value)| (key.clone(), *value)).collect();
                assert_eq!(seen, expected);
            }
        }
    }
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64));
    agrees_with_a_model(&strings(scaled(1_500, 100)));
}

#[test]
fn what_is_removed_gives_its_nodes_back() {
    let mut keys = words(20_000);
    let mut tree = BTreeOlc::<u64>::default();
    keys.iter().for_each(|key| _ = tree.pin().insert(key, 1));
    let full = tree.check_invariants();
    assert!(full > 20_000 / FANOUT, "{full}");
    keys.shuffle(&mut workload::rng(2, 0));
    let (most, few) = keys.split_at(19_800);
    most.iter().for_each(|key| _ = tree.pin().remove(key));
    let left = tree.check_invariants();
    // A leaf has a key at least, and neighbours that fit are one.
    assert!(!tree.has_empty_leaves() && left < full / 20, "{left} nodes of {full} for 200 keys");
    few.iter().for_each(|key| assert_eq!(tree.pin().remove(key), Some(1)));
    assert_eq!(tree.check_invariants(), 1, "an empty tree is one leaf");
    tree.domain.drain_all();
    assert_eq!(tree.domain.stats().pending, 0);
}

/// Threads that grow and shrink the tree while others look and scan; judged operation by operation.
fn history<K: TreeKey + core::hash::Hash>(pool: &[K], threads: usize, ops: usize, mixes: &[Mix], seed: u64) {
    let mut tree = BTreeOlc::<K>::default();
    let mut initial = BTreeMap::new();
    for (at, key) in pool.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
        tree.pin().insert(key, at as u64);
        initial.insert(key.clone(), at as u64);
    }
    let recorder = Recorder::new();
    thread::scope(|scope| {
        for number in 0..threads {
            let (recorder, tree) = (&recorder, &tree);
            scope.spawn(move || {
                let (mut log, session) = (recorder.log(), tree.pin());
                let (mut rng, choice) = (workload::rng(seed, number), Choice::zipf(pool.len(), 0.5));
                for step in 0..ops * mixes.len() {
                    let key = pool[choice.next(&mut rng)].clone();
                    let value = (number << 32 | step) as u64;
                    let op = match mixes[step / ops].next(&mut rng) {
                        Kind::Get => MapOp::Get(key),
                        Kind::Insert => MapOp::Insert(key, value),
                        Kind::Update => MapOp::Update(key, value),
                        Kind::Remove => MapOp::Remove(key),
                        Kind::Scan => MapOp::Scan(key, rng.random_range(1..40)),
                    };
                    log.record(op, |op| perform(&session, op));
                }
            });
        }
    });
    {
        let mut log = recorder.log();
        pool.iter().for_each(|key| _ = log.record(MapOp::Get(key.clone()), |op| perform(&tree.pin(), op)));
    }
    check_map(&initial, &recorder.finish(), DEFAULT_STEPS).assert_ok();
    tree.check_invariants();
}

fn perform<K: TreeKey>(session: &Session<'_, K>, op: &MapOp<K, u64>) -> MapRet<K, u64> {
    match op {
        MapOp::Get(key) => MapRet::Value(session.get(key)),
        MapOp::Insert(key, value) => MapRet::Value(session.insert(key, *value)),
        MapOp::Update(key, value) => MapRet::Value(session.update(key, |_| *value)),
        MapOp::Remove(key) => MapRet::Value(session.remove(key)),
        MapOp::Scan(from, limit) => {
            let mut seen = Vec::new();
            session.scan(from, *limit, |key, value| seen.push((K::from_shown(key), *value)));
            MapRet::Entries(seen)
        }
        MapOp::ScanRev(..) => unreachable!("never drawn"),
    }
}

const GROW: Mix = Mix { get: 3, insert: 8, update: 2, remove: 2, scan: 2 };
const SHRINK: Mix = Mix { get: 3, insert: 2, update: 2, remove: 8, scan: 2 };

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), 3, scaled(400, 20), &[Mix::EVEN], round);
        history(&words(scaled(400, 60) as u64), 4, scaled(1_000, 30), &[GROW, SHRINK, GROW, SHRINK], round);
        history(&strings(scaled(300, 30)), 4, scaled(500, 20), &[GROW, SHRINK, GROW, SHRINK], round);
    }
}

/// The same under schedules that don't happen by themselves: a split and a merge are never far.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    use archipelago_sim::{Machine, hunt, run};
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(300, |config| run(&machine, &config, 1, |_| history(&words(90), 4, 12, &[GROW, SHRINK], config.seed)));
}
