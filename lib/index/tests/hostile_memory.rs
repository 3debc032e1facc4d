//! Memory that maps free and use again, for every map: under a limit on their memory, after most entries have been
//! removed, and with crowds of threads.

mod common;

use archipelago_check::hostile::{crowd, duration_or, some_try};
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Key, OnBacklog, Refused};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_tested as _;
use common::sized;

/// Runs a test on every kind of map.
macro_rules! every_map {
    ($test:ident) => {
        $test::<Hydra>();
        $test::<Radix>();
        $test::<BLink>();
        $test::<Tree>();
        $test::<Skip>();
    };
}

const LIMIT: usize = sized(4 << 20, 64 << 10);

/// The bytes by which a map may exceed its limit: a block of pages.
const BLOCK: usize = LIMIT / 2;

/// The bytes by which a map may additionally exceed its limit while pages are moved. The moved pages are copies, and
/// the old blocks stay while readers use them.
const TWINS: usize = BLOCK;

/// How often a test waits for memory that a preempted background thread keeps from being freed.
const WAITS: usize = 500;

/// The time of one such wait.
const WAIT: Duration = Duration::from_millis(2);

fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn email(n: u64) -> String {
    format!("user{:x}@example{}.org", scatter(n), n % 10)
}

fn rising(n: u64) -> String {
    format!("user{n:012}@example.org")
}

fn name<S: Kind>() -> &'static str {
    core::any::type_name::<S>().rsplit("::").next().unwrap()
}

fn limited<S: Kind, K: Key>() -> Map<S, K, u64> {
    Map::builder().memory_limit(LIMIT).build()
}

/// Inserts keys until the map is full, and returns their number. The map counts as full after 1,000 successive
/// refusals, since pages with room may still accept other keys. A preempted background thread keeps memory from being
/// freed, and may continue only after 1,000 refusals. So the function waits for garbage to be freed, up to [`WAITS`]
/// times.
fn fill<S: Kind, K: Key>(map: &Map<S, K, u64>, keys: impl Iterator<Item = K>) -> usize {
    let (session, mut refused, mut stored, mut waits) = (map.pin(), 0, 0, 0);
    for key in keys {
        match session.try_insert(key, 1) {
            Ok(_) => (stored, refused) = (stored + 1, 0),
            Err(Refused::Full(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
        if refused == 1000 {
            if waits == WAITS || map.stats().garbage.objects == 0 {
                return stored;
            }
            thread::sleep(WAIT);
            (refused, waits) = (0, waits + 1);
        }
        if stored % 4096 == 0 {
            let stats = map.stats();
            assert!(stats.bytes <= LIMIT + BLOCK + TWINS, "the limit is {LIMIT}: {stats:?}");
        }
    }
    unreachable!("the keys do not come to an end")
}

/// Fills a map, removes all entries except one in `keep`, and fills it again with keys of the same distribution, or
/// with greater keys. Returns the number of entries that fit again, in percent of the removed number.
fn refilled<S: Kind, K: Key>(make: fn(u64) -> K, keep: u64, beyond: bool) -> usize {
    let map = limited::<S, K>();
    // First the map is filled with even keys.
    let first = fill(&map, (0..).map(|n| make(2 * n))) as u64;
    let session = map.pin();
    (0..2 * first).filter(|n| !n.is_multiple_of(keep)).for_each(|n| _ = session.delete(&make(2 * n)));
    some_try(WAITS, || {
        map.sync();
        if map.stats().garbage.objects == 0 {
            return Ok(());
        }
        thread::sleep(WAIT);
        Err(String::from("garbage is left after `sync`"))
    });
    let (left, held) = (map.len(), map.bytes());
    let room = first as usize - left;
    let start = if beyond { 4 * first } else { 1 };
    let again = fill(&map, (0..).map(|n| make(start + 2 * n)));
    map.check_invariants();
    let percent = 100 * again / room;
    println!("{}: {first}, {left} left in {held} bytes, {again} more in {}: {percent} %", name::<S>(), map.bytes());
    percent
}

/// Pairs of a number n and a percentage. If every nth entry is left, then at least this percentage of the removed
/// number of entries must fit again. (For ascending keys between the remaining ones, 45 % must fit.)
const KEEP: [(u64, usize); 3] = [(100, 80), (4, 70), (2, 60)];

// Three cases of new keys: between the remaining ones and in no order; between the remaining ones and in order, so that
// pages are split in the middle; and above the remaining ones.
#[test]
fn removing_words_makes_room() {
    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            for (keep, least) in KEEP {
                assert!(refilled::<S, u64>(scatter, keep, false) >= least);
                assert!(refilled::<S, u64>(|n| n, keep, false) >= 45);
                // Half-full pages of words are not merged.
                assert!(keep == 2 || refilled::<S, u64>(|n| n, keep, true) >= least);
            }
        });
    }
    every_map!(check);
}

#[test]
fn removing_strings_makes_room() {
    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            for (keep, least) in KEEP {
                assert!(refilled::<S, String>(email, keep, false) >= least);
                assert!(refilled::<S, String>(rising, keep, false) >= 45);
                assert!(refilled::<S, String>(rising, keep, true) >= least);
            }
        });
    }
    every_map!(check);
}

/// Removes all of `count` entries except one in `keep`. Afterwards the map takes at most three times the memory of a
/// fresh map with the same entries.
fn thinned<S: Kind, K: Key>(count: u64, keep: u64, make: fn(u64) -> K, order: fn(u64, u64) -> u64) {
    let map: Map<S, K, u64> = Map::new();
    (0..count).map(|n| order(n, count)).for_each(|n| _ = map.pin().upsert(&make(n), n));
    let full = map.bytes();
    let session = map.pin();
    (0..count)
        .map(|n| order(n, count))
        .filter(|n| !n.is_multiple_of(keep))
        .for_each(|n| assert!(session.delete(&make(n))));
    let passing = map.bytes();
    let fresh: Map<S, K, u64> = Map::from_sorted(session.iter());
    let fresh = fresh.bytes();
    // If a background thread is preempted in the middle of a round, memory is not reclaimed until it continues.
    let held = some_try(WAITS, || {
        map.sync();
        let held = map.bytes();
        let ratio = held as f64 / fresh as f64;
        let text =
            format!("one in {keep} of {count}: {full}, {passing} before `sync`, {held} now; fresh {fresh}: {ratio:.2}");
        // A tree of one page also has a root; if pages are half full, it has more pages.
        if held <= 3 * fresh + (32 << 10) {
            return Ok(text);
        }
        thread::sleep(WAIT);
        Err(text)
    });
    println!("{}, {held}", name::<S>());
    map.check_invariants();
    assert!((0..count).step_by(keep as usize).all(|n| session.get(&make(n)) == Some(n)));
}

#[test]
fn what_is_left_takes_little() {
    fn check<S: Kind>() {
        let (in_order, scattered) = (|n, _| n, |n: u64, count: u64| n * 1_000_003 % count);
        watchdog(USUAL, |_| {
            for keep in [2, 3, 4, 10, 100, 1000] {
                let count = sized(75_000, 2_000) as u64;
                thinned::<S, u64>(count, keep, |n| n, in_order);
                thinned::<S, u64>(count, keep, |n| n, scattered);
                thinned::<S, String>(count / 3, keep, rising, in_order);
                thinned::<S, String>(count / 3, keep, rising, scattered);
            }
        });
    }
    every_map!(check);
}

/// Short keys are stored in a `HydraList`'s pages, and long ones outside, so there are two allowances of memory that is
/// not counted yet. The rest of one allowance must not be used after keys of the other kind have filled the map.
#[test]
fn keys_of_two_kinds_share_the_limit() {
    const LIMIT: usize = sized(16 << 20, 256 << 10);
    /// What may exceed the limit: a block of pages, an entry and a page.
    const BEYOND: usize = sized(2 << 20, 128 << 10) + (64 << 10);
    fn short(n: u64) -> String {
        format!("{:08x}", scatter(n) as u32)
    }
    fn long(n: u64) -> String {
        format!("{:0200x}", scatter(n))
    }
    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            let kinds: [fn(u64) -> String; 2] = [short, long];
            for (first, second) in [(0, 1), (1, 0)] {
                let map: Map<S, String, u64> = Map::builder().memory_limit(LIMIT).build();
                let session = map.pin();
                assert_eq!(session.try_insert(kinds[second](0), 0), Ok(None));
                for kind in [first, second] {
                    // Pages with room accept a few more keys after the first refusal.
                    let (mut n, mut refused) = (0, 0);
                    while refused < 1_000 {
                        n += 1;
                        refused = if session.try_insert(kinds[kind](n), n).is_ok() { 0 } else { refused + 1 };
                    }
                    let bytes = map.bytes();
                    assert!(bytes <= LIMIT + BEYOND, "{}: {bytes} bytes, {LIMIT} allowed", S::NAME);
                }
                map.check_invariants();
            }
        });
    }
    every_map!(check);
}

/// Threads fill a map to its limit. Each time that they are refused, they remove some of their own entries. The map
/// exceeds the limit only by a bounded number of bytes, and can be filled again afterwards.
#[test]
fn crowds_at_the_limit() {
    const THREADS: u64 = sized(12, 3) as u64;

    fn at_the_limit<S: Kind, K: Key>(make: fn(u64) -> K) {
        let map = limited::<S, K>();
        let time = duration_or(Duration::from_millis(sized(300, 20) as u64));
        let results = crowd(THREADS as usize, time, |t, end| {
            let (session, key) = (map.pin(), |n: u64| make(n * THREADS + t as u64));
            let (mut first, mut next, mut refused, mut most) = (0, 0, 0, (0, 0));
            while Instant::now() < end {
                match session.try_insert(key(next), next) {
                    Ok(_) => next += 1,
                    Err(_) => {
                        let stats = map.stats();
                        most = most.max((stats.bytes - stats.garbage.bytes, stats.bytes));
                        refused += 1;
                        let some = first + (next - first).div_ceil(2);
                        (first..some).for_each(|n| assert!(session.delete(&key(n))));
                        first = some;
                    }
                }
            }
            (first..next).for_each(|n| assert!(session.delete(&key(n))));
            (next, refused, most)
        });
        map.check_invariants();
        assert!(map.is_empty());
        let stored: u64 = results.iter().map(|it| it.0).sum();
        let refused: u64 = results.iter().map(|it| it.1).sum();
        let of_all = |part: fn((usize, usize)) -> usize| results.iter().map(|it| part(it.2)).max().unwrap();
        let (live, most) = (of_all(|most| most.0), of_all(|most| most.1));
        assert!(live <= LIMIT + BLOCK + TWINS + THREADS as usize * (32 << 10), "{live} bytes, the limit is {LIMIT}");
        // Removals are never refused. So the memory of all removed entries may wait for a preempted reader, and so may
        // nodes that smaller nodes have replaced.
        assert!(most <= 3 * LIMIT, "{most} bytes with garbage, the limit is {LIMIT}");
        map.sync();
        let (held, again) = (map.bytes(), fill(&map, (0..).map(make)));
        println!(
            "{}: {stored} stored, {refused} refused, {live} bytes, {most} with garbage, {held}, {again} again",
            name::<S>()
        );
        assert!(again > LIMIT / 128, "{again} fit into the empty map");
    }

    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            at_the_limit::<S, u64>(|n| n);
            at_the_limit::<S, u64>(scatter);
            at_the_limit::<S, String>(email);
        });
    }
    every_map!(check);
}

/// A writer that holds an entry of the map does not wait for itself. At the limit `try_` operations refuse, and other
/// operations proceed, so the memory that these replace may exceed the limit. Without the entry the next write waits
/// until there is room.
#[test]
fn a_writer_with_an_entry_of_its_own() {
    const BACKLOG: usize = 1 << 20;
    /// The bytes of a value, including the allocator's overhead.
    const VALUE: usize = 1100;
    const MORE: usize = 2000;

    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            let map: Map<S, u64, [u8; 1000]> = Map::builder().backlog_limit(BACKLOG, OnBacklog::Wait).build();
            let session = map.pin();
            session.insert(1, [0; 1000]);
            let entry = session.get_entry(&1);
            let waits = || map.stats().garbage.bytes;
            let refused = (0..2 * MORE).find_map(|_| session.try_insert(1, [1; 1000]).err());
            assert!(matches!(refused, Some(Refused::Backlogged((1, _)))), "{refused:?}");
            let most = BACKLOG + BACKLOG / 32 + VALUE;
            assert!(waits() <= most, "{} bytes wait, the limit is {BACKLOG}", waits());
            let before = waits();
            (0..MORE).for_each(|_| _ = session.insert(1, [2; 1000]));
            let after = waits();
            assert!(after <= before + MORE * VALUE, "{after} bytes wait after {before}");
            drop(entry);
            session.insert(1, [3; 1000]);
            assert!(waits() <= most, "{} bytes wait, and nothing is held", waits());
        });
    }
    every_map!(check);
}

/// While another thread is reading, a thread that drains a map waits at the limit, as a thread that removes entries
/// does.
#[test]
fn draining_waits_for_readers() {
    const BACKLOG: usize = 1 << 20;
    const ENTRIES: u64 = 5000;

    fn check<S: Kind>() {
        watchdog(USUAL, |_| {
            let map: Map<S, u64, [u8; 1000]> = Map::builder().backlog_limit(BACKLOG, OnBacklog::Wait).build();
            map.pin().extend((0..ENTRIES).map(|key| (key, [0; 1000])));
            let waits = || map.stats().garbage.bytes;
            let read = map.pin().get_ref(&0);
            thread::scope(|scope| {
                let draining = scope.spawn(|| map.pin().drain_range::<u64, _>(..).count());
                while waits() <= BACKLOG {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(10));
                assert!(waits() <= 2 * BACKLOG, "{} bytes wait, the limit is {BACKLOG}", waits());
                drop(read);
                assert_eq!(draining.join().unwrap() as u64, ENTRIES);
            });
            assert!(map.is_empty());
        });
    }
    every_map!(check);
}
