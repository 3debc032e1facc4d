//! Tests the map checker with hand-made histories, with brute force, and with random legal histories and their
//! mutations.

use archipelago_check::history::{Entry, History};
use archipelago_check::linear::{self, DEFAULT_STEPS, Verdict};
use archipelago_check::map::{AtomicMap, MapEntry, MapOp, MapRet, apply, check_map};
use archipelago_check::workload::{self, Mix, OpKind, Rng};
use proptest::prelude::*;
use rand::RngExt;
use std::collections::BTreeMap;

type Op = MapOp<u8, u32>;
type Ret = MapRet<u8, u32>;
type E = MapEntry<u8, u32>;
use MapOp::{Get, Insert, Remove, Scan, ScanRev, Update};

fn at(thread: usize, invoked: u64, returned: u64, op: Op, ret: Ret) -> E {
    Entry { thread, invoked, returned, op, ret }
}

fn val(value: impl Into<Option<u32>>) -> Ret {
    MapRet::Value(value.into())
}

fn all(entries: &[(u8, u32)]) -> Ret {
    MapRet::Entries(entries.to_vec())
}

fn judge(initial: &[(u8, u32)], entries: Vec<E>) -> Verdict {
    check_map(&initial.iter().copied().collect(), &History::from_entries(entries), DEFAULT_STEPS)
}

#[track_caller]
fn assert_violation(initial: &[(u8, u32)], entries: Vec<E>, said: &str) {
    match judge(initial, entries) {
        Verdict::Violation(example) => assert!(example.to_string().contains(said), "{example}"),
        verdict => panic!("accepted: {verdict:?}"),
    }
}

#[test]
fn each_operation_is_legal_where_it_should_be() {
    judge(
        &[(1, 10)],
        vec![
            at(0, 1, 2, Get(1), val(10)),
            at(0, 3, 4, Insert(1, 11), val(10)),
            at(0, 5, 6, Update(1, 12), val(11)),
            at(0, 7, 8, Update(2, 20), val(None)),
            at(0, 9, 10, Get(2), val(None)),
            at(0, 11, 12, Insert(3, 30), val(None)),
            at(0, 13, 14, Scan(0, 9), all(&[(1, 12), (3, 30)])),
            at(0, 15, 16, ScanRev(2, 9), all(&[(1, 12)])),
            at(0, 17, 18, Remove(1), val(12)),
            at(0, 19, 20, Scan(0, 1), all(&[(3, 30)])),
            at(0, 21, 22, Scan(0, 0), all(&[])),
        ],
    )
    .assert_ok();
}

#[test]
fn a_stale_read_is_caught() {
    assert_violation(
        &[(1, 10)],
        vec![at(0, 1, 2, Insert(1, 11), val(10)), at(1, 3, 4, Get(1), val(10))],
        "key 1: not linearizable: no place for thread  1 [     3 ..     4] Get -> Some(10)",
    );
}

#[test]
fn a_lost_update_is_caught() {
    // Both updates returned the same old value.
    let history = vec![at(0, 1, 4, Update(1, 11), val(10)), at(1, 2, 3, Update(1, 12), val(10))];
    assert_violation(&[(1, 10)], history, "State there: Some(1");
}

#[test]
fn a_resurrected_key_is_caught() {
    let history = vec![
        at(0, 1, 10, Insert(1, 11), val(10)),
        at(1, 2, 3, Remove(1), val(11)),
        at(1, 4, 5, Get(1), val(None)),
        at(1, 6, 7, Get(1), val(11)),
    ];
    assert_violation(&[(1, 10)], history, "State there: None");
}

#[test]
fn a_value_removed_twice_is_caught() {
    let history = vec![at(0, 1, 4, Remove(1), val(10)), at(1, 2, 3, Remove(1), val(10))];
    assert_violation(&[(1, 10)], history, "Remove -> Some(10)");
}

#[test]
fn a_scan_that_misses_a_key_is_caught() {
    let initial = [(1, 10), (2, 20), (3, 30)];
    let missing = all(&[(1, 10), (3, 30)]);
    assert_violation(&initial, vec![at(0, 1, 2, Scan(0, 9), missing.clone())], "key 2: not linearizable");
    // An overwrite does not excuse the missing key; an overlapping removal does.
    let overwrite = at(1, 1, 4, Insert(2, 21), val(20));
    assert_violation(&initial, vec![overwrite, at(0, 2, 3, Scan(0, 9), missing.clone())], "key 2");
    let remove = at(1, 1, 4, Remove(2), val(20));
    let put_back = at(1, 5, 6, Insert(2, 22), val(None));
    judge(&initial, vec![remove, put_back, at(0, 3, 7, Scan(0, 9), missing)]).assert_ok();
}

#[test]
fn a_scan_is_held_only_to_what_it_covers() {
    let initial = [(1, 10), (2, 20), (3, 30), (4, 40)];
    judge(&initial, vec![at(0, 1, 2, Scan(2, 2), all(&[(2, 20), (3, 30)]))]).assert_ok();
    judge(&initial, vec![at(0, 1, 2, ScanRev(3, 2), all(&[(3, 30), (2, 20)]))]).assert_ok();
    // The scan ended below its limit, so it covers all keys to the end.
    assert_violation(&initial, vec![at(0, 1, 2, Scan(2, 3), all(&[(2, 20), (3, 30)]))], "key 4");
    assert_violation(&initial, vec![at(0, 1, 2, ScanRev(3, 3), all(&[(3, 30), (2, 20)]))], "key 1");
    assert_violation(&initial, vec![at(0, 1, 2, Scan(2, 9), all(&[]))], "key 2");
}

#[test]
fn a_scan_that_shows_what_never_was_is_caught() {
    let insert = at(0, 1, 2, Insert(1, 11), val(10));
    assert_violation(&[(1, 10)], vec![insert.clone(), at(1, 3, 4, Scan(0, 9), all(&[(1, 10)]))], "Scan -> Some(10)");
    assert_violation(&[(1, 10)], vec![at(1, 3, 4, Scan(0, 9), all(&[(1, 10), (2, 5)]))], "key 2");
    // Each pair may be from a different moment of the call. But two successive scans must not see the new value, then
    // the old one.
    let write = at(0, 1, 10, Insert(1, 11), val(10));
    let scans = |a, b| vec![at(1, 2, 3, Scan(0, 9), all(&[(1, a)])), at(1, 4, 5, Scan(0, 9), all(&[(1, b)]))];
    judge(&[(1, 10)], [vec![write.clone()], scans(10, 11)].concat()).assert_ok();
    assert_violation(&[(1, 10)], [vec![write], scans(11, 10)].concat(), "key 1");
}

#[test]
fn misshapen_scans_are_caught() {
    let initial = [(1, 10), (2, 20), (3, 30)];
    let scan = |op, found: &[(u8, u32)]| vec![at(0, 1, 2, op, all(found))];
    assert_violation(&initial, scan(Scan(0, 9), &[(1, 10), (2, 20), (2, 20), (3, 30)]), "showed 2 twice");
    assert_violation(&initial, scan(Scan(0, 9), &[(1, 10), (3, 30), (2, 20)]), "2 out of order");
    assert_violation(&initial, scan(ScanRev(9, 9), &[(1, 10), (2, 20), (3, 30)]), "2 out of order");
    assert_violation(&initial, scan(Scan(2, 9), &[(1, 10), (2, 20), (3, 30)]), "out of its range");
    assert_violation(&initial, scan(ScanRev(2, 9), &[(3, 30), (2, 20), (1, 10)]), "out of its range");
    assert_violation(&initial, scan(Scan(0, 2), &[(1, 10), (2, 20), (3, 30)]), "its limit was 2");
}

#[test]
fn torn_scans_pass_the_weak_check_and_fail_the_atomic_one() {
    // The scan saw the second write but not the first, although the first was over before the second began.
    let history = vec![
        at(0, 2, 3, Insert(1, 11), val(10)),
        at(0, 4, 5, Insert(2, 21), val(20)),
        at(1, 1, 6, Scan(0, 9), all(&[(1, 10), (2, 21)])),
    ];
    let initial = BTreeMap::from([(1, 10), (2, 20)]);
    check_map(&initial, &History::from_entries(history.clone()), DEFAULT_STEPS).assert_ok();
    assert!(linear::check(&AtomicMap { initial }, &history).is_violation());
}

/// For each key, its values with the time from which each was current.
type Timeline = BTreeMap<u8, Vec<(u64, Option<u32>)>>;

fn value_at(timeline: &Timeline, key: u8, time: u64) -> Option<u32> {
    let versions = timeline.get(&key)?;
    versions[..versions.partition_point(|&(from, _)| from <= time)].last().and_then(|&(_, value)| value)
}

fn random_op(rng: &mut Rng, keys: u8, value: u32) -> Op {
    let key = rng.random_range(0..keys);
    let limit = if rng.random_bool(0.5) { 100 } else { rng.random_range(0..=keys as usize) };
    match Mix::EVEN.next(rng) {
        OpKind::Get => Get(key),
        OpKind::Insert => Insert(key, value),
        OpKind::Update => Update(key, value),
        OpKind::Remove => Remove(key),
        OpKind::Scan if rng.random_bool(0.5) => Scan(key, limit),
        OpKind::Scan => ScanRev(key, limit),
    }
}

/// Makes a history that is legal by construction: a sequential run, whose operations are stretched around the moment at
/// which they took effect. If `atomic`, a scan takes effect at one moment; else it does so at a separate moment for
/// each key.
fn legal_history(rng: &mut Rng, threads: usize, keys: u8, ops: usize, atomic: bool) -> Vec<E> {
    const SPACING: u64 = 1000;
    let mut map = BTreeMap::new();
    let mut timeline = Timeline::new();
    let mut entries: Vec<E> = Vec::new();
    let mut last_of: Vec<Option<(usize, u64)>> = vec![None; threads];
    for i in 0..ops {
        let point = SPACING * (i as u64 + 1);
        let thread = rng.random_range(0..threads);
        let op = random_op(rng, keys, i as u32);
        let ret = apply(&mut map, &op);
        if let Insert(key, _) | Update(key, _) | Remove(key) = op {
            timeline.entry(key).or_default().push((point, map.get(&key).copied()));
        }
        // The thread's previous operation ends and this one begins at random times between the moments of their
        // effects.
        let previous = last_of[thread].map_or(0, |(_, point)| point);
        let (a, b) = (rng.random_range(previous + 1..point - 1), rng.random_range(previous + 1..point - 1));
        let (ended, invoked) = (a.min(b), a.max(b) + 1);
        if let Some((index, _)) = last_of[thread] {
            entries[index].returned = ended.max(entries[index].returned);
        }
        last_of[thread] = Some((i, point));
        entries.push(at(thread, invoked, point + 1, op, ret));
    }
    for (index, point) in last_of.into_iter().flatten() {
        entries[index].returned = point + rng.random_range(1..3 * SPACING);
    }
    if !atomic {
        for entry in &mut entries {
            let (span, mut moment) = (entry.invoked..=entry.returned, rng.clone());
            let mut sample = |&key: &u8| value_at(&timeline, key, moment.random_range(span.clone())).map(|v| (key, v));
            let found = match entry.op {
                Scan(from, limit) => {
                    (from..keys).collect::<Vec<_>>().iter().filter_map(&mut sample).take(limit).collect()
                }
                ScanRev(from, limit) => {
                    (0..=from).rev().collect::<Vec<_>>().iter().filter_map(&mut sample).take(limit).collect()
                }
                _ => continue,
            };
            entry.ret = MapRet::Entries(found);
            *rng = moment;
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 300 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn legal_histories_are_accepted(seed: u64, threads in 1usize..6, keys in 1u8..9, ops in 1usize..250) {
        let entries = legal_history(&mut workload::rng(seed, 0), threads, keys, ops, false);
        judge(&[], entries).assert_ok();
    }

    #[test]
    fn legal_atomic_histories_are_accepted_by_both(seed: u64, threads in 1usize..5, keys in 1u8..5, ops in 1usize..60) {
        let entries = legal_history(&mut workload::rng(seed, 0), threads, keys, ops, true);
        linear::check(&AtomicMap { initial: BTreeMap::new() }, &entries).assert_ok();
        judge(&[], entries).assert_ok();
    }
}

/// Changes one result to another possible one.
fn mutate(rng: &mut Rng, entries: &mut [E]) {
    loop {
        let index = rng.random_range(0..entries.len());
        let other = rng.random_range(0..entries.len() as u32);
        let changed = match entries[index].ret.clone() {
            MapRet::Value(old) => val(if old.is_some() && rng.random_bool(0.5) { None } else { Some(other) }),
            MapRet::Entries(found) if found.is_empty() => continue,
            MapRet::Entries(mut found) => {
                let place = rng.random_range(0..found.len());
                match rng.random_range(0..3) {
                    0 => _ = found.remove(place),
                    1 => found.insert(place, found[place]),
                    _ => found[place].1 = other,
                }
                MapRet::Entries(found)
            }
        };
        if changed != entries[index].ret {
            entries[index].ret = changed;
            return;
        }
    }
}

#[test]
fn most_mutations_are_rejected() {
    let rounds = if cfg!(miri) { 10 } else { 1000 };
    let mut rejected = 0;
    for seed in 0..rounds {
        let mut rng = workload::rng(seed, 1);
        let mut entries = legal_history(&mut rng, 3, 4, 80, false);
        mutate(&mut rng, &mut entries);
        rejected += usize::from(judge(&[], entries).is_violation());
    }
    println!("{rejected} of {rounds} mutated histories rejected");
    // A mutation can be legal: a scan may miss a key that was absent for a moment.
    assert!(rejected * 100 >= rounds as usize * 85, "only {rejected} of {rounds}");
}

/// Returns all orders of `0..n`.
fn permutations(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for next in 0..n {
        let insert_everywhere = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=order.len()).map(move |place| [&order[..place], &[next], &order[place..]].concat())
        };
        all = all.iter().flat_map(insert_everywhere).collect();
    }
    all
}

/// Returns whether some order of the operations on single keys explains their results and gives each scan its moments.
/// The scans' guarantees are expressed directly by gaps between operations, instead of by look-ups.
fn explained_by_brute_force(entries: &[E]) -> bool {
    let is_scan = |e: &&E| matches!(e.op, Scan(..) | ScanRev(..));
    let scans: Vec<&E> = entries.iter().filter(is_scan).collect();
    let points: Vec<&E> = entries.iter().filter(|e| !is_scan(e)).collect();
    permutations(points.len()).iter().any(|order| {
        let order: Vec<&E> = order.iter().map(|&i| points[i]).collect();
        let in_real_time =
            (0..order.len()).all(|i| order[i + 1..].iter().all(|later| later.returned >= order[i].invoked));
        let mut map = BTreeMap::new();
        let mut states = vec![map.clone()];
        let answers_fit = order.iter().all(|e| {
            let fits = apply(&mut map, &e.op) == e.ret;
            states.push(map.clone());
            fits
        });
        in_real_time && answers_fit && scans_fit(&scans, &order, &states)
    })
}

fn scans_fit(scans: &[&E], order: &[&E], states: &[BTreeMap<u8, u32>]) -> bool {
    // The gaps at which a scan may have read a key as it shows it.
    let gaps = |scan: &E, key: u8| -> Option<Vec<usize>> {
        let MapRet::Entries(found) = &scan.ret else { unreachable!() };
        let (covered, limit) = match scan.op {
            Scan(from, limit) => {
                (from..=if found.len() == limit { found.last().map_or(0, |l| l.0) } else { 255 }, limit)
            }
            ScanRev(from, limit) => {
                (if found.len() == limit { found.last().map_or(255, |l| l.0) } else { 0 }..=from, limit)
            }
            _ => unreachable!(),
        };
        if limit == 0 || !covered.contains(&key) {
            return None;
        }
        let seen = found.iter().find(|(k, _)| *k == key).map(|&(_, value)| value);
        let possible = |&gap: &usize| {
            order[gap..].iter().all(|e| e.returned >= scan.invoked)
                && order[..gap].iter().all(|e| e.invoked <= scan.returned)
                && states[gap].get(&key).copied() == seen
        };
        Some((0..states.len()).filter(possible).collect())
    };
    (0..3).all(|key| {
        let mut all: Vec<(&E, Vec<usize>)> = scans.iter().filter_map(|&s| Some((s, gaps(s, key)?))).collect();
        all.sort_by_key(|(scan, _)| scan.invoked);
        let one_at_least = all.iter().all(|(_, gaps)| !gaps.is_empty());
        // If two scans follow each other, the later scan's moment must not be earlier.
        let (first, last) = (all.first(), all.last());
        one_at_least
            && match (first, last) {
                (Some((a, early)), Some((b, late))) if a.returned < b.invoked => early[0] <= late[late.len() - 1],
                _ => true,
            }
    })
}

/// Makes small histories with arbitrary results: mostly illegal, some legal in surprising ways.
fn any_history(rng: &mut Rng, scans: usize) -> Vec<E> {
    let mut entries = Vec::new();
    let mut map = BTreeMap::new();
    for i in 0..rng.random_range(2..=5) {
        let invoked = rng.random_range(0..12);
        let key = rng.random_range(0..2u8);
        let op = match rng.random_range(0..4) {
            0 => Get(key),
            1 => Remove(key),
            2 => Update(key, i),
            _ => Insert(key, i),
        };
        // Most results are those of a sequential run, so that many histories are nearly legal.
        let right = apply(&mut map, &op);
        let any = if rng.random_bool(0.5) { None } else { Some(rng.random_range(0..3)) };
        let ret = if rng.random_bool(0.7) { right } else { val(any) };
        entries.push(at(i as usize, 2 * invoked, 2 * invoked + rng.random_range(1..12), op, ret));
    }
    for i in 0..scans {
        let invoked = rng.random_range(0..12);
        let mut found = Vec::new();
        for key in 0..2 {
            if rng.random_bool(0.6) {
                found.push((key, rng.random_range(0..5)));
            }
        }
        let limit = if rng.random_bool(0.5) { found.len() } else { 9 };
        let down = rng.random_bool(0.5);
        if down {
            found.reverse();
        }
        let op = if down { ScanRev(2, limit) } else { Scan(0, limit) };
        entries.push(at(9 + i, 2 * invoked, 2 * invoked + rng.random_range(1..12), op, MapRet::Entries(found)));
    }
    entries
}

#[test]
fn brute_force_agrees() {
    let rounds = if cfg!(miri) { 20 } else { 12_000 };
    let mut legal = [0; 3];
    for seed in 0..rounds {
        let mut rng = workload::rng(seed, 2);
        let scans = seed as usize % 3;
        let entries = any_history(&mut rng, scans);
        let verdict = judge(&[], entries.clone());
        assert_eq!(verdict.is_ok(), explained_by_brute_force(&entries), "seed {seed}: {entries:#?}\n{verdict:?}");
        legal[scans] += u32::from(verdict.is_ok());
    }
    println!("legal among {rounds}, by number of scans: {legal:?}");
    assert!(cfg!(miri) || legal.iter().all(|&count| count >= 30), "too few legal histories to compare: {legal:?}");
}

#[test]
fn long_histories_are_quick() {
    let mut rng = workload::rng(11, 0);
    let ops = if cfg!(miri) { 200 } else { 20_000 };
    let entries = legal_history(&mut rng, 4, 16, ops, false);
    judge(&[], entries).assert_ok();
}
