//! The atomic operations of all maps in recorded histories. Each operation is judged as the plain operation whose
//! effect it had.
//!
//! An operation whose effect depends on the current value is recorded as a plain operation. For example, if a `compute`
//! has stored a value, it is recorded as an insertion that returned the value which the closure received. If it has
//! kept the value, it is recorded as a look-up. If the operation was atomic, the plain one is linearizable. `pop_first`
//! and `pop_last` concern all keys, so they are judged by a model of a whole map.

use crate::common::keys::TestKey;
use crate::common::sized;
use archipelago_check::history::{Log, Recorder};
use archipelago_check::linear::{self, DEFAULT_STEPS};
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::pops::{PopOp, Whole};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Rng};
use archipelago_index::art::{Radix, WriteSync};
use archipelago_index::blink::{BLink, Builder, InnerReplicas, LARGEST, LogFed, Mirrored, Pages, Policy, SMALLEST};
use archipelago_index::euno::{Contention, Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, BLinkTree, Change, EunoBTree, EunoSkipList, HydraList, Session};
use archipelago_platform::topology::Topology;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

/// The type of a history's values.
trait Value: Clone + Eq + Send + Sync + 'static {
    fn of(n: u64) -> Self;
    fn number(&self) -> u64;
}

impl Value for u64 {
    fn of(n: u64) -> u64 {
        n
    }
    fn number(&self) -> u64 {
        *self
    }
}

/// Strings are values that maps store in boxes.
impl Value for String {
    fn of(n: u64) -> String {
        n.to_string()
    }
    fn number(&self) -> u64 {
        self.parse().expect("a value is a number, and whole")
    }
}

type Judged<K> = (MapOp<K, u64>, MapRet<K, u64>);

fn judged<K>(op: MapOp<K, u64>, answer: Option<u64>) -> Judged<K> {
    (op, MapRet::Value(answer))
}

/// Runs one operation. Returns it as the plain operation whose effect it had.
fn perform<S: Kind, K: TestKey, V: Value>(session: &Session<'_, S, K, V>, key: K, n: u64, rng: &mut Rng) -> Judged<K> {
    let number = |value: &V| value.number();
    match rng.random_range(0..9) {
        0 => match session.insert_if_absent(key.clone(), V::of(n)) {
            Ok(_) => judged(MapOp::Insert(key, n), None),
            Err(there) => judged(MapOp::Get(key), Some(there.current.number())),
        },
        1 => {
            let value = session.get_or_insert_with(key.clone(), || V::of(n)).number();
            if value == n { judged(MapOp::Insert(key, n), None) } else { judged(MapOp::Get(key), Some(value)) }
        }
        2 => {
            // Only the value that was refused last is recorded. If a value was approved and then not removed, another
            // thread had changed it, and the closure was called again.
            let mut refused = None;
            let removed = session.remove_if(&key, |value| {
                let number = value.number();
                refused = (!number.is_multiple_of(2)).then_some(number);
                refused.is_none()
            });
            match removed {
                Some(value) => judged(MapOp::Remove(key), Some(value.number())),
                None => judged(MapOp::Get(key), refused),
            }
        }
        3 => {
            let mut seen = None;
            let there = session.upsert_with(
                &key,
                || V::of(n),
                |old| {
                    seen = Some(old.number());
                    V::of(n)
                },
            );
            judged(MapOp::Insert(key, n), seen.filter(|_| there))
        }
        4 => {
            let guess = session.get(&key).filter(|_| rng.random_ratio(3, 4));
            let new = rng.random_ratio(2, 3).then(|| V::of(n));
            let change = new.clone();
            match session.compare_exchange(&key, guess.as_ref(), change) {
                Err(error) => judged(MapOp::Get(key), error.current.as_deref().map(number)),
                Ok(old) => {
                    assert_eq!(old.as_deref().map(number), guess.as_ref().map(number));
                    let old = old.as_deref().map(number);
                    judged(if new.is_some() { MapOp::Insert(key, n) } else { MapOp::Remove(key) }, old)
                }
            }
        }
        5..8 => {
            let mut seen = None;
            let done = session.compute(&key, |old| {
                seen = old.map(number);
                match seen.unwrap_or(n) % 5 {
                    0 => Change::Keep,
                    1 | 2 => Change::Remove,
                    _ => Change::Put(V::of(n)),
                }
            });
            let (old, new) = (done.old.as_deref().map(number), done.new.as_deref().map(number));
            assert_eq!(old, seen, "what was decided by is what was there");
            match seen.unwrap_or(n) % 5 {
                0 => judged(MapOp::Get(key), old),
                1 | 2 => judged(MapOp::Remove(key), old),
                _ => {
                    assert_eq!(new, Some(n));
                    judged(MapOp::Insert(key, n), old)
                }
            }
        }
        _ => judged(MapOp::Remove(key.clone()), session.remove_ref(&key).as_deref().map(number)),
    }
}

fn decisions_are_linearizable<S: Kind, K: TestKey, V: Value>(make: impl Fn() -> Map<S, K, V>) {
    let (rounds, ops, threads) = (sized(60, 1), sized(250, 12), 4);
    let pool = K::pool(5);
    watchdog(USUAL, |notes| {
        for round in 0..rounds {
            notes.note(format!("round {round}"));
            let (map, recorder, start) = (make(), Recorder::new(), Barrier::new(threads));
            thread::scope(|s| {
                for t in 0..threads {
                    let (map, recorder, start, pool) = (&map, &recorder, &start, &pool);
                    s.spawn(move || {
                        let (session, mut rng) = (map.pin(), workload::rng(round as u64, t));
                        let mut log: Log<'_, MapOp<K, u64>, MapRet<K, u64>> = recorder.log();
                        start.wait();
                        for i in 0..ops {
                            let key = pool[rng.random_range(0..pool.len())].clone();
                            let n = (1 + t * 1_000_000 + i) as u64;
                            log.record_late(|| perform(&session, key, n, &mut rng));
                            if rng.random_ratio(1, 16) {
                                thread::yield_now();
                            }
                        }
                    });
                }
            });
            check_map(&BTreeMap::new(), &recorder.finish(), DEFAULT_STEPS).assert_ok();
            map.check_invariants();
        }
    });
}

#[test]
fn decisions_in_a_hydralist_are_linearizable() {
    decisions_are_linearizable::<Hydra, u64, u64>(Map::new);
    decisions_are_linearizable::<Hydra, String, String>(Map::new);
}

#[test]
fn decisions_in_an_art_are_linearizable() {
    decisions_are_linearizable::<Radix, u64, String>(Map::new);
    decisions_are_linearizable::<Radix, String, u64>(Map::new);
    decisions_are_linearizable::<Tree, u64, String>(Map::new);
    decisions_are_linearizable::<Tree, String, u64>(Map::new);
}

/// Keys that are far apart and keys that are close together, so that the outermost key is sometimes in the same node as
/// the next one.
const SPREAD: [u64; 12] =
    [0, 1, 300, 301, 70_000, 70_001, 1 << 40, (1 << 40) + 1, 1 << 60, (1 << 60) + 9, 1 << 63, u64::MAX];

fn pops_are_linearizable<S: Kind>(make: impl Fn() -> Map<S, u64, u64>) {
    let (rounds, ops, threads) = (sized(1_500, 2), sized(14, 8), 3);
    watchdog(USUAL, |notes| {
        for round in 0..rounds {
            notes.note(format!("round {round}"));
            let (map, recorder, start) = (make(), Recorder::new(), Barrier::new(threads));
            thread::scope(|s| {
                for t in 0..threads {
                    let (map, recorder, start) = (&map, &recorder, &start);
                    s.spawn(move || {
                        let (session, mut rng) = (map.pin(), workload::rng(round as u64, t));
                        let mut log = recorder.log();
                        start.wait();
                        for _ in 0..ops {
                            let place = rng.random_range(0..SPREAD.len());
                            let (key, number) = (SPREAD[place], place as u64);
                            let popped = |entry: Option<(u64, u64)>| entry.map(|(_, number)| number);
                            match rng.random_range(0..8) {
                                0..3 => log.record(PopOp::Insert(number), |_| session.insert(key, number)),
                                3 => log.record(PopOp::Get(number), |_| session.get(&key)),
                                4 => log.record(PopOp::Remove(number), |_| session.remove(&key)),
                                5 | 6 => log.record(PopOp::First, |_| popped(session.pop_first())),
                                _ => log.record(PopOp::Last, |_| popped(session.pop_last())),
                            };
                        }
                    });
                }
            });
            linear::check(&Whole::default(), recorder.finish().entries()).assert_ok();
            map.check_invariants();
        }
    });
}

#[test]
fn pops_of_a_hydralist_are_linearizable() {
    pops_are_linearizable(HydraList::new);
}

#[test]
fn pops_of_an_art_are_linearizable() {
    pops_are_linearizable(|| Art::with_write_sync(WriteSync::Rowex));
    pops_are_linearizable(|| Art::with_write_sync(WriteSync::OptimisticLockCoupling));
}

/// Policies with replicas of the tree or of its inner pages on each node, and with pages that are soon full.
type Together = Mirrored<Pages<SMALLEST>>;
type FromLog = LogFed<Pages<SMALLEST>>;
type BelowCopies = InnerReplicas<Pages<SMALLEST>>;

fn on_nodes<P: Policy, V: Value>(nodes: usize) -> Map<BLink<P>, u64, V> {
    Builder::default().topology(Topology::synthetic(nodes, 2)).build()
}

#[test]
fn decisions_in_a_b_link_tree_are_linearizable() {
    decisions_are_linearizable::<BLink, u64, u64>(Map::new);
    decisions_are_linearizable::<BLink<Pages<LARGEST>>, String, String>(Map::new);
}

#[test]
fn decisions_in_replicas_are_linearizable() {
    for nodes in [2, 8] {
        decisions_are_linearizable(|| on_nodes::<Together, String>(nodes));
        decisions_are_linearizable(|| on_nodes::<FromLog, String>(nodes));
        decisions_are_linearizable(|| on_nodes::<BelowCopies, String>(nodes));
    }
}

#[test]
fn pops_of_a_b_link_tree_are_linearizable() {
    pops_are_linearizable(BLinkTree::<u64, u64>::new);
    pops_are_linearizable(|| on_nodes::<Together, u64>(3));
    pops_are_linearizable(|| on_nodes::<FromLog, u64>(3));
}

#[test]
fn pops_of_a_euno_are_linearizable() {
    for contention in [Contention::Adaptive, Contention::Always] {
        pops_are_linearizable(|| EunoBTree::builder().contention(contention).build());
    }
    pops_are_linearizable(EunoSkipList::new);
}

/// Four threads increment, and later decrement, seven counters by `compute`. No change is lost, and counters that reach
/// zero are removed.
#[test]
fn counters_are_exact() {
    fn check<S: Kind>(map: Map<S, u64, u64>) {
        let (threads, rounds, keys) = (4, sized(4_000, 40) as u64, 7);
        thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    let session = map.pin();
                    for n in 0..rounds {
                        let up = |old: Option<&u64>| Change::Put(old.map_or(1, |old| old + 1));
                        session.compute(&(n % keys), up);
                    }
                });
            }
        });
        let counted = |key: u64| threads * (0..rounds).filter(|n| n % keys == key).count() as u64;
        assert!(map.pin().iter().eq((0..keys).map(|key| (key, counted(key)))));
        thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    let session = map.pin();
                    for n in 0..rounds {
                        let down = |old: Option<&u64>| match old {
                            None => unreachable!("each was counted up as often as it is counted down"),
                            Some(1) => Change::Remove,
                            Some(old) => Change::Put(old - 1),
                        };
                        session.compute(&(n % keys), down);
                    }
                });
            }
        });
        assert!(map.is_empty());
        map.check_invariants();
    }
    check(Map::<Hydra, _, _>::new());
    check(Map::<Radix, _, _>::new());
    check(Map::<BLink, _, _>::new());
    check(on_nodes::<Together, _>(2));
    check(on_nodes::<FromLog, _>(2));
    check(Map::<Tree, _, _>::new());
    check(Map::<Skip, _, _>::new());
}
