//! Small caches under many simulated schedules. In a schedule, a thread may lose its processor at any point.
#![cfg(archipelago_sim)]

mod model;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::simulated::explore;
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
