//! The measurement: every run, thread count and index in turn, in one process.
//!
//! For each run, for each thread count, for each index: make it, load it, run the workloads in the order of
//! [`Workload::ALL`] (those that insert come last), drop it. So the indexes alternate by the minute, and a ratio
//! compares two measurements of about the same time. All indexes get the very same streams in every run.

use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::contender::{Contender, Info, Visit};
use crate::driver::{self, Outcome, Settings, Work};
use crate::interrupt;
use crate::keys::{BenchKey, KeySet};
use crate::resources;
use crate::roster::Dispatch;
use crate::workload::{self, Distribution, Stream, Workload};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which indexes, in order.
    pub indexes: Vec<&'static Info>,
    /// Which workloads, in running order.
    pub workloads: Vec<Workload>,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Operations of a workload, all threads together.
    pub ops: usize,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// Of the keys and the streams.
    pub seed: u64,
    /// How often.
    pub runs: usize,
    /// How the driver runs.
    pub settings: Settings,
    /// Gives memory that the allocator holds back to the system, so that resident memory means something.
    pub release_memory: fn(),
}

impl Plan {
    /// Keys to hold back for the workloads that insert, for the chosen number of operations.
    pub fn fresh_wanted(&self) -> usize {
        // A twentieth of the operations insert; a little more, since the number is random.
        let wanted = |workload: &Workload| workload.share(self.ops) / 18 + 100;
        self.workloads.iter().filter(|workload| workload.inserts()).map(wanted).sum()
    }
}

/// One run of one workload on one index with so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which run.
    pub run: usize,
    /// Million operations per second of wall time.
    pub mops: f64,
    /// CPU nanoseconds of the process per operation.
    pub cpu_ns: Option<f64>,
    /// Resident memory that the loaded index added, per key.
    pub bytes_per_key: Option<f64>,
}

/// All runs of one workload on one index with so many threads.
pub struct Series {
    /// The index.
    pub info: &'static Info,
    /// The workload.
    pub workload: Workload,
    /// The number of threads.
    pub threads: usize,
    /// Operations of one run.
    pub ops: usize,
    /// What was measured, in the order of runs.
    pub samples: Vec<Sample>,
    /// Look-ups and scans that found nothing although the key is there, over all runs.
    pub misses: usize,
    /// Latencies of all runs.
    pub latency: Option<Histogram<u64>>,
}

/// What a measurement came to.
pub struct Results {
    /// Every combination of which at least one run is complete, in the order of first measurement.
    pub series: Vec<Series>,
    /// Whether it was interrupted before all runs were complete.
    pub partial: bool,
}

/// Measures.
pub fn measure<R: Dispatch<K>, K: BenchKey>(plan: &Plan, keys: &KeySet<K>, progress: &ProgressBar) -> Results {
    let mut results = Results { series: Vec::new(), partial: false };
    let streams: Vec<Vec<Prepared<K>>> =
        plan.threads.iter().map(|threads| prepare(plan, keys, *threads, progress)).collect();
    for run in 0..plan.runs {
        for streams in &streams {
            for info in &plan.indexes {
                let mut one = One { plan, keys, streams, run, results: &mut results, progress };
                R::dispatch(info, &mut one);
                if interrupt::requested() {
                    results.partial = true;
                    return results;
                }
            }
        }
    }
    results
}

/// How many steps the progress bar has.
pub fn steps(plan: &Plan) -> u64 {
    let workloads = plan.workloads.iter().filter(|workload| **workload != Workload::Load).count();
    (plan.threads.len() * (workloads + plan.runs * plan.indexes.len() * (workloads + 1))) as u64
}

/// A workload's streams, one for each thread.
struct Prepared<K> {
    workload: Workload,
    streams: Vec<Stream<K>>,
}

fn prepare<K: BenchKey>(plan: &Plan, keys: &KeySet<K>, threads: usize, progress: &ProgressBar) -> Vec<Prepared<K>> {
    // Load first: it has no streams and always happens.
    let mut prepared = vec![Prepared { workload: Workload::Load, streams: Vec::with_capacity(threads) }];
    prepared[0].streams.resize_with(threads, || Stream { ops: Vec::new(), keys: Vec::new() });
    let inserting = plan.workloads.iter().filter(|workload| workload.inserts()).count();
    let mut fresh = keys.fresh.as_slice();
    for (at, workload) in plan.workloads.iter().filter(|workload| **workload != Workload::Load).enumerate() {
        progress.set_message(format!("making the operations of workload {}", workload.name()));
        let mine = match workload {
            Workload::D if inserting == 2 => {
                // D has eight times as many operations as E.
                let (mine, rest) = fresh.split_at(fresh.len() * 8 / 9);
                fresh = rest;
                mine
            }
            _ => fresh,
        };
        let ops = plan_ops(plan, *workload, mine.len());
        let stream = |thread| {
            let seed = plan.seed ^ ((at as u64 + 1) << 32) ^ ((thread as u64 + 1) << 48);
            let fresh = part(mine, thread, threads);
            let ops = (thread + 1) * ops / threads - thread * ops / threads;
            workload::stream(*workload, plan.distribution, ops, &keys.loaded, fresh, seed)
        };
        prepared.push(Prepared { workload: *workload, streams: (0..threads).map(stream).collect() });
        progress.inc(1);
    }
    prepared
}

/// Operations of a workload. If too few keys could be held back, those that insert have fewer.
fn plan_ops(plan: &Plan, workload: Workload, fresh: usize) -> usize {
    let ops = workload.share(plan.ops);
    if workload.inserts() { ops.min(fresh * 18).max(1) } else { ops }
}

/// The part of `all` that belongs to one of `threads` threads: contiguous, and they differ by one at most.
fn part<T>(all: &[T], thread: usize, threads: usize) -> &[T] {
    &all[thread * all.len() / threads..(thread + 1) * all.len() / threads]
}

/// One index's turn.
struct One<'a, K> {
    plan: &'a Plan,
    keys: &'a KeySet<K>,
    streams: &'a [Prepared<K>],
    run: usize,
    results: &'a mut Results,
    progress: &'a ProgressBar,
}

impl<K: BenchKey> Visit<K> for One<'_, K> {
    fn visit<I: Contender<K>>(&mut self, info: &'static Info) {
        (self.plan.release_memory)();
        let before = resources::resident_bytes();
        let index = I::empty();
        let mut bytes_per_key = None;
        for prepared in self.streams {
            if interrupt::requested() {
                return;
            }
            let threads = prepared.streams.len();
            let name = prepared.workload.name();
            self.progress.set_message(format!("run {}: {} {name}, {threads} threads", self.run + 1, info.name));
            let outcome = driver::run(&index, &self.work(prepared), self.plan.settings);
            if prepared.workload == Workload::Load {
                (self.plan.release_memory)();
                bytes_per_key = per_key(before, resources::resident_bytes(), self.keys.loaded.len());
            }
            self.progress.inc(1);
            if outcome.complete && self.plan.workloads.contains(&prepared.workload) {
                self.record(info, prepared.workload, threads, outcome, bytes_per_key);
            }
        }
        self.progress.set_message(format!("dropping {}", info.name));
        drop(index);
        (self.plan.release_memory)();
    }
}

impl<K: BenchKey> One<'_, K> {
    fn work<'b>(&'b self, prepared: &'b Prepared<K>) -> Vec<Work<'b, K>> {
        let threads = prepared.streams.len();
        let piece = |(thread, stream): (usize, &'b Stream<K>)| match prepared.workload {
            Workload::Load => Work::Load(part(&self.keys.loaded, thread, threads)),
            Workload::C if self.plan.settings.batch > 0 => Work::Batches(&stream.keys),
            _ => Work::Stream(stream),
        };
        prepared.streams.iter().enumerate().map(piece).collect()
    }

    fn record(
        &mut self,
        info: &'static Info,
        workload: Workload,
        threads: usize,
        outcome: Outcome,
        bytes_per_key: Option<f64>,
    ) {
        let all = &mut self.results.series;
        let series = match all.iter().position(|s| s.info == info && s.workload == workload && s.threads == threads) {
            Some(at) => &mut all[at],
            None => {
                let samples = Vec::new();
                all.push(Series { info, workload, threads, ops: outcome.ops, samples, misses: 0, latency: None });
                all.last_mut().expect("just pushed")
            }
        };
        let ops = outcome.ops as f64;
        series.samples.push(Sample {
            run: self.run,
            mops: ops / outcome.wall.as_secs_f64() / 1e6,
            cpu_ns: outcome.cpu.map(|cpu| cpu.as_nanos() as f64 / ops),
            bytes_per_key,
        });
        series.misses += outcome.misses;
        match (&mut series.latency, outcome.latency) {
            (Some(all), Some(one)) => all.add(one).expect("histograms of one shape add up"),
            (all, Some(one)) => *all = Some(one),
            (_, None) => {}
        }
    }
}

/// Resident memory that came in between, per key.
pub fn per_key(before: Option<u64>, after: Option<u64>, keys: usize) -> Option<f64> {
    let (before, after) = before.zip(after)?;
    Some((after as f64 - before as f64) / keys as f64)
}
