//! Shows the results of the experiments: a table per cell (a workload with its parameters), and a page with curves.
//!
//! All results are simulated and are marked so: in the table's last lines, in the page's foot, and in the rows' field
//! `machine`.

use std::io::{self, Write};

use archipelago_sim::Machine;

use crate::report::row::{Column, Row, cells, fixed, three};
use crate::report::{curve, digits, html, summary, svg, table};

/// The text below every table and chart.
pub const FOOT: &str = "Simulated. Orderings and bends are results if they hold in the whole sweep; throughputs and \
    factors are not. Not modelled: weak memory, instructions between shared accesses (unless --instructions \
    charges them), out-of-order execution, the \
    allocator, preemption.";

/// The warning about a run that ended before it was complete.
const PARTIAL: &str = "the run ended early; these are the rows that were complete.";

/// Returns the notes below a table.
fn notes(rows: &[&Row]) -> impl Iterator<Item = String> {
    order(rows).into_iter().chain(warnings(rows)).chain(transactions(rows))
}

/// Returns a line for each row that had transactions.
fn transactions(rows: &[&Row]) -> Vec<String> {
    let with = rows.iter().filter(|row| !row.text("tx_sites").is_empty());
    with.map(|row| format!("{}, {} threads: {}", row.name, row.threads, row.text("tx_sites"))).collect()
}

/// Groups the rows by cell, in the order in which the cells first occur.
fn by_workload(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].cell == row.cell) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// Returns a line for each thread count: the contenders by descending median, with the number of sweep cells in which
/// each is ahead of the next.
fn order(rows: &[&Row]) -> Vec<String> {
    let mut threads: Vec<usize> = rows.iter().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let median = |row: &Row| row.real("sweep_median").unwrap_or(0.0);
    let line = |threads: usize| {
        let mut ranked: Vec<&&Row> =
            rows.iter().filter(|row| row.threads == threads && !row.sweep.is_empty()).collect();
        ranked.sort_by(|a, b| median(b).total_cmp(&median(a)));
        let cells = ranked.first()?.sweep.len();
        let pairs = ranked.windows(2).map(|pair| {
            let ahead = pair[0].sweep.iter().zip(&pair[1].sweep).filter(|(first, second)| first > second).count();
            format!("{} ahead of {} in {ahead}", pair[0].name, pair[1].name)
        });
        let pairs = pairs.collect::<Vec<_>>().join(", ");
        (!pairs.is_empty()).then(|| format!("{threads} threads, {cells} cells of the sweep: {pairs}"))
    };
    threads.into_iter().filter_map(line).collect()
}

/// The columns of tables and pages.
const COLUMNS: [Column; 20] = [
    Column("name", |row| Some(row.name.clone())),
    Column("threads", |row| Some(row.threads.to_string())),
    Column("Mops/s", |row| three(row, "mops")),
    Column("seeds", |row| range(row, "mops_min", "mops_max")),
    Column("sweep", |row| range(row, "sweep_min", "sweep_max")),
    Column("ns/op", |row| three(row, "ns_per_op")),
    Column("remote/op", |row| three(row, "remote_per_op")),
    Column("dirty remote/op", |row| three(row, "dirty_remote_per_op")),
    Column("remote in", |row| Some(row.text("remote_in").to_owned())),
    Column("line wait", |row| fixed(row, "line_wait_percent", 0).map(|percent| percent + " %")),
    Column("waits for", |row| Some(row.text("hottest").to_owned())),
    Column("tx/op", |row| three(row, "tx_per_op")),
    Column("aborts/op", |row| three(row, "tx_aborts_per_op")),
    Column("conflicts", |row| three(row, "tx_conflicts_per_op")),
    Column("capacity", |row| three(row, "tx_capacity_per_op")),
    Column("explicit", |row| three(row, "tx_explicit_per_op")),
    Column("ns/read", |row| three(row, "ns_per_read")),
    Column("ns/update", |row| three(row, "ns_per_update")),
    Column("in updates", |row| fixed(row, "updating_percent", 0).map(|percent| percent + " %")),
    Column("write skews", |row| fixed(row, "write_skews", 0)),
];

fn range(row: &Row, least: &str, most: &str) -> Option<String> {
    let (least, most) = row.real(least).zip(row.real(most))?;
    Some(format!("{}-{}", digits(least), digits(most)))
}

/// Returns a warning for each row with doubtful figures.
fn warnings(rows: &[&Row]) -> Vec<String> {
    let with = rows.iter().filter(|row| !row.text("warning").is_empty());
    with.map(|row| format!("WARNING: {} with {} threads: {}", row.name, row.threads, row.text("warning"))).collect()
}

/// Writes the tables for people, followed by the lines of `more`.
///
/// # Errors
/// If writing fails.
pub fn tables(rows: &[Row], partial: bool, more: &[String], mut out: impl Write) -> io::Result<()> {
    for group in by_workload(rows) {
        let (head, lines) = cells(&COLUMNS, &group);
        writeln!(out, "{} on {}\n{}", group[0].cell.heading(), group[0].text("machine"), table::grid(head, lines))?;
        notes(&group).try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
    }
    if partial {
        writeln!(out, "PARTIAL: {PARTIAL}")?;
    }
    more.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out, "{FOOT}")
}

/// Returns the page with curves, preceded by the lines of `more`.
pub fn page(rows: &[Row], machine: &Machine, partial: bool, more: &[String]) -> String {
    let socket = machine.cpus() / machine.sockets;
    let boundaries: Vec<usize> = (1..machine.sockets).map(|sockets| sockets * socket).collect();
    let mut body = html::command() + &html::partial(partial, PARTIAL) + &html::paragraphs(more);
    let swept = rows.iter().any(|row| row.real("sweep_min").is_some());
    let (spread, sweep) = if swept {
        (curve::Spread::Band, "bands are the range of the sensitivity sweep")
    } else {
        (curve::Spread::Whiskers, "whiskers are the seeds' range")
    };
    body += &format!(
        "<p>Million operations per virtual second by threads; {sweep}. Dashed lines are socket boundaries.</p>\n"
    );
    let groups = by_workload(rows);
    if rows.len() > 1 {
        let tables: String = groups.iter().map(|group| html::summary_table(&summary::of_cell(group))).collect();
        body += &format!(
            "<h2>Summary</h2>\n{tables}<p class=\"foot\">Million operations per virtual second. Bold: the most.</p>\n"
        );
    }
    for group in groups {
        let points: Vec<_> = group.iter().map(|row| point(row)).collect();
        let (head, lines) = cells(&COLUMNS, &group);
        body += &format!("<h2>{}</h2>\n", svg::escape(&group[0].cell.heading()));
        body += &curve::chart(&points, &boundaries, spread, "Mops/s, virtual");
        body += &format!("<p class=\"foot\">{FOOT}</p>\n{}", html::table(&head, &lines));
        body += &html::paragraphs(&notes(&group).collect::<Vec<_>>());
    }
    html::document(&format!("Archipelago on a virtual {}", machine.name), &body)
}

/// Makes the point of a row, with the range of its sweep if it has one.
fn point(row: &Row) -> curve::Point<'_> {
    let of = curve::Point::of(row);
    let (least, most) = (row.real("sweep_min").unwrap_or(of.least), row.real("sweep_max").unwrap_or(of.most));
    curve::Point { least, most, ..of }
}
