//! Small caches under many simulated schedules. In a schedule, a thread may lose its processor at any point.
#![cfg(archipelago_sim)]

mod model;

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::simulated::explore;
use archipelago_platform::atomic::{AtomicBool, Ordering::Relaxed};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_sim::{Client, SimAlloc, world};
use model::{Map, Op, Ret, draw, perform};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Explores the schedules of a cache of `capacity` entries with this number of shards.
fn explored<P: Policy + 'static>(capacity: usize, shards: usize, seeds: u64) {
    explored_in(seeds, || Cache::<u8, u32>::builder().policy::<P>().shards(shards).entries(capacity));
}

fn explored_in<P: Policy + 'static>(seeds: u64, cache: impl Fn() -> Cache<u8, u32, P>) {
    let setup = || (cache(), Recorder::<Op, Ret>::new());
    let client = |(cache, recorder): &(Cache<u8, u32, P>, Recorder<Op, Ret>), client: Client| {
        let mut log = recorder.log();
        for turn in 0..6 {
            let unique = client.index as u32 * 100 + turn;
            log.record(draw(|bound| world::random() % bound, unique), |op| perform(cache, op));
        }
    };
    let end = |(cache, recorder): (Cache<u8, u32, P>, Recorder<Op, Ret>)| {
        cache.check_invariants();
        let may_vanish = cache.stats().evictions + cache.stats().refusals > 0;
        drop(cache);
        linear::check(&Map { may_vanish }, recorder.finish().entries()).assert_ok();
    };
    explore(seeds, setup, client, end);
}

#[test]
fn caches_with_room_are_maps_in_many_schedules() {
    explored::<S3Fifo>(64, 1, 4_000);
}

#[test]
fn small_caches_serve_nothing_out_of_date_in_many_schedules() {
    explored::<S3Fifo>(2, 1, 2_000);
    explored::<Sieve>(2, 1, 2_000);
    explored::<SampledLru>(2, 1, 2_000);
}

#[test]
fn shards_that_take_room_from_one_another_in_many_schedules() {
    explored::<S3Fifo>(128, 2, 500);
}

/// Most entries need more than an equal share of the capacity, so that room moves between the shards all the time.
#[test]
fn large_entries_come_and_go_in_many_schedules() {
    const WEIGHTS: [usize; 4] = [1_000, 600_000, 400_000, 900_000];
    explored_in(1_000, || {
        Cache::<u8, u32>::builder().shards(4).weigher(1 << 20, |key: &u8, _| WEIGHTS[usize::from(key % 4)])
    });
}

/// A table grows and shrinks while other threads look up entries that are always present.
#[test]
fn tables_are_replaced_beside_readers_in_many_schedules() {
    let setup = || {
        let cache: Cache<u8, u32> = Cache::builder().shards(1).entries(1_000);
        (1..4).for_each(|key| _ = cache.insert(key, 7));
        cache
    };
    let client = |cache: &Cache<u8, u32>, client: Client| match client.index as u8 {
        0 => {
            for _ in 0..2 {
                (10..35).for_each(|key| _ = cache.insert(key, 0));
                (10..35).for_each(|key| _ = cache.remove(&key));
                cache.sync();
            }
        }
        reader => (0..25).for_each(|_| assert_eq!(cache.get(&reader), Some(7))),
    };
    explore(500, setup, client, |cache| cache.check_invariants());
}

/// At every moment, the weight is at most the largest bound that was ever set. In the end it is at most the bound that
/// was set last.
#[test]
fn bounds_are_moved_beside_insertions_in_many_schedules() {
    const BOUNDS: [usize; 4] = [40, 3, 256, 8];
    let setup = || Cache::<u8, u8>::builder().shards(2).entries(256);
    let client = |cache: &Cache<u8, u8>, client: Client| match client.index {
        0 | 1 => (0..3).for_each(|turn| cache.resize(BOUNDS[(client.index + turn) % 4])),
        _ => {
            for _ in 0..20 {
                let key = world::random() as u8 % 50;
                cache.insert(key, key);
                assert!(cache.get(&key).is_none_or(|value| value == key));
            }
        }
    };
    let end = |cache: Cache<u8, u8>| {
        cache.check_invariants();
        assert!(BOUNDS.contains(&cache.capacity()), "a bound that was set");
        cache.resize(8);
        assert!(cache.stats().weight <= 8);
        cache.check_invariants();
    };
    explore(1_000, setup, client, end);
}

/// Entries are found until their time has passed, and never later, while other threads look them up and remove what has
/// expired.
#[test]
fn entries_expire_in_time_in_many_schedules() {
    const LIFE: Duration = Duration::from_millis(5);
    /// The greatest difference between the clocks of two processors, plus the resolution of times.
    const ERROR: Duration = Duration::from_millis(2);
    let setup = || Cache::<usize, u64>::builder().shards(1).time_to_live(LIFE).entries(64);
    let client = |cache: &Cache<usize, u64>, client: Client| {
        for turn in 0..4 {
            let before = Instant::now();
            assert!(cache.insert(client.index, turn));
            let after = Instant::now();
            thread::sleep(Duration::from_millis(world::random() % 10));
            let begin = Instant::now();
            let found = cache.get(&client.index);
            let end = Instant::now();
            assert!(found.is_none_or(|value| value == turn));
            assert!(found.is_none() || begin.duration_since(after) < LIFE + ERROR, "found after its time");
            assert!(found.is_some() || end.duration_since(before) + ERROR > LIFE, "missed before its time");
            cache.get(&((client.index + 1) % 4));
            cache.sync();
        }
    };
    let end = |cache: Cache<usize, u64>| {
        cache.check_invariants();
        assert_eq!(cache.stats().evictions, 0, "there is room");
    };
    explore(1_000, setup, client, end);
}

/// A waker of a task that is polled only if it was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Polls a future until it is ready, at most `polls` times. Returns its output, or `None` if it was dropped before.
fn polled<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let (mut future, woken) = (pin!(future), Arc::new(Woken(AtomicBool::new(true))));
    let waker = Waker::from(woken.clone());
    for _ in 0..polls {
        while !woken.0.swap(false, Relaxed) {
            thread::yield_now();
        }
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
    }
    None
}

/// Makes a value at the second poll.
async fn made(value: u8) -> u8 {
    let mut is_first = true;
    core::future::poll_fn(|context| {
        if core::mem::replace(&mut is_first, false) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
    value
}

/// Tasks begin to make a key, or to wait for it, and are dropped at any of their polls. Whenever a maker is dropped, a
/// task that waits is woken, or the schedule does not end.
#[test]
fn tasks_are_dropped_while_others_wait_in_many_schedules() {
    let setup = || Cache::<u8, u8>::builder().shards(1).entries(64);
    let client = |cache: &Cache<u8, u8>, client: Client| {
        for turn in 0..4 {
            let key = turn % 2;
            let polls = if client.index == 0 { u64::MAX } else { 1 + world::random() % 3 };
            match polled(cache.get_or_insert_async(key, made(key + 10)), polls) {
                Some(value) => assert_eq!(value, key + 10),
                None => assert_ne!(client.index, 0, "it is polled to its end"),
            }
            cache.remove(&key);
        }
        assert_eq!(cache.get_or_insert_with(0, |_| 10), 10);
    };
    explore(1_000, setup, client, |cache| cache.check_invariants());
}
