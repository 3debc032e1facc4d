//! What the experiments show: a table per workload, JSON or CSV rows in the house's shape, and a page with curves.
//!
//! Everything here is simulated and says so: the table's last lines, the page's foot, `machine` in the rows.

use std::io::{self, Write};

use archipelago_sim::TxSite;
use serde::Serialize;

use super::Point;
use super::measure::{Run, Setting};
use crate::args::SimCommon;
use crate::failure::Failure;
use crate::report::{self, curve, digits, html, table};
use crate::stats;

/// What stands under every table and chart.
pub const FOOT: &str = "Simulated. Orderings and bends are results if they hold in the whole sweep; throughputs and \
    factors are not. Not modelled: weak memory, instructions between shared accesses, out-of-order execution, the \
    allocator, preemption.";

/// One contender with so many threads. New fields go to the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Virtual nanoseconds that an operation takes its thread.
    pub ns_per_op: f64,
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
    /// What became of the first run's transactions, by the place where they begin.
    pub tx_sites: String,
    /// Million operations per virtual second in every cell of the sensitivity sweep.
    #[serde(skip)]
    pub sweep: Vec<f64>,
}

fn row(point: &Point, setting: &Setting) -> Row {
    let figures = &point.figures;
    let (first, stats) = (&figures.first, &figures.first.stats);
    let ops = first.ops.max(1) as f64;
    let thread_ps = point.threads as f64 * setting.measured_ns as f64 * 1000.0;
    let mops = stats::median(&figures.mops).expect("at least one seed");
    let least = |values: &[f64]| values.iter().copied().reduce(f64::min);
    let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
    let aborts = stats.tx_aborts();
    Row {
        structure: point.name.clone(),
        workload: point.workload.clone(),
        threads: point.threads,
        machine: format!("{} (simulated)", setting.machine.name),
        seed: setting.seed,
        runs: figures.mops.len(),
        mops,
        mops_min: least(&figures.mops).unwrap_or(mops),
        mops_max: most(&figures.mops).unwrap_or(mops),
        ns_per_op: point.threads as f64 * 1000.0 / mops,
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
        micros: setting.measured_ns / 1000,
        tx_abort_percent: (stats.tx_begun > 0).then(|| 100.0 * aborts as f64 / stats.tx_begun as f64),
        model_bytes_per_line: first.bytes_per_line,
        remote_in: remote_in(first),
        ns_per_read: first.kinds.map(|[reads, _]| reads.ns as f64 / reads.ops.max(1) as f64),
        ns_per_update: first.kinds.map(|[_, updates]| updates.ns as f64 / updates.ops.max(1) as f64),
        updating_percent: first
            .kinds
            .map(|[reads, updates]| 100.0 * updates.ns as f64 / (reads.ns + updates.ns).max(1) as f64),
        update_percent: point.cell.update_percent,
        distribution: point.cell.distribution.map(|distribution| distribution.to_string()),
        external_work: point.cell.external_work,
        tx_sites: first.tx_sites.iter().map(site).collect::<Vec<_>>().join("; "),
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

/// A line for each row that had transactions.
fn transactions(rows: &[&Row]) -> Vec<String> {
    let with = rows.iter().filter(|row| !row.tx_sites.is_empty());
    with.map(|row| format!("{}, {} threads: {}", row.structure, row.threads, row.tx_sites)).collect()
}

fn remote_in(run: &Run) -> String {
    let counts = run.parts.iter().zip(&run.stats.remote_in[1..]);
    let part = |(name, &count): (&&str, &u64)| format!("{name} {}", digits(count as f64 / run.ops.max(1) as f64));
    counts.map(part).collect::<Vec<_>>().join(", ")
}

/// Writes what the arguments ask for.
///
/// # Errors
/// If writing fails.
pub fn show(points: &[Point], setting: &Setting, common: &SimCommon) -> Result<(), Failure> {
    let rows: Vec<Row> = points.iter().map(|point| row(point, setting)).collect();
    if let Some(path) = &common.report {
        std::fs::write(path, page(&rows, setting))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    report::show(&rows, common.format, |rows, out| tables(rows, out))
}

/// A workload with all that tells it from others, as far as it is not what one expects.
fn heading(row: &Row) -> String {
    let updates = row.update_percent.map(|percent| format!(", {percent} % updates"));
    let distribution = row.distribution.as_ref().filter(|name| *name != "uniform").map(|name| format!(", {name}"));
    let work = row.external_work.filter(|lines| *lines > 0).map(|lines| format!(", {lines} lines of external work"));
    [Some(row.workload.clone()), updates, distribution, work].into_iter().flatten().collect()
}

/// The rows by workload, in the order in which they came.
fn by_workload(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| heading(group[0]) == heading(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// Who is ahead of whom, from the best median down, and in how many cells of the sweep: a line for each thread count.
fn order(rows: &[&Row]) -> Vec<String> {
    let mut threads: Vec<usize> = rows.iter().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let line = |threads: usize| {
        let mut ranked: Vec<&&Row> =
            rows.iter().filter(|row| row.threads == threads && !row.sweep.is_empty()).collect();
        ranked.sort_by(|a, b| b.sweep_median.unwrap_or(0.0).total_cmp(&a.sweep_median.unwrap_or(0.0)));
        let cells = ranked.first()?.sweep.len();
        let pairs = ranked.windows(2).map(|pair| {
            let ahead = pair[0].sweep.iter().zip(&pair[1].sweep).filter(|(first, second)| first > second).count();
            format!("{} ahead of {} in {ahead}", pair[0].structure, pair[1].structure)
        });
        let pairs = pairs.collect::<Vec<_>>().join(", ");
        (!pairs.is_empty()).then(|| format!("{threads} threads, {cells} cells of the sweep: {pairs}"))
    };
    threads.into_iter().filter_map(line).collect()
}

/// Columns of a table or a page, and the cells of a row.
fn cells(rows: &[&Row]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let swept = rows.iter().any(|row| row.sweep_min.is_some());
    let mut head = vec!["name", "threads", "Mops/s", "seeds"];
    if swept {
        head.push("sweep");
    }
    head.extend(["ns/op", "remote/op", "dirty remote/op", "remote in", "line wait", "waits for"]);
    let told = rows.iter().any(|row| row.updating_percent.is_some());
    if told {
        head.extend(["ns/read", "ns/update", "in updates"]);
    }
    let cells = |row: &&Row| {
        let mut cells = vec![row.structure.clone(), row.threads.to_string(), digits(row.mops)];
        cells.push(format!("{}-{}", digits(row.mops_min), digits(row.mops_max)));
        if swept {
            let range = row.sweep_min.zip(row.sweep_max);
            cells.push(range.map_or(String::new(), |(least, most)| format!("{}-{}", digits(least), digits(most))));
        }
        cells.extend([row.ns_per_op, row.remote_per_op, row.dirty_remote_per_op].map(digits));
        cells.push(row.remote_in.clone());
        cells.push(format!("{:.0} %", row.line_wait_percent));
        cells.push(row.hottest.clone());
        if told {
            cells.extend([row.ns_per_read, row.ns_per_update].map(|ns| ns.map_or(String::new(), digits)));
            cells.push(row.updating_percent.map_or(String::new(), |percent| format!("{percent:.0} %")));
        }
        cells
    };
    (head, rows.iter().map(cells).collect())
}

fn tables(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    for group in by_workload(rows) {
        let (head, lines) = cells(&group);
        let mut table = table::plain();
        table.set_header(head);
        table.add_rows(lines);
        table::align(&mut table);
        writeln!(out, "{} on {}", heading(group[0]), group[0].machine)?;
        writeln!(out, "{table}")?;
        order(&group).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        transactions(&group).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
    }
    writeln!(out, "{FOOT}")
}

fn page(rows: &[Row], setting: &Setting) -> String {
    let machine = &setting.machine;
    let socket = machine.cpus() / machine.sockets;
    let boundaries: Vec<usize> = (1..machine.sockets).map(|sockets| sockets * socket).collect();
    let title = format!("Archipelago on a virtual {}", machine.name);
    let mut body = format!("<pre>{}</pre>\n", html::escape(&std::env::args().collect::<Vec<_>>().join(" ")));
    let sweep =
        if setting.sweep { "whiskers are the range of the sensitivity sweep" } else { "whiskers are the seeds' range" };
    body += &format!(
        "<p>Million operations per virtual second by threads; {sweep}. Dashed lines are socket boundaries.</p>\n"
    );
    for group in by_workload(rows) {
        body += &format!("<h2>{}</h2>\n", html::escape(&heading(group[0])));
        let points = group.iter().map(|row| curve::Point {
            name: &row.structure,
            threads: row.threads,
            value: row.mops,
            least: row.sweep_min.unwrap_or(row.mops_min),
            most: row.sweep_max.unwrap_or(row.mops_max),
        });
        body += &curve::chart(&points.collect::<Vec<_>>(), &boundaries);
        body += &format!("<p><small>{FOOT}</small></p>\n");
        let (head, lines) = cells(&group);
        body += &html::table(&head, &lines);
        for line in order(&group).iter().chain(&transactions(&group)) {
            body += &format!("<p>{}</p>\n", html::escape(line));
        }
    }
    html::document(&title, &body)
}

/// A table and a page, for tests.
#[cfg(test)]
pub fn samples(points: &[Point], setting: &Setting) -> (String, String) {
    let rows: Vec<Row> = points.iter().map(|point| row(point, setting)).collect();
    let mut text = Vec::new();
    tables(&rows, &mut text).expect("a vector takes any text");
    (String::from_utf8(text).expect("tables are text"), page(&rows, setting))
}
