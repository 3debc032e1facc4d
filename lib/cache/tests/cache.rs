//! A cache's answers in one thread, and which entries its policies keep.
#![cfg(not(archipelago_sim))]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use archipelago_cache::{Cache, Cause, Policy, S3Fifo, SampledLru, Sieve};

/// Returns a random one of `count` keys. The keys approximately follow Zipf's law with exponent 1.
fn zipf(count: f64, state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let uniform = (*state >> 11) as f64 / (1_u64 << 53) as f64;
    count.powf(uniform) as u64
}

/// Returns the hit ratio of a cache that has room for a tenth of the keys.
fn hit_ratio<P: Policy + 'static>(scan_between: bool) -> f64 {
    let cache: Cache<u64, (), P> = Cache::builder().policy::<P>().shards(1).record_hits().entries(1_000);
    let (mut state, mut hits) = (1, 0);
    const ASKED: u32 = 100_000;
    for turn in 0..ASKED {
        let key = zipf(10_000.0, &mut state);
        hits += u32::from(cache.get(&key).is_some());
        cache.get_or_insert_with(key, |_| ());
        if scan_between {
            cache.get_or_insert_with(1 << 32 | u64::from(turn), |_| ());
        }
    }
    f64::from(hits) / f64::from(ASKED)
}

#[test]
fn popular_keys_stay() {
    // 75 of 100 requests are for the thousand most popular of the 10,000 keys.
    for (name, ratio) in [
        ("s3", hit_ratio::<S3Fifo>(false)),
        ("sieve", hit_ratio::<Sieve>(false)),
        ("lru", hit_ratio::<SampledLru>(false)),
    ] {
        assert!((0.60..0.76).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn keys_that_are_asked_for_once_flush_nothing() {
    let (alone, beside) = (hit_ratio::<S3Fifo>(false), hit_ratio::<S3Fifo>(true));
    assert!(beside > alone - 0.03, "{beside} beside a scan as long, {alone} alone");
    let lru = hit_ratio::<SampledLru>(true);
    assert!(beside > lru + 0.04, "{beside}, and the least recently used {lru}");
}

/// Returns the bytes, besides entries, of a cache that had many entries and has few, and those of one that had few.
fn overheads<P: Policy + 'static>() -> (usize, usize) {
    const FEW: u64 = 100;
    let overhead = |entries: u64| {
        let cache: Cache<u64, (), P> = Cache::builder().policy::<P>().shards(1).entries(entries as usize);
        (0..entries).for_each(|key| _ = cache.insert(key, ()));
        cache.resize(FEW as usize);
        (entries..entries + FEW).for_each(|key| _ = cache.insert(key, ()));
        cache.sync();
        assert_eq!(cache.stats().len, FEW as usize);
        cache.stats().overhead_bytes
    };
    (overhead(100_000), overhead(FEW))
}

#[test]
fn caches_that_have_shrunk_are_small() {
    for (name, (shrunk, fresh)) in
        [("s3", overheads::<S3Fifo>()), ("sieve", overheads::<Sieve>()), ("lru", overheads::<SampledLru>())]
    {
        assert!(shrunk < 8 * fresh, "{name}: {shrunk} bytes, and {fresh} of a cache that was always small");
    }
}

/// The requests repeat a loop that is longer than the cache. Nearly as large a part of the loop as fits must stay in
/// the cache. (A cache that evicts the least recently used entry would have no hit.) In a loop of twice the cache's
/// length, the ghosts (the remembered hashes of evicted entries) include every key, but only a part of the keys may
/// enter the main queue.
#[test]
fn a_part_of_a_loop_stays() {
    for (keys, least) in [(10_000, 8_000), (2_000, 42_000)] {
        let cache: Cache<u64, ()> = Cache::builder().shards(1).record_hits().entries(1_000);
        for round in 1..=2 {
            (0..100_000).for_each(|turn| cache.get_or_insert_with(turn % keys, |_| ()));
            let (hits, best) = (cache.stats().hits, 100_000 * 1_000 / keys);
            assert!(round * least < hits && hits <= round * best, "{hits} of {}", round * 100_000);
            // After `clear` the next round must have the same result as the first one.
            cache.clear();
        }
    }
}

/// 300 keys are requested in turn. After each of them, four other keys are requested, each of them only once. So a key
/// is absent for 1,500 requests, more than the whole cache has entries. It returns to the main queue nevertheless,
/// since few keys enter this queue and its entries stay for long: the time that they stay is measured. The popular keys
/// that are requested before enter the main queue often. They must not shorten the measured time for long.
#[test]
fn keys_return_that_are_absent_for_less_than_the_main_queue_keeps_an_entry() {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let cache: Cache<u64, (), S3Fifo, _> = Cache::builder().hasher(hasher).shards(1).entries(1_000);
    let mut state = 1;
    (0..100_000).for_each(|_| cache.get_or_insert_with(1 << 40 | zipf(10_000.0, &mut state), |_| ()));
    let mut hits = 0;
    for turn in 0..30_000 {
        hits += u32::from(cache.contains(&(turn % 300)));
        cache.get_or_insert_with(turn % 300, |_| ());
        (0..4).for_each(|once| cache.get_or_insert_with((1 << 32) + turn * 4 + once, |_| ()));
    }
    assert!(hits > 28_000, "{hits} hits of 30000 requests");
}

/// Each key is requested twice. Between the two requests there are more requests for new keys than 1/32 of the cache
/// has entries, and fewer than the whole cache has. So the queue of new entries has to grow until it keeps the keys
/// until their second request. With popular keys the queue shrinks again.
#[test]
fn the_queue_of_new_entries_is_as_long_as_pays() {
    let cache: Cache<u64, (), S3Fifo> = Cache::builder().shards(1).entries(1_000);
    let ask = |key: u64| {
        let hit = cache.contains(&key);
        cache.get_or_insert_with(key, |_| ());
        u32::from(hit)
    };
    let mut hits = 0;
    for between in (50..=400).step_by(25) {
        let first = between << 32;
        hits = (first..first + 10_000).map(|key| ask(key) + ask(key.max(first + between) - between)).sum();
    }
    assert!(hits > 9_000, "{hits} of 10000 keys were there when they were asked for again");
    // With popular keys alone, a new cache has 73 hits in 100 requests. A cache whose queue of new entries takes half
    // of it has 69.
    let mut state = 1;
    let popular = (0..200_000).map(|_| ask(zipf(10_000.0, &mut state))).skip(100_000).sum::<u32>();
    assert!(popular > 70_500, "{popular} of 100000 popular keys");
}

#[test]
fn listeners_are_told_why() {
    static LEFT: Mutex<Vec<(u32, u32, Cause)>> = Mutex::new(Vec::new());
    let cache =
        Cache::builder().on_leave(|key, value, cause| LEFT.lock().unwrap().push((*key, *value, cause))).entries(2);
    cache.insert(1, 10);
    cache.insert(1, 11);
    cache.remove(&1);
    (2..5).for_each(|key| _ = cache.insert(key, key));
    cache.insert_for(9, 9, Duration::ZERO);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(cache.get(&9), None);
    assert_eq!(cache.sync(), 1);
    let mut left = LEFT.lock().unwrap().clone();
    let expired = left.pop();
    assert_eq!(left[..2], [(1, 10, Cause::Replaced), (1, 11, Cause::Removed)]);
    assert!(left[2..].iter().all(|(key, value, cause)| key == value && *cause == Cause::Evicted), "{left:?}");
    assert_eq!(expired, Some((9, 9, Cause::Expired)));
    cache.check_invariants();
}

/// An expired entry leaves as an expired one, whatever removes it, and no caller is told that it was there.
#[test]
fn expired_entries_are_reported_as_expired() {
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let listener = move |key: &u8, value: &u8, cause| tell.lock().unwrap().push((*key, *value, cause));
    let cache = Cache::builder().on_leave(listener).shards(1).entries(4);
    let mut expired = 0;
    let mut ways: Vec<&dyn Fn()> = Vec::new();
    let remove = || assert!(!cache.remove(&1));
    let insert = || assert!(cache.insert(1, 2));
    let invalidate = || assert_eq!(cache.invalidate_if(|key, _| *key == 2 || panic!("{key} has expired")), 1);
    let clear = || cache.clear();
    let shrink = || cache.resize(0);
    ways.extend::<[&dyn Fn(); 5]>([&remove, &insert, &invalidate, &clear, &shrink]);
    for way in ways {
        cache.clear();
        cache.insert(2, 2);
        cache.insert_for(1, 1, Duration::ZERO);
        told.lock().unwrap().clear();
        way();
        expired += 1;
        let told = told.lock().unwrap().clone();
        assert!(told.contains(&(1, 1, Cause::Expired)), "{told:?}");
        assert!(
            told.iter().all(|(key, value, cause)| *key == 2 || (*value, *cause) == (1, Cause::Expired)),
            "{told:?}"
        );
        assert_eq!(cache.stats().expirations, expired);
    }
    assert_eq!(cache.stats().evictions, 1, "the entry that had not expired");
    cache.check_invariants();
}

/// No entry expires before its time has passed. With a time of zero an entry expires at once.
#[test]
fn entries_live_for_their_time_at_least() {
    let least = Duration::from_millis(1);
    for idle in [false, true] {
        let builder = Cache::<u32, ()>::builder();
        let builder = if idle { builder.time_to_idle(least) } else { builder.time_to_live(least) };
        let cache = builder.entries(10);
        for key in 0..200 {
            let before = std::time::Instant::now();
            cache.insert(key, ());
            while cache.contains(&key) {}
            assert!(before.elapsed() >= least, "{:?}", before.elapsed());
        }
        for _ in 0..100 {
            let mut hit = std::time::Instant::now();
            cache.insert(1, ());
            for _ in 0..3 {
                let now = std::time::Instant::now();
                if cache.get(&1).is_some() && idle {
                    hit = now;
                }
                while hit.elapsed() < least / 2 {}
            }
            while cache.contains(&1) {}
            assert!(hit.elapsed() >= least, "{:?}", hit.elapsed());
        }
    }
    let none: Cache<u32, ()> = Cache::builder().time_to_idle(Duration::ZERO).entries(10);
    none.insert(1, ());
    assert!(!none.contains(&1) && none.get(&1).is_none());
}

/// A request that makes the value is one miss, however often it looks the key up.
#[test]
fn requests_are_counted_once() {
    let cache: Cache<u64, u64> = Cache::builder().record_hits().entries(1_000);
    let counted = || (cache.stats().hits, cache.stats().misses);
    (0..100).for_each(|key| _ = cache.get_or_insert_with(key, |key| *key));
    assert_eq!(counted(), (0, 100));
    (0..100).for_each(|key| _ = cache.get_or_insert_with(key, |key| *key));
    assert_eq!((counted(), cache.stats().hit_ratio()), ((100, 100), Some(0.5)));
    assert_eq!(cache.get_or_try_insert_with(100, |_| Err(())), Err(()));
    assert_eq!((cache.get(&100), counted()), (None, (100, 102)));
    let mut task = std::pin::pin!(cache.get_or_insert_async(101, async { 1 }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_ready());
    assert_eq!(counted(), (100, 103));
    // One of the threads makes the value, and the others get it, before or after a wait.
    thread::scope(|scope| (0..10).for_each(|_| _ = scope.spawn(|| cache.get_or_insert_with(200, |_| 1))));
    assert_eq!(counted(), (109, 104));
}

#[test]
fn caches_may_be_used_where_panics_are_caught() {
    let cache: Cache<u64, u64> = Cache::builder().entries(10);
    assert!(std::panic::catch_unwind(|| cache.get_or_insert_with(1, |_| panic!("planned"))).is_err());
    assert_eq!(cache.get_or_insert_with(1, |_| 2), 2);
}

#[test]
fn pairs_may_be_inserted_together() {
    let mut cache: Cache<u64, u64> = Cache::builder().entries(10);
    cache.extend([(1, 2), (3, 4)]);
    (&cache).extend([(3, 5)]);
    assert_eq!((cache.get(&1), cache.get(&3), cache.stats().len), (Some(2), Some(5), 2));
}

#[test]
fn time_ends_entries_and_use_prolongs_them() {
    let idle: Cache<u8, u8> = Cache::builder().time_to_idle(Duration::from_millis(400)).entries(10);
    let live: Cache<u8, u8> = Cache::builder().time_to_live(Duration::from_millis(400)).entries(10);
    let first = std::time::Instant::now();
    for cache in [&idle, &live] {
        cache.insert(1, 1);
        cache.insert(2, 2);
    }
    // A sleep lasts at least as long as requested, however busy the machine is. If it lasts much longer, the idle entry
    // may have expired.
    let mut kept = true;
    // Together the sleeps are longer than the limit and its sixteenth, for which an idle entry may live longer.
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(100));
        kept &= idle.get(&1).is_some();
        let _ = live.get(&1);
    }
    let steady = first.elapsed() < Duration::from_millis(700);
    assert!(!steady || kept, "an entry that is used stays");
    assert_eq!((idle.get(&2), live.get(&1)), (None, None));
}

#[test]
fn weights_are_what_the_weigher_says() {
    let cache: Cache<u32, Vec<u8>> = Cache::builder().shards(1).weigher(100, |_, value: &Vec<u8>| value.len());
    assert!(cache.insert(1, vec![0; 60]));
    assert!(cache.insert(2, vec![0; 40]));
    assert_eq!(cache.stats().weight, 100);
    assert!(!cache.insert(1, vec![0; 101]), "it weighs more than the cache");
    assert_eq!(cache.get(&1), None, "and what it was to replace is out of date");
    assert!(cache.insert(3, vec![0; 100]), "all others give way");
    assert_eq!((cache.stats().len, cache.stats().weight), (1, 100));
    cache.check_invariants();
}

#[test]
fn large_entries_take_room_from_other_shards() {
    let cache: Cache<u32, usize> = Cache::builder().shards(16).weigher(64 << 20, |_, weight| *weight);
    (0..64 << 10).for_each(|key| assert!(cache.insert(key, 1 << 10)));
    assert!(cache.stats().weight > 60 << 20, "{}", cache.stats().weight);
    for key in 0..20 {
        assert!(cache.insert(1 << 20 | key, 40 << 20), "an entry of more than half of the cache");
        assert!(cache.contains(&(1 << 20 | key)));
        cache.check_invariants();
    }
}

#[test]
fn caches_change_their_size() {
    let cache: Cache<u32, u32> = Cache::builder().shards(8).entries(100_000);
    (0..100_000).for_each(|key| _ = cache.insert(key, key));
    for capacity in [50_000, 7, 0, 1, 200_000, 10_000] {
        cache.resize(capacity);
        assert!(cache.stats().weight <= capacity, "{} of {capacity}", cache.stats().weight);
        cache.check_invariants();
        (0..30_000).for_each(|key| _ = cache.insert(key, key));
        let held = cache.stats().weight;
        assert!(held <= capacity && held >= capacity.min(20_000) * 9 / 10, "{held} of {capacity}");
        cache.check_invariants();
    }
}

#[test]
fn iterators_show_every_entry_once() {
    let cache: Cache<u32, u32> = Cache::builder().entries(10_000);
    (0..1_000).for_each(|key| _ = cache.insert(key, key * 2));
    let pinned = cache.pin();
    let mut shown: Vec<_> = pinned.iter().map(|(key, value)| (*key, *value)).collect();
    shown.sort_unstable();
    assert!(shown.into_iter().eq((0..1_000).map(|key| (key, key * 2))));
}

#[test]
fn keys_may_be_asked_for_by_what_they_borrow() {
    let cache: Cache<String, usize> = Cache::new(1 << 20);
    cache.insert("text".to_owned(), 4);
    assert_eq!(
        (cache.get("text"), cache.contains("none"), cache.remove("text"), cache.remove("text")),
        (Some(4), false, true, false)
    );
}

/// Compares a random sequence of operations with a map: an entry that is present has the value that was inserted last.
#[test]
fn any_sequence() {
    let cache: Cache<u64, u64> = Cache::builder().shards(2).entries(200);
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut state = 7;
    for turn in 0..50_000 {
        let key = zipf(1_000.0, &mut state);
        match turn % 5 {
            0 | 1 => {
                assert!(cache.insert(key, turn));
                last.insert(key, turn);
            }
            2 if turn % 3 == 0 => {
                let was = cache.remove(&key);
                assert!(last.remove(&key).is_some() || !was);
            }
            _ => assert!(cache.get(&key).is_none_or(|value| last.get(&key) == Some(&value))),
        }
    }
    // Shards reserve room (leases) that they do not use at once. This room is small, so the cache is nearly full.
    assert!((190..=200).contains(&cache.stats().len), "{}", cache.stats().len);
    cache.check_invariants();
}

#[test]
fn one_maker_a_key() {
    let cache: Cache<u32, u32> = Cache::builder().entries(100);
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for key in 0..50 {
                    let make = |key: &u32| {
                        made.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        key * 3
                    };
                    assert_eq!(cache.get_or_insert_with(key, make), key * 3);
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 50);
}

/// If a value is inserted while another value is made, the inserted one counts as newer, whether or not the made one
/// fits.
#[test]
fn refused_made_values_remove_no_newer_ones() {
    let heavy: Cache<u64, usize> = Cache::builder().weigher(10, |_: &u64, value: &usize| *value);
    let make = |_: &u64| {
        heavy.insert(1, 5);
        100
    };
    assert_eq!((heavy.get_or_insert_with(1, make), heavy.get(&1)), (5, Some(5)));
    assert_eq!((heavy.stats().refusals, heavy.get_or_insert_with(2, |_| 100), heavy.get(&2)), (0, 100, None));
    assert_eq!(heavy.stats().refusals, 1);

    // A session that stays keeps removed entries waiting, until insertions are refused.
    let full: Cache<u64, usize> = Cache::builder().entries(100);
    let mut pinned = None;
    let make = |_: &u64| {
        full.insert(1, 5);
        pinned = Some(full.pin());
        while full.insert(2, 0) {}
        100
    };
    assert_eq!((full.get_or_insert_with(1, make), full.get(&1)), (5, Some(5)));
}

#[test]
fn makers_may_ask_for_other_keys() {
    let cache: Cache<u64, u64> = Cache::builder().entries(1_000);
    fn fibonacci(cache: &Cache<u64, u64>, n: u64) -> u64 {
        cache.get_or_insert_with(n, |&n| if n < 2 { n } else { fibonacci(cache, n - 1) + fibonacci(cache, n - 2) })
    }
    assert_eq!(fibonacci(&cache, 80), 23_416_728_348_467_685);
}
