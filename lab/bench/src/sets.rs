//! `bench sets`: list, hash table and search tree over RCU, RLU and MV-RLU, as in Mathew's thesis, §3.6.2.

pub(crate) mod contenders;
pub(crate) mod drive;
mod simulated;

use std::process::ExitCode;

use archipelago_platform::time::Duration;
use serde_json::json;

use crate::args::{Sets, SetsWork};
use crate::failure::Failure;
use crate::harness::{Command, Entry, Experiment, Format, Turn};
use crate::report::row::{Cell, Facts};
use crate::resources;
use crate::workload::Distribution;
use drive::Spec;

pub use simulated::simulated;

/// The structures, in the order of reports.
pub const STRUCTURES: [&str; 3] = ["list", "hash", "tree"];

/// The fields of its rows. `abort_percent`: attempts at updates that were repeated, in percent of all attempts;
/// `grown_bytes`: by how much the process's resident memory has grown meanwhile, where the system tells.
const FORMAT: Format = Format {
    name: "mechanism",
    keys: "structure mechanism update_percent distribution count buckets threads machine seed runs mops mops_min mops_max \
           ns_per_op abort_percent ratio baseline scan seconds stuck_reader grown_bytes cpu_ns_per_op pin partial p50_ns \
           p90_ns p99_ns p999_ns max_ns paired_ratio",
};

/// Bytes of a node, with what its keys are drawn by.
const ITEM: u64 = 64;
/// Bytes of a bucket with a lock of its own.
const BUCKET: u64 = 64;

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run(args: &Sets) -> Result<ExitCode, Failure> {
    let experiment = experiment(args)?;
    Command::start(&args.common)?.run(&experiment)
}

fn experiment(args: &Sets) -> Result<Experiment<'static>, Failure> {
    let chosen = contenders::select(&args.structure, &args.mechanism)?;
    let work = &args.work;
    let buckets = chosen.iter().any(|contender| contender.structure == "hash").then_some(work.buckets).flatten();
    resources::check_items(work.count, ITEM, (buckets.unwrap_or(0) as u64).saturating_mul(BUCKET))?;
    let distribution = distribution(&work.distribution)?;
    let names: Vec<&str> = chosen.iter().map(|contender| contender.mechanism).collect();
    let mut experiment = Experiment::new("sets", &FORMAT, &args.common, 3, Some("rcu"), &names)?;
    let stuck_reader = args.stuck_reader;
    experiment.time = Some(Duration::from_secs_f64(args.seconds));
    experiment.facts = Facts::from([("seconds", json!(args.seconds)), ("stuck_reader", json!(stuck_reader))]);
    for structure in STRUCTURES {
        if !chosen.iter().any(|contender| contender.structure == structure) {
            continue;
        }
        for &update_percent in &work.update_percent {
            let spec = spec(structure, work, update_percent, distribution);
            let (distribution, count) = (Some(distribution), Some(work.count));
            let cell = Cell { update_percent: Some(update_percent), distribution, count, ..Cell::of(structure) };
            let buckets = if structure == "hash" { spec.buckets } else { 0 };
            let more = [("structure", json!(structure)), ("buckets", json!(buckets)), ("scan", json!(spec.scan))];
            let cell = experiment.cell(cell, more.into());
            let mut group = Vec::new();
            for contender in chosen.iter().filter(|contender| contender.structure == structure).cloned() {
                let (name, spec) = (contender.mechanism, spec.clone());
                let take = move |turn: &mut Turn<'_>| {
                    turn.say(&format!("{structure} {update_percent}%, {} threads", turn.threads));
                    (contender.take)(&spec, stuck_reader, cell, turn);
                };
                group.push(Entry { name, ours: false, take: Box::new(take) });
            }
            experiment.steps += group.len();
            experiment.groups.push(group);
        }
    }
    Ok(experiment)
}

/// A distribution that sets can have.
///
/// # Errors
/// If it is none, or needs keys that come in an order.
pub fn distribution(text: &str) -> Result<Distribution, Failure> {
    match Distribution::parse(text)? {
        Distribution::Latest => {
            Err(Failure::new("--distribution latest: sets have no latest key; try uniform or zipf:0.99"))
        }
        other => Ok(other),
    }
}

/// What is done to a structure.
pub fn spec(structure: &str, work: &SetsWork, update_percent: u32, distribution: Distribution) -> Spec {
    let items = work.count;
    let (buckets, scan) = match structure {
        "hash" => (work.buckets.unwrap_or(items.div_ceil(10)), 0),
        // Only a list is filled in order, which would make a tree a list.
        "tree" => (1, work.scan),
        _ => (0, work.scan),
    };
    Spec { items, buckets, update_percent, distribution, scan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::series::{Results, Sample, Series};
    use crate::report::{self, Look, row};
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<Experiment<'static>, Failure> {
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            sets: Sets,
        }
        experiment(&Only::try_parse_from([&["sets"], args].concat()).unwrap().sets)
    }

    #[test]
    fn cases_are_all_combinations() {
        let all = parse(&["--threads", "1,2", "--update-percent", "2,20,80", "--mechanism", "rcu,mvrlu"]).unwrap();
        assert_eq!((all.groups.len(), all.cells.len(), all.threads.len()), (3 * 3, 3 * 3, 2));
        assert!(all.groups.iter().all(|group| group.len() == 2));
    }

    #[test]
    fn wrong_arguments_are_told() {
        for wrong in [["--mechanism", "mvcc"], ["--structure", "heap"], ["--distribution", "latest"]] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--mechanism", "citrus", "--structure", "list"]).is_err());
    }

    #[test]
    fn rows_have_ratios_and_are_written_in_all_formats() {
        let args = ["--structure", "hash", "--mechanism", "rcu,mvrlu", "--threads", "1"];
        let experiment = parse(&args).unwrap();
        let series = experiment.groups[0].iter().enumerate().map(|(number, entry)| {
            let figures = vec![("abort_percent", Some(0.5)), ("grown_bytes", Some(1e6))];
            let sample = Sample { run: 0, mops: 4.0 / (number + 1) as f64, figures };
            Series { samples: vec![sample], ..Series::new(entry.name, false, 0, 1) }
        });
        let rows = experiment.rows(&Results { series: series.collect(), ..Results::default() });
        assert_eq!((rows[0].real("ratio"), rows[1].real("ratio")), (Some(1.0), Some(0.5)));
        assert_eq!((rows[1].real("abort_percent"), rows[1].whole("buckets")), (Some(0.5), Some(1000)));
        let (mut json, mut csv, mut text) = (Vec::new(), Vec::new(), Vec::new());
        row::json(&rows, &mut json).unwrap();
        row::csv(&rows, true, &mut csv).unwrap();
        report::table::write(&rows, &Look::of("", Vec::new(), false), &mut text).unwrap();
        for (out, part) in [(json, "\"mechanism\":\"mvrlu\""), (csv, "hash,mvrlu"), (text, "0.50")] {
            assert!(String::from_utf8(out).unwrap().contains(part), "{part}");
        }
    }
}
