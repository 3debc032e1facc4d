//! `bench sets`: list, hash table and search tree over RCU, RLU and MV-RLU, as in the thesis's §3.6.2.
//!
//! For each run, for each case, each contender in turn: so a ratio compares two measurements of about the same time.

pub(crate) mod contenders;
pub(crate) mod drive;

use std::io::{self, Write};
use std::process::ExitCode;

use archipelago_platform::htm;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread::available_parallelism;
use archipelago_platform::time::Duration;
use serde::Serialize;

use crate::args::Sets;
use crate::failure::Failure;
use crate::report;
use crate::stats;
use crate::workload::Distribution;
use contenders::Contender;
use drive::{Sample, Spec};

/// One contender in one case: a line of JSON or CSV. New fields go to the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    structure: String,
    mechanism: String,
    update_percent: u32,
    distribution: String,
    count: usize,
    buckets: usize,
    threads: usize,
    machine: String,
    seed: u64,
    runs: usize,
    mops: f64,
    mops_min: f64,
    mops_max: f64,
    ns_per_op: f64,
    abort_percent: f64,
    ratio: Option<f64>,
    baseline: Option<String>,
    scan: u64,
    seconds: f64,
    stuck_reader: bool,
    grown_bytes: Option<f64>,
}

/// A structure, an update ratio and a number of threads.
struct Case {
    spec: Spec,
    /// With the samples of each run.
    contenders: Vec<(Arc<Contender>, Vec<Sample>)>,
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run(args: &Sets) -> Result<ExitCode, Failure> {
    let mut cases = cases(args)?;
    for run in 0..args.runs {
        for case in &mut cases {
            case.spec.seed = args.seed + run as u64;
            for (contender, samples) in &mut case.contenders {
                samples.push((contender.measure)(&case.spec));
            }
        }
    }
    let rows: Vec<Row> = cases.iter().flat_map(|case| rows(case, args)).collect();
    report::show(&rows, args.format, |rows, mut out| {
        table(rows, &mut out)?;
        let mut sites = htm::sites().into_iter();
        sites.try_for_each(|(name, counts)| writeln!(out, "transactions aborted, {name}: {counts}"))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn cases(args: &Sets) -> Result<Vec<Case>, Failure> {
    let chosen = contenders::select(&args.structure, &args.mechanism)?;
    let distribution = Distribution::parse(&args.distribution)?;
    if matches!(distribution, Distribution::Latest) {
        return Err(Failure::new(
            "--distribution latest: sets have no latest key; try uniform or zipf:0.99".to_owned(),
        ));
    }
    let mut threads = args.threads.clone();
    if threads.is_empty() {
        threads = vec![1, available_parallelism().map_or(1, usize::from)];
        threads.dedup();
    }
    let mut cases = Vec::new();
    for structure in ["list", "hash", "tree"] {
        let contenders: Vec<_> = chosen.iter().filter(|contender| contender.structure == structure).cloned().collect();
        if contenders.is_empty() {
            continue;
        }
        let buckets = if structure == "hash" { args.buckets.unwrap_or(args.count.div_ceil(10)) } else { 0 };
        // Only a list is filled in order, which would make a tree a list.
        let buckets = if structure == "tree" { 1 } else { buckets };
        for update_percent in &args.update_percent {
            for threads in &threads {
                let spec = Spec {
                    items: args.count,
                    buckets,
                    update_percent: *update_percent,
                    distribution,
                    scan: if structure == "hash" { 0 } else { args.scan },
                    threads: *threads,
                    stuck_reader: args.stuck_reader,
                    time: Duration::from_secs_f64(args.seconds),
                    seed: args.seed,
                };
                let contenders = contenders.iter().map(|contender| (contender.clone(), Vec::new())).collect();
                cases.push(Case { spec, contenders });
            }
        }
    }
    Ok(cases)
}

fn rows(case: &Case, args: &Sets) -> Vec<Row> {
    let baseline = case.contenders.iter().find(|(contender, _)| contender.mechanism == args.baseline);
    let median = |values: Vec<f64>| stats::median(&values).unwrap_or(f64::NAN);
    let row = |(contender, samples): &(Arc<Contender>, Vec<Sample>)| {
        let speeds: Vec<f64> = samples.iter().map(|sample| sample.mops).collect();
        let ratio = baseline
            .map(|(_, base)| median(samples.iter().zip(base).map(|(sample, base)| sample.mops / base.mops).collect()));
        let mops = median(speeds.clone());
        Row {
            structure: contender.structure.to_owned(),
            mechanism: contender.mechanism.to_owned(),
            update_percent: case.spec.update_percent,
            distribution: case.spec.distribution.to_string(),
            count: case.spec.items,
            buckets: if contender.structure == "hash" { case.spec.buckets } else { 0 },
            threads: case.spec.threads,
            machine: "native".to_owned(),
            seed: args.seed,
            runs: samples.len(),
            mops,
            mops_min: speeds.iter().copied().fold(f64::INFINITY, f64::min),
            mops_max: speeds.iter().copied().fold(0.0, f64::max),
            ns_per_op: case.spec.threads as f64 * 1000.0 / mops,
            abort_percent: median(samples.iter().map(|sample| sample.abort_percent).collect()),
            ratio,
            baseline: baseline.map(|(contender, _)| contender.mechanism.to_owned()),
            scan: case.spec.scan,
            seconds: args.seconds,
            stuck_reader: args.stuck_reader,
            grown_bytes: stats::median(&samples.iter().filter_map(|sample| sample.grown).collect::<Vec<_>>()),
        }
    };
    case.contenders.iter().map(row).collect()
}

fn table(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    let head = ["structure", "mechanism", "updates", "threads", "Mops/s", "ratio", "aborts", "grown, MiB"];
    let [structure, mechanism, updates, threads, mops, ratio, aborts, grown] = head;
    writeln!(
        out,
        "{structure:<9} {mechanism:<22} {updates:>7} {threads:>7} {mops:>9} {ratio:>6} {aborts:>7} {grown:>10}"
    )?;
    for row in rows {
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let grown =
            row.grown_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes / f64::from(1 << 20)));
        writeln!(
            out,
            "{:<9} {:<22} {:>6}% {:>7} {:>9.3} {ratio:>6} {:>6.2}% {grown:>10}",
            row.structure, row.mechanism, row.update_percent, row.threads, row.mops, row.abort_percent
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(args: &[&str]) -> Result<Vec<Case>, Failure> {
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            sets: Sets,
        }
        cases(&Only::try_parse_from([&["sets"], args].concat()).unwrap().sets)
    }

    #[test]
    fn cases_are_all_combinations() {
        let cases = parse(&["--threads", "1,2", "--update-percent", "2,20,80", "--mechanism", "rcu,mvrlu"]).unwrap();
        assert_eq!(cases.len(), 3 * 2 * 3);
        assert!(cases.iter().all(|case| case.contenders.len() == 2));
    }

    #[test]
    fn wrong_arguments_are_told() {
        for wrong in [["--mechanism", "mvcc"], ["--structure", "heap"]] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--mechanism", "citrus", "--structure", "list"]).is_err());
    }

    #[test]
    fn rows_have_ratios_and_are_written_in_all_formats() {
        let args = ["--structure", "hash", "--mechanism", "rcu,mvrlu", "--threads", "1"];
        let mut cases = parse(&args).unwrap();
        for (number, (_, samples)) in cases[0].contenders.iter_mut().enumerate() {
            samples.push(Sample { mops: 4.0 / (number + 1) as f64, abort_percent: 0.5, grown: Some(1e6) });
        }
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            sets: Sets,
        }
        let sets = Only::try_parse_from([&["sets"], &args[..]].concat()).unwrap().sets;
        let rows = rows(&cases[0], &sets);
        assert_eq!((rows[0].ratio, rows[1].ratio), (Some(1.0), Some(0.5)));
        let (mut json, mut csv, mut text) = (Vec::new(), Vec::new(), Vec::new());
        report::json::write(&rows, &mut json).unwrap();
        report::csv::write(&rows, &mut csv).unwrap();
        table(&rows, &mut text).unwrap();
        for (out, part) in [(json, "\"mechanism\":\"mvrlu\""), (csv, "hash,mvrlu"), (text, "0.50")] {
            assert!(String::from_utf8(out).unwrap().contains(part), "{part}");
        }
    }
}
