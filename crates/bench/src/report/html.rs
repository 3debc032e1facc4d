//! A page with charts and all figures, in one file that needs nothing else.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::row::{Look, PARTIAL, Row, cells, misses};
use super::{chart, curve, date, table};
use crate::failure::Failure;
use crate::machine;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}\
    table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}\
    td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}pre{background:#f4f4f4;padding:.7rem;\
    overflow:auto}.warn{background:#fff0d0;border:1px solid #d90;padding:.5rem 1rem}svg{max-width:100%;height:auto}";

/// From this number of thread counts on a chart has curves; below, bars.
const CURVE: usize = 3;

/// Writes a page to a file, and says so on standard error.
///
/// # Errors
/// If it cannot be written.
pub fn save(path: &Path, page: &str) -> Result<(), Failure> {
    super::replace(path, page)
        .map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    eprintln!("The report is in {}.", path.display());
    Ok(())
}

/// The page of measurements on this machine.
pub fn page(rows: &[Row], look: &Look<'_>) -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let of = |key: &str| rows.first().map_or("", |row| row.text(key));
    let mut body = partial(look.partial, PARTIAL);
    let seed = rows.first().and_then(|row| row.whole("seed")).unwrap_or(0);
    body += &format!("<p>{}, seed {seed}, pinning {}.</p>\n", date::utc(seconds), escape(of("pin")));
    body += &format!("{}<pre>{}</pre>\n", command(), escape(&machine::describe()));
    body += "<p>Bars and points are the median of the runs, whiskers the least and the greatest; behind bars the ratio to the \
             baseline. CPU time is the whole process's, background threads included. Ratios are taken run by run. \
             Memory is what loading added to the resident set.</p>\n";
    misses(rows).for_each(|line| body += &format!("<p class=\"warn\"><b>Wrong:</b> {}</p>\n", escape(&line)));
    body += &paragraphs(&look.notes);
    let mut shown: Vec<(String, String)> = rows.iter().map(|row| (row.cell.column(), row.cell.title())).collect();
    // The load first, then a to f.
    shown.sort_by_key(|(column, _)| (column != "load", column.clone()));
    shown.dedup();
    for (column, title) in shown {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.cell.column() == column).collect();
        let (head, lines) = cells(&table::COLUMNS, &rows);
        body += &format!("<h2>{}</h2>\n{}{}", escape(&title), figure(&rows), table(&head, &lines));
    }
    let count = rows.iter().filter_map(|row| row.whole("count")).max();
    let keys = count.map_or(String::new(), |count| format!(", {count} {} keys", of("keys")).replace("  ", " "));
    document(&format!("Archipelago: {}{keys}", look.title), &body)
}

fn figure(rows: &[&Row]) -> String {
    let mut threads: Vec<usize> = rows.iter().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    if threads.len() < CURVE {
        return chart::bars(rows);
    }
    let points: Vec<curve::Point<'_>> = rows.iter().map(|row| curve::Point::of(row)).collect();
    curve::chart(&points, &[], curve::Spread::Whiskers, "Mops/s")
}

/// The command line that made the page.
pub fn command() -> String {
    format!("<pre>{}</pre>\n", escape(&std::env::args().collect::<Vec<_>>().join(" ")))
}

/// What a page says of a run that ended early, in these words.
pub fn partial(is_partial: bool, sentence: &str) -> String {
    if is_partial { format!("<p class=\"warn\"><b>Partial:</b> {sentence}</p>\n") } else { String::new() }
}

/// A paragraph for each line.
pub fn paragraphs(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect()
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
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let row = |name: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<{name}>{}</{name}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.iter().map(|cells| row("td", cells)).collect();
    format!("<table>{}{rows}</table>\n", row("th", head))
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
