//! Tables for the terminal: one per thread count and workload, and an overview.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{Row, digits};

/// Writes the rows.
///
/// # Errors
/// If writing fails.
pub fn write(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    for group in rows.chunk_by(|one, other| one.threads == other.threads && column(one) == column(other)) {
        writeln!(out, "{}", title(&group[0]))?;
        writeln!(out, "{}\n", table(group))?;
    }
    if rows.chunk_by(|one, other| column(one) == column(other)).nth(1).is_some() {
        overview(rows, &mut out)?;
    }
    if rows.first().is_some_and(|row| row.partial) {
        writeln!(out, "PARTIAL: the measurement was interrupted; the figures are of the runs that were complete.")?;
    }
    for row in rows.iter().filter(|row| row.misses > 0) {
        let Row { structure, workload, threads, misses, .. } = row;
        writeln!(out, "WRONG: {structure} missed {misses} present keys in workload {workload}, {threads} threads.")?;
    }
    Ok(())
}

/// Writes one table per thread count: a line for each index, a column for each workload, in it the throughput and the
/// ratio to the baseline.
///
/// # Errors
/// If writing fails.
pub fn overview(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    for rows in rows.chunk_by(|one, other| one.threads == other.threads) {
        let mut workloads: Vec<String> = Vec::new();
        let mut indexes: Vec<&str> = Vec::new();
        for row in rows {
            if !workloads.contains(&column(row)) {
                workloads.push(column(row));
            }
            if !indexes.contains(&row.structure.as_str()) {
                indexes.push(&row.structure);
            }
        }
        let mut table = plain();
        table.set_header(
            [threads(&rows[0]).as_str()].into_iter().chain(workloads.iter().map(String::as_str)).chain(["B/key"]),
        );
        for index in indexes {
            let find = |workload: &String| rows.iter().find(|row| row.structure == index && column(row) == *workload);
            let cells = workloads.iter().map(|workload| find(workload).map_or("-".to_owned(), summary));
            let memory = rows.iter().find(|row| row.structure == index).and_then(|row| row.bytes_per_key);
            let memory = memory.map_or("-".to_owned(), |bytes| format!("{bytes:.1}"));
            table.add_row([index.to_owned()].into_iter().chain(cells).chain([memory]));
        }
        align(&mut table);
        writeln!(out, "{table}")?;
    }
    writeln!(out, "Million operations per second, and in brackets the ratio to the baseline of the column.")
}

fn summary(row: &Row) -> String {
    let ratio = row.ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2}x)"));
    format!("{}{ratio}", digits(row.mops))
}

fn threads(row: &Row) -> String {
    if row.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", row.threads) }
}

/// An empty table in the house style.
pub fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Names to the left, figures to the right.
pub fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn title(row: &Row) -> String {
    let batch = if row.batch > 0 { format!(", {} look-ups at a time", row.batch) } else { String::new() };
    format!("{}{batch}; {}, {} {} keys", heading(row), threads(row), row.count, row.keys)
}

/// As [`column`], in a few words.
pub(super) fn heading(row: &Row) -> String {
    let column = column(row);
    let detail = column.strip_prefix(&row.workload).unwrap_or("");
    format!("{}{detail}", super::title(&row.workload))
}

/// The workload with what tells it from others of its name.
pub(super) fn column(row: &Row) -> String {
    let Row { workload, distribution, .. } = row;
    match (row.update_percent, row.external_work) {
        (Some(updates), Some(0)) => format!("{workload} {updates}% {distribution}"),
        (Some(updates), Some(work)) => format!("{workload} {updates}% {distribution} e={work}"),
        _ => workload.clone(),
    }
}

fn table(rows: &[Row]) -> Table {
    let latency = rows.iter().any(|row| row.p50_ns.is_some());
    let mut table = plain();
    let baseline = rows[0].baseline.as_deref().unwrap_or("baseline");
    let mut header: Vec<String> = ["index", "Mops/s", "min", "max"].map(String::from).to_vec();
    header.push(format!("x {baseline}"));
    header.extend(["ns/op", "cpu ns/op", "B/key"].map(String::from));
    if latency {
        header.extend(["p50 ns", "p99 ns", "p99.9 ns", "max ns"].map(String::from));
    }
    table.set_header(header);
    for row in rows {
        let mut cells = vec![row.structure.clone(), digits(row.mops), digits(row.mops_min), digits(row.mops_max)];
        cells.push(row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        cells.push(format!("{:.0}", row.ns_per_op));
        cells.push(row.cpu_ns_per_op.map_or("-".to_owned(), |ns| format!("{ns:.0}")));
        cells.push(row.bytes_per_key.map_or("-".to_owned(), |bytes| format!("{bytes:.1}")));
        if latency {
            let figure = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| ns.to_string());
            cells.extend([row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns].map(figure));
        }
        table.add_row(cells);
    }
    align(&mut table);
    table
}
