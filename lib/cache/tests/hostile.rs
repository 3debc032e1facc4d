//! Stress tests: many more threads than processors, readers that stay, users' code that panics or uses the cache, keys
//! that all have the same hash.
#![cfg(not(archipelago_sim))]

use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Once, OnceLock, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_cache::{Cache, Cause, Heap};
use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{
    Counting, alone, beside, crowd, duration, in_turns, longest_gap, press, some_try, within,
};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// The bytes that each thread may use in addition to the bound.
const OF_A_THREAD: usize = 64 << 10;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns the most bytes that a cache of `capacity` may use with `threads` threads: entries, removed entries that are
/// not freed yet, and tables.
fn bound(capacity: usize, threads: usize) -> usize {
    capacity + capacity / 100 + OF_A_THREAD * (threads + 1)
}

#[test]
fn crowds_stay_within_the_bound() {
    let _alone = alone();
    for threads in [2, 64] {
        const CAPACITY: usize = 8 << 20;
        HEAP.reset_peak();
        let before = HEAP.bytes();
        let cache: Cache<u64, Box<[u8]>> = Cache::new(CAPACITY);
        let heaviest = AtomicUsize::new(0);
        crowd(threads, duration(), |thread, end| {
            let mut state = thread as u64;
            while Instant::now() < end {
                for _ in 0..100 {
                    let (key, len) = (random(&mut state) % 20_000, random(&mut state) % 2_000);
                    cache.get_or_insert_with(key, |_| vec![0; len as usize].into());
                    if key % 16 == 0 {
                        cache.remove(&key);
                    }
                }
                heaviest.fetch_max(cache.stats().weight, Relaxed);
            }
        });
        assert!(heaviest.load(Relaxed) <= CAPACITY);
        let stats = cache.stats();
        assert!(stats.weight > CAPACITY * 9 / 10, "{stats:?}");
        let peak = HEAP.peak() - before;
        println!("{threads} threads: {} KiB at the most, of {}", peak >> 10, bound(CAPACITY, threads) >> 10);
        assert!(peak <= bound(CAPACITY, threads), "{peak} bytes, {stats:?}");
        cache.check_invariants();
    }
}

/// Many more threads than processors evict, retire and free entries. No operation lasts much longer than the pauses of
/// threads that only read the clock.
#[test]
fn no_operation_of_a_crowd_waits_for_long() {
    let _alone = alone();
    const THREADS: usize = 64;
    some_try(5, || {
        let cache: Cache<u64, Box<[u8]>> = Cache::new(8 << 20);
        let gap = || longest_gap(THREADS, duration() / 4);
        let operation = |thread: usize, turn: u64| {
            let mut state = turn * THREADS as u64 + thread as u64;
            let (key, len) = (random(&mut state) % 20_000, random(&mut state) % 2_000);
            match random(&mut state) % 8 {
                0 => _ = cache.remove(&key),
                1 | 2 => _ = cache.insert(key, vec![0; len as usize].into()),
                3 => _ = cache.insert_for(key, vec![0; len as usize].into(), Duration::from_millis(len % 4)),
                4 => _ = cache.get_or_insert_with(key, |_| vec![0; len as usize].into()),
                _ => _ = cache.with(&key, |value| value.len()),
            }
        };
        let ((longest, count), gap) = in_turns(gap, || press(THREADS, duration(), operation));
        println!("{count} operations");
        within("operations", 8, longest, gap)
    });
}

/// Each thread keeps memory for future entries. This memory stays within the bound, whichever entries are inserted and
/// removed, and is freed with the cache.
#[test]
fn what_threads_keep_is_little_and_freed() {
    let _alone = alone();
    const CAPACITY: usize = 8 << 20;
    const THREADS: usize = 16;
    let before = HEAP.bytes();
    let cache: Cache<u64, [u8; 1_000]> = Cache::new(CAPACITY);
    HEAP.reset_peak();
    crowd(THREADS, duration() / 4, |thread, end| {
        let mut state = thread as u64;
        while Instant::now() < end {
            let key = random(&mut state) % 10_000;
            (key..key + 200).for_each(|key| _ = cache.insert(key, [1; 1_000]));
            (key..key + 150).for_each(|key| _ = cache.remove(&key));
        }
    });
    let peak = HEAP.peak() - before;
    println!("{} KiB at the most, of {}", peak >> 10, bound(CAPACITY, THREADS) >> 10);
    assert!(peak <= bound(CAPACITY, THREADS), "{peak} bytes");
    cache.clear();
    cache.sync();
    let left = HEAP.bytes() - before;
    assert!(left <= cache.stats().overhead_bytes + THREADS * OF_A_THREAD, "{left} bytes");
    drop(cache);
    let left = HEAP.bytes().saturating_sub(before);
    assert!(left <= 64 << 10, "{left} bytes are lost");
}

#[test]
fn a_reader_that_stays_costs_hits_and_no_memory() {
    let _alone = alone();
    const CAPACITY: usize = 4 << 20;
    let cache: Cache<u64, Vec<u8>> = Cache::new(CAPACITY);
    (0..4_000).for_each(|key| _ = cache.insert(key, vec![1; 1_000]));
    HEAP.reset_peak();
    let before = HEAP.bytes();
    let pinned = cache.pin();
    let held: Vec<&Vec<u8>> = (0..4_000).filter_map(|key| pinned.get(&key)).collect();
    let refused = thread::scope(|scope| {
        let inserts = || (4_000..40_000_u64).filter(|key| !cache.insert(*key, vec![2; 1_000])).count();
        [scope.spawn(inserts), scope.spawn(inserts)].into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert!(held.iter().all(|value| value.iter().all(|byte| *byte == 1)), "what was lent stays");
    assert!(refused > 60_000, "{refused}");
    let grown = HEAP.peak().saturating_sub(before);
    assert!(grown < bound(CAPACITY, 3) - CAPACITY, "{grown} bytes");
    drop(held);
    drop(pinned);
    assert!(cache.insert(1 << 20, vec![3; 1_000]), "when the reader has gone, entries come in again");
}

/// The cache has a limit on the number of entries, and a reader keeps removed entries from being freed. Removed entries
/// that wait may not exceed a hundredth of the limit, plus 512, plus the unused part of the limit, plus those that a
/// thread has not handed over yet. Once they reach this sum, insertions are refused.
#[test]
fn a_reader_that_stays_keeps_few_entries_waiting() {
    let _beside = beside();
    let cache: Cache<u32, u32> = Cache::builder().entries(100);
    let pinned = cache.pin();
    let kept = (0..50_000).filter(|key| cache.insert(*key, 0)).count();
    assert!((100..100 + 1 + 2 * 512).contains(&kept), "{kept}");
    drop(pinned);
    assert!(cache.insert(0, 0));
}

/// A hasher that returns the same hash for all keys.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        42
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn keys_that_all_collide_are_told_apart() {
    let _beside = beside();
    let cache: Cache<u32, u32, _, _> = Cache::builder().hasher(BuildHasherDefault::<Same>::default()).entries(100);
    for round in 0..3 {
        (0..80).for_each(|key| assert!(cache.insert(key, key + round)));
        assert!((0..80).all(|key| cache.get(&key) == Some(key + round)));
    }
    (0..40).for_each(|key| assert!(cache.remove(&key)));
    assert!((0..80).all(|key| cache.get(&key).is_some() == (key >= 40)));
    (100..400).for_each(|key| _ = cache.insert(key, key));
    assert_eq!(cache.stats().len, 100);
    cache.check_invariants();
}

#[test]
fn every_value_is_dropped_once() {
    let _beside = beside();
    let drops = DropCounter::new();
    let cache = Cache::builder().entries(500);
    crowd(8, duration() / 4, |thread, end| {
        let mut state = thread as u64;
        while Instant::now() < end {
            let key = random(&mut state) % 1_000;
            match random(&mut state) % 4 {
                0 => _ = cache.insert(key, drops.value(key)),
                1 => _ = cache.get_or_insert_with(key, |key| drops.value(*key)),
                2 => _ = cache.remove(&key),
                _ => assert!(cache.with(&key, |value| value.tag()).is_none_or(|tag| tag == key)),
            }
        }
    });
    cache.check_invariants();
    drop(cache);
    drops.assert_all_dropped();
}

/// A cache has light and heavy entries, with and without expiry, of a type with a large alignment. Each entry is
/// dropped once, the weight stays within the bound, and all memory is freed.
#[test]
fn entries_of_every_kind_share_a_cache() {
    #[repr(align(128))]
    struct Wide(Counted, usize);
    const CAPACITY: usize = 4 << 20;
    let _alone = alone();
    let before = HEAP.bytes();
    for idle in [None, Some(Duration::from_millis(20))] {
        let drops = DropCounter::new();
        let builder = Cache::builder();
        let builder = idle.into_iter().fold(builder, |builder, time| builder.time_to_idle(time));
        let cache: Cache<u64, Wide> = builder.weigher(CAPACITY, |_, value: &Wide| value.1);
        crowd(8, duration() / 4, |thread, end| {
            let mut state = thread as u64;
            while Instant::now() < end {
                let key = random(&mut state) % 1_000;
                // The header stores weights below 65,535; heavier entries are long.
                let weight = [1, 1_000, 65_533, 65_534, 65_535, 65_536, 100_000][random(&mut state) as usize % 7];
                let value = Wide(drops.value(key), weight);
                let time = Duration::from_millis(random(&mut state) % 5);
                match random(&mut state) % 8 {
                    0..=2 => _ = cache.insert(key, value),
                    3 => _ = cache.insert_for(key, value, time),
                    4 => _ = cache.remove(&key),
                    5 => _ = cache.sync(),
                    _ => assert!(cache.with(&key, |value| value.0.tag()).is_none_or(|tag| tag == key)),
                }
            }
        });
        // Beside changes the sum over the shards would be of no one moment.
        assert!(cache.stats().weight <= CAPACITY);
        cache.check_invariants();
        let lent = cache.pin();
        assert!(lent.iter().all(|(key, value)| value.0.tag() == *key && std::ptr::from_ref(value).is_aligned()));
        drop(lent);
        drop(cache);
        drops.assert_all_dropped();
    }
    let left = HEAP.bytes().saturating_sub(before);
    assert!(left <= 64 << 10, "{left} bytes are lost");
}

#[test]
fn threads_come_and_go() {
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().entries(1_000);
    for round in 0..200 {
        thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || (0..50).for_each(|key| _ = cache.insert(round * 200 + thread * 50 + key, key)));
            }
        });
    }
    assert!(cache.stats().len > 900);
    cache.check_invariants();
}

/// From now on, planned panics print nothing. The test harness keeps the output of a test in memory, and frees the
/// memory while another test measures memory; so tests with thousands of panics call this function.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let text = panic.payload().downcast_ref::<&str>().copied().unwrap_or_default();
            if !text.contains("planned") && !text.contains("wait for itself") {
                usual(panic);
            }
        }));
    });
}

/// Runs `work` in a thread of its own and returns its result. If `work` does not end within a minute, the test fails,
/// and the thread is not joined.
fn ended<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(60)).expect("it ends, and does not panic")
}

#[test]
fn makers_that_panic_or_fail_let_the_next_one_make() {
    let _beside = beside();
    let (calls, values) = ended(|| {
        let cache: Cache<u32, u32> = Cache::builder().entries(10);
        let calls = AtomicU32::new(0);
        let values: Vec<_> = crowd(8, Duration::ZERO, |_, _| {
            catch_unwind(AssertUnwindSafe(|| {
                cache.get_or_try_insert_with(1, |_| {
                    thread::yield_now();
                    match calls.fetch_add(1, Relaxed) {
                        0 | 2 => panic!("planned"),
                        1 | 3 => Err("planned"),
                        _ => Ok(7),
                    }
                })
            }))
            .ok()
        });
        (calls.into_inner(), values)
    });
    assert_eq!(calls, 5);
    assert_eq!(values.iter().filter(|value| **value == Some(Ok(7))).count(), 4);
}

/// If the cache does not keep the made value, the requests that have waited make their values side by side. So the test
/// ends although each of these makers waits until the others have begun.
#[test]
fn values_that_are_not_kept_are_made_side_by_side() {
    let _beside = beside();
    let weighs = || Cache::<u32, u32>::builder().weigher(10, |_, _| 11);
    let lives = || Cache::<u32, u32>::builder().time_to_live(Duration::ZERO).entries(10);
    for tasks in [false, true] {
        some_try(5, || made_side_by_side(weighs(), tasks));
        some_try(5, || made_side_by_side(lives(), tasks));
    }
}

/// One part of the test above. Threads that are late for the first maker wait for each other, also in a sound cache.
fn made_side_by_side(cache: Cache<u32, u32>, tasks: bool) -> Result<(), String> {
    const THREADS: usize = 4;
    let (made, apart) = ended(move || {
        let [asked, calls, side] = [const { AtomicUsize::new(0) }; 3];
        let apart = AtomicBool::new(false);
        let wait_for_the_others = || {
            side.fetch_add(1, Relaxed);
            let begun = Instant::now();
            while side.load(Relaxed) < THREADS && !apart.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
                apart.fetch_or(begun.elapsed() > Duration::from_secs(2), Relaxed);
            }
        };
        let make = || {
            if calls.fetch_add(1, Relaxed) == 0 {
                while asked.load(Relaxed) <= THREADS {
                    thread::yield_now();
                }
                // The last of them is about to wait.
                thread::sleep(Duration::from_millis(200));
            } else {
                wait_for_the_others();
            }
            7
        };
        crowd(THREADS + 1, Duration::ZERO, |_, _| {
            asked.fetch_add(1, Relaxed);
            let value = match tasks {
                false => cache.get_or_insert_with(1, |_| make()),
                true => block_on(cache.get_or_insert_async(1, async { make() })),
            };
            assert_eq!(value, 7);
        });
        (calls.into_inner(), apart.into_inner())
    });
    assert_eq!(made, THREADS + 1);
    if apart { Err("they were not made side by side".to_owned()) } else { Ok(()) }
}

#[test]
fn a_maker_of_its_own_key_is_told_so() {
    let _beside = beside();
    let cache: Cache<u32, u32> = Cache::builder().entries(10);
    let nested = || cache.get_or_insert_with(1, |_| cache.get_or_insert_with(1, |_| 2));
    let told = catch_unwind(AssertUnwindSafe(nested)).unwrap_err();
    assert!(told.downcast_ref::<&str>().is_some_and(|text| text.contains("wait for itself")));
    assert_eq!(cache.get_or_insert_with(1, |_| 3), 3);
}

/// Runs a thread for each key of `0..keys`. Each thread makes its key. When all threads do so, each requests the next
/// key; the last thread requests the first key. Returns the number of threads that panicked.
fn makers_in_a_circle(keys: usize) -> usize {
    let cache: Cache<usize, usize> = Cache::builder().entries(100);
    let make_all = Barrier::new(keys);
    let made = crowd(keys, Duration::ZERO, |key, _| {
        let next = (key + 1) % keys;
        let make = |_: &usize| {
            make_all.wait();
            cache.get_or_insert_with(next, |_| 1_000) + 1
        };
        catch_unwind(AssertUnwindSafe(|| cache.get_or_insert_with(key, make))).map_err(|told| {
            assert!(told.downcast_ref::<&str>().is_some_and(|text| text.contains("wait for itself")));
        })
    });
    // Each other thread has got a value that a maker in the circle made.
    assert!(made.iter().flatten().all(|value| (1_001..=1_000 + keys).contains(value)), "{made:?}");
    // No wait is left behind.
    assert!((0..keys).all(|key| cache.get_or_insert_with(key, |_| 0) <= 1_000 + keys));
    made.iter().filter(|made| made.is_err()).count()
}

/// Makers that request each other's keys would block for ever. The one whose request closes the circle panics, and the
/// others go on.
#[test]
fn makers_that_wait_in_a_circle_are_told_so() {
    let _beside = beside();
    for keys in [2, 3, 8] {
        assert_eq!(ended(move || makers_in_a_circle(keys)), 1, "a circle of {keys}");
    }
}

/// Makers request keys at random: either only keys above their own, so that no circle is possible, or any keys. The
/// cache keeps few values or none. So threads wait for one another in long chains and circles, which change all the
/// time. Makers without circles are never told that they wait for themselves, and makers in circles never block.
#[test]
fn makers_that_wait_in_chains_end() {
    let _beside = beside();
    hush();
    const KEYS: u64 = 6;
    fn value(cache: &Cache<u64, u64>, key: u64, state: &mut u64, circles: bool) -> u64 {
        cache.get_or_insert_with(key, |&key| {
            thread::yield_now();
            let next = random(state) % KEYS;
            if next > key || circles && next < key { value(cache, next, state, circles) } else { 7 }
        })
    }
    for (entries, circles) in [(0, false), (3, false), (0, true), (3, true)] {
        let panics: usize = ended(move || {
            let cache = Cache::builder().entries(entries);
            // However few operations the machine does in the time, a circle comes about at last.
            let panics = AtomicUsize::new(0);
            crowd(16, duration() / 8, |thread, end| {
                let mut state = thread as u64;
                while Instant::now() < end || circles && panics.load(Relaxed) == 0 {
                    let key = random(&mut state) % KEYS;
                    match catch_unwind(AssertUnwindSafe(|| value(&cache, key, &mut state, circles))) {
                        Ok(value) => assert_eq!(value, 7),
                        Err(_) => _ = panics.fetch_add(1, Relaxed),
                    }
                    cache.remove(&(random(&mut state) % KEYS));
                }
            });
            panics.into_inner()
        });
        assert_eq!(panics > 0, circles, "{panics} panics of makers");
    }
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone)]
struct Key(u32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(!PANICS.get(), "planned");
        self.0 == other.0
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn comparisons_that_panic_change_nothing() {
    let _beside = beside();
    let drops = DropCounter::new();
    let cache = Cache::builder().entries(100);
    (0..50).for_each(|key| _ = cache.insert(Key(key), drops.value(1)));
    PANICS.set(true);
    for key in 0..50 {
        assert!(catch_unwind(AssertUnwindSafe(|| cache.insert(Key(key), drops.value(2)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| cache.get(&Key(key)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| cache.remove(&Key(key)))).is_err());
    }
    PANICS.set(false);
    assert!((0..50).all(|key| cache.with(&Key(key), |value| value.tag()) == Some(1)));
    cache.check_invariants();
    drop(cache);
    drops.assert_all_dropped();
}

#[test]
fn listeners_may_use_the_cache_and_panic() {
    let _beside = beside();
    let drops = DropCounter::new();
    static CACHE: OnceLock<Cache<u64, archipelago_check::drops::Counted>> = OnceLock::new();
    let cache = CACHE.get_or_init(|| {
        let left = AtomicU64::new(0);
        let listener = move |key: &u64, _: &archipelago_check::drops::Counted, cause: Cause| {
            let count = left.fetch_add(1, Relaxed);
            if let Some(cache) = CACHE.get()
                && cause == Cause::Evicted
                && count.is_multiple_of(3)
            {
                cache.remove(&(key + 1));
            }
            assert!(!count.is_multiple_of(7), "planned");
        };
        Cache::builder().shards(2).on_leave(listener).entries(128)
    });
    let panics: usize = crowd(4, Duration::ZERO, |thread, _| {
        let insert =
            |key: u64| catch_unwind(AssertUnwindSafe(|| cache.insert(thread as u64 * 1_000 + key, drops.value(key))));
        (0..1_000).filter(|key| insert(*key).is_err()).count()
    })
    .into_iter()
    .sum();
    assert!(panics > 100, "{panics}");
    cache.check_invariants();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.resize(24))).is_err());
    assert!(cache.stats().len <= 24, "the bound holds although the listener panicked");
    cache.check_invariants();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.clear())).is_err());
    assert_eq!(cache.stats().len, 0, "a panic does not end the sweep");
    cache.sync();
    cache.sync();
    assert_eq!(cache.stats().weight, 0);
}

/// How the `Eq` and `Hash` of a [`Liar`] break their contracts.
#[derive(Clone, Copy, Debug)]
enum Lie {
    NeverEqual,
    AlwaysEqual,
    EqualAtRandom,
    HashedAtRandom,
    HashPanics,
}

#[derive(Clone)]
struct Liar(u64, Lie);

thread_local! {
    static DRAWN: Cell<u64> = const { Cell::new(1) };
}

fn drawn(bound: u64) -> u64 {
    let mut state = DRAWN.get();
    let number = random(&mut state) % bound;
    DRAWN.set(state);
    number
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        match self.1 {
            Lie::NeverEqual => false,
            Lie::AlwaysEqual => true,
            Lie::EqualAtRandom => drawn(2) == 0,
            _ => self.0 == other.0,
        }
    }
}

impl Eq for Liar {}

impl std::hash::Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.1 {
            Lie::HashedAtRandom => drawn(1_000).hash(state),
            Lie::HashPanics => assert!(drawn(5) > 0, "planned"),
            _ => (self.0 % 16).hash(state),
        }
    }
}

/// Keys that break the contracts of `Eq` and `Hash` make wrong results, but each value is dropped once, the bound
/// holds, and each call ends.
#[test]
fn keys_that_lie_lose_nothing() {
    let _beside = beside();
    hush();
    for lie in [Lie::NeverEqual, Lie::AlwaysEqual, Lie::EqualAtRandom, Lie::HashedAtRandom, Lie::HashPanics] {
        ended(move || {
            let drops = DropCounter::new();
            let cache = Cache::builder().shards(4).entries(100);
            crowd(8, Duration::ZERO, |thread, _| {
                DRAWN.set(thread as u64);
                for _ in 0..2_000 {
                    let key = Liar(drawn(200), lie);
                    let value = || drops.value(key.0);
                    _ = catch_unwind(AssertUnwindSafe(|| match drawn(8) {
                        0 => _ = cache.insert(key.clone(), value()),
                        1 => _ = cache.remove(&key),
                        2 => _ = cache.with(&key, |value| value.tag()),
                        3 => _ = cache.insert_for(key.clone(), value(), Duration::ZERO),
                        4 if drawn(20) == 0 => cache.resize(drawn(150) as usize),
                        5 => _ = cache.invalidate_if(|key, _| key.0 % 50 == 0),
                        _ => _ = cache.get_or_insert_with(key.clone(), |_| value()),
                    }));
                }
            });
            assert!(cache.stats().weight <= cache.capacity(), "{lie:?}");
            cache.check_invariants();
            cache.clear();
            assert_eq!(cache.stats().len, 0, "{lie:?}");
            drop(cache);
            drops.assert_all_dropped();
        });
    }
}

/// A weigher that returns another weight at each call, uses the cache, and panics.
#[test]
fn weighers_may_be_wrong_use_the_cache_and_panic() {
    let _beside = beside();
    hush();
    thread_local! {
        static WITHIN: Cell<bool> = const { Cell::new(false) };
    }
    // Not a static: the memory of this cache must be free when another test measures memory.
    let used = Arc::new(OnceLock::<Weak<Cache<u64, u64>>>::new());
    let weigher = {
        let used = used.clone();
        move |key: &u64, _: &u64| {
            if let Some(cache) = used.get().and_then(Weak::upgrade)
                && !WITHIN.replace(true)
            {
                _ = catch_unwind(AssertUnwindSafe(|| match drawn(5) {
                    0 => _ = cache.insert(key + 1, 1),
                    1 => cache.resize(drawn(20_000) as usize),
                    2 => cache.clear(),
                    3 => _ = cache.get_or_insert_with(key + 2, |_| 1),
                    _ => _ = cache.remove(key),
                }));
                WITHIN.set(false);
            }
            let weight = drawn(7) as usize;
            assert!(weight > 0, "planned");
            [0, usize::MAX, 1, 70_000, 900, 65_535][weight - 1]
        }
    };
    let cache = Arc::new(Cache::builder().shards(2).weigher(10_000, weigher));
    used.set(Arc::downgrade(&cache)).expect("set once");
    crowd(8, Duration::ZERO, |thread, _| {
        DRAWN.set(thread as u64);
        (0..2_000).for_each(|key| _ = catch_unwind(AssertUnwindSafe(|| cache.insert(key % 300, key))));
    });
    assert!(cache.stats().weight <= cache.capacity());
    cache.check_invariants();
}

/// A value whose destructor panics if its number is a multiple of five.
struct Bomb(u64, Arc<AtomicU64>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
        assert!(!self.0.is_multiple_of(5) || thread::panicking(), "planned");
    }
}

#[test]
fn destructors_that_panic_lose_nothing() {
    let _beside = beside();
    let dropped = Arc::new(AtomicU64::new(0));
    let cache = Cache::builder().entries(50);
    for key in 0..2_000 {
        let _ = catch_unwind(AssertUnwindSafe(|| cache.insert(key, Arc::new(Bomb(key, dropped.clone())))));
    }
    for _ in 0..200 {
        let _ = catch_unwind(AssertUnwindSafe(|| cache.sync()));
    }
    cache.check_invariants();
    assert!(dropped.load(Relaxed) >= 1_950, "{}", dropped.load(Relaxed));
    // Destructors of the remaining entries panic, too. An entry's destructor runs or its memory leaks, but no entry is
    // freed twice.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(cache)));
    assert!(dropped.load(Relaxed) <= 2_000);
}

/// A value whose destructor uses its cache.
struct Restless(u64);

static RESTLESS: std::sync::LazyLock<Cache<u64, Restless>> =
    std::sync::LazyLock::new(|| Cache::builder().shards(2).entries(64));

impl Drop for Restless {
    fn drop(&mut self) {
        // If its number is a multiple of four, the destructor inserts a value with a quarter of the number under
        // another key. So the insertions end after a few steps.
        if self.0.is_multiple_of(4) && self.0 > 0 {
            RESTLESS.insert(self.0 + 1_000_000, Restless(self.0 / 4));
            RESTLESS.remove(&(self.0 - 1));
            let _ = RESTLESS.with(&self.0, |value| value.0);
        }
    }
}

#[test]
fn destructors_may_use_the_cache() {
    let _beside = beside();
    crowd(4, Duration::ZERO, |thread, _| {
        (0..2_000).for_each(|key| _ = RESTLESS.insert(key + 2_000 * thread as u64, Restless(key)));
    });
    (0..20).for_each(|_| {
        RESTLESS.clear();
        RESTLESS.sync();
    });
    RESTLESS.check_invariants();
    assert_eq!(RESTLESS.stats().len, 0);
}

#[test]
fn closures_may_use_the_cache_and_panic() {
    let _beside = beside();
    let drops = DropCounter::new();
    let cache = Cache::builder().weigher(1_000, |key: &u64, _: &archipelago_check::drops::Counted| {
        assert!(!key.is_multiple_of(50), "planned");
        10
    });
    let insert = |key: u64| catch_unwind(AssertUnwindSafe(|| cache.insert(key, drops.value(key))));
    assert_eq!((0..1_000).filter(|key| insert(*key).is_err()).count(), 20);
    cache.check_invariants();
    let before = cache.stats().len;
    let mut asked = 0;
    let panics = catch_unwind(AssertUnwindSafe(|| {
        cache.invalidate_if(|key, _| {
            asked += 1;
            cache.remove(key);
            cache.insert(key + 10_001, drops.value(*key));
            assert!(asked < 20, "planned");
            asked % 2 == 0
        })
    }));
    assert!(panics.is_err() && before > 90);
    cache.check_invariants();
    let pinned = cache.pin();
    let mut shown = pinned.iter();
    let first = shown.next().map(|(key, value)| (*key, value.tag()));
    cache.resize(0);
    cache.resize(1_000);
    // The entry that the iterator has returned stays valid, and no entry is returned twice.
    assert!(first.is_some() && shown.count() <= before);
    drop(pinned);
    drop(cache);
    drops.assert_all_dropped();
}

/// Runs many more threads at once than any machine has processors.
#[test]
fn a_thousand_threads_use_a_cache_of_one_entry() {
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().entries(1);
    crowd(1_000, Duration::ZERO, |thread, _| {
        for key in 0..20 {
            assert_eq!(cache.get_or_insert_with(key, |key| key * 2), key * 2);
            cache.insert(thread as u64 + 100, 0);
        }
    });
    assert_eq!(cache.stats().len, 1);
    cache.check_invariants();
}

#[test]
fn sizes_change_beside_insertions() {
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().shards(8).entries(10_000);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, done) = (&cache, &done);
            scope.spawn(move || {
                let mut state = thread;
                while !done.load(Relaxed) {
                    cache.insert(random(&mut state) % 50_000, 1);
                }
            });
        }
        for round in 0..200_usize {
            cache.resize([10_000, 100, 5_000, 0, 20_000][round % 5]);
            let stats = cache.stats();
            assert!(stats.weight <= stats.capacity, "{stats:?}");
        }
        done.store(true, Relaxed);
    });
    cache.check_invariants();
}

/// A waker that unparks a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// A future that is ready after this number of polls.
struct Polls(u32);

impl Future for Polls {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0 = self.0.saturating_sub(1);
        context.waker().wake_by_ref();
        if self.0 == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A waker that counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Two tasks request the same key, in an order that rarely happens by chance. The first makes the value. The second
/// waits, and is woken when the value is ready.
#[test]
fn tasks_that_wait_are_woken() {
    let _beside = beside();
    let cache: Cache<u8, u8> = Cache::builder().entries(10);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut waits, mut makes) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));
    let make = async {
        Polls(2).await;
        10
    };
    let mut first = pin!(cache.get_or_insert_async(1, make));
    assert!(first.as_mut().poll(&mut makes).is_pending());
    let mut second = pin!(cache.get_or_insert_async(1, async { 20 }));
    assert!(second.as_mut().poll(&mut waits).is_pending());
    assert_eq!(woken.0.load(Relaxed), 0);
    assert_eq!(first.as_mut().poll(&mut makes), Poll::Ready(10));
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(second.as_mut().poll(&mut waits), Poll::Ready(10));
}

/// A waker that panics.
struct Refuses;

impl Wake for Refuses {
    fn wake(self: Arc<Self>) {
        panic!("planned");
    }
}

#[test]
fn wakers_that_panic_keep_no_other_task_asleep() {
    let _beside = beside();
    let cache: Cache<u8, u8> = Cache::builder().entries(10);
    let woken = Arc::new(Woken::default());
    let wakers = [Waker::from(Arc::new(Refuses)), Waker::from(woken.clone()), Waker::from(Arc::new(Refuses))];
    for fails in [false, true] {
        let mut first = Box::pin(cache.get_or_try_insert_async(1, async move {
            Polls(2).await;
            if fails { Err(()) } else { Ok(1) }
        }));
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(cache.get_or_insert_async(1, async { 2 }))).collect();
        for (task, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        let before = woken.0.load(Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| first.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        assert!(done.is_err());
        assert_eq!(woken.0.load(Relaxed), before + 1);
        assert_eq!(block_on(waiting.swap_remove(1)), if fails { 2 } else { 1 });
        cache.clear();
    }
}

#[test]
fn tasks_wait_for_one_maker_and_may_be_dropped() {
    let _beside = beside();
    let cache: Cache<u32, u32> = Cache::builder().entries(1_000);
    let made = AtomicU32::new(0);
    let make = |key: u32| async move {
        Polls(3).await;
        key + 1
    };
    for key in 0..200 {
        thread::scope(|scope| {
            for task in 0..4 {
                let (cache, made) = (&cache, &made);
                scope.spawn(move || {
                    let counted = async {
                        made.fetch_add(1, Relaxed);
                        make(key).await
                    };
                    let mut future = pin!(cache.get_or_insert_async(key, counted));
                    if task == 0 {
                        // The future is dropped after one poll, whether it makes the value, waits, or is ready.
                        let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        return;
                    }
                    assert_eq!(block_on(future), key + 1);
                });
            }
            // A thread requests the same key without a task.
            scope.spawn(|| {
                let counted = |key: &u32| {
                    made.fetch_add(1, Relaxed);
                    key + 1
                };
                assert_eq!(cache.get_or_insert_with(key, counted), key + 1);
            });
        });
    }
    let made = made.load(Relaxed);
    assert!((200..=400).contains(&made), "{made}: once a key, and once more where the first was dropped");
}

/// Three tasks request a key. One of them is dropped after one of its first four polls; the runs differ in the task and
/// the poll. The others get one value, which is made once, whichever task was to make it, and also if the maker's
/// future panics.
#[test]
fn tasks_are_dropped_at_each_await() {
    let _beside = beside();
    for (polls, dropped, at, panics) in
        (0..5).flat_map(|polls| (0..24).map(move |which| (polls, which % 3, which / 6, which / 3 % 2 == 1)))
    {
        let cache: Cache<u8, usize> = Cache::builder().entries(10);
        let made = AtomicU32::new(0);
        let make = |task: usize| {
            let made = &made;
            async move {
                Polls(polls).await;
                assert!(!panics || task > 0, "planned");
                made.fetch_add(1, Relaxed);
                task
            }
        };
        let mut tasks: Vec<_> = (0..3).map(|task| Some(Box::pin(cache.get_or_insert_async(1, make(task))))).collect();
        let mut values = Vec::new();
        for turn in 0..40 {
            for (number, task) in tasks.iter_mut().enumerate() {
                let Some(future) = task else { continue };
                let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                match catch_unwind(AssertUnwindSafe(&mut poll)) {
                    _ if turn == at && number == dropped => *task = None,
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(value)) => {
                        values.push(value);
                        *task = None;
                    }
                    Err(_) => *task = None,
                }
            }
        }
        assert!(tasks.iter().all(Option::is_none), "all have ended");
        assert!(values.iter().all(|value| *value == values[0]) && !values.is_empty(), "{values:?}");
        assert_eq!((cache.get(&1), made.load(Relaxed)), (Some(values[0]), 1));
        cache.check_invariants();
    }
}

/// A value that claims to own nearly all memory.
struct Boundless(Box<u8>);

impl Heap for Boundless {
    fn heap_bytes(&self) -> usize {
        usize::MAX - usize::from(*self.0)
    }
}

/// With any weights and any capacity, the bound holds, and no sum overflows.
#[test]
fn weights_and_capacities_may_be_any_number() {
    let _beside = beside();
    const WEIGHTS: [usize; 6] = [usize::MAX, usize::MAX / 2 + 1, usize::MAX / 8, usize::MAX / 9, 1 << 40, 0];
    for capacity in [usize::MAX, usize::MAX / 2, 1 << 41, 1, 0] {
        let cache: Cache<usize, usize> = Cache::builder().shards(2).weigher(capacity, |_, weight| *weight);
        for round in 0..600 {
            let weight = WEIGHTS[round % WEIGHTS.len()];
            let kept = cache.insert(round % 97, weight);
            assert_eq!(kept, weight.max(1) <= cache.capacity(), "{weight} of {capacity}");
            let stats = cache.stats();
            assert!(stats.weight <= capacity, "{stats:?}");
        }
        cache.check_invariants();
        let owners: Cache<u8, Vec<Boundless>> = Cache::new(capacity);
        assert!(!owners.insert(1, vec![Boundless(Box::new(0)), Boundless(Box::new(1))]), "weighs more than there is");
    }
}

#[test]
fn a_cache_without_room_keeps_nothing_and_says_so() {
    let _beside = beside();
    let left = Arc::new(AtomicUsize::new(0));
    let told = left.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .on_leave(move |_, _, cause| _ = told.fetch_add(usize::from(cause == Cause::Evicted), Relaxed))
        .entries(0);
    assert!(!cache.insert(1, 1));
    assert_eq!((cache.get_or_insert_with(2, |key| key * 2), cache.get(&2)), (4, None));
    assert_eq!(left.load(Relaxed), 2);
    cache.resize(1);
    assert!(cache.insert(3, 3));
    cache.resize(0);
    assert_eq!((left.load(Relaxed), cache.get(&3), cache.stats().len), (3, None, 0));
    cache.check_invariants();
}

/// Threads resize the cache concurrently, also to 0 and to more than the machine's memory. Each resize ends.
#[test]
fn sizes_change_side_by_side() {
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().shards(4).entries(1_000);
    crowd(4, duration() / 4, |thread, end| {
        let mut state = thread as u64;
        while Instant::now() < end {
            for key in 0..50 {
                cache.insert(key * 4 + thread as u64, key);
            }
            cache.resize([0, usize::MAX, 100, 1_000][random(&mut state) as usize % 4]);
        }
    });
    cache.resize(10);
    assert!(cache.stats().len <= 10);
    cache.check_invariants();
}

/// The bound holds when a cache grows again, by its listener, before it has shrunk.
#[test]
fn sizes_change_inside_of_a_change_of_size() {
    let _beside = beside();
    static CACHE: OnceLock<Cache<u64, ()>> = OnceLock::new();
    static GROWS: AtomicBool = AtomicBool::new(false);
    const MOST: usize = 200;
    let listener = |_: &u64, _: &(), cause: Cause| {
        let cache = CACHE.get().expect("it has entries");
        // Evictions by insertions end here.
        if cause != Cause::Evicted || !GROWS.swap(false, Relaxed) {
            return;
        }
        cache.resize(MOST);
        (1_000..1_000 + MOST as u64).for_each(|key| _ = cache.insert(key, ()));
        assert!(cache.stats().len <= MOST, "{} entries", cache.stats().len);
    };
    let cache = CACHE.get_or_init(|| Cache::builder().shards(2).on_leave(listener).entries(MOST));
    (0..MOST as u64).for_each(|key| _ = cache.insert(key, ()));
    GROWS.store(true, Relaxed);
    cache.resize(MOST / 10);
    assert!(!GROWS.load(Relaxed), "the listener was called");
    assert_eq!(cache.capacity(), MOST);
    cache.check_invariants();
    (2_000..3_000).for_each(|key| _ = cache.insert(key, ()));
    assert_eq!(cache.stats().len, MOST, "the cache has all of its room again");
}

/// Many keys are made at the same time, and many tasks wait for one of them. Tasks are dropped in the midst of this.
#[test]
fn many_tasks_make_and_wait_at_the_same_time() {
    const KEYS: u64 = 2_000;
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().shards(1).entries(2 * KEYS as usize);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut waits, mut makes) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));
    let make = |key: u64| {
        Box::pin(cache.get_or_insert_async(key, async move {
            Polls(2).await;
            key + 1
        }))
    };
    let mut makers: Vec<_> = (0..KEYS).map(make).collect();
    makers.iter_mut().for_each(|maker| assert!(maker.as_mut().poll(&mut makes).is_pending()));
    // The value of key 0 is awaited. Every third task that waits is dropped.
    let mut waiting: Vec<_> = (0..KEYS).map(|_| make(0)).collect();
    for _ in 0..2 {
        waiting.iter_mut().for_each(|task| assert!(task.as_mut().poll(&mut waits).is_pending()));
    }
    let mut number = 0_u32;
    waiting.retain(|_| {
        number += 1;
        !number.is_multiple_of(3)
    });
    // The makers end in another order than they began in.
    for key in (0..KEYS).rev() {
        assert_eq!(makers[key as usize].as_mut().poll(&mut makes), Poll::Ready(key + 1));
    }
    assert_eq!(woken.0.load(Relaxed) as usize, waiting.len(), "those that are left are woken, once each");
    waiting.iter_mut().for_each(|task| assert_eq!(task.as_mut().poll(&mut waits), Poll::Ready(1)));
    assert_eq!(cache.stats().len, KEYS as usize);
}

#[test]
fn times_may_be_none_or_endless() {
    let _beside = beside();
    let cache: Cache<u8, u8> = Cache::builder().time_to_idle(Duration::MAX).entries(10);
    cache.insert_for(1, 1, Duration::ZERO);
    assert!(cache.get(&1).is_none() && !cache.contains(&1), "its time is over at once");
    cache.insert_for(2, 2, Duration::MAX);
    assert_eq!((cache.get(&2), cache.sync()), (Some(2), 1));
    let none: Cache<u8, u8> = Cache::builder().time_to_live(Duration::ZERO).entries(10);
    none.insert(1, 1);
    assert_eq!(none.get_or_insert_with(1, |_| 2), 2);
    assert_eq!(none.get(&1), None);
}
