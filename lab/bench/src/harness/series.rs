//! The results of a measurement, run by run.

use hdrhistogram::Histogram;
use serde_json::json;

use crate::failure::Failure;
use crate::report::row::Facts;
use crate::stats;

/// One run of one contender in one cell (a workload with its parameters) with a number of threads.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The run's number.
    pub run: usize,
    /// Million operations per second of wall time.
    pub mops: f64,
    /// Further figures, by their names in rows.
    pub figures: Vec<(&'static str, Option<f64>)>,
}

/// All runs of one contender in one cell with a number of threads.
pub struct Series {
    /// The contender.
    pub name: &'static str,
    /// Whether it is one of this library's.
    pub ours: bool,
    /// The number of the experiment's cell.
    pub cell: usize,
    /// The number of threads.
    pub threads: usize,
    /// Operations of all runs together.
    pub ops: usize,
    /// The results, in the order of the runs.
    pub samples: Vec<Sample>,
    /// Operations that did not find a key that is present, over all runs.
    pub misses: usize,
    /// Latencies of all runs.
    pub latency: Option<Histogram<u64>>,
}

/// The results of a measurement.
#[derive(Default)]
pub struct Results {
    /// Every combination of which at least one run is complete, in the order of first measurement.
    pub series: Vec<Series>,
    /// True if the measurement ended before all runs were complete.
    pub partial: bool,
    /// Why the measurement ended, if not by an interrupt.
    pub failure: Option<Failure>,
    /// Observations of the runs beside figures.
    pub notes: Vec<String>,
}

impl Series {
    /// Makes a series without samples.
    pub fn new(name: &'static str, ours: bool, cell: usize, threads: usize) -> Series {
        Series { name, ours, cell, threads, ops: 0, samples: Vec::new(), misses: 0, latency: None }
    }

    /// Returns whether the other series is of the same cell and thread count.
    pub fn is_beside(&self, other: &Series) -> bool {
        (self.cell, self.threads) == (other.cell, other.threads)
    }

    fn speeds(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.mops).collect()
    }

    /// Returns the median throughput of all runs.
    pub fn median_speed(&self) -> f64 {
        stats::median(&self.speeds()).expect("at least one sample")
    }

    /// Returns the median of the ratios to the baseline, run by run.
    pub fn paired_ratio(&self, baseline: &Series) -> Option<f64> {
        stats::median_of_some(self.samples.iter().map(|sample| {
            let other = baseline.samples.iter().find(|other| other.run == sample.run)?;
            Some(sample.mops / other.mops)
        }))
    }

    /// Returns all results as fields of a row.
    pub fn figures(&self) -> Facts {
        let (speeds, mops) = (self.speeds(), self.median_speed());
        let percentile = |p| json!(self.latency.as_ref().map(|histogram| histogram.value_at_percentile(p)));
        let mut facts = vec![
            ("threads", json!(self.threads)),
            ("runs", json!(self.samples.len())),
            ("mops", json!(mops)),
            ("mops_min", json!(speeds.iter().copied().fold(f64::INFINITY, f64::min))),
            ("mops_max", json!(speeds.iter().copied().fold(0.0, f64::max))),
            ("ns_per_op", json!(self.threads as f64 * 1000.0 / mops)),
            ("ops", json!(self.ops / self.samples.len())),
            ("misses", json!(self.misses)),
            ("p50_ns", percentile(50.0)),
            ("p90_ns", percentile(90.0)),
            ("p99_ns", percentile(99.0)),
            ("p999_ns", percentile(99.9)),
            ("max_ns", percentile(100.0)),
        ];
        for (number, (name, _)) in self.samples[0].figures.iter().enumerate() {
            let values = self.samples.iter().map(|sample| sample.figures[number].1);
            facts.push((name, json!(stats::median_of_some(values))));
        }
        facts
    }
}
