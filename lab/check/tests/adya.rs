//! Tests the checker with hand-made histories: each anomaly, and similar histories without it.

use std::collections::BTreeMap;

use archipelago_check::adya::{Action, History, Level, Txn, check};
use archipelago_check::linear::Verdict;

const X: u64 = 1;
const Y: u64 = 2;

fn read(key: u64, version: u64) -> Action<u64> {
    Action::Read(key, Some(version))
}

fn absent(key: u64) -> Action<u64> {
    Action::Read(key, None)
}

fn put(key: u64, version: u64) -> Action<u64> {
    Action::Write { key, version, there: true }
}

fn removed(key: u64, version: u64) -> Action<u64> {
    Action::Write { key, version, there: false }
}

/// Makes a history of transactions that all overlap.
fn history(txns: &[(bool, &[Action<u64>])], order: &[(u64, &[u64])]) -> History<u64> {
    let txn =
        |&(committed, actions): &(bool, &[Action<u64>])| Txn { committed, during: (1, 100), actions: actions.to_vec() };
    let order = order.iter().map(|&(key, versions)| (key, versions.to_vec())).collect::<BTreeMap<_, _>>();
    History { txns: txns.iter().map(txn).collect(), order }
}

#[track_caller]
fn finds(level: Level, title: &str, history: &History<u64>) {
    match check(level, history) {
        Verdict::Violation(found) => assert!(found.title.starts_with(title), "{found}"),
        other => panic!("nothing found: {other:?}"),
    }
}

#[track_caller]
fn passes(level: Level, history: &History<u64>) {
    check(level, history).assert_ok();
}

#[test]
fn writes_that_interleave() {
    let txns: [(bool, &[_]); 2] = [(true, &[put(X, 1), put(Y, 2)]), (true, &[put(X, 3), put(Y, 4)])];
    finds(Level::Snapshot, "G0", &history(&txns, &[(X, &[1, 3]), (Y, &[4, 2])]));
    passes(Level::Serializable, &history(&txns, &[(X, &[1, 3]), (Y, &[2, 4])]));
}

#[test]
fn reads_of_what_was_never_committed() {
    let rolled_back: [(bool, &[_]); 2] = [(false, &[put(X, 1)]), (true, &[read(X, 1)])];
    finds(Level::Snapshot, "G1a", &history(&rolled_back, &[]));
    finds(Level::Snapshot, "G1a", &history(&[(true, &[read(X, 9)])], &[]));
    finds(Level::Snapshot, "G1a", &history(&rolled_back[..1], &[(X, &[1])]));
    let between: [(bool, &[_]); 2] = [(true, &[put(X, 1), put(X, 2)]), (true, &[read(X, 1)])];
    finds(Level::Snapshot, "G1b", &history(&between, &[(X, &[2])]));
    let after: [(bool, &[_]); 2] = [(true, &[put(X, 1), put(X, 2)]), (true, &[read(X, 2)])];
    passes(Level::Serializable, &history(&after, &[(X, &[2])]));
}

#[test]
fn versions_at_other_keys() {
    let write: (bool, &[_]) = (true, &[put(X, 1)]);
    // The write of X went to Y.
    let moved = [write, (true, &[read(Y, 1)]), (true, &[absent(X)])];
    finds(Level::Snapshot, "G1a", &history(&moved, &[(Y, &[1])]));
    finds(Level::Snapshot, "G1a", &history(&moved[..1], &[(Y, &[1])]));
    // The write of X is at X, and is read at Y.
    let order: [(u64, &[u64]); 1] = [(X, &[1])];
    finds(Level::Snapshot, "G1a", &history(&[write, (true, &[read(Y, 1)])], &order));
    passes(Level::Serializable, &history(&[write, (true, &[read(X, 1)])], &order));
}

#[test]
fn results_that_are_no_range() {
    let writes: (bool, &[_]) = (true, &[put(X, 1), put(Y, 2), put(9, 3)]);
    let rewrite: (bool, &[_]) = (true, &[put(X, 4)]);
    let order: [(u64, &[u64]); 3] = [(X, &[1, 4]), (Y, &[2]), (9, &[3])];
    let with = |range| history(&[writes, rewrite, (true, &[range])], &order);
    for found in [&[(X, 4), (Y, 2), (9, 3)][..], &[(X, 1), (X, 4), (Y, 2)], &[(Y, 2), (X, 4)]] {
        finds(Level::Snapshot, "a range showed", &with(Action::Range(1, 5, found.to_vec())));
    }
    passes(Level::Serializable, &with(Action::Range(1, 5, vec![(X, 4), (Y, 2)])));
    // The same for keys that are given one by one: Y is not among them.
    for found in [&[(X, 4), (Y, 2), (9, 3)][..], &[(X, 1), (X, 4), (9, 3)], &[(9, 3), (X, 4)]] {
        finds(Level::Snapshot, "a range showed", &with(Action::Among(vec![X, 5, 9], found.to_vec())));
    }
    passes(Level::Serializable, &with(Action::Among(vec![X, 5, 9], vec![(X, 4), (9, 3)])));
    finds(Level::Snapshot, "G-single, long fork or G2: a key", &with(Action::Among(vec![X, 5, 9], vec![(X, 4)])));
}

#[test]
fn circles_of_reads() {
    let txns: [(bool, &[_]); 2] = [(true, &[put(X, 1), read(Y, 2)]), (true, &[put(Y, 2), read(X, 1)])];
    finds(Level::Snapshot, "G1c", &history(&txns, &[(X, &[1]), (Y, &[2])]));
}

#[test]
fn torn_snapshots_and_lost_updates() {
    let write: (bool, &[_]) = (true, &[put(X, 1), put(Y, 2)]);
    let rewrite: (bool, &[_]) = (true, &[put(X, 3), put(Y, 4)]);
    let order: [(u64, &[u64]); 2] = [(X, &[1, 3]), (Y, &[2, 4])];
    finds(Level::Snapshot, "G-single", &history(&[write, rewrite, (true, &[read(X, 1), read(Y, 4)])], &order));
    passes(Level::Serializable, &history(&[write, rewrite, (true, &[read(X, 3), read(Y, 4)])], &order));
    let lost: [(bool, &[_]); 3] =
        [(true, &[put(X, 1)]), (true, &[read(X, 1), put(X, 2)]), (true, &[read(X, 1), put(X, 3)])];
    finds(Level::Snapshot, "G-single", &history(&lost, &[(X, &[1, 2, 3])]));
    finds(Level::Snapshot, "lost update", &history(&lost, &[(X, &[1, 3])]));
}

#[test]
fn write_skew() {
    let start: (bool, &[_]) = (true, &[put(X, 1), put(Y, 2)]);
    let skew = [start, (true, &[read(X, 1), read(Y, 2), put(X, 3)]), (true, &[read(X, 1), read(Y, 2), put(Y, 4)])];
    let skew = history(&skew, &[(X, &[1, 3]), (Y, &[2, 4])]);
    finds(Level::Serializable, "G2", &skew);
    passes(Level::Snapshot, &skew);
}

#[test]
fn long_forks() {
    // Two snapshots see two commits in different orders; in the second history they see old versions, not absences.
    let absences: [(bool, &[_]); 4] = [
        (true, &[put(X, 1)]),
        (true, &[put(Y, 2)]),
        (true, &[read(X, 1), absent(Y)]),
        (true, &[absent(X), read(Y, 2)]),
    ];
    let order: [(u64, &[u64]); 2] = [(X, &[1]), (Y, &[2])];
    let fork = history(&absences, &order);
    finds(Level::Serializable, "G", &fork);
    passes(Level::Serializable, &history(&absences[..3], &order));
    let versions: [(bool, &[_]); 5] = [
        (true, &[put(X, 1), put(Y, 2)]),
        (true, &[put(X, 3)]),
        (true, &[put(Y, 4)]),
        (true, &[read(X, 3), read(Y, 2)]),
        (true, &[read(X, 1), read(Y, 4)]),
    ];
    let order: [(u64, &[u64]); 2] = [(X, &[1, 3]), (Y, &[2, 4])];
    let old = history(&versions, &order);
    finds(Level::Serializable, "G2", &old);
    passes(Level::Serializable, &history(&versions[..4], &order));
    finds(Level::Snapshot, "G", &fork);
    finds(Level::Snapshot, "long fork", &old);
}

#[test]
fn phantoms() {
    // Each transaction finds the other's key absent.
    let absent: [(bool, &[_]); 2] = [(true, &[absent(Y), put(X, 1)]), (true, &[absent(X), put(Y, 2)])];
    let order: [(u64, &[u64]); 2] = [(X, &[1]), (Y, &[2])];
    finds(Level::Serializable, "G", &history(&absent, &order));
    passes(Level::Snapshot, &history(&absent, &order));
    // Each transaction finds a range empty that contains the other's key.
    let empty = |from, to| Action::Range(from, to, vec![]);
    let ranges: [(bool, &[_]); 2] = [(true, &[empty(1, 5), put(X, 1)]), (true, &[empty(1, 5), put(Y, 2)])];
    finds(Level::Serializable, "G", &history(&ranges, &order));
    let one_sees: [(bool, &[_]); 2] =
        [(true, &[empty(1, 5), put(X, 1)]), (true, &[Action::Range(1, 5, vec![(X, 1)]), put(Y, 2)])];
    passes(Level::Serializable, &history(&one_sees, &order));
}

#[test]
fn which_absence_was_seen() {
    // X is written and removed. The reader saw the version of Y from the time when X was present.
    let writers: [(bool, &[_]); 2] = [(true, &[put(X, 1), put(Y, 2)]), (true, &[removed(X, 3), put(Y, 4)])];
    let order: [(u64, &[u64]); 2] = [(X, &[1, 3]), (Y, &[2, 4])];
    let with = |reads: &[Action<u64>]| history(&[writers[0], writers[1], (true, reads)], &order);
    finds(Level::Snapshot, "G-single", &with(&[read(Y, 2), absent(X)]));
    passes(Level::Serializable, &with(&[read(Y, 4), absent(X)]));
    passes(Level::Serializable, &with(&[absent(Y), absent(X)]));
    passes(Level::Serializable, &with(&[absent(X)]));
    finds(Level::Snapshot, "G1b", &with(&[read(X, 3)]));
}

#[test]
fn own_writes() {
    let blind: [(bool, &[_]); 1] = [(true, &[put(X, 1), absent(X)])];
    finds(Level::Snapshot, "its own write", &history(&blind, &[(X, &[1])]));
    let not_in_range: [(bool, &[_]); 1] = [(true, &[put(X, 1), Action::Range(0, 9, vec![])])];
    finds(Level::Snapshot, "its own write", &history(&not_in_range, &[(X, &[1])]));
    let gone: [(bool, &[_]); 1] = [(true, &[put(X, 1), removed(X, 2), absent(X)])];
    passes(Level::Serializable, &history(&gone, &[(X, &[2])]));
}

#[test]
fn time() {
    let mut late = history(&[(true, &[put(X, 1)]), (true, &[absent(X)])], &[(X, &[1])]);
    passes(Level::Strict, &late);
    late.txns[1].during = (200, 300);
    passes(Level::Serializable, &late);
    finds(Level::Strict, "G", &late);
    // A snapshot is not older than its transaction.
    finds(Level::Snapshot, "G", &late);
    let order: [(u64, &[u64]); 1] = [(X, &[1, 2])];
    let mut stale = history(&[(true, &[put(X, 1)]), (true, &[put(X, 2)]), (true, &[read(X, 1)])], &order);
    passes(Level::Snapshot, &stale);
    stale.txns[2].during = (200, 300);
    passes(Level::Serializable, &stale);
    finds(Level::Snapshot, "G-single", &stale);
}
