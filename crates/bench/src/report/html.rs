//! A page with charts and all figures, in one file that needs nothing else.

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Common, Row, chart, date, table};
use crate::failure::Failure;
use crate::machine;

/// What the page says beside the figures.
pub struct About<'a> {
    /// What was measured.
    pub benchmark: &'a str,
    /// The command line that made it.
    pub command: &'a str,
    /// The machine, in a few lines.
    pub machine: &'a str,
    /// Seconds since 1970.
    pub time: u64,
    /// What all rows share.
    pub common: &'a Common,
    /// Whether the measurement was interrupted.
    pub partial: bool,
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}\
    table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}\
    td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}pre{background:#f4f4f4;padding:.7rem;\
    overflow:auto}.warn{background:#fff0d0;border:1px solid #d90;padding:.5rem 1rem}svg{max-width:100%;height:auto}";

/// Writes the page to a file, and says so on standard error.
///
/// # Errors
/// If it cannot be written.
pub fn save(path: &Path, benchmark: &str, rows: &[Row], common: &Common, partial: bool) -> Result<(), Failure> {
    let about = About {
        benchmark,
        command: &std::env::args().collect::<Vec<_>>().join(" "),
        machine: &machine::describe(),
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        common,
        partial,
    };
    std::fs::write(path, page(rows, &about))
        .map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    eprintln!("The report is in {}.", path.display());
    Ok(())
}

/// The page.
pub fn page(rows: &[Row], about: &About<'_>) -> String {
    let mut page = String::new();
    head(&mut page, about);
    for row in rows.iter().filter(|row| row.misses > 0) {
        let Row { structure, workload, threads, misses, .. } = row;
        let sentence = format!("{structure} missed {misses} present keys in workload {workload}, {threads} threads.");
        add(&mut page, &format!("<p class=\"warn\"><b>Wrong:</b> {}</p>\n", escape(&sentence)));
    }
    let mut cells: Vec<(String, String)> = rows.iter().map(|row| (table::column(row), table::heading(row))).collect();
    // The load first, then a to f.
    cells.sort_by_key(|(cell, _)| (cell != "load", cell.clone()));
    cells.dedup();
    for (cell, heading) in cells {
        let rows: Vec<&Row> = rows.iter().filter(|row| table::column(row) == cell).collect();
        add(&mut page, &format!("<h2>{}</h2>\n", escape(&heading)));
        add(&mut page, &chart::bars(&rows));
        figures(&mut page, &rows);
    }
    let Common { keys, count, .. } = about.common;
    document(&format!("Archipelago: {}, {count} {keys} keys", about.benchmark), &page)
}

/// A whole page from its title and what stands under it.
pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         </head><body>\n<h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// A table of text.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let row = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells: String = cells.map(|cell| format!("<{name}>{}</{name}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = row("th", &mut head.iter().copied());
    let rows: String = rows.iter().map(|cells| row("td", &mut cells.iter().map(String::as_str))).collect();
    format!("<table>{head}{rows}</table>\n")
}

fn head(page: &mut String, about: &About<'_>) {
    let Common { distribution, seed, pin, .. } = about.common;
    if about.partial {
        let sentence = "the measurement was interrupted; the figures are of the runs that were complete.";
        add(page, &format!("<p class=\"warn\"><b>Partial:</b> {sentence}</p>\n"));
    }
    let when = date::utc(about.time);
    add(page, &format!("<p>{when}, distribution {distribution}, seed {seed}, pinning {pin}.</p>\n"));
    add(page, &format!("<pre>{}</pre>\n<pre>{}</pre>\n", escape(about.command), escape(about.machine)));
    add(
        page,
        "<p>Bars are the median of the runs, whiskers the least and the greatest; behind them the ratio to the \
         baseline. CPU time is the whole process's, background threads included. Ratios are taken run by run. \
         Memory is what loading added to the resident set.</p>\n",
    );
}

fn figures(page: &mut String, rows: &[&Row]) {
    let latency = rows.iter().any(|row| row.p50_ns.is_some());
    let mut header =
        vec!["index", "threads", "Mops/s", "min", "max", "ratio", "to", "ns/op", "cpu ns/op", "B/key", "runs"];
    if latency {
        header.extend(["p50 ns", "p90 ns", "p99 ns", "p99.9 ns", "max ns"]);
    }
    let cells = |row: &&Row| {
        let some =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let mut cells = vec![row.structure.clone(), row.threads.to_string()];
        cells.extend([row.mops, row.mops_min, row.mops_max].map(super::digits));
        cells.extend([some(row.ratio, 2), row.baseline.clone().unwrap_or("-".to_owned())]);
        cells.extend([format!("{:.0}", row.ns_per_op), some(row.cpu_ns_per_op, 0), some(row.bytes_per_key, 1)]);
        cells.push(row.runs.to_string());
        if latency {
            let figures = [row.p50_ns, row.p90_ns, row.p99_ns, row.p999_ns, row.max_ns];
            cells.extend(figures.map(|ns| ns.map_or("-".to_owned(), |ns| ns.to_string())));
        }
        cells
    };
    add(page, &table(&header, &rows.iter().map(cells).collect::<Vec<_>>()));
}

fn add(page: &mut String, text: &str) {
    page.write_str(text).expect("a string takes any text");
}

/// Text as HTML: file names and command lines may have anything in them.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(escape("<b>\"R&D\"</b>"), "&lt;b&gt;&quot;R&amp;D&quot;&lt;/b&gt;");
    }
}
