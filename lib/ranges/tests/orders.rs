//! Sessions of several threads see all changes in one order. Weaker orderings fail under Miri, which has the weak
//! behaviours of the memory model; on x86-64 they cannot fail.
#![cfg(not(archipelago_sim))]

use std::thread;

use archipelago_ranges::{Pinned, RangeMap};

const ROUNDS: usize = if cfg!(miri) { 25 } else { 500 };
/// The number of ranges: more than a leaf has.
const RANGES: u16 = if cfg!(miri) { 7 } else { 40 };

type Map = RangeMap<u16, u8>;

/// Makes a map whose first and last ranges are in different leaves.
fn map() -> Map {
    (0..RANGES).map(|at| (at * 10..at * 10 + 10, at as u8)).collect()
}

const FIRST: u16 = 5;
const LAST: u16 = RANGES * 10 - 5;
const NEW: u8 = 99;

fn set(map: &Map, point: u16) {
    map.insert(point - 5..point + 5, NEW);
}

fn is_new(session: &Pinned<'_, u16, u8>, point: u16) -> bool {
    session.get(point) == Some(&NEW)
}

#[test]
fn one_of_two_threads_sees_the_change_of_the_other() {
    /// Changes one point's range, and returns whether the other point has its new value.
    fn change_and_look(map: &Map, own: u16, other: u16) -> bool {
        let session = map.pin();
        set(map, own);
        is_new(&session, other)
    }
    for _ in 0..ROUNDS {
        let map = map();
        let saw = thread::scope(|scope| {
            let other = scope.spawn(|| change_and_look(&map, LAST, FIRST));
            [change_and_look(&map, FIRST, LAST), other.join().unwrap()]
        });
        assert!(saw.contains(&true), "both changes came after the other thread's look-up");
    }
}

#[test]
fn two_threads_see_two_changes_in_one_order() {
    /// Waits for the change of one point, and returns whether the other has changed, too.
    fn look(map: &Map, first: u16, then: u16) -> bool {
        let session = map.pin();
        while !is_new(&session, first) {
            thread::yield_now();
        }
        is_new(&session, then)
    }
    for _ in 0..ROUNDS {
        let map = map();
        let seen = thread::scope(|scope| {
            scope.spawn(|| set(&map, FIRST));
            scope.spawn(|| set(&map, LAST));
            let other = scope.spawn(|| look(&map, LAST, FIRST));
            [look(&map, FIRST, LAST), other.join().unwrap()]
        });
        assert!(seen.contains(&true), "each thread saw another change first");
    }
}
