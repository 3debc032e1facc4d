//! Reports: the measurements as rows, and the rows as tables, JSON lines, CSV or a page with charts.

mod chart;
pub mod csv;
pub mod curve;
pub mod date;
pub mod html;
pub mod json;
pub mod table;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::args::Format;
use crate::failure::Failure;
use crate::measure::{Results, Sample, Series};
use crate::stats;

/// One workload on one index with so many threads: a line of JSON, a line of CSV. The order of the fields is part of
/// the format; new ones go to the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The index.
    pub structure: String,
    /// The workload.
    pub workload: String,
    /// The kind of keys, or their file.
    pub keys: String,
    /// Keys loaded.
    pub count: usize,
    /// Threads.
    pub threads: usize,
    /// Where it ran: `native`.
    pub machine: String,
    /// Of keys and operations.
    pub seed: u64,
    /// Complete runs.
    pub runs: usize,
    /// Million operations per second, all threads together, by wall time: the median of the runs.
    pub mops: f64,
    /// The least of the runs.
    pub mops_min: f64,
    /// The greatest of the runs.
    pub mops_max: f64,
    /// Nanoseconds that an operation takes its thread: `threads * 1000 / mops`.
    pub ns_per_op: f64,
    /// Nanoseconds of CPU time that the whole process spends per operation, background threads included.
    pub cpu_ns_per_op: Option<f64>,
    /// Resident memory that loading added, per key.
    pub bytes_per_key: Option<f64>,
    /// Which keys are popular.
    pub distribution: String,
    /// Throughput by the baseline's, run by run: the median.
    pub ratio: Option<f64>,
    /// The index that the ratio is to.
    pub baseline: Option<String>,
    /// Operations of a run.
    pub ops: usize,
    /// Keys per look-up call in C; 0 for single look-ups.
    pub batch: usize,
    /// Thread placement.
    pub pin: String,
    /// Look-ups and scans that found nothing although the key is there, over all runs. Not 0: the index is wrong.
    pub misses: usize,
    /// Whether the measurement was interrupted: then there may be fewer runs than asked for.
    pub partial: bool,
    /// Median latency.
    pub p50_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// Greatest latency.
    pub max_ns: Option<u64>,
    /// Of node replication's benchmark: how many of a hundred operations change the structure.
    pub update_percent: Option<u32>,
    /// Of node replication's benchmark: random words written between two operations.
    pub external_work: Option<usize>,
}

/// What all rows of a measurement share.
#[derive(Clone, Debug)]
pub struct Common {
    /// The kind of keys, or their file.
    pub keys: String,
    /// Keys loaded.
    pub count: usize,
    /// Of keys and operations.
    pub seed: u64,
    /// Which keys are popular.
    pub distribution: String,
    /// Keys per look-up call in C; 0 for single look-ups.
    pub batch: usize,
    /// Thread placement.
    pub pin: String,
    /// The index that ratios are to; `None` for the fastest peer of each column.
    pub baseline: Option<String>,
}

/// The rows, by thread count, then by workload, then in the order of indexes.
pub fn rows(results: &Results, common: &Common) -> Vec<Row> {
    let mut ordered: Vec<&Series> = results.series.iter().collect();
    // Stable: indexes stay in the order of measurement.
    ordered.sort_by_key(|series| (series.threads, series.workload));
    ordered.into_iter().map(|series| row(series, results, common)).collect()
}

fn row(series: &Series, results: &Results, common: &Common) -> Row {
    let baseline = baseline(series, results, common);
    Row {
        structure: series.info.name.to_owned(),
        workload: series.workload.name().to_owned(),
        keys: common.keys.clone(),
        count: common.count,
        seed: common.seed,
        distribution: common.distribution.clone(),
        ratio: baseline.and_then(|baseline| ratio(&series.samples, &baseline.samples)),
        baseline: baseline.map(|baseline| baseline.info.name.to_owned()),
        ops: series.ops,
        batch: if series.workload == crate::workload::Workload::C { common.batch } else { 0 },
        pin: common.pin.clone(),
        misses: series.misses,
        partial: results.partial,
        ..figures(series.threads, &series.samples, series.latency.as_ref())
    }
}

/// A row with the figures only: the rest is for the caller to fill in.
pub fn figures(threads: usize, samples: &[Sample], latency: Option<&Histogram<u64>>) -> Row {
    let speeds: Vec<f64> = samples.iter().map(|sample| sample.mops).collect();
    let mops = stats::median(&speeds).expect("at least one sample");
    let percentile = |p| latency.map(|histogram| histogram.value_at_percentile(p));
    Row {
        structure: String::new(),
        workload: String::new(),
        keys: String::new(),
        count: 0,
        threads,
        machine: "native".to_owned(),
        seed: 0,
        runs: samples.len(),
        mops,
        mops_min: speeds.iter().copied().fold(f64::INFINITY, f64::min),
        mops_max: speeds.iter().copied().fold(0.0, f64::max),
        ns_per_op: threads as f64 * 1000.0 / mops,
        cpu_ns_per_op: stats::median_of_some(samples.iter().map(|sample| sample.cpu_ns)),
        bytes_per_key: stats::median_of_some(samples.iter().map(|sample| sample.bytes_per_key)),
        distribution: String::new(),
        ratio: None,
        baseline: None,
        ops: 0,
        batch: 0,
        pin: String::new(),
        misses: 0,
        partial: false,
        p50_ns: percentile(50.0),
        p90_ns: percentile(90.0),
        p99_ns: percentile(99.0),
        p999_ns: percentile(99.9),
        max_ns: percentile(100.0),
        update_percent: None,
        external_work: None,
    }
}

/// Writes the rows to standard output.
///
/// # Errors
/// If writing fails, other than because the reader has closed the stream.
pub fn print(rows: &[Row], format: Format) -> Result<(), Failure> {
    show(rows, format, |rows, out| table::write(rows, out))
}

/// Writes rows of any benchmark to standard output; `table` does it for people.
///
/// # Errors
/// If writing fails, other than because the reader has closed the stream.
pub fn show<R: Serialize>(
    rows: &[R],
    format: Format,
    table: impl FnOnce(&[R], io::StdoutLock<'_>) -> io::Result<()>,
) -> Result<(), Failure> {
    emit(|out| match format {
        Format::Table => table(rows, out),
        Format::Json => json::write(rows, out),
        Format::Csv => csv::write(rows, out),
    })
    .map(|_| ())
}

/// Writes to standard output at once. False: the reader has closed the stream.
///
/// # Errors
/// If writing fails, other than because the reader has closed the stream.
pub fn emit(write: impl FnOnce(io::StdoutLock<'_>) -> io::Result<()>) -> Result<bool, Failure> {
    match write(io::stdout().lock()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(true),
        // Whoever closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Whether a report can be written there, tried before hours are spent on it. Leaves what is there as it is.
///
/// # Errors
/// If it cannot.
pub fn try_to_write(path: &Path) -> Result<(), Failure> {
    let new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    if new {
        // It was there to be tried only; a file that stays does no harm.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn median_speed(series: &Series) -> f64 {
    stats::median_of_some(series.samples.iter().map(|sample| Some(sample.mops))).expect("at least one sample")
}

/// The series that `series` is compared to.
fn baseline<'a>(series: &Series, results: &'a Results, common: &Common) -> Option<&'a Series> {
    let column = results.series.iter().filter(|s| s.workload == series.workload && s.threads == series.threads);
    match &common.baseline {
        Some(name) => column.into_iter().find(|s| s.info.name == name),
        None => column.filter(|s| !s.info.ours).max_by(|one, other| median_speed(one).total_cmp(&median_speed(other))),
    }
}

/// The median of the ratios of equal runs.
pub fn ratio(samples: &[Sample], baseline: &[Sample]) -> Option<f64> {
    stats::median_of_some(samples.iter().map(|sample| {
        let other = baseline.iter().find(|other| other.run == sample.run)?;
        Some(sample.mops / other.mops)
    }))
}

/// What a workload does, in a few words.
fn title(workload: &str) -> &str {
    match workload {
        "load" => "load",
        "a" => "A: 50% read, 50% update",
        "b" => "B: 95% read, 5% update",
        "c" => "C: reads",
        "d" => "D: 95% read the latest, 5% insert",
        "e" => "E: 95% scan 1-100, 5% insert",
        "f" => "F: 50% read, 50% read-modify-write",
        "pqueue" => "priority queue",
        "sorted-set" => "sorted set",
        other => other,
    }
}

/// Three digits are all that a benchmark is worth.
pub fn digits(mops: f64) -> String {
    match mops {
        m if m >= 100.0 => format!("{m:.0}"),
        m if m >= 10.0 => format!("{m:.1}"),
        m if m >= 1.0 => format!("{m:.2}"),
        m => format!("{m:.3}"),
    }
}

#[cfg(test)]
mod tests;
