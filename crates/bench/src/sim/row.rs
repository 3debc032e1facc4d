//! What one contender with so many threads came to: a line of JSON or CSV, a line of a table, a point of a curve.

use archipelago_sim::TxSite;
use serde::{Deserialize, Serialize};

use super::measure::{Figures, Run, Setting};
use super::{Cell, Contender};
use crate::report::digits;
use crate::stats;

/// One contender with so many threads. New fields go to the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The index, the lock, the method.
    pub structure: String,
    /// What it does.
    pub workload: String,
    /// Threads.
    pub threads: usize,
    /// The modelled machine: never `native`.
    pub machine: String,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub runs: usize,
    /// Million operations per virtual second: the median of the seeds.
    pub mops: f64,
    /// The least of the seeds.
    pub mops_min: f64,
    /// The greatest of the seeds.
    pub mops_max: f64,
    /// Virtual nanoseconds that an operation takes its thread, if any ended.
    pub ns_per_op: Option<f64>,
    /// The least of the sensitivity sweep.
    pub sweep_min: Option<f64>,
    /// The median of the sensitivity sweep.
    pub sweep_median: Option<f64>,
    /// The greatest of the sensitivity sweep.
    pub sweep_max: Option<f64>,
    /// Accesses that left the socket, per operation.
    pub remote_per_op: f64,
    /// Those of them that fetched a line which another socket had changed.
    pub dirty_remote_per_op: f64,
    /// Part of the threads' time that they waited for a line under transfer, in percent.
    pub line_wait_percent: f64,
    /// What they waited for most, if it has a name.
    pub hottest: String,
    /// Steps of the first run, all phases.
    pub events: u64,
    /// Over all steps of the first run: equal for equal runs only.
    pub hash: String,
    /// What the first run took on the host, set-up included.
    pub wall_seconds: f64,
    /// Virtual microseconds measured.
    pub micros: u64,
    /// Hardware transactions that aborted, in percent of those begun.
    pub tx_abort_percent: Option<f64>,
    /// Memory that the model takes per cache line of the program's, in bytes.
    pub model_bytes_per_line: f64,
    /// Accesses that left the socket per operation, of the parts of the program that have a name.
    pub remote_in: String,
    /// Virtual nanoseconds that a read takes its thread, where reads and updates are told apart.
    pub ns_per_read: Option<f64>,
    /// The same for an update.
    pub ns_per_update: Option<f64>,
    /// Part of the threads' time that they spent in updates, in percent.
    pub updating_percent: Option<f64>,
    /// Operations that change something, in percent.
    pub update_percent: Option<u32>,
    /// Which keys are popular.
    pub distribution: Option<String>,
    /// Random lines written between two operations.
    pub external_work: Option<usize>,
    /// Items in the structure when the run began.
    pub count: Option<usize>,
    /// What else tells the workload from others.
    pub details: String,
    /// Virtual microseconds of the first run before it was measured.
    pub warm_micros: u64,
    /// Operations that counted in the first run.
    pub ops: u64,
    /// Why the figures are to be doubted, if they are.
    pub warning: Option<String>,
    /// What became of the first run's transactions, by the place where they begin.
    pub tx_sites: String,
    /// Million operations per virtual second with every seed.
    #[serde(skip)]
    pub seeds: Vec<f64>,
    /// The same in every cell of the sensitivity sweep, those of the machine as it is first.
    #[serde(skip)]
    pub sweep: Vec<f64>,
}

/// The row of a contender's figures.
pub fn row(contender: &Contender, threads: usize, figures: &Figures, setting: &Setting) -> Row {
    let (first, stats) = (&figures.first, &figures.first.stats);
    let Cell { update_percent, distribution, external_work, count, details } = contender.cell.clone();
    let ops = first.ops.max(1) as f64;
    let thread_ps = threads as f64 * first.counted_ns.max(1) as f64 * 1000.0;
    let mops = stats::median(&figures.mops).expect("at least one seed");
    let least = |values: &[f64]| values.iter().copied().reduce(f64::min);
    let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
    let aborts = stats.tx_aborts();
    Row {
        structure: contender.name.clone(),
        workload: contender.workload.clone(),
        threads,
        machine: format!("{} (simulated)", setting.machine.name),
        seed: setting.seed,
        runs: figures.mops.len(),
        mops,
        mops_min: least(&figures.mops).unwrap_or(mops),
        mops_max: most(&figures.mops).unwrap_or(mops),
        ns_per_op: (mops > 0.0).then(|| threads as f64 * 1000.0 / mops),
        sweep_min: least(&figures.sweep),
        sweep_median: stats::median(&figures.sweep),
        sweep_max: most(&figures.sweep),
        remote_per_op: stats.remote() as f64 / ops,
        dirty_remote_per_op: stats.dirty_remote as f64 / ops,
        line_wait_percent: 100.0 * stats.line_wait_ps as f64 / thread_ps,
        hottest: first.hot_lines.first().map_or(String::new(), |line| line.label.to_owned()),
        events: first.events,
        hash: format!("{:016x}", first.hash),
        wall_seconds: first.wall.as_secs_f64(),
        micros: first.measured_ns / 1000,
        tx_abort_percent: (stats.tx_begun > 0).then(|| 100.0 * aborts as f64 / stats.tx_begun as f64),
        model_bytes_per_line: first.bytes_per_line,
        remote_in: remote_in(first),
        ns_per_read: first.kinds.map(|[reads, _]| reads.ns as f64 / reads.ops.max(1) as f64),
        ns_per_update: first.kinds.map(|[_, updates]| updates.ns as f64 / updates.ops.max(1) as f64),
        updating_percent: first
            .kinds
            .map(|[reads, updates]| 100.0 * updates.ns as f64 / (reads.ns + updates.ns).max(1) as f64),
        update_percent,
        distribution: distribution.map(|distribution| distribution.to_string()),
        external_work,
        count,
        details,
        warm_micros: first.warm_ns / 1000,
        ops: first.ops,
        warning: warning(figures, setting),
        tx_sites: first.tx_sites.iter().map(site).collect::<Vec<_>>().join("; "),
        seeds: figures.mops.clone(),
        sweep: figures.sweep.clone(),
    }
}

/// A place where transactions begin, and how they ended, in percent of those begun.
fn site(site: &TxSite) -> String {
    let (counts, begun) = (&site.counts, site.counts.begun.max(1) as f64);
    let part = |(name, count): (&str, u64)| {
        (count > 0).then(|| format!(", {name} {} %", digits(100.0 * count as f64 / begun)))
    };
    let parts = [
        ("committed", counts.committed),
        ("conflicts", counts.conflicts),
        ("capacity", counts.capacity),
        ("explicit", counts.explicit),
        ("interrupts", counts.interrupts),
        ("first touches", counts.faults),
        ("forbidden", counts.forbidden),
        ("spurious", counts.spurious),
    ];
    let parts: String = parts.into_iter().filter_map(part).collect();
    let file = site.file.rsplit("src/").next().unwrap_or(site.file);
    format!("{file}:{} begun {}{parts}", site.line, site.counts.begun)
}

fn remote_in(run: &Run) -> String {
    let counts = run.parts.iter().zip(&run.stats.remote_in[1..]);
    let part = |(name, &count): (&&str, &u64)| format!("{name} {}", digits(count as f64 / run.ops.max(1) as f64));
    counts.map(part).collect::<Vec<_>>().join(", ")
}

/// What is wrong with the figures.
fn warning(figures: &Figures, setting: &Setting) -> Option<String> {
    let (runs, wish) = (figures.runs, &setting.wish);
    let unsteady = (figures.unsteady > 0)
        .then(|| format!("not steady within {} us in {} of {runs} runs", wish.patience_ns / 1000, figures.unsteady));
    let few = figures.few.iter().min().map(|least| {
        format!(
            "fewer than {} operations counted in {} of {runs} runs, {least} at least",
            wish.min_ops,
            figures.few.len()
        )
    });
    let all: Vec<String> = unsteady.into_iter().chain(few).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl Row {
    /// Whether it is this contender's with so many threads.
    pub fn is_of(&self, contender: &Contender, threads: usize) -> bool {
        let Cell { update_percent, distribution, external_work, count, details } = &contender.cell;
        let distribution = distribution.map(|distribution| distribution.to_string());
        (&self.structure, &self.workload, self.threads) == (&contender.name, &contender.workload, threads)
            && (self.update_percent, &self.distribution, self.external_work)
                == (*update_percent, &distribution, *external_work)
            && (self.count, &self.details) == (*count, details)
    }

    /// The workload with all that tells it from others, as far as it is not what one expects.
    pub fn heading(&self) -> String {
        let updates = self.update_percent.map(|percent| format!(", {percent} % updates"));
        let distribution = self.distribution.as_ref().filter(|name| *name != "uniform").map(|name| format!(", {name}"));
        let work =
            self.external_work.filter(|lines| *lines > 0).map(|lines| format!(", {lines} lines of external work"));
        let details = (!self.details.is_empty()).then(|| format!(", {}", self.details));
        let count = self.count.map(|count| format!(", {count} items"));
        [Some(self.workload.clone()), updates, distribution, work, details, count].into_iter().flatten().collect()
    }
}
