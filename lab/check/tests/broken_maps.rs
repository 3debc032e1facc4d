//! Tests the checker with real threads on real maps: a correct map is never accused, and maps with a planted bug are
//! caught within a bounded number of runs.

use archipelago_check::history::Recorder;
use archipelago_check::linear::{DEFAULT_STEPS, Verdict};
use archipelago_check::map::{MapOp, MapRet, apply, check_map};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Choice, Mix, OpKind};
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread;
use std::collections::BTreeMap;

type Map = Mutex<BTreeMap<u64, u64>>;
type Op = MapOp<u64, u64>;
type Ret = MapRet<u64, u64>;

const THREADS: usize = 3;
const KEYS: usize = 4;

/// Runs three threads with few keys and unique values. `run` is the operation of the map under test.
fn one_run(seed: u64, ops: usize, run: fn(&Map, &Op) -> Ret) -> Verdict {
    let map = Map::default();
    let recorder = Recorder::new();
    thread::scope(|s| {
        for t in 0..THREADS {
            let (map, recorder) = (&map, &recorder);
            s.spawn(move || {
                let (mut rng, choice) = (workload::rng(seed, t), Choice::uniform(KEYS));
                let mut log = recorder.log();
                for i in 0..ops {
                    let (key, value) = (choice.next(&mut rng) as u64, (i * THREADS + t) as u64);
                    let op = match Mix::EVEN.next(&mut rng) {
                        OpKind::Get => MapOp::Get(key),
                        OpKind::Insert => MapOp::Insert(key, value),
                        OpKind::Update => MapOp::Update(key, value),
                        OpKind::Remove => MapOp::Remove(key),
                        OpKind::Scan => MapOp::Scan(key, 9),
                    };
                    log.record(op, |op| run(map, op));
                }
            });
        }
    });
    check_map(&BTreeMap::new(), &recorder.finish(), DEFAULT_STEPS)
}

/// Repeats runs until the bug is detected.
fn assert_caught(run: fn(&Map, &Op) -> Ret) {
    const RUNS: u64 = 300;
    watchdog(USUAL, |notes| {
        for seed in 0..RUNS {
            match one_run(seed, 60, run) {
                Verdict::Violation(example) => {
                    println!("caught in run {seed}: {example}");
                    return;
                }
                Verdict::Ok => notes.note(format!("run {seed} was accepted")),
                Verdict::Undecided(why) => panic!("{why}"),
            }
        }
        panic!("not caught in {RUNS} runs");
    });
}

/// Runs a step of an operation under the lock. Other threads can run between two steps.
fn step<R>(map: &Map, f: impl FnOnce(&mut BTreeMap<u64, u64>) -> R) -> R {
    let result = f(&mut map.lock().unwrap());
    thread::yield_now();
    result
}

fn right(map: &Map, op: &Op) -> Ret {
    step(map, |map| apply(map, op))
}

/// Replaces by removing and inserting, with the lock released in between.
fn replaces_in_two_steps(map: &Map, op: &Op) -> Ret {
    match *op {
        MapOp::Insert(key, value) => {
            let old = step(map, |map| map.remove(&key));
            step(map, |map| map.insert(key, value));
            MapRet::Value(old)
        }
        _ => right(map, op),
    }
}

/// Reads the old value and writes the new one, with the lock released in between.
fn loses_updates(map: &Map, op: &Op) -> Ret {
    match *op {
        MapOp::Update(key, value) => {
            let old = step(map, |map| map.get(&key).copied());
            if old.is_some() {
                step(map, |map| map.get_mut(&key).map(|v| *v = value));
            }
            MapRet::Value(old)
        }
        _ => right(map, op),
    }
}

/// Scans by position: if a lower key is removed between two steps, the scan skips a key.
fn scans_by_position(map: &Map, op: &Op) -> Ret {
    match *op {
        MapOp::Scan(from, limit) => {
            let mut found: Vec<(u64, u64)> = Vec::new();
            while found.len() < limit {
                let next = step(map, |map| map.range(from..).nth(found.len()).map(|(&k, &v)| (k, v)));
                let Some(next) = next.filter(|next| found.last().is_none_or(|last| last.0 < next.0)) else { break };
                found.push(next);
            }
            MapRet::Entries(found)
        }
        _ => right(map, op),
    }
}

/// Scans a copy of the map that may be older than the call, and so shows keys that were removed before.
fn scans_a_stale_copy(map: &Map, op: &Op) -> Ret {
    static COPY: Mutex<(u64, BTreeMap<u64, u64>)> = Mutex::new((0, BTreeMap::new()));
    match op {
        MapOp::Scan(..) => {
            let (uses, copy) = &mut *COPY.lock().unwrap();
            if uses.is_multiple_of(3) {
                *copy = map.lock().unwrap().clone();
            }
            *uses += 1;
            apply(copy, op)
        }
        _ => right(map, op),
    }
}

#[test]
fn a_right_map_is_never_accused() {
    let runs = if cfg!(miri) { 2 } else { 40 };
    (0..runs).for_each(|seed| one_run(seed, if cfg!(miri) { 20 } else { 300 }, right).assert_ok());
}

#[test]
fn a_scan_that_is_not_atomic_is_never_accused() {
    /// Takes the lock for one key at a time, each time the next greater key. This fulfils exactly the guarantees of
    /// scans.
    fn scans_key_by_key(map: &Map, op: &Op) -> Ret {
        match *op {
            MapOp::Scan(from, limit) => {
                let (mut found, mut from) = (Vec::new(), from);
                while found.len() < limit {
                    let next = step(map, |map| map.range(from..).next().map(|(&k, &v)| (k, v)));
                    let Some(next) = next else { break };
                    found.push(next);
                    from = next.0 + 1;
                }
                MapRet::Entries(found)
            }
            _ => right(map, op),
        }
    }
    let runs = if cfg!(miri) { 2 } else { 40 };
    (0..runs).for_each(|seed| one_run(seed, if cfg!(miri) { 20 } else { 300 }, scans_key_by_key).assert_ok());
}

#[test]
fn planted_bugs_are_caught() {
    for broken in [replaces_in_two_steps, loses_updates, scans_by_position, scans_a_stale_copy] {
        assert_caught(broken);
    }
}
