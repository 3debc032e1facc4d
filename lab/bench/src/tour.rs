//! The command without arguments: describes the project and demonstrates it in under a minute.

use std::process::ExitCode;

use archipelago_platform::thread::available_parallelism;

use crate::args::Common;
use crate::contender::Info;
use crate::failure::Failure;
use crate::harness::{Experiment, Format, Progress};
use crate::interrupt;
use crate::keys::{self, KeyKind};
use crate::machine;
use crate::output::{emit, print};
use crate::report;
use crate::roster::{self, Roster};
use crate::workload::{Distribution, Workload};
use crate::ycsb::{self, Plan};

/// Keys of the demonstration.
const COUNT: usize = 1_000_000;
/// Operations of each workload; enough for a first impression.
const OPS: usize = 500_000;
/// Variants of this library's indexes, which the tour leaves out.
const VARIANTS: [&str; 2] = ["hydralist-radix-layer", "hydralist-clients"];
/// The peers that the tour compares with this library's indexes.
const PEERS: [&str; 5] = ["arctic", "ferntree", "scc-treeindex", "crossbeam-skiplist", "rwlock-btreemap"];

const ABOUT: &str = "\
Archipelago is a Rust library of in-memory data structures for servers with many cores and several memory nodes.
Such a machine is an archipelago: every node's memory is fast nearby and dear from afar. The structures here keep work
on its own node and cross over seldom, in batches. They can be used like std's BTreeMap, from any number of threads.
";

const NEXT: &str = "\
Where to go next:
  archipelago bench ycsb --count 10M                  all workloads, all indexes, in earnest (many minutes)
  archipelago bench ycsb --keys email --workload c,e  strings: point reads and scans only
  archipelago bench ycsb --report report.html         the same with charts
  archipelago bench verify                            the exam: which index gives wrong answers?
  archipelago machine                                 this machine in detail
  archipelago bench ycsb --help                       everything that can be set
";

/// Runs the tour.
///
/// # Errors
/// If standard output cannot be written to.
pub fn run<R: Roster>(release_memory: fn()) -> Result<ExitCode, Failure> {
    interrupt::install();
    print(format!("{ABOUT}\nThis machine:\n{}\n", machine::describe()))?;
    let plan = plan::<R>(release_memory);
    let threads = available_parallelism().map_or(1, usize::from).min(8);
    print(format!(
        "Loading {COUNT} random keys into each index, then reading and scanning, with {threads} thread(s):"
    ))?;
    let progress = Progress::new();
    let names: Vec<&str> = plan.indexes.iter().map(|info| info.name).collect();
    let empty = Experiment::new("tour", &Format::OF_MAPS, &Common::plain(threads), 1, None, &names)?;
    let keys = keys::words(&KeyKind::Int, COUNT, plan.fresh_wanted(COUNT), empty.seed);
    let streams = ycsb::prepare(&plan, &empty, &keys, &progress);
    let mut experiment = empty;
    ycsb::fill::<R, u64>(&mut experiment, &plan, &KeyKind::Int, &keys, &streams);
    progress.steps(experiment.steps);
    let results = experiment.measure(&progress);
    progress.end();
    emit(|out| report::table::overview(&experiment.rows(&results), out))?;
    if let Some(failure) = results.failure {
        return Err(failure);
    }
    if results.partial {
        return Ok(interrupt::exit_code());
    }
    print(format!("One short run on a machine that may be busy: a first impression, no more.\n\n{NEXT}"))?;
    Ok(ExitCode::SUCCESS)
}

fn plan<R: Roster>(release_memory: fn()) -> Plan {
    let ours = |info: &Info| info.ours && !VARIANTS.contains(&info.name);
    let shown = |info: &&'static Info| ours(info) || PEERS.contains(&info.name);
    let indexes = roster::indexes::<R>(false).filter(shown).collect();
    let workloads = vec![Workload::Load, Workload::C, Workload::E];
    Plan { indexes, workloads, ops: OPS, distribution: Distribution::Zipf(0.99), batch: 0, release_memory }
}
