//! Checks the same histories under many schedules, in which threads are preempted at any step.
#![cfg(archipelago_sim)]

mod histories;

use archipelago_check::simulated::explore;
use archipelago_sim::{SimAlloc, world};
use histories::{Recorded, each};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

#[test]
fn caches_of_slots_are_maps_from_which_keys_vanish_in_many_schedules() {
    for room in [1, 2, 4] {
        each(|known| {
            let work = |recorded: &Recorded, client: archipelago_sim::Client| {
                recorded.work(6, client.index as u32 * 1_000, |bound| world::random() % bound);
            };
            explore(30, || Recorded::of(known, room), work, Recorded::judge);
        });
    }
}
