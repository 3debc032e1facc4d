//! A row of any experiment: one contender in one cell (a workload with its parameters) with a number of threads. A
//! report shows it as a line of JSON or CSV, a line of a table, or a bar or point of a chart.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::Value;

use super::fields::Fields;
use crate::workload::Distribution;

/// Names and values, as in JSON.
pub type Facts = Vec<(&'static str, Value)>;

/// The parameters that distinguish measurements of one experiment, beside contender and threads. An experiment sets the
/// parameters that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The name of the workload.
    pub workload: String,
    /// Operations that change something, in percent.
    pub update_percent: Option<u32>,
    /// Which keys are popular.
    pub distribution: Option<Distribution>,
    /// Random lines written between two operations.
    pub external_work: Option<usize>,
    /// Items in the structure when the run begins.
    pub count: Option<usize>,
    /// Other differences, in words.
    pub details: String,
    /// In words, what distinguishes the cell from cells of the same run that share the parameters above but for the
    /// details and the items.
    pub among: Option<String>,
}

impl Cell {
    /// Makes the cell of a workload without further parameters.
    pub fn of(workload: &str) -> Cell {
        Cell { workload: workload.to_owned(), ..Cell::default() }
    }

    /// Returns the parameters as fields of a row.
    pub fn facts(&self) -> Facts {
        let distribution = self.distribution.map(|distribution| distribution.to_string());
        vec![
            ("workload", self.workload.clone().into()),
            ("update_percent", self.update_percent.into()),
            ("distribution", distribution.into()),
            ("external_work", self.external_work.into()),
            ("count", self.count.into()),
            ("details", self.details.clone().into()),
        ]
    }

    /// Returns the workload with the parameters that distinguish it from others of its name, as the head of a column.
    pub fn column(&self) -> String {
        let updates = self.update_percent.map(|percent| format!(" {percent}%"));
        let distribution = updates.as_ref().and(self.distribution).map(|distribution| format!(" {distribution}"));
        let work = self.external_work.filter(|work| *work > 0).map(|work| format!(" e={work}"));
        let among = self.among.as_ref().map(|among| format!(" {among}"));
        [Some(self.workload.clone()), updates, distribution, work, among].into_iter().flatten().collect()
    }

    /// Returns the same as [`column`](Self::column), with the workload described in a few words.
    pub fn title(&self) -> String {
        let column = self.column();
        let detail = column.strip_prefix(&self.workload).unwrap_or("");
        format!("{}{detail}", title(&self.workload))
    }

    /// Returns the workload with all parameters that differ from their usual values.
    pub fn heading(&self) -> String {
        let updates = self.update_percent.map(|percent| format!(", {percent} % updates"));
        let distribution = self.distribution.filter(|it| *it != Distribution::Uniform).map(|it| format!(", {it}"));
        let work =
            self.external_work.filter(|lines| *lines > 0).map(|lines| format!(", {lines} lines of external work"));
        let details = (!self.details.is_empty()).then(|| format!(", {}", self.details));
        let count = self.count.map(|count| format!(", {count} items"));
        [Some(self.workload.clone()), updates, distribution, work, details, count].into_iter().flatten().collect()
    }
}

/// Returns a description of a workload in a few words.
fn title(workload: &str) -> &str {
    match workload {
        "load" => "load",
        "a" => "A: 50% read, 50% update",
        "b" => "B: 95% read, 5% update",
        "c" => "C: reads",
        "d" => "D: 95% read the latest, 5% insert",
        "e" => "E: 95% scan 1-100, 5% insert",
        "f" => "F: 50% read, 50% read-modify-write",
        "grow" => "grow: insert a fifth more keys",
        "pqueue" => "priority queue",
        "sorted-set" => "sorted set",
        other => other,
    }
}

/// A row. The order of its fields is part of the format; new fields go to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The contender: the name of the index, the lock, the method or the mechanism.
    pub name: String,
    /// The number of threads.
    pub threads: usize,
    /// The workload and its parameters.
    pub cell: Cell,
    /// Whether charts show it as one of this library's.
    pub ours: bool,
    /// All fields that are written.
    pub fields: Fields,
    /// Simulated: million operations per virtual second, one value for each seed.
    pub seeds: Vec<f64>,
    /// Simulated: the same figure, for each run of the sensitivity sweep. The runs of the unvaried machine come first.
    pub sweep: Vec<f64>,
    /// Simulated: further figures of the papers, by name, one for each value of `sweep`, or of `seeds` if there was no
    /// sweep.
    pub counts: BTreeMap<String, Vec<f64>>,
}

impl Row {
    /// Makes a row with these fields, in this order.
    pub fn new(
        name: &str,
        threads: usize,
        cell: &Cell,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Row {
        let fields = Fields(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        let (name, cell) = (name.to_owned(), cell.clone());
        let (seeds, sweep, counts) = Default::default();
        Row { name, threads, cell, ours: false, fields, seeds, sweep, counts }
    }

    /// Returns a field's text, or an empty text if the row has no such field.
    pub fn text(&self, key: &str) -> &str {
        self.fields.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a field's number, if it was measured.
    pub fn real(&self, key: &str) -> Option<f64> {
        self.fields.get(key)?.as_f64()
    }

    /// Returns a field's integer, if it was measured.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.fields.get(key)?.as_u64()
    }

    /// Returns million operations per second: the median of the runs, the least, and the greatest.
    pub fn speeds(&self) -> [f64; 3] {
        ["mops", "mops_min", "mops_max"].map(|key| self.real(key).unwrap_or(f64::NAN))
    }

    /// Returns `1 thread`, `2 threads` and so on.
    pub fn with_threads(&self) -> String {
        if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) }
    }
}

/// Writes rows as JSON lines: one object per row.
///
/// # Errors
/// If writing fails.
pub fn json(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut out, &row.fields)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Writes rows as CSV, after a header line if `header`. A field that was not measured is empty.
///
/// # Errors
/// If writing fails.
pub fn csv(rows: &[Row], header: bool, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    if let Some(row) = rows.first().filter(|_| header) {
        writer.write_record(row.fields.0.iter().map(|(name, _)| name))?;
    }
    for row in rows {
        let plain = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        writer.write_record(row.fields.0.iter().map(|(_, value)| plain(value)))?;
    }
    writer.flush()
}

/// A column of tables: its head, and the function that returns a row's cell. A table omits a column that is empty in
/// all rows.
pub struct Column(pub &'static str, pub fn(&Row) -> Option<String>);

/// The head of the column of ratios to the baseline.
pub const RATIO: &str = "x";

/// The head of the column of ratios that are computed run by run.
pub const PAIRED: &str = "x run by run";

/// Returns the head and the lines of a table.
pub fn cells<'a>(columns: impl IntoIterator<Item = &'a Column>, rows: &[&Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut head, mut lines) = (Vec::new(), vec![Vec::new(); rows.len()]);
    for Column(name, show) in columns {
        let shown: Vec<Option<String>> = rows.iter().map(|row| show(row)).collect();
        if shown.iter().all(Option::is_none) {
            continue;
        }
        let baseline = rows.iter().map(|row| row.text("baseline")).find(|name| !name.is_empty());
        head.push(if *name == RATIO { format!("x {}", baseline.unwrap_or("baseline")) } else { (*name).to_owned() });
        for (line, shown) in lines.iter_mut().zip(shown) {
            line.push(shown.unwrap_or_else(|| "-".to_owned()));
        }
    }
    (head, lines)
}

/// Returns a field with three digits.
pub fn three(row: &Row, key: &str) -> Option<String> {
    row.real(key).map(digits)
}

/// Returns a field with this many decimals.
pub fn fixed(row: &Row, key: &str, decimals: usize) -> Option<String> {
    row.real(key).map(|value| format!("{value:.decimals$}"))
}

/// What a report says of a measurement that ended before it was complete.
pub const PARTIAL: &str = "the measurement ended early; the figures are of the runs that were complete.";

/// The texts of a report beside its rows.
pub struct Look<'a> {
    /// What was measured, as a title.
    pub title: &'a str,
    /// Notes at the end of tables, and above charts.
    pub notes: Vec<String>,
    /// True if the measurement ended early.
    pub partial: bool,
}

impl<'a> Look<'a> {
    /// Makes the texts of a report.
    pub fn of(title: &'a str, notes: Vec<String>, partial: bool) -> Look<'a> {
        Look { title, notes, partial }
    }
}

/// Returns a warning for each row whose contender did not find a key that is present.
pub fn misses(rows: &[Row]) -> impl Iterator<Item = String> {
    rows.iter().filter_map(|row| {
        let misses = row.whole("misses").filter(|misses| *misses > 0)?;
        let Row { name, cell, threads, .. } = row;
        Some(format!("{name} missed {misses} present keys in workload {}, {threads} threads.", cell.workload))
    })
}

/// Returns a ratio with two decimals, or three digits if it is small.
pub fn ratio(row: &Row, key: &str) -> Option<String> {
    row.real(key).map(|ratio| if ratio >= 0.1 { format!("{ratio:.2}") } else { digits(ratio) })
}

/// Formats a value with three digits; a benchmark is not more precise. A small value has three digits after its leading
/// zeros; the smallest values have an exponent.
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v if v >= 1e-6 => format!("{v:.decimals$}", decimals = (2.0 - v.log10().floor()) as usize),
        0.0 => "0".to_owned(),
        v => format!("{v:.2e}"),
    }
}
