//! Tests sets over every mechanism: against a model, with threads, and for their guarantees about several keys at once.
#![cfg(not(loom))]

use std::collections::BTreeMap;

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_platform::atomic::{AtomicBool, AtomicI64, Ordering};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sets::{
    CitrusTree, CountedCitrusTree, Forest, FraserSkipList, HarrisList, Hash, HazardList, List, Mechanism, OverMvRlu,
    OverRcu, OverRcuHmcs, OverRcuKilobyte, OverRcx, OverRcxKilobyte, OverRcxStriped, OverRcxSuccessors,
    OverRcxSuccessorsKilobyte, OverRlu, OverRluKilobyte, OverVersioned, PredicateCitrusTree, RcuHtm, RcuHtmOneLock,
    RcuHtmOneLockKilobyte, Set, SetSession, SharedSeedSkipList, SynchronousCitrusTree, SynchronousRcu, Tree, Visit,
};
use archipelago_sync::mvrlu::{ClockKind, Domain, Tuning};
use archipelago_sync::rcx::{Padding, Rcx, Striped};
use archipelago_sync::region::Region;

#[path = "set/promised.rs"]
mod promised;

use promised::{Promise, Promised, check_range, draw, perform};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn eager_mvrlu(clock: ClockKind) -> OverMvRlu {
    let tuning = Tuning { low_watermark: 1, dereference_watermark: 16, concurrent: true };
    OverMvRlu::with(Domain::builder().clock(clock).tuning(tuning))
}

fn each_over<M: Mechanism<1> + Mechanism<2>>(test: &dyn Tested, make: impl Fn(usize) -> M) {
    test.run(Promise::Ordered, List::over(make(1)));
    test.run(Promise::Hashed, Hash::over(make(5), 5));
    test.run(Promise::Ordered, Tree::over(make(1)));
}

/// A test of any set. The test has the set for itself.
trait Tested {
    fn of(&self, promise: Promise, set: &dyn Subject);
}

impl dyn Tested + '_ {
    fn run(&self, promise: Promise, set: impl Set) {
        self.of(promise, &set);
    }
}

/// A set behind a trait object, so that each test is compiled once instead of once for each of seventy sets.
trait Subject: Sync {
    /// Returns a session for the calling thread.
    fn any_session(&self) -> Box<dyn SetSession + '_>;
}

impl<S: Set> Subject for S {
    fn any_session(&self) -> Box<dyn SetSession + '_> {
        Box::new(Set::session(self))
    }
}

fn each(test: &dyn Tested) {
    test.run(Promise::RivalTable, Forest::over(OverMvRlu::with(Domain::builder()), 5));
    test.run(Promise::RivalTable, Forest::over(OverRlu::with(ClockKind::Logical, 0), 5));
    test.run(Promise::RivalTable, Forest::over(OverRcu::default(), 5));
    each_over(test, |_| OverMvRlu::with(Domain::builder()));
    each_over(test, |_| eager_mvrlu(ClockKind::Logical));
    each_over(test, |_| eager_mvrlu(ClockKind::Hardware));
    each_over(test, |_| OverRlu::with(ClockKind::Logical, 0));
    each_over(test, |_| OverRlu::with(ClockKind::Hardware, 0));
    each_over(test, |_| OverRlu::with(ClockKind::Logical, 10));
    each_over(test, |_| OverRluKilobyte::default());
    each_over(test, |_| OverVersioned::default());
    each_over(test, |_| OverVersioned::keeping(1));
    test.run(Promise::RivalTable, Forest::over(OverVersioned::default(), 5));
    test.run(Promise::Ordered, List::<OverRcu>::default());
    test.run(Promise::Hashed, Hash::<OverRcu>::with_buckets(5));
    test.run(Promise::Ordered, Tree::<OverRcu>::default());
    test.run(Promise::Ordered, List::<OverRcuHmcs>::default());
    test.run(Promise::Ordered, List::<OverRcuKilobyte>::default());
    test.run(Promise::Hashed, Hash::<OverRcuKilobyte>::with_buckets(5));
    test.run(Promise::Ordered, Tree::<OverRcuKilobyte>::default());
    test.run(Promise::Hashed, Hash::<OverRcu>::over(OverRcu::with_one_lock(), 5));
    test.run(Promise::Ordered, List::<SynchronousRcu>::default());
    test.run(Promise::Hashed, Hash::<SynchronousRcu>::with_buckets(5));
    test.run(Promise::Ordered, Tree::<SynchronousRcu>::default());
    each_side_by_side(test);
    test.run(Promise::Rival, HarrisList::default());
    test.run(Promise::RivalTable, HarrisList::with_buckets(5));
    test.run(Promise::Rival, HazardList::default());
    test.run(Promise::RivalTable, HazardList::with_buckets(5));
    test.run(Promise::Rival, HazardList::default().as_published());
    test.run(Promise::Rival, CitrusTree::default());
    test.run(Promise::Rival, PredicateCitrusTree::default());
    test.run(Promise::Rival, CountedCitrusTree::default());
    test.run(Promise::Rival, SynchronousCitrusTree::default());
    test.run(Promise::Rival, FraserSkipList::default());
}

/// Runs a test with the mechanisms whose updates run in parallel, and over which several keys are not read at one
/// moment.
fn each_side_by_side(test: &dyn Tested) {
    fn over<M: Mechanism<1> + Mechanism<2>>(test: &dyn Tested, make: impl Fn() -> M) {
        test.run(Promise::Rival, List::over(make()));
        test.run(Promise::RivalTable, Hash::over(make(), 5));
        test.run(Promise::Rival, Tree::over(make()));
        test.run(Promise::RivalTable, Forest::over(make(), 5));
    }
    for nodes in [1, 2, 4, 8] {
        over(test, || OverRcx::over(Rcx::builder().nodes(nodes).build()));
        over(test, || {
            OverRcx::over(Rcx::builder().nodes(nodes).padding(Padding::Compact).without_transactions().build())
        });
    }
    over(test, || OverRcx::over(Rcx::builder().nodes(2).passes(4).build()));
    over(test, || OverRcx::over(Rcx::fine_grained().build()));
    over(test, || OverRcxKilobyte::over(Rcx::builder().nodes(2).build()));
    over(test, || OverRcxSuccessors::over(Rcx::builder().nodes(2).build()));
    over(test, || OverRcxSuccessors::over(Rcx::builder().nodes(4).without_transactions().build()));
    over(test, || OverRcxSuccessorsKilobyte::over(Rcx::builder().nodes(4).build()));
    // With two stripes, nearly all nodes share their stripe with others.
    let few = |nodes, _| Striped::with_stripes(nodes, 2);
    over(test, || OverRcxStriped::over(Rcx::builder().nodes(3).build_with(few)));
    over(test, OverRcxStriped::default);
    over(test, RcuHtm::default);
    over(test, RcuHtmOneLock::default);
    over(test, RcuHtmOneLockKilobyte::default);
    over(test, || RcuHtm::over(Region::by_version_locks()));
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Model;

impl Tested for Model {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        let (mut random, mut model) = (Random(7), BTreeMap::new());
        let mut session = set.any_session();
        for _ in 0..scaled(6_000, 60) {
            let (key, other, value) = (random.below(40), random.below(40), random.below(1_000));
            match random.below(6) {
                0 | 1 => {
                    let absent = !model.contains_key(&key);
                    assert_eq!(session.insert(key, value), absent);
                    model.entry(key).or_insert(value);
                }
                2 => assert_eq!(session.remove(key), model.remove(&key)),
                3 => {
                    let keys = [key, other, value];
                    assert_eq!(session.get_many(&keys), keys.map(|key| model.get(&key).copied()));
                }
                4 if key != other => {
                    let moves = model.contains_key(&key) && !model.contains_key(&other);
                    assert_eq!(session.move_key(key, other), moves);
                    if moves {
                        let value = model.remove(&key).unwrap();
                        model.insert(other, value);
                    }
                }
                _ if promise.has_ranges() => {
                    let expected: Vec<(u64, u64)> =
                        model.range(key..key.max(other)).map(|(key, value)| (*key, *value)).collect();
                    assert_eq!(session.range(key, other), expected);
                }
                _ => assert_eq!(session.contains(key), model.contains_key(&key)),
            }
        }
    }
}

#[test]
fn as_a_sorted_map() {
    each(&Model);
}

struct Churn;

impl Tested for Churn {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        let counts: Vec<AtomicI64> = (0..32).map(|_| AtomicI64::new(0)).collect();
        thread::scope(|scope| {
            for seed in 0..3 {
                let counts = &counts;
                scope.spawn(move || {
                    let (mut random, mut session) = (Random(seed), set.any_session());
                    for _ in 0..scaled(2_500, 25) {
                        let key = random.below(32);
                        let change = match random.below(3) {
                            0 => i64::from(session.insert(key, key * 10)),
                            1 => session.remove(key).map_or(0, |value| {
                                assert_eq!(value, key * 10);
                                -1
                            }),
                            _ => session.get(key).map_or(0, |value| {
                                assert_eq!(value, key * 10);
                                0
                            }),
                        };
                        counts[key as usize].fetch_add(change, Ordering::Relaxed);
                    }
                });
            }
        });
        let mut session = set.any_session();
        let left: Vec<(u64, u64)> = (0..32).filter_map(|key| Some((key, session.get(key)?))).collect();
        for (key, count) in counts.iter().enumerate() {
            let there = left.iter().any(|(left, _)| *left == key as u64);
            assert_eq!(count.load(Ordering::Relaxed), i64::from(there), "key {key}");
        }
        if promise.has_ranges() {
            assert_eq!(session.range(0, 32), left);
        }
    }
}

#[test]
fn threads_insert_and_remove() {
    each(&Churn);
}

/// One item moves between keys; at any moment it is at exactly one key.
struct Wandering;

impl Tested for Wandering {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        if matches!(promise, Promise::Rival | Promise::RivalTable) {
            return;
        }
        const PLACES: u64 = 12;
        set.any_session().insert(0, 77);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let movers: Vec<_> = (1..3)
                .map(|seed| {
                    scope.spawn(move || {
                        let (mut random, mut session) = (Random(seed), set.any_session());
                        let mut moved = 0;
                        while moved < scaled(400, 5) {
                            let (from, to) = (random.below(PLACES), random.below(PLACES));
                            moved += usize::from(from != to && session.move_key(from, to));
                        }
                    })
                })
                .collect();
            let stop = &stop;
            scope.spawn(move || {
                let mut session = set.any_session();
                let keys: Vec<u64> = (0..PLACES).collect();
                while !stop.load(Ordering::Relaxed) {
                    let found: Vec<u64> = session.get_many(&keys).into_iter().flatten().collect();
                    assert_eq!(found, [77]);
                    if promise == Promise::Ordered {
                        assert_eq!(session.range(0, PLACES).len(), 1);
                    }
                    thread::yield_now();
                }
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn what_moves_is_in_one_place() {
    each(&Wandering);
}

/// Three threads use five keys. One order of the operations explains all results, including results for several keys if
/// the set guarantees them.
struct Recorded;

impl Tested for Recorded {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        let recorder = Recorder::new();
        thread::scope(|scope| {
            for thread in 0..3 {
                let recorder = &recorder;
                scope.spawn(move || {
                    let (mut random, mut session, mut log) = (Random(thread), set.any_session(), recorder.log());
                    for number in 0..scaled(300, 8) as u64 {
                        let op = draw(|bound| random.below(bound), promise, thread << 32 | number);
                        log.record(op, |op| perform(&mut *session, op));
                        if number % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        linear::check(&Promised, recorder.finish().entries()).assert_ok();
    }
}

#[test]
fn histories_are_linearizable() {
    for _ in 0..scaled(4, 1) {
        each(&Recorded);
    }
}

/// Beside a reader that stays in its section, updates continue if the mechanism does not make them wait. Otherwise they
/// continue when the reader leaves.
struct Lingering {
    waits: bool,
}

impl Tested for Lingering {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        let (visit, before) = (Visit::default(), [50, 20, 90, 70, 80, 110]);
        before.iter().for_each(|key| assert!(set.any_session().insert(*key, *key)));
        thread::scope(|scope| {
            scope.spawn(|| set.any_session().linger(&visit));
            visit.wait_inside();
            let updates = scope.spawn(|| {
                let mut session = set.any_session();
                (0..20).for_each(|key| assert!(session.insert(key, key)));
                // In a tree, this node has two children, and its successor is not its child.
                assert_eq!(session.remove(50), Some(50));
                (session.get(19), session.get(50))
            });
            if self.waits {
                thread::yield_now();
                visit.end();
            }
            assert_eq!(updates.join().unwrap(), (Some(19), None));
            visit.end();
        });
        if promise.has_ranges() {
            let keys: Vec<u64> = set.any_session().range(20, 200).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, [20, 70, 80, 90, 110]);
        }
    }
}

#[test]
fn updates_go_on_beside_a_reader_that_lingers() {
    let test: &dyn Tested = &Lingering { waits: false };
    each_over(test, |_| eager_mvrlu(ClockKind::Logical));
    each_over(test, |_| OverVersioned::keeping(2));
    each_side_by_side(test);
    test.run(Promise::Ordered, List::<OverRcu>::default());
    test.run(Promise::Hashed, Hash::<OverRcu>::with_buckets(5));
    test.run(Promise::Rival, HarrisList::default());
    test.run(Promise::Rival, FraserSkipList::default());
}

#[test]
fn updates_wait_for_a_reader_that_lingers_and_go_on_after_it() {
    let test: &dyn Tested = &Lingering { waits: true };
    each_over(test, |_| OverRlu::with(ClockKind::Logical, 0));
    each_over(test, |_| OverRluKilobyte::default());
    test.run(Promise::Ordered, Tree::<OverRcu>::default());
    test.run(Promise::Rival, CitrusTree::default());
    test.run(Promise::Rival, PredicateCitrusTree::default());
    test.run(Promise::Rival, CountedCitrusTree::default());
    test.run(Promise::Rival, SynchronousCitrusTree::default());
}

/// Beside a reader that stays in its section, a removal replaces a node by its successor. A range contains the
/// successor once.
struct RangesBesideLingering;

impl Tested for RangesBesideLingering {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        let (visit, before) = (Visit::default(), [50, 20, 90, 70, 80, 110]);
        before.iter().for_each(|key| assert!(set.any_session().insert(*key, *key)));
        let settled = |found: &[(u64, u64)]| found.iter().all(|(key, _)| *key != 50);
        let found = thread::scope(|scope| {
            scope.spawn(|| set.any_session().linger(&visit));
            visit.wait_inside();
            scope.spawn(|| assert_eq!(set.any_session().remove(50), Some(50)));
            let mut session = set.any_session();
            let ranges = std::iter::from_fn(|| Some(session.range(0, 200))).inspect(|_| thread::yield_now());
            let found = ranges.into_iter().find(|found| settled(found));
            visit.end();
            found.unwrap()
        });
        if promise.has_ranges() {
            check_range(&found, [20, 70, 80, 90, 110].into_iter());
        }
    }
}

#[test]
fn ranges_beside_a_reader_that_lingers_have_each_key_once() {
    each_side_by_side(&RangesBesideLingering);
    RangesBesideLingering.of(Promise::Rival, &CitrusTree::default());
    RangesBesideLingering.of(Promise::Rival, &PredicateCitrusTree::default());
    RangesBesideLingering.of(Promise::Rival, &CountedCitrusTree::default());
    RangesBesideLingering.of(Promise::Rival, &SynchronousCitrusTree::default());
}

/// Beside updates of even keys, ranges are strictly ascending and contain every odd key, all of which stay.
struct Ranging;

impl Tested for Ranging {
    fn of(&self, promise: Promise, set: &dyn Subject) {
        const KEYS: u64 = 24;
        if !promise.has_ranges() {
            return;
        }
        let (mut random, stop) = (Random(9), AtomicBool::new(false));
        let all = || (1..KEYS).step_by(2);
        let mut left: Vec<u64> = (1..KEYS).collect();
        while !left.is_empty() {
            let key = left.swap_remove(random.below(left.len() as u64) as usize);
            assert!(set.any_session().insert(key, key));
        }
        thread::scope(|scope| {
            let updates = (0..2).map(|seed| {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut random, mut session) = (Random(seed), set.any_session());
                    while !stop.load(Ordering::Relaxed) {
                        let key = random.below(KEYS / 2) * 2;
                        _ = session.remove(key);
                        thread::yield_now();
                        _ = session.insert(key, key);
                    }
                })
            });
            let updates: Vec<_> = updates.collect();
            let mut session = set.any_session();
            let found = (0..scaled(3_000, 20)).map(|_| session.range(0, KEYS)).collect::<Vec<_>>();
            stop.store(true, Ordering::Relaxed);
            updates.into_iter().for_each(|thread| thread.join().unwrap());
            found.iter().for_each(|found| check_range(found, all()));
        });
    }
}

#[test]
fn ranges_are_ascending_and_have_all_that_stays() {
    each(&Ranging);
}

/// A visit that is over keeps no reader in its section.
#[test]
fn a_visit_that_is_over_does_not_begin() {
    let (list, visit) = (HarrisList::default(), Visit::default());
    visit.end();
    list.session().linger(&visit);
    visit.wait_inside();
}

/// A session over RCU as published waits for readers when it has removed 1,000 nodes, and not before.
#[test]
fn a_session_waits_for_readers_in_its_thousandth_removal() {
    let (list, visit) = (List::<SynchronousRcu>::default(), Visit::default());
    let [waits, ends] = [const { AtomicBool::new(false) }; 2];
    thread::scope(|scope| {
        scope.spawn(|| list.session().linger(&visit));
        visit.wait_inside();
        let removals = scope.spawn(|| {
            let mut session = list.session();
            let mut remove = |key| assert!(session.insert(key, key) && session.remove(key) == Some(key));
            (1..1_000).for_each(&mut remove);
            waits.store(true, Ordering::Release);
            remove(1_000);
            assert!(ends.load(Ordering::Acquire), "it has waited");
        });
        while !waits.load(Ordering::Acquire) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(30));
        ends.store(true, Ordering::Release);
        visit.end();
        removals.join().unwrap();
    });
}

/// A structure gives its mechanism one lock for each of its scopes (sets of nodes that are updated independently). So
/// updates work with any number of buckets.
#[test]
fn a_table_over_a_mechanism_has_a_lock_for_each_bucket() {
    for buckets in [0, 1, 2, 7] {
        let table = Hash::over(OverRcu::default(), buckets);
        let mut session = table.session();
        (0..50).for_each(|key| assert!(session.insert(key, key)));
        assert!(session.move_key(3, 60));
        assert_eq!(session.get_many(&[3, 60, 49]), [None, Some(3), Some(49)]);
    }
    assert!(List::over(OverRcu::default()).session().insert(1, 1));
    assert!(Tree::over(OverRcu::default()).session().insert(1, 1));
}

/// Of a popular key, the list with one seed has as many nodes as were inserted and not removed. They are in order.
#[test]
fn repeated_keys_are_nodes_of_their_own() {
    let (threads, rounds) = (4, scaled(5_000, 30) as u64);
    let list = SharedSeedSkipList::default();
    let removed: usize = thread::scope(|scope| {
        let work = |thread: u64| {
            let mut session = list.session();
            let each = |round: u64| {
                assert!(session.insert((round + thread) % 3, round), "whether or not the key is there");
                (0..round % 3).filter(|more| session.remove(more + thread % 2).is_some()).count()
            };
            (0..rounds).map(each).sum::<usize>()
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let mut session = list.session();
    let left: Vec<u64> = std::iter::from_fn(|| session.pop_first()).map(|(key, _)| key).collect();
    assert_eq!(left.len() + removed, (threads * rounds) as usize);
    assert!(removed > 0 && left.is_sorted());
    assert_eq!([0, 1, 2].map(|key| session.get(key)), [None; 3]);
}

/// Threads insert keys of their own and remove the list's first keys. Each key is removed once, by any of the threads.
#[test]
fn a_skip_list_as_a_queue_gives_every_entry_once() {
    let (threads, rounds) = (4, scaled(5_000, 30) as u64);
    let queue = FraserSkipList::default();
    let mut taken: Vec<u64> = thread::scope(|scope| {
        let work = |thread: u64| {
            let (mut session, mut taken) = (queue.session(), Vec::new());
            for round in 0..rounds {
                let key = round * threads + thread;
                assert!(session.insert(key, !key));
                // Sometimes two entries are removed, so that the queue becomes empty and threads compete for the last
                // entries.
                for _ in 0..1 + round % 2 {
                    if let Some((key, value)) = session.pop_first() {
                        assert_eq!(value, !key);
                        taken.push(key);
                    }
                }
            }
            taken
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut session = queue.session();
    taken.extend(std::iter::from_fn(|| session.pop_first()).map(|(key, _)| key));
    taken.sort_unstable();
    assert_eq!(taken, (0..threads * rounds).collect::<Vec<_>>());
    assert_eq!(session.first(), None);
}
