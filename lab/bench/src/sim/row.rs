//! Makes the row of one contender with a number of threads.

use std::borrow::Cow;

use archipelago_sim::{Placement, Stats, TxSite};
use serde_json::{Value, json};

use super::measure::Measure;
use crate::harness::simulated::{Contender, Figures, OpTotals, Run, Setting};
use crate::report::digits;
use crate::report::row::Row;
use crate::stats;

/// Returns the row of a contender's results. New fields go to the end.
pub fn row(contender: &Contender, threads: usize, figures: &Figures, setting: &Setting) -> Row {
    let (first, stats, wish) = (figures.first(), &figures.first().stats, &setting.wish);
    let all = figures.mops();
    let seeds = all[..figures.seeds].to_vec();
    let sweep = if setting.sweep { all } else { Vec::new() };
    let ops = first.ops.max(1) as f64;
    let thread_ps = threads as f64 * first.counted_ns.max(1) as f64 * 1000.0;
    let mops = stats::median(&seeds).expect("at least one seed");
    let least = |values: &[f64]| values.iter().copied().reduce(f64::min);
    let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
    let per_op = |which: usize| first.kinds.map(|kinds| kinds[which].ns as f64 / kinds[which].ops.max(1) as f64);
    let updating = |[reads, updates]: [OpTotals; 2]| 100.0 * updates.ns as f64 / (reads.ns + updates.ns).max(1) as f64;
    let tx = |count: u64| (stats.tx_begun > 0).then(|| count as f64 / ops);
    let of_cell = contender.cell.facts();
    let cell =
        |key: &str| of_cell.iter().find(|(name, _)| *name == key).map_or(Value::Null, |(_, value)| value.clone());
    let fields = [
        ("structure", json!(contender.name)),
        ("workload", cell("workload")),
        ("threads", json!(threads)),
        // The simulated machine; the value is never `native`.
        ("machine", json!(format!("{} (simulated)", setting.machine.name))),
        // The first seed, and the number of seeds.
        ("seed", json!(setting.seed)),
        ("runs", json!(seeds.len())),
        // Million operations per virtual second over the seeds: the median, the least and the greatest.
        ("mops", json!(mops)),
        ("mops_min", json!(least(&seeds).unwrap_or(mops))),
        ("mops_max", json!(most(&seeds).unwrap_or(mops))),
        // Virtual nanoseconds that an operation takes its thread, if any operation ended.
        ("ns_per_op", json!((mops > 0.0).then(|| threads as f64 * 1000.0 / mops))),
        // The range of the sensitivity sweep.
        ("sweep_min", json!(least(&sweep))),
        ("sweep_median", json!(stats::median(&sweep))),
        ("sweep_max", json!(most(&sweep))),
        // Accesses per operation that left the socket; and those of them that fetched a line which another socket had
        // changed.
        ("remote_per_op", json!(stats.remote() as f64 / ops)),
        ("dirty_remote_per_op", json!(stats.dirty_remote as f64 / ops)),
        // The part of the threads' time spent waiting for a cache line in transfer; and the line with the most waiting,
        // if it has a name.
        ("line_wait_percent", json!(100.0 * stats.line_wait_ps as f64 / thread_ps)),
        ("hottest", json!(first.hot_lines.first().map_or("", |line| &*line.label))),
        // Steps of all phases of the first run; equal runs have equal numbers and hashes.
        ("events", json!(first.events)),
        ("hash", json!(format!("{:016x}", first.hash))),
        // Seconds that the first run took on the host, including set-up.
        ("wall_seconds", json!(first.wall.as_secs_f64())),
        // Virtual microseconds measured.
        ("micros", json!(first.measured_ns / 1000)),
        // Hardware transactions that aborted, in percent of those begun.
        ("tx_abort_percent", json!(abort_percent(stats))),
        // Bytes of the model's memory per cache line of the program.
        ("model_bytes_per_line", json!(first.bytes_per_line)),
        // Accesses per operation that left the socket, for each named part of the program.
        ("remote_in", json!(remote_in(first))),
        // Virtual nanoseconds that a read and an update take their thread, and the part of the threads' time spent in
        // updates, if the program distinguishes reads and updates.
        ("ns_per_read", json!(per_op(0))),
        ("ns_per_update", json!(per_op(1))),
        ("updating_percent", json!(first.kinds.map(updating))),
        ("update_percent", cell("update_percent")),
        ("distribution", cell("distribution")),
        ("external_work", cell("external_work")),
        ("count", cell("count")),
        ("details", cell("details")),
        // Virtual microseconds of the first run's warm-up, and its operations that counted.
        ("warm_micros", json!(first.warm_ns / 1000)),
        ("ops", json!(first.ops)),
        // A reason to doubt the figures, if there is one.
        ("warning", json!(warning(figures, setting))),
        // The outcomes of the first run's transactions, by the place in the program where they begin.
        ("tx_sites", json!(first.tx_sites.iter().map(site).collect::<Vec<_>>().join("; "))),
        // Transactions begun and aborted per operation, the aborted ones by cause.
        ("tx_per_op", json!(tx(stats.tx_begun))),
        ("tx_aborts_per_op", json!(tx(stats.tx_aborts()))),
        ("tx_conflicts_per_op", json!(tx(stats.tx_conflicts))),
        ("tx_capacity_per_op", json!(tx(stats.tx_capacity))),
        ("tx_explicit_per_op", json!(tx(stats.tx_explicit))),
        ("tx_others_per_op", json!(tx(stats.tx_aborts() - stats.tx_conflicts - stats.tx_capacity - stats.tx_explicit))),
        // Restarted reads or transactions, in percent of the first run's operations, if the program counts them.
        ("retry_percent", json!(first.retry_percent)),
        // Repeated attempts at updates, in percent of all attempts of the first run, if the program counts them.
        ("abort_percent", json!(first.abort_percent)),
        // Accesses to shared memory per operation; and instructions per cycle, if instructions between the accesses
        // were charged.
        ("accesses_per_op", json!(stats.accesses as f64 / ops)),
        ("instructions_per_cycle", json!(setting.instructions.map(|it| it.per_cycle))),
        // How threads are placed, and which threads are stopped.
        ("pin", json!(pin(&setting.placement))),
        ("stall", json!(setting.stall)),
        // What was asked for: the warm-up in virtual microseconds, or `auto`; the least measured span in virtual
        // microseconds; the fewest operations; and the patience in virtual microseconds.
        ("warm", wish.warm_ns.map_or(json!("auto"), |ns| json!(ns / 1000))),
        ("least_micros", json!(wish.measured_ns / 1000)),
        ("least_ops", json!(wish.min_ops)),
        ("patience", json!(wish.patience_ns / 1000)),
        // The isolation that the contender's transactions promise; and the first run's write skews, if the isolation
        // permits them and the program counts them.
        ("isolation", json!(first.isolation)),
        ("write_skews", json!(first.skews)),
        // Bytes of the heap that the program held at the end of the first run's measured span, set-up included.
        ("held_bytes", json!(first.held_bytes)),
    ];
    let counts = Measure::COUNTS.into_iter().filter_map(|measure| {
        let counted: Option<Vec<f64>> = figures.runs.iter().map(|run| measure.of(run)).collect();
        Some((measure.name().to_owned(), counted?))
    });
    Row { seeds, sweep, counts: counts.collect(), ..Row::new(&contender.name, threads, &contender.cell, fields) }
}

/// Returns the name of a placement.
fn pin(placement: &Placement) -> &'static str {
    match placement {
        Placement::Fill => "fill",
        Placement::Cores => "cores",
        Placement::Spread => "spread",
        Placement::Cpus(_) => "cpus",
    }
}

/// Returns the percentage of transactions that aborted. Transactions that ended in the counted span may have begun
/// before it, so aborts can outnumber the transactions begun in the span.
fn abort_percent(stats: &Stats) -> Option<f64> {
    let (begun, aborts) = (stats.tx_begun, stats.tx_aborts());
    (begun > 0).then(|| 100.0 * aborts as f64 / begun.max(aborts) as f64)
}

/// Describes a place where transactions begin, and how they ended, in percent of those begun.
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
    let file = site.file.rsplit("src/").next().unwrap_or(&site.file);
    format!("{file}:{} begun {}{parts}", site.line, site.counts.begun)
}

fn remote_in(run: &Run) -> String {
    let counts = run.parts.iter().zip(&run.stats.remote_in[1..]);
    let part =
        |(name, &count): (&Cow<'static, str>, &u64)| format!("{name} {}", digits(count as f64 / run.ops.max(1) as f64));
    counts.map(part).collect::<Vec<_>>().join(", ")
}

/// Returns what is doubtful about the figures.
fn warning(figures: &Figures, setting: &Setting) -> Option<String> {
    let (runs, wish) = (figures.runs.len(), &setting.wish);
    let unsteady = figures.runs.iter().filter(|run| !run.steady).count();
    let unsteady = (unsteady > 0)
        .then(|| format!("not steady within {} us in {unsteady} of {runs} runs", wish.patience_ns / 1000));
    let few: Vec<u64> = figures.runs.iter().map(|run| run.ops).filter(|ops| *ops < wish.min_ops).collect();
    let few = few.iter().min().map(|least| {
        let (wished, few) = (wish.min_ops, few.len());
        format!("fewer than {wished} operations counted in {few} of {runs} runs, {least} at least")
    });
    let heapless = figures.runs.iter().filter(|run| !run.repeats).count();
    let heapless = (heapless > 0).then(|| {
        format!(
            "no address space was left for the memory of {heapless} of {runs} runs, which equal seeds may not repeat"
        )
    });
    let all: Vec<String> = [unsteady, few, heapless].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_transactions_abort_than_there_are() {
        let percent = |tx_begun, tx_conflicts| abort_percent(&Stats { tx_begun, tx_conflicts, ..Stats::default() });
        assert_eq!([percent(0, 0), percent(8, 2), percent(5, 6)], [None, Some(25.0), Some(100.0)]);
    }
}
