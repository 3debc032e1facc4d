//! An HTML page with charts and all figures, in one file without external resources.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::row::{Look, PARTIAL, Row, cells, misses};
use super::summary::{self, Summary};
use super::svg::escape;
use super::{chart, curve, date, svg, table};
use crate::failure::Failure;
use crate::machine;
use crate::output::tell;

/// The system chooses the colours, light or dark. Nothing is cut off on a phone: content that is wider than the page
/// scrolls in a frame of its own.
const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--faint:#59636e;--rule:#d0d7de;--box:#f3f5f7;--warn:#fff3d0;\
--warn-rule:#b87700}
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e6e8ea;--faint:#a0a8b0;--rule:#3a4149;--box:#1f2429;\
--warn:#3a2f12;--warn-rule:#d9a520}}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:1.5rem auto;padding:0 1rem;color:var(--ink);\
background:var(--paper)}
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.3rem;margin-top:2.2rem}
pre{font-size:14px;background:var(--box);padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere}
.warn{background:var(--warn);border:1px solid var(--warn-rule);padding:.5rem 1rem}
.foot{font-size:14px;color:var(--faint)}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;white-space:nowrap}
td,th{border-bottom:1px solid var(--rule);padding:3px 10px;text-align:right}
th{color:var(--faint);font-weight:600}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}
figure{margin:1rem 0 .5rem}svg{display:block;width:100%;height:auto}
svg text{font-size:15px;fill:var(--ink)}.m{text-anchor:middle}.e{text-anchor:end}
.narrow{display:none}@media(max-width:800px){.wide{display:none}.narrow{display:block;max-width:30rem}}
.grid{stroke:var(--rule)}.axis{stroke:var(--ink)}.boundary{stroke:var(--faint);stroke-dasharray:4 4}
.ours{color:#1583bd;fill:#1583bd}.peer{color:#868e96;fill:#868e96}
line.d0,line.d1,line.d2,polyline{stroke:currentColor}polyline{fill:none;stroke-width:2}circle{fill:currentColor}
polygon{fill:currentColor;opacity:.15}polyline.d1{stroke-dasharray:8 4}polyline.d2{stroke-dasharray:2 3}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.2rem 0 1rem}
.legend i{display:inline-block;width:1.6em;margin-right:.5em;vertical-align:middle;border-top:3px solid currentColor}
.legend .d1{border-top-style:dashed}.legend .d2{border-top-style:dotted}
";

/// Returns the style of a page, with the colours of its curves.
fn style() -> String {
    let colour = |(number, colour): (usize, &&str)| format!(".c{number}{{color:{colour}}}");
    curve::COLOURS.iter().enumerate().map(colour).fold(STYLE.to_owned(), |style, colour| style + &colour)
}

/// A chart has curves if it has at least this many different thread counts. Otherwise it has bars.
const CURVE: usize = 3;

/// Writes a page to a file, and reports this on standard error.
///
/// # Errors
/// If the file cannot be written.
pub fn save(path: &Path, page: &str) -> Result<(), Failure> {
    super::replace(path, page)
        .map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    tell(format!("The report is in {}.", path.display()));
    Ok(())
}

/// Returns the page of measurements on this machine.
pub fn page(rows: &[Row], look: &Look<'_>) -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let of = |key: &str| rows.first().map_or("", |row| row.text(key));
    let mut body = partial(look.partial, PARTIAL);
    let seed = rows.first().and_then(|row| row.whole("seed")).unwrap_or(0);
    body += &format!("<p>{}, seed {seed}, pinning {}.</p>\n", date::utc(seconds), escape(of("pin")));
    body += &format!("{}<pre>{}</pre>\n", command(), escape(&machine::describe()));
    body += "<p>Bars and points are the median of the runs, whiskers the least and the greatest. Ratios are of the medians, \
             by the baseline's; <i>x run by run</i> is the median of the ratios of equal runs. CPU time is the whole process's, \
             background threads included. Memory is what loading added to the resident set.</p>\n";
    misses(rows).for_each(|line| body += &format!("<p class=\"warn\"><b>Wrong:</b> {}</p>\n", escape(&line)));
    body += &paragraphs(&look.notes);
    if rows.len() > 1 {
        let tables: String = summary::by_threads(rows).iter().map(summary_table).collect();
        body += &format!("<h2>Summary</h2>\n{tables}<p class=\"foot\">{} Bold: the fastest.</p>\n", table::SUMMARIZED);
    }
    let mut shown: Vec<(String, String)> = rows.iter().map(|row| (row.cell.column(), row.cell.title())).collect();
    // The workload `load` comes first, followed by the workloads `a` to `f`.
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
        let legend = "<ul class=\"legend\"><li><i class=\"ours\"></i>of this library</li><li><i class=\"peer\"></i>others</li></ul>\n";
        return svg::figure(|width| chart::bars(rows, width)) + legend;
    }
    let points: Vec<curve::Point<'_>> = rows.iter().map(|row| curve::Point::of(row)).collect();
    curve::chart(&points, &[], curve::Spread::Whiskers, "Mops/s")
}

/// Returns the command line that made the page, as HTML.
pub fn command() -> String {
    format!(
        "<pre>{}</pre>\n",
        escape(&std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    )
}

/// Returns the warning about a run that ended early, in the words of `sentence`; else an empty text.
pub fn partial(is_partial: bool, sentence: &str) -> String {
    if is_partial { format!("<p class=\"warn\"><b>Partial:</b> {sentence}</p>\n") } else { String::new() }
}

/// Returns a paragraph for each line.
pub fn paragraphs(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect()
}

/// Returns a whole page from its title and its content.
pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title><style>{}</style>\
         </head><body>\n<h1>{title}</h1>\n{body}</body></html>\n",
        style()
    )
}

/// Returns a table of text.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    marked_table(head, rows, |_, _| false)
}

/// Returns the table of a summary, with the fastest result of each column in bold type.
pub fn summary_table(Summary { head, lines, best }: &Summary) -> String {
    marked_table(head, lines, |line, column| best.get(column).is_some_and(|best| *best == Some(line)))
}

/// Returns a table of text, with some cells in bold type. If the table is wider than the page, it scrolls in a frame of
/// its own.
fn marked_table(head: &[String], rows: &[Vec<String>], bold: impl Fn(usize, usize) -> bool) -> String {
    let head: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
    let cell = |line: usize, (column, cell): (usize, &String)| {
        let cell = escape(cell);
        if bold(line, column) { format!("<td><b>{cell}</b></td>") } else { format!("<td>{cell}</td>") }
    };
    let row = |(line, cells): (usize, &Vec<String>)| {
        let cells: String = cells.iter().enumerate().map(|it| cell(line, it)).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.iter().enumerate().map(row).collect();
    format!("<div class=\"scroll\" tabindex=\"0\"><table><tr>{head}</tr>\n{rows}</table></div>\n")
}
