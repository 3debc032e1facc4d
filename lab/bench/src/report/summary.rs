//! A summary of many rows: a line for each contender, and a column for each cell or thread count. Each field shows the
//! throughput and the ratio to the baseline.

use super::row::{Row, digits, fixed, ratio};

/// A table of text.
pub struct Summary {
    /// The heads: of the column of names, and of each further column.
    pub head: Vec<String>,
    /// A line for each contender, with its name first.
    pub lines: Vec<Vec<String>>,
    /// The number of the fastest line in each column, if the column has one.
    pub best: Vec<Option<usize>>,
}

/// Returns a summary for each thread count, with a column for each cell.
pub fn by_threads(rows: &[Row]) -> Vec<Summary> {
    let summary = |rows: &[Row]| {
        let rows: Vec<&Row> = rows.iter().collect();
        let mut summary = of(&rows, rows[0].with_threads(), |row| row.cell.column());
        if rows.iter().any(|row| row.real("bytes_per_key").is_some()) {
            summary.head.push("B/key".to_owned());
            for line in &mut summary.lines {
                let bytes =
                    rows.iter().filter(|row| row.name == line[0]).find_map(|row| fixed(row, "bytes_per_key", 1));
                line.push(bytes.unwrap_or("-".to_owned()));
            }
        }
        summary
    };
    rows.chunk_by(|one, other| one.threads == other.threads).map(summary).collect()
}

/// Returns a summary of the rows of one cell, with a column for each thread count.
pub fn of_cell(rows: &[&Row]) -> Summary {
    let mut ordered = rows.to_vec();
    ordered.sort_by_key(|row| row.threads);
    of(&ordered, rows.first().map_or(String::new(), |row| row.cell.heading()), |row| row.with_threads())
}

fn of(rows: &[&Row], corner: String, column: impl Fn(&Row) -> String) -> Summary {
    let (mut columns, mut names): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in rows {
        if !columns.contains(&column(row)) {
            columns.push(column(row));
        }
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let find = |name: &str, head: &String| rows.iter().find(|row| row.name == name && column(row) == *head);
    let line = |name: &&str| {
        let cells = columns.iter().map(|head| find(name, head).map_or("-".to_owned(), |row| cell(row)));
        [(*name).to_owned()].into_iter().chain(cells).collect()
    };
    let best = |head: &String| {
        let speed = |(at, name): (usize, &&str)| Some((find(name, head)?.speeds()[0], at));
        let speeds: Vec<(f64, usize)> = names.iter().enumerate().filter_map(speed).collect();
        let best = speeds.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0));
        best.filter(|_| speeds.len() > 1).map(|(_, at)| at)
    };
    let best = [None].into_iter().chain(columns.iter().map(best)).collect();
    let lines = names.iter().map(line).collect();
    Summary { lines, best, head: [corner].into_iter().chain(columns).collect() }
}

fn cell(row: &Row) -> String {
    let ratio = ratio(row, "ratio").map_or(String::new(), |ratio| format!(" ({ratio}x)"));
    format!("{}{ratio}", digits(row.speeds()[0]))
}
