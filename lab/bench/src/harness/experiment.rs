//! An experiment: its cells (a cell is a workload with its parameters), its contenders, and the order in which the
//! contenders run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_platform::time::Duration;
use serde_json::{Value, json};

use super::driver::{self, Drive, Outcome, Ready, Settings};
use super::program::Program;
use super::progress::Progress;
use super::series::{Results, Sample, Series};
use crate::args::{Common, Pin};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::row::{Cell, Facts, Row};

/// The fields of an experiment's rows. All experiments have these fields:
///
/// - `machine`: where the experiment ran, `native`;
/// - `runs`: the number of complete runs;
/// - `mops`, `mops_min`, `mops_max`: million operations per second of wall time, all threads together: the median of
///   the runs, the least and the greatest;
/// - `ns_per_op`: nanoseconds that an operation takes its thread, `threads * 1000 / mops`;
/// - `cpu_ns_per_op`: CPU time of the whole process per operation, including background threads;
/// - `ratio`: `mops` divided by the baseline's `mops`;
/// - `paired_ratio`: throughput divided by the baseline's throughput in the same run, the median of the runs;
/// - `ops`: operations per run, the mean of the runs;
/// - `partial`: whether the measurement was interrupted, so that fewer runs than asked for may be complete;
/// - `seconds`: how long a run takes, if a time is given instead of an amount of work;
/// - `latency`: whether single operations were timed, which slows them down.
pub struct Format {
    /// The field that names the contender.
    pub name: &'static str,
    /// The names of all fields. Their order is part of the format; new names go to the end.
    pub keys: &'static str,
}

impl Format {
    /// The fields of YCSB's rows and of node replication's rows. Beside the fields of all experiments:
    ///
    /// - `keys`: the kind of the keys, or their file;
    /// - `count`: how many keys were loaded;
    /// - `bytes_per_key`: resident memory that loading added, per key;
    /// - `batch`: keys per look-up call in workload C, 0 for single look-ups;
    /// - `ops_asked`: the operations that were asked for;
    /// - `misses`: look-ups and scans that did not find a key that is present, over all runs. If it is not 0, the index
    ///   is wrong.
    pub const OF_MAPS: Format = Format {
        name: "structure",
        keys: "structure workload keys count threads machine seed runs mops mops_min mops_max ns_per_op cpu_ns_per_op \
               bytes_per_key distribution ratio baseline ops batch pin misses partial p50_ns p90_ns p99_ns p999_ns max_ns \
               update_percent external_work paired_ratio seconds latency details ops_asked",
    };
}

/// What to measure, and how.
pub struct Experiment<'a> {
    /// The report's title.
    pub title: &'static str,
    /// The fields of its rows.
    pub format: &'static Format,
    /// The cells, in the order of the report. Beside each cell are further fields of its rows.
    pub cells: Vec<(Cell, Facts)>,
    /// Fields that are the same in all rows.
    pub facts: Facts,
    /// Groups of contenders; the contenders of a group take turns.
    pub groups: Vec<Vec<Entry<'a>>>,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// The number of runs.
    pub runs: usize,
    /// The seed of keys and operations.
    pub seed: u64,
    /// On which CPUs threads run.
    pub pin: Pin,
    /// Whether to time single operations.
    pub latency: bool,
    /// How long a measurement takes; `None` to measure until the work is done.
    pub time: Option<Duration>,
    /// The contender to which ratios are computed. `None` stands for the fastest contender of each column, among those
    /// that are not this library's.
    pub baseline: Option<String>,
    /// Measurements in one run with one thread count, for the progress bar.
    pub steps: usize,
}

/// A contender.
pub struct Entry<'a> {
    /// Its name.
    pub name: &'static str,
    /// Whether it is one of this library's.
    pub ours: bool,
    /// Further fields of its rows.
    pub facts: Facts,
    /// Measures the contender, in one cell or in several.
    pub take: Box<dyn Fn(&mut Turn<'_>) + 'a>,
}

impl<'a> Entry<'a> {
    /// Makes a contender that is set up anew for each measurement, in one cell.
    pub fn of<P: Program + Sync + 'a>(name: &'static str, cell: usize, program: P) -> Entry<'a> {
        let facts = Facts::from([("isolation", json!(program.isolation()))]);
        let take = move |turn: &mut Turn<'_>| {
            turn.say_cell(cell);
            let shared = program.setup(turn.threads, turn.seed);
            let before = program.retries(&shared).unwrap_or(0);
            let outcome = turn.drive(&Ready { program: &program, shared: &shared });
            let retries = program.retries(&shared).map(|retries| retries - before);
            let percent = retries.map(|retries| 100.0 * retries as f64 / outcome.ops.max(1) as f64);
            if let Some(wrong) = program.wrong(&shared) {
                turn.outcome(Err(Failure::new(format!("{name}: the run has left what is wrong: {wrong}"))));
                return;
            }
            turn.note(cell, program.notes(&shared));
            let [updates, repeated] = outcome.attempts;
            let aborts = Some(100.0 * repeated as f64 / (updates + repeated).max(1) as f64);
            let skews = program.skews(&shared).map(|skews| skews as f64);
            turn.record(
                cell,
                outcome,
                &[("retry_percent", percent), ("abort_percent", aborts), ("write_skews", skews)],
            );
        };
        Entry { name, ours: false, facts, take: Box::new(take) }
    }
}

impl<'a> Experiment<'a> {
    /// Makes an experiment without cells and contenders, with the settings of the arguments.
    ///
    /// # Errors
    /// If the baseline that the arguments name is not among `names`.
    pub fn new(
        title: &'static str,
        format: &'static Format,
        args: &Common,
        runs: usize,
        baseline: Option<&str>,
        names: &[&str],
    ) -> Result<Self, Failure> {
        if let Some(name) = args.baseline.as_deref().filter(|name| !names.contains(name)) {
            let mut each: Vec<&str> = Vec::new();
            names.iter().for_each(|name| each.extend((!each.contains(name)).then_some(name)));
            let measured = each.join(", ");
            return Err(Failure::new(format!("--baseline {name} is not measured; measured are {measured}")));
        }
        Ok(Experiment {
            title,
            format,
            cells: Vec::new(),
            facts: Vec::new(),
            groups: Vec::new(),
            threads: args.threads(),
            runs: args.runs.unwrap_or(runs),
            seed: args.seed,
            pin: args.pin,
            latency: args.latency,
            time: None,
            baseline: args.baseline.clone().or(baseline.map(str::to_owned)),
            steps: 0,
        })
    }

    /// Adds a cell. Returns the cell's number.
    pub fn cell(&mut self, cell: Cell, more: Facts) -> usize {
        self.cells.push((cell, more));
        self.cells.len() - 1
    }

    /// Measures.
    pub fn measure(&self, progress: &Progress) -> Results {
        let mut results = Results::default();
        for run in 0..self.runs {
            for group in &self.groups {
                for &threads in &self.threads {
                    for entry in group {
                        let (series, failure, notes) = (&mut results.series, &mut results.failure, &mut results.notes);
                        // The seed depends on the run alone, so that the same run of different contenders does the same
                        // work.
                        let seed = self.seed.wrapping_add(run as u64);
                        let mut turn =
                            Turn { experiment: self, entry, run, threads, seed, series, failure, notes, progress };
                        // Panics of the threads are returned as failures. Loading and checking may panic too; then the
                        // complete rows must not be lost.
                        let ended = catch_unwind(AssertUnwindSafe(|| (entry.take)(&mut turn)));
                        if ended.is_err() {
                            let what =
                                format!("{}: setting up or checking panicked; what it said is above", entry.name);
                            results.failure.get_or_insert(Failure::new(what));
                        }
                        if results.failure.is_some() || interrupt::requested() {
                            results.partial = true;
                            return results;
                        }
                    }
                }
            }
        }
        results
    }

    /// Returns the rows of the results.
    pub fn rows(&self, results: &Results) -> Vec<Row> {
        rows(self, results)
    }
}

/// One contender's turn: its measurements in one run with one number of threads.
pub struct Turn<'a> {
    experiment: &'a Experiment<'a>,
    entry: &'a Entry<'a>,
    /// The run's number, from 0.
    pub run: usize,
    /// The number of threads.
    pub threads: usize,
    /// The run's seed.
    pub seed: u64,
    series: &'a mut Vec<Series>,
    failure: &'a mut Option<Failure>,
    notes: &'a mut Vec<String>,
    progress: &'a Progress,
}

impl Turn<'_> {
    /// Shows what the turn is doing.
    pub fn say(&self, what: &str) {
        self.progress.say(format!("run {}: {} {what}", self.run + 1, self.entry.name));
    }

    /// Shows the cell that the turn measures.
    pub fn say_cell(&self, cell: usize) {
        self.say(&format!("{}, {} threads", self.experiment.cells[cell].0.column(), self.threads));
    }

    /// Returns `true` if nothing more is to be measured, since a run failed or an interrupt was requested.
    pub fn is_over(&self) -> bool {
        self.failure.is_some() || interrupt::requested()
    }

    /// Returns how to run the threads.
    pub fn settings(&self) -> Settings {
        let Experiment { pin, latency, time, .. } = *self.experiment;
        Settings { pinning: pin.pinning(), latency, time, seed: self.seed }
    }

    /// Runs the threads. A failure ends the experiment.
    pub fn drive(&mut self, drive: &dyn Drive) -> Outcome {
        self.outcome(driver::run(self.threads, self.settings(), drive))
    }

    /// Returns the outcome of a run, or an empty outcome if the run failed.
    pub fn outcome(&mut self, outcome: Result<Outcome, Failure>) -> Outcome {
        outcome.unwrap_or_else(|failure| {
            self.failure.get_or_insert(failure);
            Outcome::default()
        })
    }

    /// Records the outcome, if it is complete, with further figures of the experiment.
    pub fn record(&mut self, cell: usize, outcome: Outcome, more: &[(&'static str, Option<f64>)]) {
        self.progress.step();
        if !outcome.complete {
            return;
        }
        let Entry { name, ours, .. } = *self.entry;
        let is_this = |series: &Series| (series.name, series.cell, series.threads) == (name, cell, self.threads);
        let at = self.series.iter().position(is_this).unwrap_or_else(|| {
            self.series.push(Series::new(name, ours, cell, self.threads));
            self.series.len() - 1
        });
        let series = &mut self.series[at];
        let ops = outcome.ops as f64;
        let cpu = outcome.cpu.map(|cpu| cpu.as_nanos() as f64 / ops);
        let mut figures = vec![("cpu_ns_per_op", cpu), ("grown_bytes", outcome.grown)];
        figures.extend(more);
        series.samples.push(Sample { run: self.run, mops: ops / outcome.wall.as_secs_f64() / 1e6, figures });
        series.ops += outcome.ops;
        series.misses += outcome.misses;
        driver::merge(&mut series.latency, outcome.latency);
    }

    /// Keeps the notes of the last run only; one run's notes are enough.
    fn note(&mut self, cell: usize, notes: Vec<String>) {
        if self.run + 1 < self.experiment.runs {
            return;
        }
        let (name, column) = (self.entry.name, self.experiment.cells[cell].0.column());
        self.notes.extend(notes.into_iter().map(|note| format!("{name}, {column}, {} threads: {note}", self.threads)));
    }

    /// Counts a measurement that is left out, for the progress bar.
    pub fn pass(&self) {
        self.progress.step();
    }
}

/// Returns the rows: by thread count, then by cell, then in the order of first measurement.
fn rows(experiment: &Experiment<'_>, results: &Results) -> Vec<Row> {
    let mut ordered: Vec<&Series> = results.series.iter().collect();
    // The sort is stable: contenders stay in the order of measurement.
    ordered.sort_by_key(|series| (series.threads, series.cell));
    ordered.into_iter().map(|series| row(experiment, results, series)).collect()
}

fn row(experiment: &Experiment<'_>, results: &Results, series: &Series) -> Row {
    let baseline = baseline(experiment, results, series);
    let (cell, more) = &experiment.cells[series.cell];
    let mut facts = cell.facts();
    let entry = experiment.groups.iter().flatten().find(|entry| entry.name == series.name);
    let of_entry = entry.map_or(&[][..], |entry| &entry.facts);
    facts.extend(more.iter().chain(&experiment.facts).chain(of_entry).cloned());
    facts.extend(series.figures());
    facts.extend([
        (experiment.format.name, json!(series.name)),
        ("machine", json!("native")),
        ("seed", json!(experiment.seed)),
        ("partial", json!(results.partial)),
        ("pin", json!(experiment.pin.name())),
        ("ratio", json!(baseline.map(|baseline| series.median_speed() / baseline.median_speed()))),
        ("paired_ratio", json!(baseline.and_then(|baseline| series.paired_ratio(baseline)))),
        ("baseline", json!(baseline.map(|baseline| baseline.name))),
        ("seconds", json!(experiment.time.map(|time| time.as_secs_f64()))),
        ("latency", json!(experiment.latency)),
    ]);
    let known = |key: &str| facts.iter().find(|(name, _)| *name == key).map_or(Value::Null, |(_, value)| value.clone());
    let fields = experiment.format.keys.split_whitespace().map(|key| (key, known(key)));
    Row { ours: series.ours, ..Row::new(series.name, series.threads, cell, fields) }
}

/// Returns the series to which this one is compared.
fn baseline<'a>(experiment: &Experiment<'_>, results: &'a Results, series: &Series) -> Option<&'a Series> {
    let mut beside = results.series.iter().filter(|other| other.is_beside(series));
    match &experiment.baseline {
        Some(name) => beside.find(|other| other.name == name),
        None => {
            beside.filter(|other| !other.ours).max_by(|one, other| one.median_speed().total_cmp(&other.median_speed()))
        }
    }
}
