//! Measures how an operation's cost grows with the size of a structure: at some size, at four times and at sixteen
//! times that size.
//!
//! The cost is the number of memory accesses on the virtual machine (a simulator), by one thread and the background
//! threads that it wakes: accesses to atomics, and to plain memory that is announced. Accesses are counted, not timed.
//! So a run is exactly reproducible, and structures need no code for the measurement.

use archipelago_sim::{Client, Config, Machine, run_with, world};

/// Returns the accesses per operation of `work`, by all threads, at the sizes `least`, four times and sixteen times
/// `least`.
///
/// `setup` makes a structure of a size; its accesses are not counted. `work` operates on the structure, and returns the
/// number of its operations.
///
/// # Panics
/// If `work` returns 0.
pub fn costs<S>(least: u64, setup: impl Fn(u64) -> S, work: impl Fn(&S, u64) -> u64) -> [f64; 3] {
    let machine = Machine::preset("xeon-e5-4620-4s").expect("it is a preset");
    let accesses = || world::stats().expect("a run goes on").accesses;
    [1, 4, 16].map(|times| {
        let size = times * least;
        let body = |(structure, cost): &(S, std::cell::Cell<f64>), _: Client| {
            let before = accesses();
            let operations = work(structure, size);
            // 0 / 0 is not a number, and `assert_flat` would replace it by the floor.
            assert_ne!(operations, 0, "no operation was counted");
            cost.set((accesses() - before) as f64 / operations as f64);
        };
        let setup = || (setup(size), std::cell::Cell::new(0.0));
        let (report, cost) = run_with(&machine, &Config::seeded(size), 1, setup, body, |(_, cost)| cost.get());
        report.assert_done();
        cost.expect("the run is done")
    })
}

/// Asserts that an operation costs about the same in a structure that is sixteen times as large. A tree may have one or
/// two more levels, but no part of the cost may be proportional to the size or to a fraction of it.
///
/// The reference is the cost in the smaller structures, or `floor` accesses if that is more, since a very small cost
/// may well double.
#[track_caller]
pub fn assert_flat(what: &str, costs: [f64; 3], floor: f64) {
    println!("{what:60} {:7.1} {:7.1} {:7.1}", costs[0], costs[1], costs[2]);
    let [small, middle, large] = costs.map(|cost| cost.max(floor));
    let flat = large <= 2.0 * small && large <= 1.5 * middle;
    assert!(flat, "{what}: accesses an operation grow with the size: {costs:?}");
}
