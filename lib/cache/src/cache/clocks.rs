//! Caches whose clock jumps forward by years, stands still, or is set back. (The clock of the product is monotonic, but
//! a machine that sleeps or moves to another host may break this promise.)

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use core::time::Duration;

use super::Cache;
use crate::cause::Cause;

const HOUR: Duration = Duration::from_secs(3_600);
const YEARS: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Much longer than any of these tests.
const SOON: Duration = HOUR;

impl<K, V, P, S> Cache<K, V, P, S> {
    fn jump(&mut self, time: Duration) {
        self.inner.clock.jump(time);
    }

    fn set_back(&mut self, time: Duration) {
        self.inner.clock.set_back(time);
    }
}

#[test]
fn all_but_the_endless_has_expired_after_years() {
    let mut cache: Cache<u8, u8> = Cache::builder().entries(100);
    cache.insert(0, 0);
    cache.insert_for(1, 1, HOUR);
    cache.insert_for(2, 2, Duration::MAX);
    cache.jump(YEARS);
    assert_eq!([0, 1, 2].map(|key| cache.get(&key)), [Some(0), None, Some(2)]);
    assert_eq!(cache.sync(), 1);
    assert_eq!(cache.stats().expirations, 1);
    cache.check_invariants();
}

#[test]
fn what_was_inserted_after_a_jump_lives_as_long_as_before() {
    let mut cache: Cache<u8, u8> = Cache::builder().time_to_live(HOUR).time_to_idle(HOUR).entries(100);
    for key in 0..5 {
        cache.insert(key, key);
        cache.jump(HOUR / 2);
        assert_eq!(cache.get(&key), Some(key));
        cache.jump(HOUR / 2 + Duration::from_millis(1));
        assert_eq!(cache.get(&key), None, "the time to live is not postponed by the hit");
        cache.jump(YEARS);
    }
    assert_eq!(cache.sync(), 5);
}

/// An entry that was inserted before the clock was set back lives longer by this difference, but not longer than that.
#[test]
fn a_clock_that_was_set_back_lengthens_lives_by_as_much() {
    let mut cache: Cache<u8, u8> = Cache::builder().time_to_live(HOUR).entries(100);
    cache.jump(10 * HOUR);
    cache.insert(1, 1);
    cache.set_back(5 * HOUR);
    cache.insert(2, 2);
    cache.jump(HOUR + Duration::from_millis(2));
    assert_eq!([1, 2].map(|key| cache.get(&key)), [Some(1), None]);
    cache.jump(5 * HOUR);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.sync(), 2);
}

#[test]
fn an_entry_that_was_found_expired_does_not_come_back_with_the_clock() {
    let mut cache: Cache<u8, u8> = Cache::builder().time_to_idle(HOUR).entries(100);
    cache.insert(1, 1);
    cache.jump(YEARS);
    assert_eq!(cache.get(&1), None);
    cache.set_back(YEARS);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn nothing_expires_while_the_clock_stands_still() {
    let mut cache: Cache<u8, u8> = Cache::builder().time_to_live(SOON).time_to_idle(SOON).entries(100);
    cache.set_back(YEARS);
    (0..50).for_each(|key| assert!(cache.insert(key, key)));
    assert!((0..50).all(|key| cache.get(&key) == Some(key)));
    assert_eq!((cache.inner.clock.now(), cache.sync()), (0, 0));
    cache.insert_for(50, 50, Duration::ZERO);
    assert_eq!(cache.get(&50), None, "no time to live is over at once");
    cache.jump(YEARS + 2 * SOON);
    assert_eq!(cache.sync(), 51);
    assert_eq!(cache.stats().len, 0);
}

/// Between the jumps, threads fill the cache. The bound holds whatever the clock says, and each entry leaves once.
#[test]
fn crowds_stay_within_the_bound_between_jumps() {
    const CAPACITY: usize = 512;
    const ROUNDS: usize = if cfg!(miri) { 4 } else { 200 };
    const TURNS: u64 = if cfg!(miri) { 4 } else { 40 };
    let left = Arc::new(AtomicUsize::new(0));
    let count = {
        let left = left.clone();
        move |_: &u64, _: &u64, _: Cause| _ = left.fetch_add(1, Relaxed)
    };
    let builder = Cache::<u64, u64>::builder().time_to_live(HOUR).time_to_idle(HOUR / 2);
    let mut cache = builder.on_leave(count).shards(4).entries(CAPACITY);
    for round in 0..ROUNDS {
        match round % 4 {
            0 => cache.jump(YEARS),
            1 => cache.set_back(2 * YEARS),
            2 => cache.jump(HOUR / 3),
            _ => cache.set_back(HOUR),
        }
        thread::scope(|scope| {
            for thread in 0..3 {
                let cache = &cache;
                scope.spawn(move || {
                    for at in 0..TURNS {
                        let key = (round as u64 * 7 + at * thread) % 500;
                        assert!(cache.get(&key).is_none_or(|value| value == key));
                        cache.insert_for(key, key, HOUR * thread as u32);
                        assert_eq!(cache.get_or_insert_with(key + 500, |key| *key), key + 500);
                    }
                });
            }
        });
        // Beside changes, the sum over several shards is of no one moment.
        assert!(cache.stats().weight <= CAPACITY);
        cache.check_invariants();
    }
    cache.clear();
    assert_eq!((cache.stats().len, cache.stats().weight), (0, 0));
    let stats = cache.stats();
    assert_eq!(left.load(Relaxed) as u64, stats.insertions + stats.refusals, "each entry left once");
}
