//! Loom models of the orderings of leaves and of the directory: look-ups and changes beside changes. Leaves have two
//! ranges at most, and chunks two leaves.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-ranges --lib`

use core::ops::Range;

use archipelago_platform::cell::RaceCell;
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use crate::RangeMap;

/// A value whose accesses loom checks.
struct Value(RaceCell<u8>);

// SAFETY: loom ends the run when accesses are not ordered.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new(number: u8) -> Self {
        let cell = RaceCell::new(0);
        // SAFETY: made just now.
        cell.with_mut(|value| unsafe { *value = number });
        Self(cell)
    }

    fn number(&self) -> u8 {
        // SAFETY: loom would report a race.
        self.0.with(|value| unsafe { *value })
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Value {}

type Map = RangeMap<u16, Value>;

/// Makes a map of ranges of ten points: from 0 with the value 0, from 10 with the value 1, and so on.
fn map(ranges: u8) -> Map {
    let map = Map::new();
    (0..ranges).for_each(|at| map.insert(tens(at), Value::new(at)));
    map
}

/// Returns the range that has the value `at` in a new map.
fn tens(at: u8) -> Range<u16> {
    let start = u16::from(at) * 10;
    start..start + 10
}

/// Changes the values of a range to 9. The new values are made inside of the change, after it has entered RCU: the
/// entry has a fence, which would order values that were made before.
fn set(map: &Map, range: Range<u16>) {
    map.change(range, |_, _| Value::new(9));
}

/// Returns the number at the first point of `tens(at)`.
fn number(map: &Map, at: u8) -> Option<u8> {
    map.pin().get(tens(at).start).map(Value::number)
}

/// Returns the ranges that overlap `window`, and their numbers.
fn numbers(map: &Map, window: Range<u16>) -> Vec<(Range<u16>, u8)> {
    map.pin().overlapping(window).map(|(range, value)| (range, value.number())).collect()
}

/// Returns the ranges of a map that was made with `map(count)`, with other numbers.
fn all<const COUNT: usize>(numbers: [u8; COUNT]) -> Vec<(Range<u16>, u8)> {
    numbers.into_iter().zip(0..).map(|(number, at)| (tens(at), number)).collect()
}

/// Runs `one` and `other` concurrently on a map of this many ranges, and then `end`.
fn beside(ranges: u8, one: fn(&Map), other: fn(&Map), end: fn(&Map)) {
    model(2, move || {
        let map = Arc::new(map(ranges));
        let thread = {
            let map = map.clone();
            thread::spawn(move || one(&map))
        };
        other(&map);
        thread.join().unwrap();
        end(&map);
        map.check_invariants();
    });
}

/// Leaves are `[0, 1]` and `[2]`.
const TWO_LEAVES: u8 = 3;

#[test]
fn a_block_that_is_stored_beside_a_look_up_is_whole() {
    let look = |map: &Map| {
        let first = number(map, 0);
        assert!(matches!(first, Some(0 | 9)), "{first:?}");
        let second = number(map, 0);
        assert!(second == Some(9) || second == first, "{first:?}, then {second:?}");
    };
    beside(1, |map| set(map, tens(0)), look, |map| assert_eq!(number(map, 0), Some(9)));
}

#[test]
fn a_chunk_that_is_stored_beside_a_look_up_is_whole() {
    let look = |map: &Map| {
        let (first, second) = (number(map, 1), number(map, 2));
        assert!(matches!((first, second), (Some(1), Some(2 | 9)) | (Some(9), Some(9))), "{first:?}, then {second:?}");
    };
    beside(TWO_LEAVES, |map| set(map, 10..30), look, |map| assert_eq!(number(map, 0), Some(0)));
}

/// The third leaf makes a second chunk.
#[test]
fn a_root_that_is_stored_beside_a_look_up_is_whole() {
    let look = |map: &Map| {
        assert_eq!(number(map, 3), Some(3), "it is there before and after");
        assert!(matches!(number(map, 4), None | Some(9)));
    };
    beside(4, |map| map.insert(tens(4), Value::new(9)), look, |map| assert_eq!(number(map, 4), Some(9)));
}

/// One change stores a block in the leaf that the other change splits.
#[test]
fn a_change_of_a_leaf_beside_its_replacement_is_not_lost() {
    let split = |map: &Map| map.insert(tens(2), Value::new(2));
    beside(2, split, |map| set(map, tens(0)), |map| assert_eq!(numbers(map, 0..30), all([9, 1, 2])));
}

/// Both changes replace both leaves.
#[test]
fn one_of_two_changes_of_the_same_leaves_is_the_last() {
    let end = |map: &Map| {
        let numbers = numbers(map, 0..30);
        assert!(numbers == [(0..10, 0), (10..30, 9)] || numbers == [(0..10, 0), (10..30, 8)], "{numbers:?}");
    };
    beside(TWO_LEAVES, |map| set(map, 10..30), |map| map.insert(10..30, Value::new(8)), end);
}

#[test]
fn a_window_over_two_leaves_has_all_of_a_change_or_nothing() {
    let look = |map: &Map| {
        let seen = numbers(map, 0..30);
        assert!(seen == all([0, 1, 2]) || seen == [(0..10, 0), (10..30, 9)], "{seen:?}");
    };
    beside(TWO_LEAVES, |map| set(map, 10..30), look, |_| ());
}

/// The leaves are changed in descending order, against that of the window.
#[test]
fn a_window_over_two_leaves_has_no_later_change_without_the_earlier() {
    let change = |map: &Map| [2, 0].into_iter().for_each(|at| set(map, tens(at)));
    let look = |map: &Map| {
        let seen = numbers(map, 0..30);
        assert!([all([0, 1, 2]), all([0, 1, 9]), all([9, 1, 9])].contains(&seen), "{seen:?}");
    };
    beside(TWO_LEAVES, change, look, |map| assert_eq!(numbers(map, 0..30), all([9, 1, 9])));
}
