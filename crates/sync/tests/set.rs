//! Sets over every mechanism: a model, threads, and what is promised of several keys at once.
#![cfg(not(loom))]

use std::collections::BTreeMap;

use archipelago_check::history::Recorder;
use archipelago_check::linear::{self, Model as Specification};
use archipelago_platform::atomic::{AtomicBool, AtomicI64, Ordering};
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{ClockKind, Domain, Tuning};
use archipelago_sync::set::{
    CitrusTree, HarrisList, Hash, List, Mechanism, OverMvRlu, OverRcu, OverRlu, Set, SetSession, Tree,
};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// What a structure promises beyond single keys.
#[derive(Clone, Copy, PartialEq)]
enum Promise {
    /// Several keys at one moment, ranges too.
    Ordered,
    /// Several keys at one moment; no ranges.
    Hashed,
    /// Single keys and ranges.
    Rival,
}

fn eager_mvrlu(clock: ClockKind) -> OverMvRlu {
    let tuning = Tuning { low_watermark: 1, dereference_watermark: 16, concurrent: true };
    OverMvRlu::with(Domain::builder().clock(clock).tuning(tuning))
}

fn each_over<M: Mechanism<1> + Mechanism<2>>(test: &impl Tested, make: impl Fn(usize) -> M) {
    test.run(Promise::Ordered, List::over(make(1)));
    test.run(Promise::Hashed, Hash::over(make(5), 5));
    test.run(Promise::Ordered, Tree::over(make(1)));
}

trait Tested {
    fn run<S: Set>(&self, promise: Promise, set: S);
}

fn each(test: impl Tested) {
    each_over(&test, |_| OverMvRlu::with(Domain::builder()));
    each_over(&test, |_| eager_mvrlu(ClockKind::Logical));
    each_over(&test, |_| eager_mvrlu(ClockKind::Hardware));
    each_over(&test, |_| OverRlu::with(ClockKind::Logical, 0));
    each_over(&test, |_| OverRlu::with(ClockKind::Hardware, 0));
    each_over(&test, |_| OverRlu::with(ClockKind::Logical, 10));
    test.run(Promise::Ordered, List::<OverRcu>::default());
    test.run(Promise::Hashed, Hash::<OverRcu>::with_buckets(5));
    test.run(Promise::Ordered, Tree::<OverRcu>::default());
    test.run(Promise::Rival, HarrisList::default());
    test.run(Promise::Hashed, Locked(HarrisList::with_buckets(5)));
    test.run(Promise::Rival, CitrusTree::default());
}

/// Makes a rival's `get_many` and `move_key` what they are for others, in tests of one thread: they are that there.
struct Locked<S>(S);

impl<S: Set> Set for Locked<S> {
    type Session<'s>
        = S::Session<'s>
    where
        S: 's;

    fn session(&self) -> S::Session<'_> {
        self.0.session()
    }
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
    fn run<S: Set>(&self, promise: Promise, set: S) {
        let (mut random, mut model) = (Random(7), BTreeMap::new());
        let mut session = set.session();
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
                _ if promise != Promise::Hashed => {
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
    each(Model);
}

struct Churn;

impl Tested for Churn {
    fn run<S: Set>(&self, promise: Promise, set: S) {
        let counts: Vec<AtomicI64> = (0..32).map(|_| AtomicI64::new(0)).collect();
        thread::scope(|scope| {
            for seed in 0..3 {
                let (set, counts) = (&set, &counts);
                scope.spawn(move || {
                    let (mut random, mut session) = (Random(seed), set.session());
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
        let mut session = set.session();
        let left: Vec<(u64, u64)> = (0..32).filter_map(|key| Some((key, session.get(key)?))).collect();
        for (key, count) in counts.iter().enumerate() {
            let there = left.iter().any(|(left, _)| *left == key as u64);
            assert_eq!(count.load(Ordering::Relaxed), i64::from(there), "key {key}");
        }
        if promise != Promise::Hashed {
            assert_eq!(session.range(0, 32), left);
        }
    }
}

#[test]
fn threads_insert_and_remove() {
    each(Churn);
}

/// One item moves about; at any moment it is in exactly one place.
struct Wandering;

impl Tested for Wandering {
    fn run<S: Set>(&self, promise: Promise, set: S) {
        if promise == Promise::Rival || core::any::type_name::<S>().contains("Locked") {
            return;
        }
        const PLACES: u64 = 12;
        set.session().insert(0, 77);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let movers: Vec<_> = (1..3)
                .map(|seed| {
                    let set = &set;
                    scope.spawn(move || {
                        let (mut random, mut session) = (Random(seed), set.session());
                        let mut moved = 0;
                        while moved < scaled(400, 5) {
                            let (from, to) = (random.below(PLACES), random.below(PLACES));
                            moved += usize::from(from != to && session.move_key(from, to));
                        }
                    })
                })
                .collect();
            let (set, stop) = (&set, &stop);
            scope.spawn(move || {
                let mut session = set.session();
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
    each(Wandering);
}

/// What the sets promise, as a sequential specification.
struct Promised;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
    Move(u64, u64),
    GetMany(Vec<u64>),
    Range(u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    Done(bool),
    Value(Option<u64>),
    Values(Vec<Option<u64>>),
    Entries(Vec<(u64, u64)>),
}

impl Specification for Promised {
    type Op = Op;
    type Ret = Ret;
    type State = BTreeMap<u64, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, op: &Op, ret: &Ret) -> Option<Self::State> {
        let mut state = state.clone();
        let right = match op {
            Op::Insert(key, value) => {
                let absent = !state.contains_key(key);
                state.entry(*key).or_insert(*value);
                Ret::Done(absent)
            }
            Op::Remove(key) => Ret::Value(state.remove(key)),
            Op::Get(key) => Ret::Value(state.get(key).copied()),
            Op::Move(from, to) => {
                let moves = from != to && state.contains_key(from) && !state.contains_key(to);
                if moves {
                    let value = state.remove(from).expect("just seen");
                    state.insert(*to, value);
                }
                Ret::Done(moves)
            }
            Op::GetMany(keys) => Ret::Values(keys.iter().map(|key| state.get(key).copied()).collect()),
            Op::Range(from, to) => Ret::Entries(state.range(from..to).map(|(key, value)| (*key, *value)).collect()),
        };
        (right == *ret).then_some(state)
    }
}

fn perform(session: &mut impl SetSession, op: &Op) -> Ret {
    match op {
        Op::Insert(key, value) => Ret::Done(session.insert(*key, *value)),
        Op::Remove(key) => Ret::Value(session.remove(*key)),
        Op::Get(key) => Ret::Value(session.get(*key)),
        Op::Move(from, to) => Ret::Done(session.move_key(*from, *to)),
        Op::GetMany(keys) => Ret::Values(session.get_many(keys)),
        Op::Range(from, to) => Ret::Entries(session.range(*from, *to)),
    }
}

/// Three threads, five keys: every answer, of several keys too where that is promised, fits one order of operations.
struct Recorded;

impl Recorded {
    fn draw(random: &mut Random, promise: Promise, unique: u64) -> Op {
        let (key, other) = (random.below(5), random.below(5));
        match (random.below(8), promise) {
            (0 | 1, _) => Op::Insert(key, unique),
            (2 | 3, _) => Op::Remove(key),
            (4, Promise::Ordered | Promise::Hashed) if key != other => Op::Move(key, other),
            (5, Promise::Ordered | Promise::Hashed) => Op::GetMany(vec![key, other, 4]),
            (6, Promise::Ordered) => Op::Range(key.min(other), key.max(other) + 1),
            _ => Op::Get(key),
        }
    }
}

impl Tested for Recorded {
    fn run<S: Set>(&self, promise: Promise, set: S) {
        let promise = if core::any::type_name::<S>().contains("Locked") { Promise::Rival } else { promise };
        let recorder = Recorder::new();
        thread::scope(|scope| {
            for thread in 0..3 {
                let (set, recorder) = (&set, &recorder);
                scope.spawn(move || {
                    let (mut random, mut session, mut log) = (Random(thread), set.session(), recorder.log());
                    for number in 0..scaled(300, 8) as u64 {
                        let op = Self::draw(&mut random, promise, thread << 32 | number);
                        log.record(op, |op| perform(&mut session, op));
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
        each(Recorded);
    }
}
