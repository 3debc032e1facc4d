//! The cost of an operation does not grow with the number of ranges, in each usage pattern.
//!
//! The simulator counts memory accesses instead of time (`check::growth`). Leaves have four ranges and chunks four
//! leaves here, so the root is about a hundred times as large as in a user's map with as many ranges. A look-up
//! announces all lines of the root's sorted array, and a change that splits or joins chunks copies the root. Therefore
//! the maps are small: then the root is a small part of the costs.
#![cfg(archipelago_sim)]

use core::ops::Range;

use archipelago_check::growth::{assert_flat, costs};
use archipelago_ranges::RangeMap;
use archipelago_sim::SimAlloc;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// The number of ranges of the smallest map.
const LEAST: u64 = 64;

/// An operation with at most this many memory accesses is cheap, whatever its pattern.
const CHEAP: f64 = 30.0;

type Map = RangeMap<u64, u64>;

/// Returns the range of an entry. Between two ranges there is a gap of four points.
fn range(at: u64) -> Range<u64> {
    at * 10..at * 10 + 6
}

/// Returns the numbers below `size` in no order.
fn scattered(size: u64) -> impl Iterator<Item = u64> {
    // An odd factor is a permutation, since sizes are powers of two.
    assert!(size.is_power_of_two());
    (0..size).map(move |at| at * 0x9E37_79B9 % size)
}

fn insert(map: &Map, at: u64) {
    map.insert(range(at), at);
}

fn remove(map: &Map, at: u64) {
    assert_eq!(map.remove(range(at)), 1);
}

fn full(size: u64) -> Map {
    let map = Map::new();
    scattered(size).for_each(|at| insert(&map, at));
    map
}

/// Makes a map of which nearly all ranges were removed again, in this order.
fn emptied(size: u64, order: impl Iterator<Item = u64>) -> Map {
    let map = full(size);
    order.filter(|at| at % 64 > 0).for_each(|at| remove(&map, at));
    map
}

fn flat(what: &str, setup: impl Fn(u64) -> Map, work: impl Fn(&Map, u64) -> u64) {
    assert_flat(what, costs(LEAST, setup, work), CHEAP);
}

/// Asserts that the cost of `work` for each of `size` numbers does not grow.
fn flat_for_each(what: &str, setup: impl Fn(u64) -> Map, work: impl Fn(&Map, u64, u64)) {
    flat(what, setup, |map, size| scattered(size).map(|at| work(map, at, size)).count() as u64);
}

#[test]
fn insertions_and_changes_cost_the_same_in_large_maps() {
    let empty = |_| Map::new();
    flat_for_each("scattered insertions", empty, |map, at, _| insert(map, at));
    flat("ascending insertions", empty, |map, size| (0..size).map(|at| insert(map, at)).count() as u64);
    flat("descending insertions", empty, |map, size| (0..size).rev().map(|at| insert(map, at)).count() as u64);
    flat_for_each("parts that are changed, and changed back", full, |map, at, _| {
        let part = at * 10 + 2..at * 10 + 4;
        assert_eq!(map.change(part.clone(), |_, _| u64::MAX), 1);
        assert_eq!(map.change(part, |_, _| at), 1);
    });
    flat_for_each("ranges over two others", full, |map, at, size| {
        if at + 1 < size {
            map.insert(at * 10 + 4..at * 10 + 12, u64::MAX);
        }
    });
}

#[test]
fn removals_cost_the_same_in_large_maps() {
    flat_for_each("scattered removals", full, |map, at, _| remove(map, at));
    flat("ascending removals", full, |map, size| (0..size).map(|at| remove(map, at)).count() as u64);
    flat("descending removals", full, |map, size| (0..size).rev().map(|at| remove(map, at)).count() as u64);
    flat("a queue", full, |map, size| {
        let turn = |at| {
            insert(map, size + at);
            remove(map, at);
        };
        (0..size).map(turn).count() as u64
    });
    flat("removals of nothing", full, |map, size| {
        (0..size).map(|at| assert_eq!(map.remove(at * 10 + 7..at * 10 + 9), 0)).count() as u64
    });
}

#[test]
fn look_ups_cost_the_same_in_large_maps() {
    flat_for_each("look-ups", full, |map, at, _| assert_eq!(map.get(at * 10 + 5), Some(at)));
    flat_for_each("look-ups in gaps", full, |map, at, _| assert_eq!(map.get(at * 10 + 6), None));
    flat_for_each("windows over eight ranges", full, |map, at, size| {
        let last = size.min(at + 8);
        assert_eq!(map.pin().overlapping(at * 10..last * 10).count() as u64, last - at);
    });
    flat("gaps from a hint", full, |map, size| {
        let (mut hint, all) = (0, 0..size * 10);
        for at in 0..size {
            let gap = map.pin().find_gap(4, 0, hint..all.end).expect("each range has a gap after it");
            assert_eq!(gap, at * 10 + 6..at * 10 + 10);
            hint = gap.end;
        }
        size
    });
    flat_for_each("gaps that are filled from a hint", full, |map, at, size| {
        let gap = map.insert_in_gap(4, 0, at * 10..size * 10 + 10, u64::MAX);
        assert_eq!(gap, Some(at * 10 + 6..at * 10 + 10));
    });
}

/// Operations on a map from which most ranges were removed cost as much as on a map that never had these ranges.
#[test]
fn walks_cost_what_is_left_in_emptied_maps() {
    type Order = fn(u64) -> Box<dyn Iterator<Item = u64>>;
    let orders: [(&str, Order); 3] = [
        ("ascending", |size| Box::new(0..size)),
        ("descending", |size| Box::new((0..size).rev())),
        ("scattered", |size| Box::new(scattered(size))),
    ];
    for (name, order) in orders {
        let emptied = move |size| emptied(size, order(size));
        flat(&format!("a range of those left after {name} removals"), emptied, |map, size| {
            assert_eq!(map.pin().iter().count() as u64, size / 64);
            size / 64
        });
        flat(&format!("a large gap after {name} removals"), emptied, |map, _| {
            assert_eq!(map.pin().find_gap(500, 0, 0..u64::MAX), Some(6..506));
            1
        });
    }
}
