//! Tests the map against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::tests::{
    GROW, SHRINK, agrees_with_a_model, history, nested, scaled, short_strings as strings, words,
};

fn check<K: TreeKey>(map: &mut Cuckoo<K>) {
    map.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 80) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 40)), check::<Vec<u8>>);
    agrees_with_a_model(&nested(scaled(1_000, 40)), check::<Vec<u8>>);
}

#[test]
fn buckets_are_as_large_as_libcuckoos() {
    assert_eq!((size_of::<Stripe>(), Buckets::<u64>::SIZE, Buckets::<[u64; 5]>::SIZE), (64, 72, 200));
}

/// The buckets fill up well before the table is doubled: displacements find the free slots.
#[test]
fn displacements_fill_the_table() {
    let mut map = Cuckoo::<u64>::default();
    let mut fullest = 0.0_f64;
    for (at, key) in words(scaled(20_000, 500) as u64).into_iter().enumerate() {
        let before = map.power.load(Ordering::Relaxed);
        assert_eq!(map.pin().insert(&key, key), None);
        if map.power.load(Ordering::Relaxed) > before && before > 5 {
            let load = at as f64 / (SLOTS << before) as f64;
            fullest = fullest.max(load);
            assert!(load > 0.8, "doubled {before} when {load} full");
            check(&mut map);
        }
    }
    assert!(fullest > 0.85, "{fullest}");
}

/// A table of four slots a bucket is three quarters full with as many keys as were reserved, and is not doubled.
#[test]
fn reserved_room_suffices() {
    let mut map = Cuckoo::<u64>::default();
    let keys = words(scaled(3_000, 190) as u64);
    map.reserve(keys.len());
    let reserved = map.power.load(Ordering::Relaxed);
    assert!((keys.len()..keys.len() * 2).contains(&(SLOTS << reserved)));
    assert!(keys.iter().all(|key| map.pin().insert(key, *key).is_none()));
    assert_eq!(map.power.load(Ordering::Relaxed), reserved);
    check(&mut map);
    map.reserve(0);
    assert_eq!((map.pin().get(&keys[0]), map.power.load(Ordering::Relaxed)), (None, FIRST));
}

/// The other bucket of the other bucket is the bucket, in tables of all sizes.
#[test]
fn an_entry_can_go_back() {
    for key in words(1_000) {
        let hashed = Hashed::of(&key);
        for power in 2..20 {
            let [first, second] = buckets_of(hashed, power);
            assert_eq!(other(power, hashed.tag(), second), first);
            assert_eq!(buckets_of(hashed, power + 1).map(|bucket| bucket & ((1 << power) - 1)), [first, second]);
        }
    }
}

#[test]
fn a_path_that_is_obsolete_moves_nothing() {
    let mut map = Cuckoo::<u64>::default();
    let keys = words(14);
    keys.iter().for_each(|key| _ = map.pin().insert(key, *key));
    let power = map.power.load(Ordering::Relaxed);
    let full = (0..1 << power).find(|bucket| map.table.get_mut().free(*bucket).is_none()).expect("some bucket is full");
    let path = map.search(power, [full, full]).unwrap().expect("there is a free slot");
    assert!(path.len() > 1);
    let last = path.last().unwrap();
    // Another key takes the free slot.
    map.table.get_mut().put((last.bucket, last.slot), 0, 1 << 63 | 1, 1);
    assert!(map.displace(power, [full, full], &path).unwrap().is_none());
    map.table.get_mut().remove((last.bucket, last.slot));
    // The key that would be moved first is gone.
    let moved = path[path.len() - 2];
    let value = map.table.get_mut().remove((moved.bucket, moved.slot));
    assert!(map.displace(power, [full, full], &path).unwrap().is_none());
    assert_eq!(map.pin().insert(&value, value), None);
    assert_eq!(map.check_invariants(), keys.len());
    keys.iter().for_each(|key| assert_eq!(map.pin().get(key), Some(*key)));
}

#[test]
fn a_key_that_is_too_long_is_absent() {
    let map = Cuckoo::<Vec<u8>>::default();
    let session = map.pin();
    let [long, longer] = [LONGEST, LONGEST + 1].map(|len| vec![b'a'; len]);
    assert_eq!(session.insert(&long, 1), None);
    assert_eq!((session.get(&longer), session.remove(&longer), session.update(&longer, |_| 2)), (None, None, None));
    let insert = std::panic::AssertUnwindSafe(|| session.insert(&longer, 1));
    assert!(std::panic::catch_unwind(insert).is_err());
    assert_eq!(session.get(&long), Some(1));
}

#[test]
fn an_update_may_use_the_map_and_panic() {
    let mut map = Cuckoo::<u64>::default();
    let session = map.pin();
    session.insert(&7, 7);
    let mut calls = 0;
    let old = session.update(&7, |old| {
        calls += 1;
        if calls == 1 {
            session.insert(&7, 70);
        }
        old + 1
    });
    assert_eq!((old, calls, session.replace(&7, 8)), (Some(70), 2, Some(71)));
    let update = std::panic::AssertUnwindSafe(|| session.update(&7, |_| panic!("on purpose")));
    assert!(std::panic::catch_unwind(update).is_err());
    assert_eq!(session.get(&7), Some(8));
    check(&mut map);
}

const TURNS: [Mix; 4] = [GROW, SHRINK, GROW, SHRINK];

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64>);
        history(&words(scaled(1_500, 100) as u64), (4, scaled(1_000, 30)), &TURNS, round, check::<u64>);
        history(&strings(scaled(1_000, 60)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>>);
    }
}

/// The same test under random schedules of the simulator. The keys are few, and so is the room.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64>, check::<Vec<u8>>);
}
