//! Checks histories of real threads in the cache after Kyoto Cabinet and its variants.
#![cfg(not(archipelago_sim))]

mod histories;

use std::thread;

use archipelago_workloads::random::Random;
use histories::{Recorded, each};

const THREADS: usize = 4;

#[test]
fn caches_of_slots_are_maps_from_which_keys_vanish() {
    for room in [1, 2, 4] {
        for round in 0..if cfg!(miri) { 1 } else { 40 } {
            each(|known| {
                let recorded = Recorded::of(known, room);
                thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let recorded = &recorded;
                        scope.spawn(move || {
                            let mut random = Random::new(round, thread);
                            recorded.work(40, thread as u32 * 1_000, |bound| random.within(0, bound - 1));
                        });
                    }
                });
                recorded.judge();
            });
        }
    }
}
