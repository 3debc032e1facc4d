//! Recorded histories of several threads, which the checker judges: every operation on one key must be linearizable,
//! and scans must return what their documentation promises.

use super::keys::TestKey;
use super::model::perform;
use super::tested::{Invariants, Make};
use super::{scan, scan_rev, sized};
use archipelago_check::history::{History, Log, Recorder};
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Choice, Mix, OpKind, Rng};
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::thread;
use rand::RngExt;
use std::collections::BTreeMap;

type MapLog<'r, K> = Log<'r, MapOp<K, u64>, MapRet<K, u64>>;

const GROW: Mix = Mix { get: 3, insert: 8, update: 2, remove: 2, scan: 2 };
const SHRINK: Mix = Mix { get: 3, insert: 2, update: 2, remove: 8, scan: 2 };

/// All threads use the same few keys.
pub fn few_keys<K: TestKey>(make: Make<K, u64>) {
    let pool = K::pool(6);
    watchdog(USUAL, |notes| {
        for round in 0..sized(30, 1) {
            notes.note(format!("round {round}"));
            let index = make();
            one_history(&index, &pool, 3 + round % 2, sized(400, 15), &[Mix::EVEN], round as u64);
            index.check();
        }
    });
}

/// There are enough keys for pages to be split and merged during the run: the map grows, shrinks and stays in use.
pub fn many_keys_at_once<K: TestKey>(make: Make<K, u64>) {
    let pool = K::pool(sized(600, 40));
    watchdog(USUAL, |notes| {
        for round in 0..sized(4, 1) {
            notes.note(format!("round {round}"));
            let index = make();
            one_history(&index, &pool, 4, sized(2000, 30), &[GROW, SHRINK, GROW, SHRINK], 100 + round as u64);
            index.check();
        }
    });
}

/// Runs and judges one history. Every third key is in the map before the history. Afterwards every key is looked up,
/// and all entries are scanned.
fn one_history<K: TestKey>(
    index: &impl OrderedIndex<K, u64>,
    pool: &[K],
    threads: usize,
    ops: usize,
    mixes: &[Mix],
    seed: u64,
) {
    let mut initial = BTreeMap::new();
    for (i, key) in pool.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
        assert_eq!(index.pin().insert(key, i as u64), None);
        initial.insert(key.clone(), i as u64);
    }
    let recorder = Recorder::new();
    thread::scope(|s| {
        for t in 0..threads {
            let recorder = &recorder;
            s.spawn(move || {
                let worker = Worker { pool, choice: Choice::zipf(pool.len(), 0.5), rng: workload::rng(seed, t) };
                worker.run(&index.pin(), &mut recorder.log(), mixes, ops);
            });
        }
    });
    look_at_everything(&index.pin(), &mut recorder.log(), pool);
    check_map(&initial, &recorder.finish(), DEFAULT_STEPS).assert_ok();
}

fn look_at_everything<K: TestKey>(session: &impl OrderedSession<K, u64>, log: &mut MapLog<'_, K>, pool: &[K]) {
    for key in pool {
        log.record(MapOp::Get(key.clone()), |_| MapRet::Value(session.get(key)));
    }
    log.record(MapOp::Scan(K::least(), usize::MAX), |_| MapRet::Entries(scan(session, &K::least(), usize::MAX)));
}

/// One thread's part of a history.
struct Worker<'a, K> {
    pool: &'a [K],
    choice: Choice,
    rng: Rng,
}

impl<K: TestKey> Worker<'_, K> {
    fn run<S: OrderedSession<K, u64>>(mut self, session: &S, log: &mut MapLog<'_, K>, mixes: &[Mix], ops: usize) {
        let backwards = scan_rev(session, &K::least(), 0).is_some();
        for i in 0..ops {
            let value = (1 + log.thread() * 1_000_000 + i) as u64 * 1_000;
            let key = self.key();
            match mixes[i * mixes.len() / ops].next(&mut self.rng) {
                OpKind::Get if self.rng.random_ratio(1, 4) => self.get_many(session, log),
                OpKind::Get => self.record(session, log, MapOp::Get(key)),
                OpKind::Insert => self.record(session, log, MapOp::Insert(key, value)),
                OpKind::Update => self.record(session, log, MapOp::Update(key, value)),
                OpKind::Remove => self.record(session, log, MapOp::Remove(key)),
                OpKind::Scan => {
                    let down = backwards && self.rng.random_ratio(1, 3);
                    self.slow_scan(session, log, key, down);
                }
            }
            // The yields let threads meet in all phases of each other's operations, even on few cores.
            if self.rng.random_ratio(1, 16) {
                thread::yield_now();
            }
        }
    }

    fn key(&mut self) -> K {
        self.pool[self.choice.next(&mut self.rng)].clone()
    }

    fn record<S: OrderedSession<K, u64>>(&self, session: &S, log: &mut MapLog<'_, K>, op: MapOp<K, u64>) {
        log.record(op, |op| perform(session, op).expect("every map does this"));
    }

    fn get_many<S: OrderedSession<K, u64>>(&mut self, session: &S, log: &mut MapLog<'_, K>) {
        let keys: Vec<K> = (0..4).map(|_| self.key()).collect();
        log.record_many(|| {
            let mut found = Vec::new();
            session.get_many(&keys, &mut found);
            assert_eq!(found.len(), keys.len(), "get_many answers for every key");
            keys.into_iter().zip(found).map(|(key, value)| (MapOp::Get(key), MapRet::Value(value)))
        });
    }

    /// A scan whose visitor sometimes lets other threads run between two entries.
    fn slow_scan<S: OrderedSession<K, u64>>(&mut self, session: &S, log: &mut MapLog<'_, K>, from: K, down: bool) {
        let limit = if self.rng.random_ratio(1, 10) { usize::MAX } else { self.rng.random_range(0..24) };
        let mut found = Vec::new();
        let rng = &mut self.rng;
        log.record_late(|| {
            let visit = |key: K::Ref<'_>, value: &u64| {
                found.push((K::owned(key), *value));
                if rng.random_ratio(1, 8) {
                    thread::yield_now();
                }
            };
            let op = if down {
                session.scan_rev(&from, limit, visit);
                MapOp::ScanRev(from, limit)
            } else {
                session.scan(&from, limit, visit);
                MapOp::Scan(from, limit)
            };
            (op, MapRet::Entries(found))
        });
    }
}
