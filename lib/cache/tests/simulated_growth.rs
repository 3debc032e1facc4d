//! The cost of an operation does not grow with the number of entries, in each usage pattern and under each policy.
//!
//! The simulator counts memory accesses instead of time (`check::growth`): of atomics and announced memory. It does not
//! see the memory of the standard library's collections.
#![cfg(archipelago_sim)]

use core::pin::{Pin, pin};
use core::task::{Context, Waker};
use core::time::Duration;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_check::growth::{assert_flat, costs};
use archipelago_sim::SimAlloc;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// The number of entries of the smallest cache.
const LEAST: u64 = 500;

type Words<P> = Cache<u64, u64, P>;

/// Makes an empty cache for `size` entries, in one shard: more shards would be smaller ones.
fn empty<P: Policy + 'static>(size: u64) -> Words<P> {
    Cache::builder().policy::<P>().shards(1).entries(size as usize)
}

fn full<P: Policy + 'static>(size: u64) -> Words<P> {
    let cache = empty::<P>(size);
    (0..size).for_each(|key| assert!(cache.insert(key, key)));
    cache
}

/// Makes a full cache whose entries have all been hit.
fn hit<P: Policy + 'static>(size: u64) -> Words<P> {
    let cache = full::<P>(size);
    (0..8).for_each(|_| (0..size).for_each(|key| assert_eq!(cache.get(&key), Some(key))));
    cache
}

fn flat<S>(what: &str, setup: impl Fn(u64) -> S, work: impl Fn(&S, u64) -> u64) {
    assert_flat(what, costs(LEAST, setup, work), 0.0);
}

/// Asserts that the cost of `work` for each of `size` keys does not grow.
fn flat_for_each<S>(what: &str, setup: impl Fn(u64) -> S, work: impl Fn(&S, u64, u64)) {
    flat(what, setup, |cache, size| (0..size).map(|key| work(cache, key, size)).count() as u64);
}

fn costs_the_same<P: Policy + 'static>(policy: &str) {
    let of = |what: &str| format!("{policy}: {what}");
    flat_for_each(&of("insertions"), empty::<P>, |cache, key, _| assert!(cache.insert(key, key)));
    flat_for_each(&of("evictions of what was never hit"), full::<P>, |cache, key, size| {
        assert!(cache.insert(size + key, key));
    });
    flat_for_each(&of("evictions of what was often hit"), hit::<P>, |cache, key, size| {
        assert!(cache.insert(size + key, key));
    });
    flat_for_each(&of("replacements"), full::<P>, |cache, key, _| assert!(cache.insert(key, key + 1)));
    flat_for_each(&of("hits"), full::<P>, |cache, key, _| assert_eq!(cache.get(&key), Some(key)));
    flat_for_each(&of("misses"), full::<P>, |cache, key, size| assert_eq!(cache.get(&(size + key)), None));
    flat_for_each(&of("removals"), full::<P>, |cache, key, _| assert!(cache.remove(&key)));
    flat_for_each(&of("removals and insertions"), full::<P>, |cache, key, size| {
        assert!(cache.remove(&key));
        assert!(cache.insert(size + key, key));
    });
    flat_for_each(&of("an entry of a scan"), full::<P>, |cache, key, size| {
        if key == 0 {
            assert_eq!(cache.pin().iter().count() as u64, size);
        }
    });
    flat(&of("an entry that a smaller bound evicts"), hit::<P>, |cache, size| {
        cache.resize(size as usize / 2);
        size - cache.stats().len as u64
    });
    flat(&of("a smaller bound for what is far below it"), hit::<P>, |cache, size| {
        cache.resize(size as usize / 2);
        let kept = cache.stats().len as u64;
        let turns = 10;
        (1..=turns).for_each(|turn| cache.resize((kept + turn % 2) as usize));
        size
    });
}

#[test]
fn s3_fifo_costs_the_same_in_large_caches() {
    costs_the_same::<S3Fifo>("s3-fifo");
}

#[test]
fn sieve_costs_the_same_in_large_caches() {
    costs_the_same::<Sieve>("sieve");
}

#[test]
fn sampled_lru_costs_the_same_in_large_caches() {
    costs_the_same::<SampledLru>("sampled-lru");
}

#[test]
fn expiry_costs_the_same_in_large_caches() {
    let expired = |size| {
        let cache: Words<S3Fifo> = Cache::builder().shards(1).time_to_live(Duration::ZERO).entries(size as usize);
        (0..size).for_each(|key| assert!(cache.insert(key, key)));
        cache
    };
    flat("an entry that sync removes", expired, |cache, _| cache.sync() as u64);
    flat_for_each("misses of what has expired", expired, |cache, key, _| assert_eq!(cache.get(&key), None));
}

/// Any number of keys are being made while others begin, wait, and end.
#[test]
fn makers_cost_the_same_beside_many_others() {
    flat("makers at the same time", empty::<S3Fifo>, |cache, size| {
        let mut context = Context::from_waker(Waker::noop());
        let make = |key| Box::pin(cache.get_or_insert_async(key, core::future::pending()));
        let mut makers: Vec<Pin<Box<_>>> = (0..size).map(make).collect();
        makers.iter_mut().for_each(|maker| assert!(maker.as_mut().poll(&mut context).is_pending()));
        for key in 0..size {
            let mut waiting = pin!(cache.get_or_insert_async(key, async { 7 }));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        drop(makers);
        assert_eq!(cache.get_or_insert_with(0, |_| 1), 1);
        size
    });
}
