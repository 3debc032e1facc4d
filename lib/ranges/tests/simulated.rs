//! Maps with small blocks and chunks under many simulated schedules. In a schedule, a thread may lose its processor at
//! any point.
#![cfg(archipelago_sim)]

mod flat;

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::simulated::explore;
use archipelago_ranges::RangeMap;
use archipelago_sim::{Client, SimAlloc, world};
use flat::{Flat, Op, Points, Ret, draw, perform, several_leaves};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

type Shared = (Points, RangeMap<u16, u8>, Recorder<Op, Ret>);

#[test]
fn maps_are_linearizable_in_many_schedules() {
    let setup = || {
        let (points, map) = several_leaves();
        (points, map, Recorder::<Op, Ret>::new())
    };
    let client = |(_, map, recorder): &Shared, _: Client| {
        let mut log = recorder.log();
        for _ in 0..6 {
            log.record(draw(|bound| world::random() % bound), |op| perform(map, op));
        }
    };
    let end = |(points, map, recorder): Shared| {
        map.check_invariants();
        drop(map);
        linear::check(&Flat(points), recorder.finish().entries()).assert_ok();
    };
    explore(6_000, setup, client, end);
}
