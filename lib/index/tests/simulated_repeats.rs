//! Equal seeds give equal runs of a whole index. The test is in a file of its own, since other tests in the same
//! process would occupy addresses of the simulated heap, and the addresses influence a run.
#![cfg(archipelago_sim)]

use archipelago_index::HydraList;
use archipelago_sim::{Client, Config, Machine, Placement, SimAlloc, run_with};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Threads on all nodes split and merge pages and update search layers, in virtual time. (The map is so small that it
/// starts no background threads: clients update the layers.)
#[test]
fn churn_in_virtual_time_repeats() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let hash = || {
        let config = Config { until_ns: Some(150_000), placement: Placement::Spread, ..Config::seeded(5) };
        let body = |map: &HydraList<u64, u64>, client: Client| {
            let session = map.pin();
            let (mut turn, base) = (0, client.index as u64 * 40);
            while client.running() {
                for key in 0..40 {
                    // The threads' keys are adjacent, so that the threads share pages.
                    let key = key * 1000 + base;
                    let old = if turn % 2 == 0 { session.insert(key, turn) } else { session.remove(&key) };
                    assert_eq!(old.is_some(), turn % 2 == 1, "{key}");
                }
                turn += 1;
            }
        };
        let report = run_with(&machine, &config, 16, HydraList::<u64, u64>::new, body, |map| map.check_invariants());
        report.0.assert_done().hash
    };
    // The first run initializes statics, so it is not compared.
    hash();
    assert_eq!(hash(), hash());
}
