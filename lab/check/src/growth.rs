//! Costs that grow: how much work an operation takes in a structure of some size, of four times and of sixteen times that size.
//!
//! Work is what a single thread of the virtual machine, and the background threads that it wakes, access: atomics, and plain
//! memory that is announced. So it is counted, not timed, a run repeats exactly, and structures need no code for it.

use archipelago_sim::{Client, Config, Machine, run_with, world};

/// Accesses an operation of `work` takes, with all threads' counted, at `least`, four and sixteen times that size.
///
/// `setup` makes a structure for a size, and its accesses are not counted; `work` does something with it, and says how many
/// operations that was.
pub fn costs<S>(least: u64, setup: impl Fn(u64) -> S, work: impl Fn(&S, u64) -> u64) -> [f64; 3] {
    let machine = Machine::preset("xeon-e5-4620-4s").expect("it is a preset");
    let accesses = || world::stats().expect("a run goes on").accesses;
    [1, 4, 16].map(|times| {
        let size = times * least;
        let body = |(structure, cost): &(S, std::cell::Cell<f64>), _: Client| {
            let before = accesses();
            let operations = work(structure, size);
            cost.set((accesses() - before) as f64 / operations as f64);
        };
        let setup = || (setup(size), std::cell::Cell::new(0.0));
        let (report, cost) = run_with(&machine, &Config::seeded(size), 1, setup, body, |(_, cost)| cost.get());
        report.assert_done();
        cost.expect("the run is done")
    })
}

/// Asserts that an operation costs about as much in a structure sixteen times as large: a tree has a level more or two, and
/// nothing is proportional to the size, nor to a share of it.
///
/// What it costs in the smaller ones is the measure, but no less than `floor` accesses: what is nearly nothing may double.
#[track_caller]
pub fn assert_flat(what: &str, costs: [f64; 3], floor: f64) {
    println!("{what:60} {:7.1} {:7.1} {:7.1}", costs[0], costs[1], costs[2]);
    let [small, middle, large] = costs.map(|cost| cost.max(floor));
    let flat = large <= 2.0 * small && large <= 1.5 * middle;
    assert!(flat, "{what}: accesses an operation grow with the size: {costs:?}");
}
