//! `EunoBTree` and `EunoSkipList` under loads that scatter and merge their chunks (the leaves; a contended chunk is
//! scattered: new keys go to several parts of it): many more threads than processors that use few keys, pops from both
//! ends, sliding windows of keys, concurrent bulk operations. The tests bound memory and the duration of the longest
//! operation.

#[path = "common/crowds.rs"]
mod crowds;
#[path = "common/quiet.rs"]
#[allow(dead_code)]
mod quiet;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{self, Counting, alone, beside, crowd, duration, some_try};
use archipelago_check::watchdog::watchdog;
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::euno::{Contention, SLOTS, Skip, Tree};
use archipelago_index::map::{Kind, Map, Stats};
use archipelago_index::{EunoBTree, EunoSkipList, Key};
use archipelago_platform::thread;
use archipelago_tested as _;
use crowds::in_a_crowd;
use quiet::{soon_shows, soon_syncs};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[global_allocator]
static HEAP: Counting = Counting::new();

const fn sized(native: u64, miri: u64) -> u64 {
    if cfg!(miri) { miri } else { native }
}

/// Returns distinct keys in no order.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A scattered chunk can have more entries than fit into a chunk without parts. Pops from the ends must work in this
/// case, too.
fn pops<S: Kind>(map: Map<S, u64, Counted>, counter: DropCounter) {
    let map_ = map.pin();
    let count = sized(5_000, 150);
    // The keys are inserted in no order, so that parts fill.
    (0..count).map(|n| n * 7_919 % count).for_each(|n| _ = map_.insert(n, counter.value(n)));
    for n in 0..count / 2 {
        assert_eq!(map_.pop_first().map(|(key, value)| (key, value.tag())), Some((n, n)));
        let last = count - 1 - n;
        assert_eq!(map_.pop_last().map(|(key, value)| (key, value.tag())), Some((last, last)));
        // Some removed keys are inserted again, between the others.
        if n % 3 == 0 {
            _ = map_.insert(n, counter.value(n));
            assert_eq!(map_.pop_first().map(|(key, _)| key), Some(n));
        }
    }
    assert!(map_.pop_first().is_none() && map_.pop_last().is_none());
    map.check_invariants();
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn scattered_chunks_are_taken_from_at_both_ends() {
    let _beside = beside();
    for transactions in [true, false] {
        for contention in [Contention::Always, Contention::Never, Contention::Adaptive] {
            let tree = EunoBTree::builder().contention(contention).transactions(transactions).build();
            pops::<Tree>(tree, DropCounter::new());
            let list = EunoSkipList::builder().contention(contention).transactions(transactions).build();
            pops::<Skip>(list, DropCounter::new());
        }
    }
}

/// A crowd uses a map. With many keys few chunks are contended, and with few keys every chunk is.
fn crowded<S: Kind>(keys: u64) {
    in_a_crowd(Map::<S, u64, Counted>::new(), DropCounter::new(), keys, 64, (5, duration() / 2));
}

#[test]
fn crowds_in_few_keys_and_many() {
    let _alone = alone();
    watchdog(hostile::limit(), |_| {
        for keys in [200, 20_000] {
            crowded::<Tree>(keys);
            crowded::<Skip>(keys);
        }
    });
}

/// Returns the bytes of chunks and of the index over them, without free memory of the arenas and memory that waits for
/// readers.
fn taken(stats: &Stats) -> usize {
    stats.room / SLOTS * 1984 + stats.layers
}

/// Returns the bytes per key. The memory that `taken` omits is small compared with a large map.
fn for_each_key<S: Kind>(map: &Map<S, u64, u64>) -> f64 {
    let stats = map.stats();
    taken(&stats) as f64 / stats.entries as f64
}

/// If keys are inserted in random order, the memory per key is bounded at any number of keys, not only at numbers at
/// which chunks are full.
fn bytes_a_key<S: Kind>() {
    let map: Map<S, u64, u64> = Map::new();
    let (session, first) = (map.pin(), sized(100_000, 2_000));
    let mut from = 0;
    for percent in [100, 125, 150, 175, 200] {
        let count = first * percent / 100;
        (from..count).for_each(|n| _ = session.insert(scatter(n), n));
        from = count;
        let bytes = for_each_key(&map);
        println!("{}: {bytes:.1} bytes for each of {count} keys", S::NAME);
        assert!(cfg!(miri) || bytes <= 26.0, "{bytes} bytes for each of {count} keys");
    }
    map.check_invariants();
}

#[test]
fn keys_in_no_order_take_26_bytes_at_most() {
    let _beside = beside();
    bytes_a_key::<Tree>();
    bytes_a_key::<Skip>();
}

/// Keys in ascending order leave chunks full, even if several threads insert them slightly out of order. A thread that is
/// preempted between its draw of a key and the insertion comes to a full chunk, which is split.
fn rising<S: Kind>(threads: u64, most: f64) -> Result<(), String> {
    let map: Map<S, u64, u64> = Map::new();
    let (next, count) = (AtomicU64::new(0), sized(100_000, 1_000));
    crowd(threads as usize, Default::default(), |_, _| {
        let session = map.pin();
        for _ in 0..count / threads {
            let key = next.fetch_add(1, Relaxed);
            assert_eq!(session.insert(key, key), None);
        }
    });
    map.check_invariants();
    let bytes = for_each_key(&map);
    println!("{}: {bytes:.1} bytes a key that rise from {threads} threads", S::NAME);
    if cfg!(miri) || bytes <= most { Ok(()) } else { Err(format!("{}: {bytes} bytes a key", S::NAME)) }
}

#[test]
fn rising_keys_fill_chunks() {
    let _beside = beside();
    for (threads, most, tries) in [(1, 19.5, 1), (4, 23.0, 5)] {
        some_try(tries, || rising::<Tree>(threads, most));
        some_try(tries, || rising::<Skip>(threads, most));
    }
}

/// A queue: keys are inserted at one end in ascending order, and removed at the other end. Emptied chunks are removed,
/// whichever thread empties them.
fn window<S: Kind>(threads: u64) {
    let map: Map<S, u64, u64> = Map::new();
    let (next, oldest, width) = (AtomicU64::new(0), AtomicU64::new(0), sized(5_000, 300));
    let turn = || {
        crowd(threads as usize, Default::default(), |_, _| {
            let session = map.pin();
            for _ in 0..8 * width / threads {
                let key = next.fetch_add(1, Relaxed);
                assert_eq!(session.insert(key, key), None);
                if key >= width {
                    let old = oldest.fetch_add(1, Relaxed);
                    // The thread that inserts this key may have been preempted before the insertion.
                    while session.remove(&old).is_none() {
                        thread::yield_now();
                    }
                }
            }
        });
        map.sync();
    };
    turn();
    let first = map.stats();
    for _ in 0..6 {
        turn();
        // A chunk that cannot be merged at once waits until the next chunk has become emptier.
        let enough = 2 * first.entries / (SLOTS / 2) + 16;
        soon_shows(&map, |stats| stats.pages <= enough);
        // Arenas keep some free memory in addition. If emptied chunks stayed, each round would leave more memory.
        soon_syncs(&map, |stats| stats.bytes <= 2 * first.bytes + (1 << 20));
    }
    map.check_invariants();
    let left = map.len();
    assert_eq!((0..).take_while(|_| map.pin().pop_first().is_some()).count(), left);
    soon_syncs(&map, |stats| stats.pages <= 8);
}

#[test]
fn windows_that_slide_take_what_they_hold() {
    let _beside = beside();
    for threads in [1, 4] {
        window::<Tree>(threads);
        window::<Skip>(threads);
    }
}

/// A map is filled and emptied again and again, in various orders. The empty map is small, and the full map is at most
/// half as large again as in the first three rounds.
fn refilled<S: Kind>(key: fn(u64, u64) -> u64) {
    let map: Map<S, u64, u64> = Map::new();
    let (count, threads) = (sized(20_000, 300), 3);
    let share = |work: &(dyn Fn(u64) + Sync)| {
        crowd(threads as usize, Default::default(), |me, _| {
            (me as u64..count).step_by(threads as usize).for_each(work)
        });
    };
    let mut most = 0;
    for round in 0..20 {
        share(&|n| assert_eq!(map.pin().insert(key(n, round), n), None));
        if round < 3 {
            most = most.max(taken(&map.stats()));
        }
        // Arenas that have more than twice the memory in use are made smaller.
        let is_small = |stats: &Stats| taken(stats) <= most * 3 / 2 && stats.bytes <= 2 * taken(stats) + (64 << 10);
        soon_syncs(&map, is_small);
        let nth = |n| if round % 2 == 0 { n } else { count - 1 - n };
        share(&|n| assert_eq!(map.pin().remove(&key(nth(n), round)), Some(nth(n))));
        assert!(map.is_empty());
        map.check_invariants();
        soon_syncs(&map, |stats| stats.bytes <= 64 << 10);
    }
}

/// Enough chunks for an index of several levels are filled and emptied: in order, against the order, and in no order.
/// The index splits and merges its nodes. Each node owns its keys, which are boxed if they are byte strings.
fn levels_come_and_go<S: Kind, K: Key>(make: fn(u64) -> K) {
    let counter = DropCounter::new();
    let map: Map<S, K, Counted> = Map::new();
    let count = sized(20_000, 600);
    let orders: [fn(u64, u64) -> u64; 3] = [|n, _| n, |n, count| count - 1 - n, |n, count| n * 7_919 % count];
    for fill in orders {
        for empty in orders {
            let session = map.pin();
            (0..count)
                .map(|n| fill(n, count))
                .for_each(|n| assert!(session.insert(make(n), counter.value(n)).is_none()));
            map.check_invariants();
            for (turn, n) in (0..count).map(|n| empty(n, count)).enumerate() {
                assert_eq!(session.remove(&make(n)).map(|value| value.tag()), Some(n));
                if (turn as u64).is_multiple_of(count / 4) {
                    map.check_invariants();
                }
            }
            assert!(map.is_empty());
            map.check_invariants();
        }
    }
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn inner_levels_come_and_go() {
    let _beside = beside();
    levels_come_and_go::<Tree, u64>(|n| n);
    levels_come_and_go::<Tree, String>(|n| format!("{n:08}"));
    levels_come_and_go::<Skip, String>(|n| format!("{n:08}"));
}

#[test]
fn maps_that_are_refilled_do_not_grow() {
    let _beside = beside();
    for key in [|n, _| n, |n, round| scatter(n) ^ round, |n, round| round << 32 | n] {
        refilled::<Tree>(key);
        refilled::<Skip>(key);
    }
}

/// While a scan shows the entries of one chunk, the next chunk is merged into it. The scan continues behind the entries
/// that it has shown.
fn merges_under_a_scan<S: Kind>() {
    for kept in [1, 7, 40] {
        let map: Map<S, u64, u64> = (0..1_000).map(|n| (n, n)).collect();
        let (session, mut seen) = (map.pin(), Vec::new());
        let stays = |n: u64| n.is_multiple_of(kept) && n % 111 < 50;
        session.scan(&0, usize::MAX, |key, _| {
            if key == 0 {
                (1..900).filter(|&n| !stays(n)).for_each(|n| _ = session.remove(&n));
            }
            seen.push(key);
        });
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "a key twice or out of order: {seen:?}");
        assert!((0..1_000).filter(|&n| n >= 900 || stays(n)).all(|n| seen.contains(&n)), "a key was missed");
        map.check_invariants();
    }
}

/// While a scan shows the last entry of a chunk, the next chunk is merged into this chunk.
fn merges_what_is_next<S: Kind>() {
    let full = SLOTS as u64;
    for shown in [full, 2 * full, 3 * full, 4 * full] {
        let map: Map<S, u64, u64> = (0..8 * full).map(|key| (key, key)).collect();
        let session = map.pin();
        let mut seen = Vec::new();
        session.scan(&0, usize::MAX, |key, _| {
            seen.push(key);
            if key + 1 == shown {
                session.retain(|key, _| key % 8 == 0);
                // The entries are out of order, so that the whole chunk is copied from its beginning.
                session.insert(shown - full + 5, 0);
            }
        });
        assert!(seen.is_sorted_by(|a, b| a < b), "{}: an entry is shown twice: {seen:?}", S::NAME);
        assert!((0..8 * full).step_by(8).all(|key| seen.binary_search(&key).is_ok()));
    }
}

#[test]
fn chunks_merge_under_a_scan() {
    let _beside = beside();
    merges_what_is_next::<Tree>();
    merges_what_is_next::<Skip>();
    merges_under_a_scan::<Tree>();
    merges_under_a_scan::<Skip>();
}

/// Several threads run all bulk operations over the same ranges of long keys with a common prefix. Keys that
/// no thread removes are present throughout.
fn bulk<S: Kind>() {
    let counter = DropCounter::new();
    let count = sized(2_000, 120);
    let key = |n: u64| format!("{}{n:08}", "p/".repeat(30));
    let stays = |n: u64| n.is_multiple_of(100);
    let entry = |n: u64| (key(n), counter.value(n));
    let map: Map<S, String, Counted> = (0..count).map(entry).collect();
    crowd(6, Default::default(), |me, _| {
        let session = map.pin();
        for turn in 0..6 {
            match (me + turn) % 6 {
                0 => session.extend((count / 4..count).map(entry)),
                1 => (0..count).step_by(100).for_each(|n| _ = session.remove_range(key(n + 1)..key(n + 100))),
                2 => session.retain(|_, value| stays(value.tag()) || value.tag() % 3 != 0),
                3 => (0..count).step_by(100).for_each(|n| {
                    session
                        .drain_range(key(n + 1)..key(n + 100))
                        .for_each(|entry| assert!(!stays(entry.value().tag())));
                }),
                4 => {
                    let mut other: Map<S, String, Counted> = (0..count).filter(|&n| !stays(n)).map(entry).collect();
                    map.append(&mut other);
                    assert!(other.is_empty());
                }
                _ => {
                    let seen: Vec<u64> = session.iter().map(|(_, value)| value.tag()).collect();
                    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
                    assert_eq!(seen.iter().filter(|&&n| stays(n)).count() as u64, count.div_ceil(100));
                }
            }
        }
    });
    map.check_invariants();
    let mut lower = map;
    let upper = lower.split_off(&key(count / 2));
    assert!((0..count / 2).step_by(100).all(|n| lower.pin().contains_key(&key(n))));
    assert!((count / 2..count).step_by(100).all(|n| upper.pin().contains_key(&key(n))));
    upper.check_invariants();
    lower.check_invariants();
    drop((lower, upper));
    counter.assert_all_dropped();
}

#[test]
fn bulk_operations_side_by_side() {
    let _beside = beside();
    bulk::<Tree>();
    bulk::<Skip>();
}

/// Hundreds of threads start, work and end. The map keeps no memory for ended threads, and frees what they have
/// removed.
fn comers_and_goers<S: Kind>() {
    let map: Map<S, u64, String> = Map::new();
    let (batches, mut most) = (sized(60, 3), 0);
    for batch in 0..batches {
        thread::scope(|scope| {
            for me in 0..6 {
                let map = &map;
                scope.spawn(move || {
                    let session = map.pin();
                    let mine = || (0..200).map(|n| n * 6 + me);
                    mine().for_each(|key| assert_eq!(session.insert(key, format!("{batch}")), None));
                    mine().for_each(|key| assert_eq!(session.remove(&key), Some(format!("{batch}"))));
                });
            }
        });
        map.sync();
        map.check_invariants();
        let bytes = soon_shows(&map, |stats| batch < batches / 2 || stats.bytes <= 2 * most).bytes;
        if batch < batches / 2 {
            most = most.max(bytes);
        }
    }
}

#[test]
fn threads_come_and_go() {
    let _beside = beside();
    comers_and_goers::<Tree>();
    comers_and_goers::<Skip>();
}

/// Half of the keys have been removed in order, ascending or descending. Hardly any of their chunks is left, so the
/// ends of the map are found as fast as before.
#[test]
fn nothing_is_left_where_keys_were_removed_in_order() {
    fn check<S: Kind>() {
        const KEYS: u64 = 300_000;
        let made = |keys: core::ops::Range<u64>| keys.map(|key| (key, key)).collect::<Map<S, u64, u64>>();
        let few_are_left = |keys: &mut dyn Iterator<Item = u64>, enough: usize| {
            let map = made(0..2 * KEYS);
            let session = map.pin();
            keys.for_each(|key| assert!(session.delete(&key)));
            map.sync();
            map.check_invariants();
            println!("{enough} chunks would do");
            // No other `sync`, which might merge more chunks.
            soon_shows(&map, |stats| stats.pages < enough + 12);
        };
        let (upper, lower) = (made(KEYS..2 * KEYS).stats().pages, made(0..KEYS).stats().pages);
        few_are_left(&mut (0..KEYS), upper);
        few_are_left(&mut (KEYS..2 * KEYS).rev(), lower);
    }
    let _beside = beside();
    check::<Tree>();
    check::<Skip>();
}

/// If an entry is removed from a sorted chunk, the other entries stay present, each with its tag (a byte of a hash of
/// the key), whatever the positions of their tags in a word.
#[test]
fn each_entry_can_leave_a_chunk_in_order() {
    fn check<S: Kind>(map: &Map<S, u64, u64>) {
        let session = map.pin();
        for count in [1, 8, 9, 16, SLOTS as u64].into_iter().filter(|&count| count <= sized(SLOTS as u64, 9)) {
            for gone in 0..count {
                (0..count).for_each(|key| _ = session.insert(key, key));
                assert_eq!(session.remove(&gone), Some(gone));
                map.check_invariants();
                let left = (0..count).filter(|&key| key != gone);
                assert!(session.iter().map(|(key, _)| key).eq(left.clone()), "{gone} of {count}");
                assert!((0..count).all(|key| (session.get(&key) == Some(key)) == (key != gone)), "{gone} of {count}");
                left.for_each(|key| assert_eq!(session.remove(&key), Some(key), "{gone} of {count}"));
            }
        }
    }
    let _beside = beside();
    for transactions in [true, false] {
        check::<Tree>(&EunoBTree::builder().transactions(transactions).build());
        check::<Skip>(&EunoSkipList::builder().transactions(transactions).build());
    }
}
