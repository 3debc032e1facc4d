//! `bench sets` and `sim sets`: list, hash table and search tree over RCU, RLU and MV-RLU, as in Mathew's thesis
//! (§3.6.2, figures 3.4 to 3.8), and over further mechanisms.

mod clients;
mod contenders;

use std::process::ExitCode;

use archipelago_platform::time::Duration;
use serde_json::json;

use crate::args::{Sets, SetsWork, SimSets};
use crate::failure::Failure;
use crate::harness::{Cells, Command, Experiment, Format, known, simulated};
use crate::report::row::{Cell, Facts};
use crate::resources;
use crate::workload::Distribution;
use clients::Spec;
use contenders::{Over, STRUCTURES};

/// The fields of this experiment's rows. `abort_percent`: repeated attempts at updates, in percent of all attempts.
/// `grown_bytes`: by how many bytes the process's resident memory grew during the run, if the system reports it.
const FORMAT: Format = Format {
    name: "mechanism",
    keys: "structure mechanism update_percent distribution count buckets threads machine seed runs mops mops_min mops_max \
           ns_per_op abort_percent ratio baseline scan seconds stuck_reader grown_bytes cpu_ns_per_op pin partial p50_ns \
           p90_ns p99_ns p999_ns max_ns paired_ratio latency",
};

/// Bytes of a node, with the memory from which its key is drawn.
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
    let (work, chosen) = (&args.work, contenders::select(&args.structure, &args.mechanism)?);
    let buckets = chosen.iter().any(|(structure, _)| *structure == "hash").then_some(work.buckets).flatten();
    resources::check_items(work.count, ITEM, (buckets.unwrap_or(0) as u64).saturating_mul(BUCKET))?;
    let (cells, time) = (cells(work, chosen, args.stuck_reader)?, Duration::from_secs_f64(args.seconds));
    let facts = |(_, spec, _): &(Cell, Spec, _)| {
        let Spec { structure, buckets, scan, .. } = spec;
        Facts::from([("structure", json!(structure)), ("buckets", json!(buckets)), ("scan", json!(scan))])
    };
    let facts: Vec<Facts> = cells.iter().map(facts).collect();
    let mut experiment = Experiment::of("sets", &args.common, "rcu", time, cells)?;
    experiment.format = &FORMAT;
    experiment.facts = Facts::from([("stuck_reader", json!(args.stuck_reader))]);
    experiment.cells.iter_mut().zip(facts).for_each(|((_, more), facts)| *more = facts);
    Ok(experiment)
}

/// Returns the chosen contenders in one cell (a workload with its parameters) for each structure, percentage of updates
/// and distribution.
///
/// # Errors
/// If a distribution is not known, or is for YCSB only.
fn cells(work: &SetsWork, chosen: &'static [Over], stuck_reader: bool) -> Result<Cells<Spec>, Failure> {
    let distributions = Distribution::parse_list(&work.distribution)?;
    let (items, mut cells) = (work.count, Vec::new());
    for structure in STRUCTURES {
        let known: Vec<_> = chosen.iter().filter(|(over, _)| *over == structure).map(|(_, known)| known).collect();
        if known.is_empty() {
            continue;
        }
        let (buckets, scan) = match structure {
            "hash" => (work.buckets.unwrap_or(items.div_ceil(10)), 0),
            _ => (0, work.scan),
        };
        let reads = if scan > 0 { format!(", ranges of {scan}") } else { String::new() };
        let details = if buckets > 0 { format!("{buckets} buckets") } else { String::new() };
        let mixes =
            work.update_percent.iter().flat_map(|percent| distributions.iter().map(move |law| (*percent, *law)));
        for (update_percent, distribution) in mixes {
            let spec = Spec { structure, items, buckets, update_percent, distribution, scan, stuck_reader };
            let cell = Cell {
                update_percent: Some(update_percent),
                distribution: Some(distribution),
                count: Some(items),
                details: details.clone(),
                ..Cell::of(&format!("{structure}{reads}"))
            };
            cells.push((cell, spec, known.clone()));
        }
    }
    Ok(cells)
}

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimSets) -> Result<Vec<simulated::Contender>, Failure> {
    let chosen = contenders::select(&args.structure, &args.mechanism)?;
    Ok(known::simulated(cells(&args.work, chosen, false)?))
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
        let two = parse(&["--distribution", "uniform,zipf:0.9", "--update-percent", "2,20"]).unwrap();
        assert_eq!(two.cells.len(), 3 * 2 * 2);
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
