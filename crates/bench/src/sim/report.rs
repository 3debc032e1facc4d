//! What the experiments show: a table per workload, and a page with curves.
//!
//! Everything here is simulated and says so: the table's last lines, the page's foot, `machine` in the rows.

use std::io::{self, Write};

use archipelago_sim::Machine;

use super::row::Row;
use crate::report::{curve, digits, html, table};

/// What stands under every table and chart.
pub const FOOT: &str = "Simulated. Orderings and bends are results if they hold in the whole sweep; throughputs and \
    factors are not. Not modelled: weak memory, instructions between shared accesses, out-of-order execution, the \
    allocator, preemption.";

/// What is said of a run that ended before it was complete.
const PARTIAL: &str = "the run ended early; these are the rows that were complete.";

/// What stands under a table.
fn notes(rows: &[&Row]) -> impl Iterator<Item = String> {
    order(rows).into_iter().chain(warnings(rows)).chain(transactions(rows))
}

/// A line for each row that had transactions.
fn transactions(rows: &[&Row]) -> Vec<String> {
    let with = rows.iter().filter(|row| !row.tx_sites.is_empty());
    with.map(|row| format!("{}, {} threads: {}", row.structure, row.threads, row.tx_sites)).collect()
}

/// The rows by workload, in the order in which they came.
fn by_workload(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].heading() == row.heading()) {
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
        cells.push(row.ns_per_op.map_or("-".to_owned(), digits));
        cells.extend([row.remote_per_op, row.dirty_remote_per_op].map(digits));
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

/// Why figures are to be doubted, a line each.
fn warnings(rows: &[&Row]) -> Vec<String> {
    let line = |row: &&Row| {
        let Row { structure, threads, warning, .. } = row;
        warning.as_ref().map(|warning| format!("WARNING: {structure} with {threads} threads: {warning}"))
    };
    rows.iter().filter_map(line).collect()
}

/// The tables, for people.
///
/// # Errors
/// If writing fails.
pub fn tables(rows: &[Row], partial: bool, mut out: impl Write) -> io::Result<()> {
    for group in by_workload(rows) {
        let (head, lines) = cells(&group);
        let mut table = table::plain();
        table.set_header(head);
        table.add_rows(lines);
        table::align(&mut table);
        writeln!(out, "{} on {}", group[0].heading(), group[0].machine)?;
        writeln!(out, "{table}")?;
        notes(&group).try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
    }
    if partial {
        writeln!(out, "PARTIAL: {PARTIAL}")?;
    }
    writeln!(out, "{FOOT}")
}

/// The page with curves.
pub fn page(rows: &[Row], machine: &Machine, partial: bool) -> String {
    let socket = machine.cpus() / machine.sockets;
    let boundaries: Vec<usize> = (1..machine.sockets).map(|sockets| sockets * socket).collect();
    let title = format!("Archipelago on a virtual {}", machine.name);
    let mut body = format!("<pre>{}</pre>\n", html::escape(&std::env::args().collect::<Vec<_>>().join(" ")));
    if partial {
        body += &format!("<p class=\"warn\"><b>Partial:</b> {PARTIAL}</p>\n");
    }
    let swept = rows.iter().any(|row| row.sweep_min.is_some());
    let (spread, sweep) = if swept {
        (curve::Spread::Band, "bands are the range of the sensitivity sweep")
    } else {
        (curve::Spread::Whiskers, "whiskers are the seeds' range")
    };
    body += &format!(
        "<p>Million operations per virtual second by threads; {sweep}. Dashed lines are socket boundaries.</p>\n"
    );
    for group in by_workload(rows) {
        body += &format!("<h2>{}</h2>\n", html::escape(&group[0].heading()));
        let points = group.iter().map(|row| curve::Point {
            name: &row.structure,
            threads: row.threads,
            value: row.mops,
            least: row.sweep_min.unwrap_or(row.mops_min),
            most: row.sweep_max.unwrap_or(row.mops_max),
        });
        body += &curve::chart(&points.collect::<Vec<_>>(), &boundaries, spread);
        body += &format!("<p><small>{FOOT}</small></p>\n");
        let (head, lines) = cells(&group);
        body += &html::table(&head, &lines);
        notes(&group).for_each(|line| body += &format!("<p>{}</p>\n", html::escape(&line)));
    }
    html::document(&title, &body)
}
