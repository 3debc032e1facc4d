//! The cost of an operation does not grow with the map, for each map and each usage pattern.
//!
//! The simulator counts memory accesses instead of time (`check::growth`). So a quadratic cost is visible at sizes that
//! take only a second.
#![cfg(archipelago_sim)]

use archipelago_check::growth::{assert_flat, costs};
use archipelago_index::hydra::{Hydra, Maintainers, SearchLayerKind};
use archipelago_index::map::{Kind, Map, Session};
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList};
use archipelago_sim::SimAlloc;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// The number of entries of the smallest map.
const LEAST: u64 = 2_000;

/// An operation with at most this many memory accesses is cheap, whatever its pattern.
const CHEAP: f64 = 20.0;

type On<'m, S> = Session<'m, S, u64, u64>;

/// The work of a usage pattern: first a part that is not counted, then a part that is counted.
struct Pattern<S: Kind> {
    name: &'static str,
    first: fn(&On<'_, S>, u64),
    then: fn(&On<'_, S>, u64),
}

/// Returns keys in no order.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn fill_scattered<S: Kind>(map: &On<'_, S>, size: u64) {
    (0..size).for_each(|number| _ = map.insert(scattered(number), number));
}

fn fill_ascending<S: Kind>(map: &On<'_, S>, size: u64) {
    (0..size).for_each(|key| _ = map.insert(key, key));
}

fn patterns<S: Kind>() -> [Pattern<S>; 17] {
    [
        Pattern { name: "random inserts", first: |_, _| (), then: fill_scattered },
        Pattern { name: "ascending inserts", first: |_, _| (), then: fill_ascending },
        Pattern {
            name: "descending inserts",
            first: |_, _| (),
            then: |map, size| (0..size).rev().for_each(|key| _ = map.insert(key, key)),
        },
        Pattern {
            name: "inserts rising in the middle",
            first: fill_scattered,
            then: |map, size| (0..size).for_each(|key| _ = map.insert((1 << 63) + key, key)),
        },
        Pattern {
            name: "inserts at eight rising tails",
            first: |_, _| (),
            then: |map, size| (0..size).for_each(|key| _ = map.insert((key % 8) << 60 | key, key)),
        },
        Pattern {
            name: "extension by sorted entries",
            first: |_, _| (),
            then: |map, size| map.extend((0..size).map(|key| (key, key))),
        },
        Pattern {
            name: "extension of a map by sorted entries",
            first: fill_scattered,
            then: |map, size| map.extend((0..size).map(|key| (key << 40, key))),
        },
        Pattern {
            name: "a queue",
            first: fill_ascending,
            then: |map, size| {
                for key in size..2 * size {
                    map.insert(key, key);
                    assert_eq!(map.pop_first(), Some((key - size, key - size)));
                }
            },
        },
        Pattern {
            name: "a stack upside down",
            first: fill_ascending,
            then: |map, size| {
                for key in 0..size {
                    assert_eq!(map.pop_last(), Some((size - 1 - key, size - 1 - key)));
                }
            },
        },
        Pattern {
            name: "a window that slides",
            first: fill_ascending,
            then: |map, size| {
                for key in size..2 * size {
                    map.insert(key, key);
                    assert_eq!(map.remove(&(key - size)), Some(key - size));
                }
            },
        },
        Pattern {
            name: "pops of the first",
            first: fill_scattered,
            then: |map, size| (0..size).for_each(|_| assert!(map.pop_first().is_some())),
        },
        Pattern {
            name: "pops of the last",
            first: fill_scattered,
            then: |map, size| (0..size).for_each(|_| assert!(map.pop_last().is_some())),
        },
        Pattern {
            name: "descending removals, and looks at the last",
            first: fill_ascending,
            then: |map, size| {
                for key in (1..size).rev() {
                    assert_eq!(map.remove(&key), Some(key));
                    assert_eq!(map.last_key_value().map(|(key, _)| key), Some(key - 1));
                }
            },
        },
        Pattern {
            name: "look-ups after ascending inserts",
            first: fill_ascending,
            then: |map, size| (0..size).for_each(|number| assert!(map.get(&(scattered(number) % size)).is_some())),
        },
        Pattern {
            name: "look-ups after descending inserts",
            first: |map, size| (0..size).rev().for_each(|key| _ = map.insert(key, key)),
            then: |map, size| (0..size).for_each(|number| assert!(map.get(&(scattered(number) % size)).is_some())),
        },
        Pattern {
            name: "a scan after ascending inserts",
            first: fill_ascending,
            then: |map, size| assert_eq!(map.iter().count() as u64, size),
        },
        Pattern {
            name: "a reverse scan after ascending inserts",
            first: fill_ascending,
            then: |map, size| assert_eq!(map.iter().rev().count() as u64, size),
        },
    ]
}

#[track_caller]
fn judge<S: Kind>(name: &str, make: impl Fn() -> Map<S, u64, u64>) {
    for Pattern { name: pattern, first, then } in patterns::<S>() {
        let setup = |size| {
            let map = make();
            first(&map.pin(), size);
            map
        };
        let work = |map: &Map<S, u64, u64>, size| {
            then(&map.pin(), size);
            size
        };
        assert_flat(&format!("{name}: {pattern}"), costs(LEAST, setup, work), CHEAP);
    }
}

/// If a pattern counts no operation, the measurement panics, and does not report a flat cost.
#[test]
#[should_panic(expected = "no operation was counted")]
fn a_pattern_without_operations_is_no_pattern() {
    costs(1, |_| (), |(), _| 0);
}

#[test]
fn hydralist() {
    judge("HydraList", HydraList::new);
}

/// Maintenance is paused, so the search layer never receives a change.
#[test]
fn hydralist_without_maintenance() {
    for kind in [SearchLayerKind::Snapshot, SearchLayerKind::Art] {
        judge("HydraList, paused", || {
            let map = HydraList::<u64, u64>::builder().search_layer(kind).maintainers(Maintainers::Clients).build();
            map.pause_maintenance(true);
            map
        });
    }
}

#[test]
fn art() {
    judge("Art", Art::new);
}

#[test]
fn b_link_tree() {
    judge("BLinkTree", <BLinkTree<u64, u64>>::new);
}

#[test]
fn euno_b_tree() {
    judge("EunoBTree", EunoBTree::new);
}

#[test]
fn euno_skip_list() {
    judge("EunoSkipList", EunoSkipList::new);
}

/// All keys begin with eight bytes 0xFF, such as the keys (time of expiry, number) of entries that never expire.
#[test]
fn hydralist_of_greatest_keys() {
    type Work = fn(&Session<'_, Hydra, (u64, u64), u64>, u64);
    let patterns: [(&str, Work); 3] = [
        ("pops of the last", |map, size| (0..size).for_each(|_| assert!(map.pop_last().is_some()))),
        ("looks at the last", |map, size| (0..size).for_each(|_| assert!(map.last_key_value().is_some()))),
        ("a reverse scan", |map, size| assert_eq!(map.iter().rev().count() as u64, size)),
    ];
    for paused in [false, true] {
        for (pattern, work) in patterns {
            let setup = |size| {
                let map = HydraList::<(u64, u64), u64>::builder().maintainers(Maintainers::Clients).build();
                map.pause_maintenance(paused);
                (0..size).for_each(|number| _ = map.pin().insert((u64::MAX, scattered(number)), number));
                map
            };
            let work = |map: &HydraList<(u64, u64), u64>, size| {
                work(&map.pin(), size);
                size
            };
            assert_flat(&format!("paused: {paused}, {pattern}"), costs(LEAST, setup, work), CHEAP);
        }
    }
}
