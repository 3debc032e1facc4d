//! The room that a cache has for entries: after large entries have left, while removed entries wait to be freed, and
//! with weighers of different units. Also the bytes that `Heap` counts, and the calls of listeners.
#![cfg(not(archipelago_sim))]

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use archipelago_cache::{Cache, Cause, Heap};

/// A key that small entries do not have. A test's large entry has this key, or the entry at which a listener or a
/// weigher waits.
const LARGE: u64 = u64::MAX;
const CAPACITY: usize = 16 << 20;
const SMALL: usize = 1_000;
const SHARDS: [usize; 3] = [1, 16, 64];

fn weighed(shards: usize) -> Cache<u64, usize> {
    Cache::builder().shards(shards).weigher(CAPACITY, |_, weight: &usize| *weight)
}

/// Requests the keys below `count` three times, and inserts those that are absent. Returns how many are present then.
fn requested(cache: &Cache<u64, usize>, count: u64) -> usize {
    for _ in 0..3 {
        (0..count).filter(|key| cache.get(key).is_none()).for_each(|key| _ = cache.insert(key, SMALL));
    }
    cache.check_invariants();
    assert!(cache.stats().weight <= CAPACITY);
    (0..count).filter(|key| cache.contains(key)).count()
}

/// After a large entry was inserted and has left the cache, in whichever way, as many small entries fit as before.
#[test]
fn the_room_of_large_entries_returns_to_all_shards() {
    type Leave = fn(&Cache<u64, usize>);
    let ways: [Leave; 6] = [
        |cache| assert!(cache.remove(&LARGE)),
        |cache| assert!(cache.insert(LARGE, 1)),
        |cache| assert!(!cache.insert(LARGE, CAPACITY + 1)),
        |cache| assert!(cache.insert(LARGE - 1, CAPACITY)),
        |cache| cache.clear(),
        |cache| {
            cache.insert_for(LARGE, CAPACITY / 10 * 8, Duration::ZERO);
            assert_eq!(cache.sync(), 1);
        },
    ];
    for shards in SHARDS {
        // First more keys than fit, then about two thirds of the keys that fit.
        for count in [17_500, 11_000] {
            let cache = weighed(shards);
            let before = requested(&cache, count);
            for leave in ways {
                assert!(cache.insert(LARGE, CAPACITY / 10 * 8));
                leave(&cache);
                cache.remove(&(LARGE - 1));
                let after = requested(&cache, count);
                assert!(after * 100 >= before * 95, "{shards} shards: {after} of {count} keys, {before} before");
            }
        }
    }
}

/// Entries of a sixteenth of the capacity are inserted and removed again and again. An insertion may evict all entries
/// of its own shard, and evicts about the same part of the entries of each other shard. All shards get their room back.
#[test]
fn large_entries_that_come_and_go_starve_no_shard() {
    for shards in SHARDS {
        let cache = weighed(shards);
        let before = requested(&cache, 17_500);
        for large in 0..40 {
            let was = cache.stats();
            assert!(cache.insert(LARGE - large, CAPACITY / 64 * 4));
            let left = (cache.stats().evictions - was.evictions) as usize;
            // The most: the large entry's weight, all entries of the large entry's shard (which may have two shares),
            // and one entry too many for each shard.
            let most = (CAPACITY / 64 * 4 + CAPACITY / shards * 2) / SMALL + shards;
            assert!(left <= most, "{shards} shards: {left} entries were evicted");
            cache.remove(&(LARGE - large));
            requested(&cache, 17_500);
        }
        let after = requested(&cache, 17_500);
        assert!(after * 100 >= before * 95, "{shards} shards: {after} keys, {before} before");
        // If a shard were starved, few of its keys would be present. (The shards' numbers of keys differ a little by
        // chance.)
        let fitting = requested(&cache, 11_000);
        assert!(fitting > 10_000, "{shards} shards: {fitting} of 11000");
    }
}

/// Threads insert and remove entries that are smaller and larger than a shard's share, and change the capacity. No room
/// is lost.
#[test]
fn large_entries_come_and_go_in_many_threads() {
    let cache = weighed(16);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut state = thread + 1;
                for turn in 0..4_000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (key, choice) = (state >> 33, state >> 29 & 15);
                    match choice {
                        0 => _ = cache.insert(key % 16, CAPACITY / 4),
                        1 => _ = cache.insert(key % 16, CAPACITY / 16 * 3 / 2),
                        2 => _ = cache.remove(&(key % 16)),
                        3 if turn % 50 == 0 => cache.resize(CAPACITY / (1 + key as usize % 2)),
                        4 if turn % 50 == 0 => _ = cache.sync(),
                        _ => _ = cache.insert(key % 20_000, SMALL),
                    }
                }
            });
        }
    });
    cache.resize(CAPACITY);
    cache.check_invariants();
    cache.clear();
    assert!(requested(&cache, 11_000) > 10_800);
}

/// A hasher that returns the key.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// For a large entry, each of the other shards gives up about the same part of its room.
#[test]
fn large_entries_take_little_from_each_shard() {
    const MANY: u64 = 64;
    let in_shard = |shard: u64, number: u64| shard << 40 | (number & 0xff) << 32 | number;
    let builder = Cache::<u64, usize>::builder().hasher(BuildHasherDefault::<Same>::default());
    let cache = builder.shards(MANY as usize).weigher(CAPACITY, |_, weight: &usize| *weight);
    let share = CAPACITY as u64 / MANY / SMALL as u64;
    for shard in 0..MANY {
        (0..share).for_each(|number| assert!(cache.insert(in_shard(shard, number), SMALL)));
    }
    assert!(cache.insert(in_shard(0, 1_000), CAPACITY / MANY as usize * 4));
    let least = || (1..MANY).map(|shard| (0..share).filter(|at| cache.contains(&in_shard(shard, *at))).count()).min();
    assert!(least() > Some(share as usize * 8 / 10), "{:?} of {share} entries are left", least());
    // An entry of four fifths of the capacity leaves some entries in each other shard.
    assert!(cache.insert(in_shard(0, 1_000), CAPACITY / 5 * 4));
    assert!(least() > Some(share as usize / 20), "{:?} of {share} entries are left", least());
    cache.check_invariants();
}

/// While a call of a listener lasts, no other thread's insertions are refused.
#[test]
fn slow_listeners_hold_up_nothing() {
    let (begun, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (told, may_end) = (begun.clone(), end.clone());
    let listener = move |key: &u64, _: &usize, _| {
        if *key == LARGE {
            told.store(true, Relaxed);
            while !may_end.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let cache = Cache::<u64, usize>::builder().on_leave(listener).entries(1_000);
    (0..1_000).chain([LARGE]).for_each(|key| assert!(cache.insert(key, 0)));
    thread::scope(|scope| {
        scope.spawn(|| cache.remove(&LARGE));
        while !begun.load(Relaxed) {
            thread::yield_now();
        }
        // If removed entries had to wait for the listener as for a reader, they would reach the bound on waiting
        // entries after some hundred insertions.
        let refused = (0..3_000).filter(|key| !cache.insert(*key, 0)).count();
        end.store(true, Relaxed);
        assert_eq!(refused, 0);
    });
    cache.check_invariants();
}

/// An entry that a method has removed counts as waiting until the listener has been called for it. So memory stays
/// bounded while a call of the listener lasts.
#[test]
fn what_listeners_have_not_seen_is_bounded() {
    const ENTRIES: usize = 1_000;
    let (tell, told) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let waits = Mutex::new((tell, may_go_on));
    let first = AtomicBool::new(true);
    let listener = move |_: &usize, _: &usize, cause| {
        if cause == Cause::Removed && first.swap(false, Relaxed) {
            let waits = waits.lock().unwrap();
            waits.0.send(()).unwrap();
            waits.1.recv().unwrap();
        }
    };
    let cache = Cache::<usize, usize>::builder().on_leave(listener).shards(1).entries(ENTRIES);
    (0..ENTRIES).for_each(|key| assert!(cache.insert(key, 0)));
    thread::scope(|scope| {
        scope.spawn(|| cache.clear());
        told.recv().unwrap();
        let kept = (0..ENTRIES).filter(|key| cache.insert(*key, 0)).count();
        go_on.send(()).unwrap();
        assert!(kept < ENTRIES / 10, "{kept}");
    });
    assert!((0..ENTRIES).all(|key| cache.insert(key, 0)), "all have been told");
}

/// Entries that a sweep (`invalidate_if`) has removed count as waiting until the sweep ends. So other entries do not
/// use all of their room before.
#[test]
fn what_slow_sweeps_have_removed_is_bounded() {
    const ENTRIES: usize = 1_000;
    let cache = Cache::<usize, usize>::builder().shards(1).entries(ENTRIES);
    (0..ENTRIES).for_each(|key| assert!(cache.insert(key, 0)));
    let seen = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            cache.invalidate_if(|_, _| {
                // The last entry: all others have been removed.
                if seen.fetch_add(1, Relaxed) == ENTRIES - 1 {
                    tell.send(()).unwrap();
                    may_go_on.recv().unwrap();
                }
                true
            })
        });
        told.recv().unwrap();
        let kept = (0..ENTRIES).filter(|key| cache.insert(*key, 0)).count();
        go_on.send(()).unwrap();
        assert!(kept < ENTRIES / 2, "{kept}");
    });
    assert!((0..ENTRIES).all(|key| cache.insert(key, 0)), "nothing waits any more");
    cache.check_invariants();
}

/// While a call of a weigher lasts, no other thread's insertions are refused.
#[test]
fn slow_weighers_hold_up_nothing() {
    let (tell, told) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let waits = Mutex::new((tell, may_go_on));
    let cache = Cache::<u64, usize>::builder().weigher(64 << 10, move |key, _| {
        if *key == LARGE {
            let waits = waits.lock().unwrap();
            waits.0.send(()).unwrap();
            waits.1.recv().unwrap();
        }
        64
    });
    thread::scope(|scope| {
        scope.spawn(|| assert!(cache.insert(LARGE, 0)));
        told.recv().unwrap();
        let refused = (0..3_000).filter(|key| !cache.insert(*key, 0)).count();
        go_on.send(()).unwrap();
        assert_eq!(refused, 0);
    });
}

/// While a reader stays pinned, entries of less than two capacities are accepted, also if the weigher's unit is large
/// (here an entry weighs a hundredth of the capacity).
#[test]
fn removed_entries_have_a_bound_in_any_unit() {
    let cache: Cache<u64, usize> = Cache::builder().weigher(100, |_, _| 1);
    let pinned = cache.pin();
    let kept = (0..1_000).filter(|key| cache.insert(*key, 0)).count();
    assert!((100..200).contains(&kept), "{kept}");
    drop(pinned);
    assert!(cache.insert(0, 0));
    let pinned = cache.pin();
    cache.resize(10);
    let kept = (0..1_000).filter(|key| cache.insert(*key, 0)).count();
    assert!(kept <= 10, "{kept}: what waits is bounded by the present capacity");
    drop(pinned);
}

/// A value that reports memory, but has no destructor.
struct Handle;

impl Heap for Handle {
    fn heap_bytes(&self) -> usize {
        1 << 20
    }
}

#[test]
fn collections_weigh_items_without_destructors() {
    let items = |count| (0..count).map(|_| Handle).collect::<Vec<_>>();
    assert_eq!([Handle, Handle].heap_bytes(), 2 << 20);
    assert!((2 << 20..3 << 20).contains(&items(2).heap_bytes()));
    assert!((3 << 20..4 << 20).contains(&items(3).into_boxed_slice().heap_bytes()));
    assert_eq!([(1, Some(Handle), 2.0)].heap_bytes(), 1 << 20);
    assert!(<(u8, Option<[char; 3]>, ())>::owns_nothing() && !<(u8, Option<Handle>)>::owns_nothing());
    let numbers = vec![[1_u64; 4]; 1_000];
    assert!((32_000..40_000).contains(&numbers.heap_bytes()));
    let cache: Cache<u64, Vec<Handle>> = Cache::new(4 << 20);
    assert!(cache.insert(1, items(3)) && !cache.insert(2, items(5)));
}

/// If a listener panics, it is called for the other entries nevertheless.
#[test]
fn everything_that_leaves_is_told_once() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let listener = |key: &u64, _: &usize, _| {
        TOLD.fetch_add(1, Relaxed);
        assert!(!key.is_multiple_of(3), "planned");
    };
    let cache = Cache::<u64, usize>::builder().on_leave(listener).shards(1).weigher(1_000, |_, weight| *weight);
    (0..10).for_each(|key| assert!(cache.insert(key, 100)));
    let quietly = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    assert!(quietly(&|| _ = cache.insert(11, 1_000)), "one insertion evicts ten");
    assert_eq!(TOLD.swap(0, Relaxed), 10);
    assert!(cache.contains(&11));
    (20..30).for_each(|key| assert!(cache.insert(key, 100)));
    TOLD.store(0, Relaxed);
    assert!(quietly(&|| cache.clear()));
    assert_eq!(TOLD.swap(0, Relaxed), 10);
    assert!(quietly(&|| _ = cache.insert(30, 1_001)), "a refused entry is told, too");
    assert_eq!(TOLD.load(Relaxed), 1);
    cache.check_invariants();
}
