//! One thread stops inside a section that a validation protects ([`points`]), and another thread changes the data that
//! the first one has read. In random schedules this hardly ever happens. Each test fails if the code lacks the
//! validation.

use archipelago_index::art::WriteSync;
use archipelago_index::hydra::Maintainers;
use archipelago_index::{Art, HydraList, Key, points};
use archipelago_sim::{Config, Fault, Machine, Placement, Point, Schedule, hunt, run_with, world};
use archipelago_sync::version_lock::VersionLock;

/// The virtual nanoseconds for which a thread stops. This is far longer than any operation of these tests.
const STALL: u64 = 50_000_000;

/// A machine without hardware transactions.
const NO_TRANSACTIONS: &str = "xeon-e5-4620-4s";

/// The number of entries of a full page of consecutive integers.
const FULL: u64 = 64;

pub(super) fn stall(thread: usize, (point, nth): (&str, u64)) -> Fault {
    Fault::Stall { thread: Some(thread), at: Point::Named { name: point.into(), nth }, for_ns: STALL }
}

/// One thread does `slow` on the index, and stops when it passes `point` for the `nth` time. Meanwhile another thread
/// does `quick`. At the end `check` checks the index.
pub(super) fn stalled_at<I>(
    point: (&str, u64),
    make: impl FnOnce() -> I,
    slow: impl Fn(&I),
    quick: impl Fn(&I),
    check: impl FnOnce(&I),
) {
    let slow = |index: &I| {
        slow(index);
        assert!(world::now() >= STALL, "never came to {point:?}");
    };
    let quick = |index: &I| {
        quick(index);
        assert!(world::now() < STALL, "the other thread is still where it stopped");
    };
    two_threads(NO_TRANSACTIONS, vec![stall(0, point)], make, slow, quick, check);
}

/// One thread runs `slow`, and another thread runs `quick` half a stall later.
pub(super) fn two_threads<I>(
    machine: &str,
    faults: Vec<Fault>,
    make: impl FnOnce() -> I,
    slow: impl Fn(&I),
    quick: impl Fn(&I),
    check: impl FnOnce(&I),
) {
    let config = Config {
        schedule: Schedule::VirtualTime,
        placement: Placement::Spread,
        faults,
        stall_ns: 10 * STALL,
        ..Config::seeded(0)
    };
    let body = |index: &I, client: archipelago_sim::Client| {
        if client.index == 0 {
            slow(index);
        } else {
            world::sleep(STALL / 2);
            quick(index);
        }
    };
    let machine = Machine::preset(machine).unwrap();
    run_with(&machine, &config, 2, make, body, |index| check(&index)).0.assert_done();
}

/// Makes a map whose search layer knows only the first page, so that all walks begin at this page. Each value is ten
/// times its key.
fn hydralist(keys: impl IntoIterator<Item = u64>) -> HydraList<u64, u64> {
    let map = HydraList::builder().maintainers(Maintainers::Clients).build();
    map.pause_maintenance(true);
    let session = map.pin();
    keys.into_iter().for_each(|key| _ = session.insert(key, 10 * key));
    drop(session);
    map
}

fn remove_all<K: Key, V: Clone + Send + Sync>(map: &HydraList<K, V>, keys: impl IntoIterator<Item = K>) {
    let session = map.pin();
    for key in keys {
        assert!(session.remove(&key).is_some());
    }
}

#[test]
fn a_look_up_whose_slot_is_given_to_another_key() {
    // The keys are inserted out of order, so that a removal moves the last entry into the removed entry's slot.
    let get = |map: &HydraList<u64, u64>| assert_eq!(map.pin().get(&10), None);
    let point = (points::FOUND, 1);
    stalled_at(point, || hydralist([10, 30, 20]), get, |map| remove_all(map, [10]), HydraList::check_invariants);
}

/// Key 20 moves from the slot that a look-up has chosen to another slot, and key 40 takes the chosen slot.
fn whose_candidate_moves(slow: impl Fn(&HydraList<u64, u64>)) {
    let quick = |map: &HydraList<u64, u64>| {
        remove_all(map, [10]);
        map.pin().insert(40, 400);
    };
    stalled_at((points::CANDIDATES, 1), || hydralist([10, 30, 20]), slow, quick, HydraList::check_invariants);
}

#[test]
fn a_look_up_whose_candidate_moves() {
    whose_candidate_moves(|map| assert_eq!(map.pin().get(&20), Some(200)));
}

#[test]
fn a_batch_whose_candidate_moves() {
    whose_candidate_moves(|map| assert_eq!(map.pin().get_many(&[20]), [Some(200)]));
}

#[test]
fn a_removal_whose_candidate_moves() {
    whose_candidate_moves(|map| assert_eq!(map.pin().remove(&20), Some(200)));
}

#[test]
fn a_replacement_whose_candidate_moves() {
    whose_candidate_moves(|map| assert_eq!(map.pin().replace(&20, 7), Some(200)));
}

#[test]
fn an_insertion_whose_candidate_moves() {
    whose_candidate_moves(|map| assert_eq!(map.pin().insert(20, 7), Some(200)));
}

#[test]
fn an_insertion_if_absent_whose_slot_is_given_to_another_key() {
    let slow = |map: &HydraList<u64, u64>| {
        let session = map.pin();
        let make = || {
            // The closure runs after the first look-up and before the insertion.
            session.insert(20, 200);
            session.insert(25, 250);
            7
        };
        assert_eq!(session.get_or_insert_with(20, make), 7);
    };
    let quick = |map: &HydraList<u64, u64>| remove_all(map, [20]);
    stalled_at(
        (points::PRESENT, 1),
        || hydralist([10, 30]),
        slow,
        quick,
        |map| {
            assert_eq!((map.pin().get(&20), map.len()), (Some(7), 4));
            map.check_invariants();
        },
    );
}

/// Merges the second page, of which only key 70 is left, into the first, so that the third page follows the first.
fn merge_the_second_page_away(map: &HydraList<u64, u64>) {
    remove_all(map, (0..FULL).filter(|key| *key != 5));
    remove_all(map, (FULL..2 * FULL).filter(|key| *key != 70));
}

#[test]
fn a_walk_whose_next_page_is_merged_away() {
    let get = |map: &HydraList<u64, u64>| assert_eq!(map.pin().get(&70), Some(700));
    let make = || hydralist(0..3 * FULL);
    stalled_at((points::LEAVING, 1), make, get, merge_the_second_page_away, HydraList::check_invariants);
}

#[test]
fn a_load_in_order_whose_next_page_is_merged_away() {
    let load = |map: &HydraList<u64, u64>| map.pin().extend([(5, 51), (71, 711)]);
    let make = || hydralist(0..3 * FULL);
    stalled_at((points::LEAVING, 1), make, load, merge_the_second_page_away, |map| {
        let session = map.pin();
        assert_eq!([5, 70, 71].map(|key| session.get(&key)), [Some(51), Some(700), Some(711)]);
        map.check_invariants();
    });
}

/// Makes two full pages and removes the keys `empty`, which are all keys of one of them. (The last page does not become
/// direct. So a third, empty page stays behind the two, or is merged into the second if that one gets empty.)
fn two_pages(empty: core::ops::Range<u64>) -> HydraList<u64, u64> {
    let map = hydralist(0..2 * FULL);
    remove_all(&map, empty);
    map
}

#[test]
fn the_first_entry_is_not_taken_past_an_earlier_one() {
    let pop = |map: &HydraList<u64, u64>| assert_eq!(map.pin().pop_first(), Some((5, 50)));
    let quick = |map: &HydraList<u64, u64>| {
        map.pin().insert(5, 50);
        remove_all(map, [FULL]);
    };
    stalled_at((points::PASSED, 1), || two_pages(0..FULL), pop, quick, HydraList::check_invariants);
}

#[test]
fn the_last_entry_is_not_taken_past_a_later_one() {
    let pop = |map: &HydraList<u64, u64>| assert_eq!(map.pin().pop_last(), Some((90, 900)));
    let quick = |map: &HydraList<u64, u64>| {
        map.pin().insert(90, 900);
        remove_all(map, [FULL - 1]);
    };
    stalled_at((points::PASSED, 1), || two_pages(FULL..2 * FULL), pop, quick, HydraList::check_invariants);
}

#[test]
fn a_map_that_was_never_empty_does_not_look_empty() {
    let pop = |map: &HydraList<u64, u64>| assert_eq!(map.pin().pop_first(), Some((5, 50)));
    let quick = |map: &HydraList<u64, u64>| {
        let session = map.pin();
        (5..35).for_each(|key| _ = session.insert(key, 10 * key));
        remove_all(map, FULL..2 * FULL);
    };
    stalled_at((points::PASSED, 1), || two_pages(0..FULL), pop, quick, HydraList::check_invariants);
}

type Names = HydraList<String, u64>;

fn names(keys: impl IntoIterator<Item = String>) -> Names {
    let map = HydraList::builder().maintainers(Maintainers::Clients).build();
    map.pause_maintenance(true);
    let session = map.pin();
    (0..).zip(keys).for_each(|(n, key)| _ = session.insert(key, n));
    drop(session);
    map
}

#[test]
fn a_scan_of_words_whose_page_loses_an_entry() {
    let scan = |map: &HydraList<u64, u64>| {
        let mut seen = Vec::new();
        map.pin().scan(&0, 10, |key, value| seen.push((key, *value)));
        assert_eq!(seen, [(20, 200), (30, 300)]);
    };
    let point = (points::COPYING, 1);
    stalled_at(point, || hydralist([10, 20, 30]), scan, |map| remove_all(map, [10]), HydraList::check_invariants);
}

#[test]
fn a_scan_of_names_whose_page_loses_an_entry() {
    let name = |n: u64| format!("name {n}");
    let scan = |map: &Names| {
        let mut seen = Vec::new();
        map.pin().scan("", 10, |key, _| seen.push(key.to_owned()));
        assert_eq!(seen, [name(1), name(2)]);
    };
    let point = (points::COPYING, 1);
    let make = || names((0..3).map(name));
    stalled_at(point, make, scan, |map| remove_all(map, [name(0)]), HydraList::check_invariants);
    let back = |map: &Names| {
        let mut seen = Vec::new();
        map.pin().scan_rev("z", 10, |key, _| seen.push(key.to_owned()));
        assert_eq!(seen, [name(2), name(1)]);
    };
    stalled_at(point, make, back, |map| remove_all(map, [name(0)]), HydraList::check_invariants);
}

#[test]
fn a_key_s_address_is_overwritten_with_text() {
    let long = "k".repeat(300);
    let get = |map: &Names| assert_eq!(map.pin().get(&long), None);
    let quick = |map: &Names| {
        remove_all(map, [long.clone()]);
        map.pin().insert("text that comes to lie where the address was".into(), 1);
    };
    stalled_at((points::BOXED, 1), || names([long.clone()]), get, quick, HydraList::check_invariants);
}

#[test]
fn a_bound_s_address_is_overwritten_with_text() {
    // The first page's bound is boxed, since it is too long for the page; a later page's bound is short.
    let long = |n: u64| format!("{}{n:02}", "a".repeat(80));
    let short = |n: u64| format!("b{n:02}");
    let get = |map: &Names| assert_eq!(map.pin().get(&long(0)), Some(0));
    let quick = |map: &Names| {
        remove_all(map, (1..20).map(long));
        remove_all(map, (0..70).map(short));
    };
    let make = || names((0..20).map(long).chain((0..80).map(short)));
    stalled_at((points::BOXED, 1), make, get, quick, HydraList::check_invariants);
}

/// One thread's validation fails because another thread holds the page's lock. Before the first thread acts on the
/// failure, the other thread unlocks the page without a change, so that the version is the old one again.
fn refused(make: impl Fn() -> Names, slow: impl Fn(&Names), quick: impl Fn(&Names)) {
    // The second lock that the other thread takes is the lock of the page that the first thread reads.
    let faults = [stall(0, (points::BOXED, 1)), stall(1, (VersionLock::HELD, 2)), stall(0, (points::REFUSED, 1))];
    let slow = |map: &Names| {
        slow(map);
        assert!(world::now() >= 2 * STALL, "was not refused");
    };
    let quick = |map: &Names| {
        quick(map);
        assert!((STALL + STALL / 2..2 * STALL).contains(&world::now()), "held the lock while the other looked");
    };
    two_threads(NO_TRANSACTIONS, faults.to_vec(), make, slow, quick, HydraList::check_invariants);
}

/// Makes two pages: one with twelve keys, and one with so many that the two are not merged. The second page contains a
/// boxed key.
fn two_pages_of_names() -> Names {
    let map = names((0..48).map(|n| format!("a{n:02}")).chain((0..30).map(|n| format!("b{n:02}"))));
    map.pin().insert("b".repeat(200), 7);
    remove_all(&map, (12..48).map(|n| format!("a{n:02}")));
    map
}

#[test]
fn a_look_up_that_may_not_believe_is_no_miss() {
    let get = |map: &Names| assert_eq!(map.pin().get(&"b".repeat(200)), Some(7));
    refused(two_pages_of_names, get, |map| remove_all(map, ["a00".to_owned()]));
}

#[test]
fn a_removal_that_may_not_believe_is_no_miss() {
    let remove = |map: &Names| assert_eq!(map.pin().remove(&"b".repeat(200)), Some(7));
    refused(two_pages_of_names, remove, |map| remove_all(map, ["a00".to_owned()]));
}

#[test]
fn an_insertion_that_may_not_believe_a_bound_goes_no_further_left() {
    // The first page ends in a boxed bound. The second page loses entries, and its merge into the first page is tried
    // and fails.
    let long = |n: u64| format!("{}{n:02}", "a".repeat(80));
    let make = || {
        let map = names((0..13).map(long));
        remove_all(&map, (11..13).map(long));
        map
    };
    let insert = |map: &Names| assert_eq!(map.pin().insert(long(20), 20), None);
    refused(make, insert, |map| remove_all(map, [long(10)]));
}

/// A thread that writes a page stops between the length of the page's new bound and the bound itself.
#[test]
fn bounds_that_are_half_written_are_not_followed() {
    const RUN: u64 = 40;
    let name = |n: u64| format!("{}{n:04}", "/deeper".repeat(10));
    let stall =
        |nth| Fault::Stall { thread: None, at: Point::Named { name: points::BOUND.into(), nth }, for_ns: 200_000 };
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(20, |config| {
        let config = Config { expected_accesses: 20_000, faults: (1..5).map(stall).collect(), ..config };
        let body = |map: &Names, client: archipelago_sim::Client| {
            map.pin().extend((0..RUN).map(|n| 4 * n + client.index as u64).map(|n| (name(n), n)));
        };
        let check = |map: Names| {
            map.check_invariants();
            assert!(map.into_iter().eq((0..4 * RUN).map(|n| (name(n), n))));
        };
        run_with(&machine, &config, 4, || names([]), body, check).0
    });
}

#[test]
fn a_walk_over_a_tree_whose_places_change_hands() {
    for sync in [WriteSync::OptimisticLockCoupling, WriteSync::Rowex] {
        let make = || {
            let map = Art::<u64, u64>::with_write_sync(sync);
            [1, 5, 7].into_iter().for_each(|key| _ = map.pin().insert(key, key));
            map
        };
        let walk = |map: &Art<u64, u64>| {
            let mut seen = Vec::new();
            map.pin().scan(&0, 10, |key, value| seen.push((key, *value)));
            assert_eq!(seen, [(1, 1), (7, 7), (9, 9)]);
        };
        let quick = |map: &Art<u64, u64>| {
            // Key 9 gets the slot that key 5 had.
            assert_eq!(map.pin().remove(&5), Some(5));
            map.pin().insert(9, 9);
        };
        stalled_at((points::PLACE, 2), make, walk, quick, Art::check_invariants);
    }
}

/// As above, but the walk reads the small node's leaves without making it the last node of its path.
#[test]
fn a_walk_beside_a_small_node_whose_places_change_hands() {
    for sync in [WriteSync::OptimisticLockCoupling, WriteSync::Rowex] {
        let make = || {
            let map = Art::<u64, u64>::with_write_sync(sync);
            [1, 0x101, 0x105, 0x107].into_iter().for_each(|key| _ = map.pin().insert(key, key));
            map
        };
        let walk = |map: &Art<u64, u64>| {
            let mut seen = Vec::new();
            map.pin().scan(&0, 10, |key, value| seen.push((key, *value)));
            assert_eq!(seen, [(1, 1), (0x101, 0x101), (0x107, 0x107), (0x109, 0x109)]);
        };
        let quick = |map: &Art<u64, u64>| {
            assert_eq!(map.pin().remove(&0x105), Some(0x105));
            map.pin().insert(0x109, 0x109);
        };
        // The four places of the node above are read before.
        stalled_at((points::PLACE, 4 + 2), make, walk, quick, Art::check_invariants);
    }
}

/// The first entry is removed, so that another entry is moved into the slot that the look-up has found.
#[test]
fn a_first_entry_above_whose_place_is_given_to_another() {
    let slow = |map: &HydraList<u64, u64>| assert_eq!(map.pin().range(20..).next(), Some((30, 300)));
    let quick = |map: &HydraList<u64, u64>| remove_all(map, [10]);
    stalled_at((points::ABOVE, 1), || hydralist([10, 30, 40]), slow, quick, |map| map.check_invariants());
}

/// A pop has found the outermost entry; then another thread inserts an entry further out, in another node.
#[test]
fn a_pop_of_a_tree_that_is_overtaken() {
    for sync in [WriteSync::OptimisticLockCoupling, WriteSync::Rowex] {
        let make = || {
            let map = Art::<u64, u64>::with_write_sync(sync);
            [0x101, 0x102, 0x103].into_iter().for_each(|key| _ = map.pin().insert(key, key));
            map
        };
        let pop = |map: &Art<u64, u64>| assert_eq!(map.pin().pop_first(), Some((1, 1)));
        let quick = |map: &Art<u64, u64>| {
            assert_eq!(map.pin().insert(1, 1), None);
            assert_eq!(map.pin().get(&0x101), Some(0x101), "so it was not popped before 1 came");
        };
        stalled_at((points::OUTERMOST, 1), make, pop, quick, Art::check_invariants);
        let make = || {
            let map = Art::<u64, u64>::with_write_sync(sync);
            [0x101, 0x102, 0x103].into_iter().for_each(|key| _ = map.pin().insert(key, key));
            map
        };
        let pop = |map: &Art<u64, u64>| assert_eq!(map.pin().pop_last(), Some((0x70000, 7)));
        let quick = |map: &Art<u64, u64>| {
            assert_eq!(map.pin().insert(0x70000, 7), None);
            assert_eq!(map.pin().get(&0x103), Some(0x103));
        };
        stalled_at((points::OUTERMOST, 1), make, pop, quick, Art::check_invariants);
    }
}

/// A walk has examined all pages, whose neighbours did not fit together. Before the walk ends, another thread removes
/// entries all over the map, but too few for a merge at a removal. The next walk must be due.
#[test]
fn a_walk_whose_pages_are_thinned_meanwhile() {
    let keep = |map: &HydraList<u64, u64>, kept: u64| map.pin().retain(|_, number| number % 14 < kept);
    let make = || {
        let map = HydraList::from_sorted((0..6_000).map(|number| (100 * number, number)));
        keep(&map, 6);
        map
    };
    let check = |map: &HydraList<u64, u64>| {
        map.sync();
        let stats = map.stats();
        assert!(3 * stats.entries > stats.room, "{stats:?}");
        map.check_invariants();
    };
    stalled_at((points::WALKED, 1), make, HydraList::sync, |map| keep(map, 4), check);
}
