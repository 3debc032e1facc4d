//! Equal seeds give equal runs of a whole index, background threads and all. A file of its own: runs beside it in the
//! same process would take its addresses.
#![cfg(archipelago_sim)]

use archipelago_index::HydraList;
use archipelago_sim::{Client, Config, Machine, Placement, SimAlloc, run_with};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Pages split and merge, layers are rebuilt by background threads, values move: in virtual time, on every node.
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
                    // The threads' keys are neighbours, so that they share pages.
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
    // Statics are made by the first run.
    hash();
    assert_eq!(hash(), hash());
}
