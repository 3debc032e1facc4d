//! Tests the snapshot checker with hand-made anomalies, with random legal histories and their mutations, and with
//! stores with bugs.

use archipelago_check::history::Recorder;
use archipelago_check::linear::Verdict;
use archipelago_check::snapshot::{Action, Level, Outcome, Txn, check};
use archipelago_check::workload::{self, Rng};
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread;
use proptest::prelude::*;
use rand::RngExt;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

type T = Txn<char, u32>;

/// Makes a committed transaction that lived from `from` to `to`. Its begin and its commit take one unit of stamps each.
fn txn(from: u64, to: u64, actions: &[Action<char, u32>]) -> T {
    Txn {
        thread: 0,
        begin: (10 * from, 10 * from + 1),
        end: (10 * to, 10 * to + 1),
        outcome: Outcome::Committed,
        actions: actions.to_vec(),
    }
}

fn r(key: char, value: impl Into<Option<u32>>) -> Action<char, u32> {
    Action::Read(key, value.into())
}

fn w(key: char, value: u32) -> Action<char, u32> {
    Action::Write(key, value)
}

#[track_caller]
fn assert_violation(level: Level, history: &[T], said: &str) {
    match check(level, history) {
        Verdict::Violation(example) => assert!(example.to_string().contains(said), "{example}"),
        verdict => panic!("accepted: {verdict:?}"),
    }
}

/// Returns a transaction that writes x and y first.
fn setup() -> T {
    txn(1, 2, &[w('x', 1), w('y', 2)])
}

#[test]
fn write_skew_is_snapshot_isolated_but_not_serializable() {
    let history =
        [setup(), txn(3, 6, &[r('x', 1), r('y', 2), w('x', 3)]), txn(4, 5, &[r('x', 1), r('y', 2), w('y', 4)])];
    check(Level::Snapshot, &history).assert_ok();
    assert_violation(Level::Serializable, &history, "write skew");
}

#[test]
fn a_lost_update_is_caught() {
    let history = [setup(), txn(3, 6, &[r('x', 1), w('x', 3)]), txn(4, 5, &[r('x', 1), w('x', 4)])];
    assert_violation(Level::Snapshot, &history, "lost update: both overwrote the same version of 'x'");
    // Both transactions wrote the same key concurrently, without reading it.
    let mut blind = [setup(), txn(3, 6, &[w('x', 3)]), txn(4, 5, &[w('x', 4)])];
    assert_violation(Level::Snapshot, &blind, "wrote 'x'");
    check(Level::Serializable, &blind).assert_ok();
    // If the commits overlap, too, the order of versions is unknown unless the store numbers the commits.
    blind[1].end = (50, 52);
    assert!(matches!(check(Level::Snapshot, &blind), Verdict::Undecided(_)));
    for (txn, number) in blind.iter_mut().zip([1, 2, 3]) {
        txn.outcome = Outcome::CommittedAs(number);
    }
    assert_violation(Level::Snapshot, &blind, "wrote 'x'");
    // Equal numbers do not tell the order either, and the store promises other ones.
    blind[2].outcome = Outcome::CommittedAs(2);
    assert_violation(Level::Serializable, &blind, "equal commit numbers");
}

#[test]
fn a_torn_snapshot_is_caught() {
    let change = txn(3, 4, &[r('x', 1), r('y', 2), w('x', 3), w('y', 4)]);
    for reads in [[r('x', 1), r('y', 4)], [r('x', 3), r('y', 2)]] {
        let mut reader = txn(2, 5, &reads);
        reader.begin = (25, 39);
        let history = [setup(), change.clone(), reader];
        assert_violation(Level::Snapshot, &history, "torn snapshot");
        assert_violation(Level::Serializable, &history, "torn snapshot");
    }
}

#[test]
fn a_long_fork_is_caught() {
    let history = [
        setup(),
        txn(3, 4, &[r('x', 1), w('x', 3)]),
        txn(3, 4, &[r('y', 2), w('y', 4)]),
        Txn { begin: (35, 45), ..txn(3, 5, &[r('x', 3), r('y', 2)]) },
        Txn { begin: (35, 45), ..txn(3, 5, &[r('x', 1), r('y', 4)]) },
    ];
    assert_violation(Level::Snapshot, &history, "long fork");
    check(Level::Snapshot, &history[..4]).assert_ok();
}

#[test]
fn a_stale_snapshot_is_caught() {
    let write = txn(3, 4, &[r('x', 1), w('x', 3)]);
    for level in [Level::Snapshot, Level::Serializable] {
        assert_violation(level, &[setup(), write.clone(), txn(5, 6, &[r('x', 1)])], "stale snapshot");
        assert_violation(level, &[setup(), txn(5, 6, &[r('x', None)])], "stale snapshot");
    }
    // A snapshot that was taken before the commit may miss it, even if its transaction ends later.
    check(Level::Snapshot, &[setup(), write.clone(), txn(3, 6, &[r('x', 1)])]).assert_ok();
    // A snapshot must also miss a commit that began after the snapshot was taken.
    let early = [setup(), write, txn(3, 6, &[r('x', 3)])];
    assert_violation(Level::Snapshot, &early, "seen before it was committed");
    check(Level::Serializable, &early).assert_ok();
}

/// The search for a cycle starts at a limited number of moments. Moments between two cycles are on no cycle, and do not
/// use up the limit.
#[test]
fn two_anomalies_do_not_hide_each_other() {
    // A write, and a snapshot that is older than the write.
    let stale = |from, key| [txn(from, from + 1, &[w(key, 1)]), txn(from + 2, from + 3, &[r(key, None)])];
    let harmless = (0..64).map(|number| txn(100 + 2 * number, 101 + 2 * number, &[r('z', None)]));
    let history: Vec<T> = harmless.chain(stale(1, 'x')).chain(stale(1000, 'y')).collect();
    for level in [Level::Snapshot, Level::Serializable] {
        assert_violation(level, &history, "stale snapshot");
    }
}

#[test]
fn broken_basics_are_caught() {
    let both = |history: &[T], said| {
        assert_violation(Level::Snapshot, history, said);
        assert_violation(Level::Serializable, history, said);
    };
    both(&[setup(), txn(3, 4, &[w('x', 3), r('x', 1)])], "own write");
    both(&[setup(), txn(3, 4, &[r('x', 1), r('x', None)])], "repeated read changed");
    both(&[setup(), txn(3, 4, &[r('x', 7)])], "no thread wrote");
    both(&[txn(3, 4, &[r('x', 7), w('x', 7)])], "before writing it");
    let aborted = Txn { outcome: Outcome::Aborted, ..setup() };
    both(&[aborted, txn(3, 4, &[r('x', 1)])], "aborted");
    both(&[txn(1, 2, &[w('x', 1), w('x', 2)]), txn(3, 4, &[r('x', 1)])], "intermediate");
    let circle = [txn(1, 4, &[w('x', 1), r('y', 2)]), txn(2, 3, &[w('y', 2), r('x', 1)])];
    both(&circle, "circle");
}

#[test]
fn ordinary_histories_are_accepted() {
    let history = [
        setup(),
        txn(3, 4, &[r('x', 1), w('x', 3), r('x', 3), w('x', 4), r('x', 4)]),
        Txn { outcome: Outcome::Aborted, ..txn(5, 8, &[r('x', 4), w('x', 5)]) },
        txn(6, 7, &[r('x', 4), r('z', None), w('z', 6), r('y', 2)]),
        txn(9, 10, &[w('y', 7)]),
        txn(11, 12, &[r('y', 7)]),
    ];
    check(Level::Snapshot, &history).assert_ok();
    check(Level::Serializable, &history).assert_ok();
}

/// Runs transactions on a multi-version store in virtual time. The history is legal by construction, with write skew at
/// [`Level::Snapshot`] and without it at [`Level::Serializable`].
fn legal_history(rng: &mut Rng, level: Level, threads: usize, keys: u8, txns: usize) -> Vec<T> {
    const SPACING: u64 = 100;
    /// A transaction between its snapshot and its commit.
    struct Open {
        snapshot: u64,
        begin: (u64, u64),
        actions: Vec<Action<char, u32>>,
    }
    let mut versions: BTreeMap<char, Vec<(u64, u32)>> = BTreeMap::new();
    let mut open: Vec<Option<Open>> = (0..threads).map(|_| None).collect();
    let (mut history, mut next_value, mut now) = (Vec::new(), 0, 0);
    while history.len() < txns {
        now += SPACING;
        let thread = rng.random_range(0..threads);
        let around = |rng: &mut Rng| (now - rng.random_range(1..40), now + rng.random_range(1..40));
        let Some(Open { snapshot, begin, mut actions }) = open[thread].take() else {
            open[thread] = Some(Open { snapshot: now, begin: around(rng), actions: Vec::new() });
            continue;
        };
        let latest = |key| versions.get(&key).and_then(|v| v.last()).map_or(0, |&(at, _)| at);
        let seen = |key| versions.get(&key).and_then(|v| v.iter().rev().find(|(at, _)| *at <= snapshot)).map(|v| v.1);
        let mut mine = BTreeMap::new();
        let mut clash = false;
        for _ in 0..rng.random_range(1..5) {
            let key = (b'a' + rng.random_range(0..keys)) as char;
            let value = mine.get(&key).copied().or_else(|| seen(key));
            actions.push(Action::Read(key, value));
            clash |= level == Level::Serializable && latest(key) > snapshot;
            if rng.random_bool(0.4) {
                clash |= latest(key) > snapshot;
                next_value += 1;
                mine.insert(key, next_value);
                actions.push(Action::Write(key, next_value));
            }
        }
        let outcome = if clash { Outcome::Aborted } else { Outcome::Committed };
        history.push(Txn { thread, begin, end: around(rng), outcome, actions });
        if !clash {
            mine.into_iter().for_each(|(key, value)| versions.entry(key).or_default().push((now, value)));
        }
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 200 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn legal_histories_are_accepted(seed: u64, threads in 1usize..6, keys in 1u8..9, txns in 1usize..150) {
        let history = legal_history(&mut workload::rng(seed, 0), Level::Snapshot, threads, keys, txns);
        check(Level::Snapshot, &history).assert_ok();
    }

    #[test]
    fn serializable_histories_are_accepted(seed: u64, threads in 1usize..6, keys in 1u8..9, txns in 1usize..150) {
        let history = legal_history(&mut workload::rng(seed, 0), Level::Serializable, threads, keys, txns);
        check(Level::Serializable, &history).assert_ok();
        check(Level::Snapshot, &history).assert_ok();
    }
}

#[test]
fn most_mutations_are_rejected() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let (mut rejected, mut skewed) = (0, 0);
    for seed in 0..rounds {
        let mut rng = workload::rng(seed, 1);
        let mut history = legal_history(&mut rng, Level::Snapshot, 4, 4, 60);
        skewed += usize::from(check(Level::Serializable, &history).is_violation());
        // One transaction reads another version of one key, in all its reads.
        loop {
            let index = rng.random_range(0..history.len());
            let other = rng.random_range(1..60);
            let mut actions = history[index].actions.clone();
            let Some(Action::Read(key, value)) = actions.first().cloned() else { continue };
            let written = |t: &T| t.outcome != Outcome::Aborted && t.actions.contains(&Action::Write(key, other));
            if history[index].outcome == Outcome::Aborted || value == Some(other) || !history.iter().any(written) {
                continue;
            }
            for action in &mut actions {
                if *action == Action::Read(key, value) {
                    *action = Action::Read(key, Some(other));
                }
            }
            history[index].actions = actions;
            break;
        }
        rejected += usize::from(check(Level::Snapshot, &history).is_violation());
    }
    println!("{rejected} of {rounds} mutated histories rejected, {skewed} had write skew before");
    assert!(rejected * 100 >= rounds as usize * 95, "only {rejected} of {rounds}");
    assert!(cfg!(miri) || skewed * 2 > rounds as usize, "the generator makes too little write skew: {skewed}");
}

/// The versions of each key, with the commits that made them.
#[derive(Default)]
struct Store {
    versions: BTreeMap<char, Vec<(u64, u32)>>,
    commits: u64,
}

/// The bug of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Reads the latest version instead of the snapshot's.
    NoSnapshot,
    /// Does not check whether the version that it overwrites was overwritten meanwhile.
    NoConflictCheck,
    /// Makes the keys of a commit visible one by one.
    PublishesPiecemeal,
}

/// Runs random transactions in three threads on a small multi-version store.
fn one_run(seed: u64, bug: Bug, level: Level) -> Verdict {
    let store = Mutex::new(Store::default());
    let recorder: Recorder<(), ()> = Recorder::new();
    let history = Mutex::new(Vec::new());
    let transactions = if cfg!(miri) { 5 } else { 60 };
    thread::scope(|s| {
        for t in 0..3 {
            let (store, recorder, history) = (&store, &recorder, &history);
            s.spawn(move || {
                let mut rng = workload::rng(seed, t);
                for i in 0..transactions {
                    let value = 10 * (3 * i + t) as u32;
                    let txn = transact(store, recorder, &mut rng, t, value, bug);
                    history.lock().unwrap().push(txn);
                }
            });
        }
    });
    check(level, &history.into_inner().unwrap())
}

fn transact(store: &Mutex<Store>, stamps: &Recorder<(), ()>, rng: &mut Rng, thread: usize, value: u32, bug: Bug) -> T {
    let begun = stamps.stamp();
    let snapshot = store.lock().unwrap().commits;
    let begin = (begun, stamps.stamp());
    let mut actions = Vec::new();
    let mut mine = BTreeMap::new();
    for i in 0..3 {
        thread::yield_now();
        let key = rng.random_range('a'..='c');
        let as_of = if bug == Bug::NoSnapshot { u64::MAX } else { snapshot };
        let store = store.lock().unwrap();
        let seen = store.versions.get(&key).and_then(|v| v.iter().rev().find(|(at, _)| *at <= as_of)).map(|v| v.1);
        if let Entry::Vacant(unwritten) = mine.entry(key) {
            actions.push(Action::Read(key, seen));
            if rng.random_bool(0.5) {
                actions.push(Action::Write(key, value + i));
                unwritten.insert(value + i);
            }
        }
    }
    let ended = stamps.stamp();
    let commit = commit(store, mine, snapshot, bug);
    let outcome = commit.map_or(Outcome::Aborted, Outcome::CommittedAs);
    Txn { thread, begin, end: (ended, stamps.stamp()), outcome, actions }
}

/// Numbers and publishes the commit in one critical section, unless the bug prevents this.
fn commit(store: &Mutex<Store>, mine: BTreeMap<char, u32>, snapshot: u64, bug: Bug) -> Option<u64> {
    let mut guard = store.lock().unwrap();
    let clash = |key: &char| guard.versions.get(key).is_some_and(|v| v[v.len() - 1].0 > snapshot);
    if bug != Bug::NoConflictCheck && mine.keys().any(clash) {
        return None;
    }
    guard.commits += 1;
    let number = guard.commits;
    for (key, value) in mine {
        guard.versions.entry(key).or_default().push((number, value));
        if bug == Bug::PublishesPiecemeal {
            drop(guard);
            thread::yield_now();
            guard = store.lock().unwrap();
        }
    }
    Some(number)
}

#[test]
fn a_right_store_is_never_accused() {
    let runs = if cfg!(miri) { 1 } else { 40 };
    (0..runs).for_each(|seed| one_run(seed, Bug::None, Level::Snapshot).assert_ok());
}

#[test]
fn planted_bugs_are_caught() {
    const RUNS: u64 = 300;
    for bug in [Bug::NoSnapshot, Bug::NoConflictCheck, Bug::PublishesPiecemeal] {
        let caught = (0..RUNS).find_map(|seed| match one_run(seed, bug, Level::Snapshot) {
            Verdict::Violation(example) => Some((seed, example)),
            _ => None,
        });
        let (seed, example) = caught.unwrap_or_else(|| panic!("{bug:?} not caught in {RUNS} runs"));
        println!("{bug:?} caught in run {seed}: {example}");
    }
    // A correct store with snapshots has write skew, and the checker detects it.
    assert!((0..RUNS).any(|seed| one_run(seed, Bug::None, Level::Serializable).is_violation()));
}
