//! `bench nr`: node replication beside locks, flat combining and a lock-free structure, on the workloads of the
//! node-replication paper (§4.1, §4.2).
//!
//! For each run, workload and thread count: every method in turn, so that the methods alternate by the second and a
//! ratio compares measurements of about the same time. A method is made anew for every workload and run, and goes
//! through all update ratios, distributions and amounts of external work, for all of which the structure keeps its size.

pub(crate) mod driver;
pub(crate) mod methods;
mod skiplist;
pub(crate) mod structures;

use std::process::ExitCode;

use archipelago_platform::thread::available_parallelism;
use archipelago_platform::time::Duration;
use archipelago_replicate::{Combined, Replicated};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::args::Nr;
use crate::driver::Outcome;
use crate::failure::Failure;
use crate::interrupt;
use crate::measure::Sample;
use crate::report::{self, Common, Row};
use crate::resources;
use crate::roster::Roster;
use crate::workload::Distribution;
use driver::Load;
use methods::{LockFree, Method, lock_free_keys};
use structures::{Dictionary, Op, PriorityQueue, SortedSet, Structure};

const WORKLOADS: [&str; 3] = ["pqueue", "dictionary", "sorted-set"];
const METHODS: [&str; 9] = ["sl", "rwl", "fc", "fc+", "nr", "nr+", "lf", "lf-freeing", "lf-crossbeam"];

/// One cell of the sweep, for one method.
struct Series {
    method: &'static str,
    workload: &'static str,
    items: usize,
    load: Load,
    threads: usize,
    ops: usize,
    samples: Vec<Sample>,
    latency: Option<Histogram<u64>>,
}

/// What to measure.
struct Plan<'a> {
    args: &'a Nr,
    workloads: Vec<&'static str>,
    methods: Vec<&'static str>,
    threads: Vec<usize>,
    /// Update ratio, distribution and external work of each cell.
    cells: Vec<(u32, Distribution, usize)>,
    release_memory: fn(),
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run<R: Roster>(args: &Nr, release_memory: fn()) -> Result<ExitCode, Failure> {
    let plan = plan::<R>(args, release_memory)?;
    interrupt::install();
    let steps = plan.workloads.len() * plan.methods.len() * plan.threads.len() * plan.cells.len() * args.runs;
    let progress = crate::ycsb::progress_bar(steps as u64);
    let mut all = Vec::new();
    let mut partial = false;
    'runs: for run in 0..args.runs {
        for &workload in &plan.workloads {
            for &threads in &plan.threads {
                for &method in &plan.methods {
                    partial = interrupt::requested();
                    if partial {
                        break 'runs;
                    }
                    let mut turn =
                        Turn { plan: &plan, method, workload, threads, run, all: &mut all, progress: &progress };
                    turn.take::<R>()?;
                }
            }
        }
    }
    progress.finish_and_clear();
    let rows = rows(&all, args, partial);
    report::print(&rows, args.format)?;
    if let Some(path) = &args.report {
        report::html::save(path, "node replication", &rows, &common(args, &rows), partial)?;
    }
    Ok(if partial { ExitCode::from(crate::INTERRUPTED) } else { ExitCode::SUCCESS })
}

fn plan<R: Roster>(args: &Nr, release_memory: fn()) -> Result<Plan<'_>, Failure> {
    let distributions: Vec<Distribution> =
        args.distribution.split(',').map(|text| Distribution::parse(text.trim())).collect::<Result<_, _>>()?;
    let mut cells = Vec::new();
    for &updates in &args.update_percent {
        if updates > 100 {
            return Err(Failure::new(format!("--update-percent {updates} is more than 100")));
        }
        for &distribution in &distributions {
            cells.extend(args.external_work.iter().map(|&work| (updates, distribution, work)));
        }
    }
    let methods = chosen("method", &args.method, &METHODS)?;
    if !R::HAS_LIST && methods.contains(&"lf-crossbeam") {
        return Err(Failure::new(
            "--method lf-crossbeam needs the feature 'peers', which this command was built without; lf does not",
        ));
    }
    if !methods.contains(&args.baseline.as_str()) && !args.baseline.is_empty() && args.baseline != "sl" {
        return Err(Failure::new(format!("--baseline {} is not measured", args.baseline)));
    }
    let mut threads = args.threads.clone();
    if threads.is_empty() {
        threads = vec![1, available_parallelism().map_or(1, usize::from)];
        threads.dedup();
    }
    let workloads = chosen("workload", &args.workload, &WORKLOADS)?;
    Ok(Plan { args, workloads, methods, threads, cells, release_memory })
}

/// The names that a comma-separated list chooses from `known`, in the list's order; `all` stands for all.
fn chosen(what: &str, list: &str, known: &[&'static str]) -> Result<Vec<&'static str>, Failure> {
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim) {
        let before = names.len();
        names.extend(known.iter().filter(|known| **known == name || name == "all").copied());
        if names.len() == before {
            return Err(Failure::new(format!("unknown {what} '{name}'; known are {} (or all)", known.join(", "))));
        }
    }
    Ok(names)
}

/// One method's turn at one workload with so many threads.
struct Turn<'a> {
    plan: &'a Plan<'a>,
    method: &'static str,
    workload: &'static str,
    threads: usize,
    run: usize,
    all: &'a mut Vec<Series>,
    progress: &'a ProgressBar,
}

impl Turn<'_> {
    fn take<R: Roster>(&mut self) -> Result<(), Failure> {
        match self.workload {
            "pqueue" => self.with_structure::<R, PriorityQueue>(200_000),
            "dictionary" => self.with_structure::<R, Dictionary>(200_000),
            _ => self.with_structure::<R, SortedSet>(10_000),
        }
    }

    fn with_structure<R: Roster, T: Structure>(&mut self, items: usize) -> Result<(), Failure> {
        let items = self.plan.args.count.unwrap_or(items);
        match self.method {
            "sl" => self.measure::<T, _>(items, || methods::SingleLock::<T>::new(items)),
            "rwl" => self.measure::<T, _>(items, || methods::ReadersWriterLock::<T>::new(items)),
            "fc" => self.measure::<T, _>(items, || Combined::flat(T::filled(items))),
            "fc+" => self.measure::<T, _>(items, || Combined::new(T::filled(items))),
            "nr" => self.measure::<T, _>(items, self.replicated::<T>(items)),
            "nr+" => {
                let make = self.replicated::<T>(items);
                self.measure::<T, _>(items, || methods::ReadFirst(make()))
            }
            "lf" => self.lock_free::<T, LockFree<true, false>, LockFree<false, false>>(items),
            "lf-freeing" => self.lock_free::<T, LockFree<true, true>, LockFree<false, true>>(items),
            _ => self.lock_free::<T, R::List<true>, R::List<false>>(items),
        }
    }

    fn replicated<T: Structure>(&self, items: usize) -> impl FnOnce() -> Replicated<T> + use<T> {
        let replicas = self.plan.args.replicas;
        move || {
            let builder = Replicated::builder();
            let builder = if let Some(replicas) = replicas { builder.replicas(replicas) } else { builder };
            builder.build(|| T::filled(items))
        }
    }

    /// A lock-free list as a queue or as a dictionary.
    fn lock_free<T, Queue, Dictionary>(&mut self, items: usize) -> Result<(), Failure>
    where
        T: Structure,
        Queue: Method + FromIterator<(u64, u64)>,
        Dictionary: Method + FromIterator<(u64, u64)>,
    {
        match self.workload {
            "pqueue" => self.measure::<T, Queue>(items, || lock_free_keys(true, items).collect()),
            "dictionary" => self.measure::<T, Dictionary>(items, || lock_free_keys(false, items).collect()),
            // No lock-free structure changes two at once.
            _ => Ok(()),
        }
    }

    fn measure<T: Structure, M: Method>(&mut self, items: usize, make: impl FnOnce() -> M) -> Result<(), Failure> {
        (self.plan.release_memory)();
        let before = resources::resident_bytes();
        let method = make();
        (self.plan.release_memory)();
        let memory = crate::measure::per_key(before, resources::resident_bytes(), items);
        let args = self.plan.args;
        for &(update_percent, distribution, external_work) in &self.plan.cells {
            if interrupt::requested() {
                break;
            }
            self.progress.set_message(format!(
                "run {}: {} {} {update_percent}%, {} threads",
                self.run + 1,
                self.method,
                self.workload,
                self.threads
            ));
            let key_space = T::key_space(items);
            let load = Load { update_percent, distribution, external_work, key_space, seed: args.seed };
            let streams: Vec<Vec<Op>> =
                (0..self.threads).map(|thread| load.stream(thread)).collect::<Result<_, _>>()?;
            let duration = Duration::from_millis(args.millis as u64);
            let outcome = driver::run(&method, &streams, external_work, duration, args.latency, args.pin.pinning());
            self.progress.inc(1);
            self.record(items, load, outcome, memory);
        }
        drop(method);
        (self.plan.release_memory)();
        Ok(())
    }

    fn record(&mut self, items: usize, load: Load, outcome: Outcome, bytes_per_key: Option<f64>) {
        let (method, workload, threads) = (self.method, self.workload, self.threads);
        let fresh = Series { method, workload, items, load, threads, ops: 0, samples: Vec::new(), latency: None };
        let at = self.all.iter().position(|series| series.method == method && series.is_beside(&fresh));
        let at = at.unwrap_or_else(|| {
            self.all.push(fresh);
            self.all.len() - 1
        });
        let series = &mut self.all[at];
        let ops = outcome.ops as f64;
        series.ops += outcome.ops;
        series.samples.push(Sample {
            run: self.run,
            mops: ops / outcome.wall.as_secs_f64() / 1e6,
            cpu_ns: outcome.cpu.map(|cpu| cpu.as_nanos() as f64 / ops),
            bytes_per_key,
        });
        match (&mut series.latency, outcome.latency) {
            (Some(all), Some(one)) => all.add(one).expect("histograms of one shape add up"),
            (all, one) => *all = one.or(all.take()),
        }
    }
}

impl Series {
    /// Whether the other is of the same cell.
    fn is_beside(&self, other: &Series) -> bool {
        let cell = |series: &Series| {
            let Load { update_percent, distribution, external_work, .. } = series.load;
            (series.workload, series.threads, update_percent, distribution, external_work)
        };
        cell(self) == cell(other)
    }
}

/// What a report says of all rows.
fn common(args: &Nr, rows: &[Row]) -> Common {
    Common {
        keys: "int".to_owned(),
        count: rows.iter().map(|row| row.count).max().unwrap_or(0),
        seed: args.seed,
        distribution: args.distribution.clone(),
        batch: 0,
        pin: args.pin.name().to_owned(),
        baseline: Some(args.baseline.clone()),
    }
}

/// The rows: by thread count, then by cell, the methods of a cell together.
fn rows(all: &[Series], args: &Nr, partial: bool) -> Vec<Row> {
    let mut ordered: Vec<&Series> = Vec::new();
    for series in all {
        let after = ordered.iter().rposition(|placed| placed.is_beside(series));
        ordered.insert(after.map_or(ordered.len(), |at| at + 1), series);
    }
    ordered.sort_by_key(|series| series.threads);
    let row = |series: &&Series| {
        let baseline = all.iter().find(|other| other.method == args.baseline && other.is_beside(series));
        let figures = report::figures(series.threads, &series.samples, series.latency.as_ref());
        Row {
            structure: series.method.to_owned(),
            workload: series.workload.to_owned(),
            keys: "int".to_owned(),
            count: series.items,
            seed: args.seed,
            distribution: series.load.distribution.to_string(),
            ratio: baseline.and_then(|baseline| report::ratio(&series.samples, &baseline.samples)),
            baseline: baseline.map(|baseline| baseline.method.to_owned()),
            ops: series.ops / series.samples.len(),
            pin: args.pin.name().to_owned(),
            partial,
            update_percent: Some(series.load.update_percent),
            external_work: Some(series.load.external_work),
            ..figures
        }
    };
    ordered.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Own;
    use clap::Parser;

    fn args(line: &str) -> Nr {
        #[derive(clap::Parser)]
        struct Just {
            #[command(flatten)]
            nr: Nr,
        }
        Just::try_parse_from(std::iter::once("nr").chain(line.split_whitespace())).unwrap().nr
    }

    /// Every method on every workload, small and short: the rows come out, in order and with their ratio.
    #[test]
    fn a_small_sweep() {
        let line = String::from(
            "--method sl,rwl,fc,fc+,nr,nr+,lf,lf-freeing --workload all --count 500 --millis 20 --threads 2 --runs 1 --update-percent 10,100 \
             --distribution uniform,zipf:1.5 --external-work 4 --replicas 2",
        );
        let args = args(&line);
        let plan = plan::<Own>(&args, || {}).unwrap();
        let progress = ProgressBar::hidden();
        let mut all = Vec::new();
        for &workload in &plan.workloads {
            for &method in &plan.methods {
                Turn { plan: &plan, method, workload, threads: 2, run: 0, all: &mut all, progress: &progress }
                    .take::<Own>()
                    .unwrap();
            }
        }
        let rows = rows(&all, &args, false);
        assert_eq!(rows.len(), 4 * (8 + 8 + 6));
        assert!(rows.iter().all(|row| row.mops > 0.0 && row.baseline.as_deref() == Some("sl")));
        assert_eq!((rows[0].structure.as_str(), rows[0].ratio), ("sl", Some(1.0)));
        assert_eq!(
            (rows[4].structure.as_str(), rows[4].update_percent, rows[4].external_work),
            ("nr", Some(10), Some(4))
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--method mcs",
            "--method sl,lf --baseline rwl",
            "--workload stack",
            "--update-percent 101",
            "--distribution normal",
        ] {
            assert!(plan::<Own>(&args(line), || {}).is_err(), "{line}");
        }
    }
}
