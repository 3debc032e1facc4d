//! Tables for the terminal: one per thread count and cell, and an overview.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::row::{Column, Look, PAIRED, PARTIAL, RATIO, Row, cells, fixed, misses, ratio, three};
use super::summary::{self, Summary};

/// The columns of measurements on this machine.
pub const COLUMNS: [Column; 20] = [
    Column("name", |row| Some(row.name.clone())),
    Column("threads", |row| Some(row.threads.to_string())),
    Column("Mops/s", |row| three(row, "mops")),
    Column("min", |row| three(row, "mops_min")),
    Column("max", |row| three(row, "mops_max")),
    Column(RATIO, |row| ratio(row, "ratio")),
    Column(PAIRED, |row| ratio(row, "paired_ratio")),
    Column("to", |row| Some(row.text("baseline").to_owned()).filter(|name| !name.is_empty())),
    Column("ns/op", |row| fixed(row, "ns_per_op", 0)),
    Column("cpu ns/op", |row| fixed(row, "cpu_ns_per_op", 0)),
    Column("B/key", |row| fixed(row, "bytes_per_key", 1)),
    Column("aborts", |row| fixed(row, "abort_percent", 2).map(|percent| percent + " %")),
    Column("grown, MiB", |row| row.real("grown_bytes").map(|bytes| format!("{:.1}", bytes / f64::from(1 << 20)))),
    Column("p50 ns", |row| fixed(row, "p50_ns", 0)),
    Column("p90 ns", |row| fixed(row, "p90_ns", 0)),
    Column("p99 ns", |row| fixed(row, "p99_ns", 0)),
    Column("p99.9 ns", |row| fixed(row, "p999_ns", 0)),
    Column("max ns", |row| fixed(row, "max_ns", 0)),
    Column("runs", |row| row.whole("runs").map(|runs| runs.to_string())),
    Column("write skews", |row| fixed(row, "write_skews", 0)),
];

/// The columns that the terminal omits: it has no room for them, or shows them above the table.
const ON_THE_PAGE: [&str; 5] = ["threads", PAIRED, "to", "p90 ns", "runs"];

/// Explains the figures of a summary.
pub const SUMMARIZED: &str =
    "Million operations per second, the median of the runs, and in brackets the ratio to the baseline of the column.";

/// Writes the rows.
///
/// # Errors
/// If writing fails.
pub fn write(rows: &[Row], look: &Look<'_>, mut out: impl Write) -> io::Result<()> {
    for group in rows.chunk_by(|one, other| one.threads == other.threads && one.cell == other.cell) {
        let columns = COLUMNS.iter().filter(|column| !ON_THE_PAGE.contains(&column.0));
        let (head, lines) = cells(columns, &group.iter().collect::<Vec<_>>());
        writeln!(out, "{}\n{}\n", title(&group[0]), grid(head, lines))?;
    }
    if rows.chunk_by(|one, other| one.cell == other.cell).nth(1).is_some() {
        overview(rows, &mut out)?;
    }
    if look.partial {
        writeln!(out, "PARTIAL: {PARTIAL}")?;
    }
    misses(rows).try_for_each(|line| writeln!(out, "WRONG: {line}"))?;
    look.notes.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Writes the summary of each thread count.
///
/// # Errors
/// If writing fails.
pub fn overview(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    for Summary { head, lines, .. } in summary::by_threads(rows) {
        writeln!(out, "{}", grid(head, lines))?;
    }
    writeln!(out, "{SUMMARIZED}")
}

/// Returns a table with names aligned to the left and figures to the right.
pub fn grid(head: Vec<String>, lines: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head).add_rows(lines);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn title(row: &Row) -> String {
    let batch = row.whole("batch").filter(|batch| *batch > 0);
    let batch = batch.map_or(String::new(), |batch| format!(", {batch} look-ups at a time"));
    let keys = if row.text("keys").is_empty() { String::new() } else { format!("{} ", row.text("keys")) };
    let count = row.whole("count").map_or(String::new(), |count| format!(", {count} {keys}keys"));
    format!("{}{batch}; {}{count}", row.cell.title(), row.with_threads())
}
