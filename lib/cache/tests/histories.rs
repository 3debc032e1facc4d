//! Recorded histories of real threads. A cache with enough room behaves as a map. A cache without enough room never
//! returns an outdated value.
#![cfg(not(archipelago_sim))]

mod model;

use std::thread;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_check::history::Recorder;
use archipelago_check::linear;
use model::{Map, Op, Ret, draw, perform};

const THREADS: u32 = 4;

fn check<P: Policy + 'static>(capacity: usize) {
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let cache: Cache<u8, u32, P> = Cache::builder().policy::<P>().entries(capacity);
        let recorder = Recorder::<Op, Ret>::new();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cache, recorder) = (&cache, &recorder);
                scope.spawn(move || {
                    let mut log = recorder.log();
                    let mut random = u64::from(round * THREADS + thread) + 1;
                    let mut draw_below = |bound| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (random >> 33) % bound
                    };
                    for turn in 0..40 {
                        log.record(draw(&mut draw_below, thread * 1_000 + turn), |op| perform(cache, op));
                    }
                });
            }
        });
        cache.check_invariants();
        let may_vanish = cache.stats().evictions + cache.stats().refusals > 0;
        assert!(capacity >= 64 || may_vanish, "nothing had to give way");
        linear::check(&Map { may_vanish }, recorder.finish().entries()).assert_ok();
    }
}

#[test]
fn caches_with_room_are_maps() {
    check::<S3Fifo>(64);
    check::<SampledLru>(64);
}

#[test]
fn small_caches_serve_nothing_out_of_date() {
    check::<S3Fifo>(2);
    check::<Sieve>(2);
    check::<SampledLru>(2);
}
