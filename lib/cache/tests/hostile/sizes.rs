//! Any weights, capacities and times, and sizes that change side by side.

use super::*;

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
