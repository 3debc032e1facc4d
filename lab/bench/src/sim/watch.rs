//! `sim … --watch`: finds shared memory that an experiment's programs access plainly. The virtual machine (a simulator)
//! does not see such accesses, so they cost no time.

use std::process::ExitCode;

use archipelago_sim::{Config, Unannounced};

use crate::failure::Failure;
use crate::harness::simulated::{Branch, Contender, Setting, Variant};
use crate::output::print;

/// One place in the program may read this many lines without announcement if no thread changes them. They are so few
/// that they stay in every core's first-level cache.
const FEW: usize = 64;
/// A place in the program is ignored if it makes at most this many accesses per thread, as at a thread's start and end.
const ONCE: u64 = 4;

/// Runs each contender once with each number of threads, and prints its unannounced accesses that matter (see
/// [`found`]). Returns an exit code of failure if there are any.
///
/// # Errors
/// If a run does not end well, or standard output cannot be written to.
pub fn execute(contenders: &[Contender], setting: &Setting, threads: &[usize]) -> Result<ExitCode, Failure> {
    let mut good = true;
    for contender in contenders {
        for &threads in threads {
            let found = found(contender, setting, threads)?;
            let mut text = format!(
                "{} {} with {threads} threads: {} places",
                contender.cell.workload,
                contender.name,
                found.len()
            );
            for place in &found {
                let (kind, lines) = (if place.writes { "writes" } else { "reads" }, place.lines);
                let changing = if place.changing { "changing" } else { "unchanging" };
                text += &format!("\n  {kind} {lines} {changing} lines {} times: {}", place.accesses, place.place);
            }
            print(text)?;
            good &= found.is_empty();
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the unannounced accesses of one contender that matter. The accesses of one place in the program matter if
/// they are more than `ONCE` per thread, and if the memory changes or has more than `FEW` lines.
///
/// # Errors
/// If the run does not end well.
pub fn found(contender: &Contender, setting: &Setting, threads: usize) -> Result<Vec<Unannounced>, Failure> {
    let config = Config { watch: true, ..setting.config() };
    let variant = Variant { machine: setting.machine.clone(), charge: setting.charge, wish: setting.wish };
    let program = &*contender.program;
    let run = program.runs(&[Branch { program, variant }], &config, threads).remove(0)?;
    let matters = |place: &Unannounced| place.accesses > ONCE * threads as u64 && (place.changing || place.lines > FEW);
    Ok(run.unannounced.into_iter().filter(matters).collect())
}

#[cfg(test)]
mod tests {
    use archipelago_platform::SIMULATED;

    use super::*;
    use crate::sim::contenders;
    use crate::sim::experiment::setting;
    use crate::sim::tests::{common, parse};

    // Experiments with all of their contenders, at small sizes. Three tests run them, since one test uses one processor.
    const INDEXES: [&[&str]; 2] = [
        &["ycsb", "--index", "all", "--workload", "all", "--count", "2k"],
        &["ycsb", "--index", "all", "--workload", "a,e", "--count", "2k", "--keys", "email"],
    ];
    const CONTENTION: [&[&str]; 4] = [
        &["locks", "--lock", "all", "--write-percent", "10"],
        &["blink", "--count", "2k", "--update-percent", "50", "--removes"],
        &["euno", "--count", "2k", "--workload", "all", "--theta", "0.9"],
        &["nr", "--workload", "all", "--method", "all", "--update-percent", "20", "--count", "2k"],
    ];
    const MECHANISMS: [&[&str]; 6] = [
        &["sets", "--structure", "all", "--mechanism", "all", "--count", "100", "--update-percent", "20"],
        &["cache", "--cache", KYOTOS, "--update-percent", "20", "--count", "300", "--capacity-percent", "80"],
        &["ranges", "--space", "ranges,spf,rcxvm", "--workload", "all"],
        &["txn", "--store", "schemes", "--workload", "ycsb", "--update-percent", "20", "--count", "300"],
        &["txn", "--store", OVER_TREES, "--workload", "smallbank", "--count", "300"],
        &["txn", "--store", "silo-euno-btree,mvrlu-art", "--workload", "tpcc", "--warehouses", "1"],
    ];
    /// The caches after Kyoto Cabinet's, except the one over striped locks.
    const KYOTOS: &str = "kyoto,kyoto-rcx,kyoto-rcu-slots,kyoto-rcx-slots,kyoto-rlu,kyoto-mvrlu";
    /// The schemes of transactions, over two maps.
    const OVER_TREES: &str = "silo-art,tictoc-blink,no-wait-art,wait-die-blink,hekaton-art,mvrlu-blink";
    /// The machine has several nodes, so that data which exists once per node exists several times.
    const OPTIONS: [&str; 12] = [
        "--machine",
        "xeon-8180-4s",
        "--pin",
        "spread",
        "--warm",
        "5",
        "--micros",
        "15",
        "--min-ops",
        "0",
        "--runs",
        "1",
    ];
    const THREADS: usize = 4;

    /// Experiments in which a cache line holds both data that each operation reads and data that changes rarely. With
    /// few threads, the reads and the changes hardly ever concern the same line at the same time.
    const CROWDED: [&[&str]; 3] = [
        &["ycsb", "--index", "hydralist", "--workload", "load", "--count", "20k"],
        &["ycsb", "--index", "euno-btree", "--workload", "a", "--count", "20k"],
        &["sets", "--structure", "tree", "--mechanism", "rcx", "--update-percent", "20"],
    ];
    const CROWD: usize = 112;

    /// Returns a line for each place with unannounced accesses that matter, in any of an experiment's contenders.
    /// `ARCHIPELAGO_WATCH` limits the test to contenders whose experiment, workload and name contain its text.
    fn unannounced(experiment: &[&str], threads: usize) -> String {
        let what = parse(&[experiment, &OPTIONS].concat());
        let setting = setting(common(&what), &what).unwrap();
        let only = std::env::var("ARCHIPELAGO_WATCH").unwrap_or_default();
        let mut places = String::new();
        for contender in contenders(&what).unwrap() {
            let name = format!("{} {} {}", experiment[0], contender.cell.workload, contender.name);
            if !name.contains(&only) {
                continue;
            }
            let found = found(&contender, &setting, threads).unwrap_or_else(|why| panic!("{name}: {why}"));
            for place in found {
                let (kind, lines) = (if place.writes { "writes" } else { "reads" }, place.lines);
                places += &format!("{name}: {kind} {lines} lines {} times: {}\n", place.accesses, place.place);
            }
        }
        places
    }

    /// Checks that the experiments announce their plain memory.
    fn announced(experiments: &[&[&str]], threads: usize) {
        if !SIMULATED {
            return;
        }
        let places: String = experiments.iter().map(|it| unannounced(it, threads)).collect();
        assert!(places.is_empty(), "shared memory that costs the model nothing:\n{places}");
    }

    #[test]
    fn indexes_announce_their_plain_memory() {
        announced(&INDEXES, THREADS);
    }

    #[test]
    fn structures_under_contention_announce_their_plain_memory() {
        announced(&CONTENTION, THREADS);
    }

    #[test]
    fn structures_over_mechanisms_announce_their_plain_memory() {
        announced(&MECHANISMS, THREADS);
    }

    #[test]
    fn crowds_announce_their_plain_memory() {
        announced(&CROWDED, CROWD);
    }
}
