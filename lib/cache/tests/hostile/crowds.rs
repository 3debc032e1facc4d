//! Many more threads than processors, and keys that all have the same hash.

use super::*;

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
