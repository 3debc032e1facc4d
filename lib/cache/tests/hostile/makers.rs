//! Makers that panic, fail, or wait for each other.

use super::*;

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
