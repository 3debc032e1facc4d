//! Runs every experiment on every preset with one, eight and all threads. Each run ends, has plausible results, and
//! gives the same results when repeated.
//!
//! Contenders take turns over the presets and thread counts, so that a complete pass stays short.
//!
//! The test is to run alone in its process (`-- sim::smoke`). Beside other tests, two runs of node replication's sorted
//! set once had equal numbers of events but accessed other addresses. The cause was not found. Probably it is a number
//! that a static of the process gave out.

use archipelago_sim::SimAlloc;
use archipelago_sim::machine::PRESETS;

use super::tests::{common, parse};
use super::*;
use crate::harness::simulated::Run;

/// Equal runs have equal results only with the simulator's own heap.
#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// The experiments, with small sizes.
const EXPERIMENTS: [&[&str]; 13] = [
    &["locks"],
    &["blink", "--count", "1k", "--update-percent", "50", "--removes"],
    &["euno", "--count", "1k", "--workload", "all", "--theta", "0.9"],
    &["cache", "--count", "300", "--capacity-percent", "80"],
    &["ranges"],
    &["txn", "--store", "silo-euno-btree,mvrlu-hydralist,lock", "--workload", "ycsb,smallbank", "--count", "200"],
    &["locks", "--lock", "distributed,c-rw-np,c-rw-rp,c-rw-wp,bravo,shfl-rw,bravo-shfl-rw", "--write-percent", "10"],
    &["ycsb", "--index", "all", "--workload", "all", "--count", "2k"],
    &["ycsb", "--index", "all", "--workload", "all", "--count", "2k", "--keys", "email"],
    &["sets", "--structure", "all", "--mechanism", "rcu,rlu,mvrlu", "--count", "300"],
    &["nr", "--workload", "all", "--method", "sl,rwl,fc,fc+,nr,tas,shfl", "--update-percent", "10", "--count", "2k"],
    &["txn", "--store", "silo-hydralist,wait-die-art,mvrlu-euno-btree,lock", "--workload", "tpcc", "--warehouses", "1"],
    &["nr", "--method", "rwl-queued,fc-two-walks,combined-flat,combined", "--update-percent", "50", "--count", "2k"],
];

/// Returns the measured span in microseconds. The caches are cold, so few threads need a longer span to complete
/// operations; with many threads, a longer span would contain too many events.
fn micros(threads: usize) -> u64 {
    if threads > 8 { 20 } else { 120 }
}

/// Runs the contender whose turn it is, once.
fn cell(arguments: &[&str], preset: &str, threads: usize, turn: usize) -> (String, Run) {
    let micros = micros(threads).to_string();
    let options = ["--machine", preset, "--warm", "5", "--micros", &micros, "--min-ops", "0", "--runs", "1"];
    let what = parse(&[arguments, &options].concat());
    let setting = setting(common(&what), &what).unwrap();
    let contenders = contenders(&what).unwrap();
    let contender = &contenders[turn % contenders.len()];
    let name = format!("{} {} on {preset} with {threads} threads", contender.name, contender.cell.workload);
    let figures = simulated::figures(contender, &setting, threads).unwrap_or_else(|why| panic!("{name}: {why}"));
    (name, figures.expect("no thread interrupts it").runs.swap_remove(0))
}

#[test]
fn every_experiment_ends_on_every_machine() {
    if !SIMULATED {
        return;
    }
    for (number, arguments) in EXPERIMENTS.into_iter().enumerate() {
        for (place, preset) in PRESETS.into_iter().enumerate() {
            let all = machines::named(preset).unwrap().cpus();
            for (size, threads) in [1, 8, all].into_iter().enumerate() {
                let turn = number + place * 3 + size;
                let (name, run) = cell(arguments, preset, threads, turn);
                // No thread completes more than one operation per nanosecond, or waits longer than it runs.
                assert!(run.mops <= 1_000.0 * threads as f64, "{name}: {} Mops/s", run.mops);
                // With all threads and cold caches, an operation may take longer than the measured span.
                assert!(run.ops > 0 || threads > 8, "{name}: nothing was done");
                let spans = threads as u64 * run.counted_ns.max(micros(threads) * 1000) * 1000;
                assert!(run.stats.line_wait_ps <= 3 * spans, "{name}: {} ps of waits", run.stats.line_wait_ps);
                if threads == 8 {
                    let (_, again) = cell(arguments, preset, threads, turn);
                    let heaps = (run.repeats, again.repeats);
                    assert_eq!(
                        (again.ops, again.hash, again.events, again.held_bytes),
                        (run.ops, run.hash, run.events, run.held_bytes),
                        "{name}; whether they had heaps of their own: {heaps:?}"
                    );
                }
            }
        }
    }
}
