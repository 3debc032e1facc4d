//! `--compare`: tells which results are slower or faster than in an earlier run, beyond the noise of both runs.
//!
//! The noise of a run is the range from its slowest repetition to its fastest. A row is *slower* if its fastest
//! repetition is slower than the earlier run's slowest, and *faster* if its slowest repetition is faster than the
//! earlier run's fastest. A row with a single run, now or earlier, shows no noise and is not judged. If no row can be
//! judged, a warning says why.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use super::fields::Fields;
use super::row::{Row, digits};
use crate::args::Show;
use crate::failure::Failure;

/// The fields that two rows must share to be measurements of the same thing: the contender, the cell, and each option
/// that changes what is measured. A missing field equals `null`.
const SAME: [&str; 26] = [
    "structure",
    "mechanism",
    "workload",
    "keys",
    "count",
    "buckets",
    "threads",
    "machine",
    "distribution",
    "batch",
    "pin",
    "update_percent",
    "external_work",
    "scan",
    "stuck_reader",
    "details",
    "seconds",
    "ops_asked",
    "latency",
    "isolation",
    "stall",
    "warm",
    "least_micros",
    "least_ops",
    "patience",
    "instructions_per_cycle",
];

/// The options `--compare` and `--fail-on-slower`, and the result of the comparison.
pub struct Comparison {
    earlier: Option<Earlier>,
    /// Whether the result decides the exit code.
    matters: bool,
    /// Whether at least one row was judged and no row is slower.
    good: bool,
}

impl Comparison {
    /// Reads the earlier run, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no rows.
    pub fn of(show: &Show) -> Result<Comparison, Failure> {
        let earlier = show.compare.as_deref().map(Earlier::read).transpose()?;
        Ok(Comparison { earlier, matters: show.fail_on_slower, good: true })
    }

    /// Compares the rows of this run. Returns the lines to print.
    pub fn verdicts(&mut self, rows: &[Row]) -> Vec<String> {
        let Some(earlier) = &self.earlier else { return Vec::new() };
        let (lines, good) = earlier.verdicts(rows);
        self.good = good;
        lines
    }

    /// Returns 1 if `--fail-on-slower` is given and the result is not good, else 0.
    pub fn exit_code(&self) -> ExitCode {
        if self.matters && !self.good { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// The rows of an earlier run.
struct Earlier {
    path: PathBuf,
    rows: Vec<Fields>,
}

impl Earlier {
    /// Reads JSON lines.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no rows.
    fn read(path: &Path) -> Result<Earlier, Failure> {
        let failed = |what: String| Failure::new(format!("--compare {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let row: Option<Fields> = serde_json::from_str(line).ok();
            let row = row.filter(|row| row.get("mops_min").and_then(Value::as_f64).is_some());
            rows.push(row.ok_or_else(|| {
                failed(format!("line {} is no row of a measurement (as --format json writes them)", number + 1))
            })?);
        }
        if rows.is_empty() {
            Err(failed("it is empty".to_owned()))
        } else {
            Ok(Earlier { path: path.to_owned(), rows })
        }
    }

    /// Returns the lines to print: one for each slower or faster row, one with the counts, and a warning if no row was
    /// judged. Also returns whether at least one row was judged and no row is slower.
    fn verdicts(&self, rows: &[Row]) -> (Vec<String>, bool) {
        let (mut lines, mut counts) = (Vec::new(), [0; 5]);
        for row in rows {
            let verdict = self.rows.iter().find(|earlier| is_same(row, earlier)).map(|it| (it, judge(row, it)));
            let (kind, word) = match verdict {
                Some((_, Verdict::Slower)) => (0, "SLOWER"),
                Some((_, Verdict::Faster)) => (1, "faster"),
                Some((_, Verdict::Alike)) => (2, ""),
                Some((_, Verdict::Once)) => (3, ""),
                None => (4, ""),
            };
            counts[kind] += 1;
            if let Some((earlier, _)) = verdict.filter(|_| !word.is_empty()) {
                let (now, was) = (row.speeds(), speeds(earlier));
                let range = |[median, least, most]: [f64; 3]| {
                    format!("{} Mops/s [{} to {}]", digits(median), digits(least), digits(most))
                };
                let (name, cell, threads, ratio) = (&row.name, row.cell.heading(), row.with_threads(), now[0] / was[0]);
                lines.push(format!(
                    "{word}: {name}, {cell}, {threads}: {}, was {}: {ratio:.2}x",
                    range(now),
                    range(was)
                ));
            }
        }
        let kinds = ["slower", "faster", "within the noise", "measured once and not judged", "not in it"];
        let counted: Vec<String> = counts.iter().zip(kinds).map(|(count, kind)| format!("{count} {kind}")).collect();
        let (path, [slower, faster, alike, once, _]) = (self.path.display(), counts);
        lines.push(format!("Compared with {path}: {}.", counted.join(", ")));
        let judged = slower + faster + alike;
        if judged == 0 {
            let why = if once == 0 {
                "no row there is of the same contender, cell and number of threads (nor with the same sizes and times)"
            } else {
                "what is measured once shows no noise; both runs need --runs 2 or more"
            };
            lines.push(format!("WARNING: nothing was compared with {path}: {why}."));
        }
        (lines, judged > 0 && slower == 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Slower,
    Faster,
    Alike,
    Once,
}

fn is_same(row: &Row, earlier: &Fields) -> bool {
    let of = |fields: &Fields, key: &str| fields.get(key).filter(|value| !value.is_null()).cloned();
    SAME.iter().all(|key| of(&row.fields, key) == of(earlier, key))
}

/// Returns the median, the least and the greatest throughput.
fn speeds(earlier: &Fields) -> [f64; 3] {
    ["mops", "mops_min", "mops_max"].map(|key| earlier.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN))
}

fn judge(row: &Row, earlier: &Fields) -> Verdict {
    let (now, was) = (row.speeds(), speeds(earlier));
    let once = |runs: Option<u64>| runs.is_none_or(|runs| runs < 2);
    match () {
        () if once(row.whole("runs")) || once(earlier.get("runs").and_then(Value::as_u64)) => Verdict::Once,
        () if now[2] < was[1] => Verdict::Slower,
        () if now[1] > was[2] => Verdict::Faster,
        () => Verdict::Alike,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::row::{self, Cell};
    use serde_json::json;

    fn row(name: &str, threads: usize, runs: u64, speeds: [f64; 3]) -> Row {
        let cell = Cell::of("c");
        let mut fields = vec![("structure", json!(name)), ("threads", json!(threads)), ("runs", json!(runs))];
        fields.extend(["mops", "mops_min", "mops_max"].into_iter().zip(speeds.map(|speed| json!(speed))));
        Row::new(name, threads, &cell, fields)
    }

    fn file(name: &str, text: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("archipelago-compare-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn only_what_is_beyond_the_noise_of_both_is_told() {
        let before = [
            row("slower", 1, 3, [4.0, 3.5, 4.5]),
            row("faster", 1, 3, [4.0, 3.5, 4.5]),
            row("alike", 1, 3, [4.0, 3.5, 4.5]),
            row("once", 1, 1, [4.0; 3]),
        ];
        let mut text = Vec::new();
        row::json(&before, &mut text).unwrap();
        let path = file("rows", &text);
        let now = [
            row("slower", 1, 3, [3.0, 2.0, 3.4]),
            row("slower", 2, 3, [3.0, 2.0, 3.4]),
            row("faster", 1, 3, [5.0, 4.6, 6.0]),
            row("alike", 1, 3, [3.0, 2.0, 3.6]),
            row("once", 1, 3, [1.0, 0.9, 1.1]),
        ];
        let (said, good) = Earlier::read(&path).unwrap().verdicts(&now);
        assert_eq!((said.len(), good), (3, false), "{said:?}");
        assert_eq!(
            said[0],
            "SLOWER: slower, c, 1 thread: 3.00 Mops/s [2.00 to 3.40], was 4.00 Mops/s [3.50 to 4.50]: 0.75x"
        );
        assert!(said[1].starts_with("faster: faster, c, 1 thread"), "{said:?}");
        let counted = "1 slower, 1 faster, 1 within the noise, 1 measured once and not judged, 1 not in it.";
        assert!(said[2].ends_with(counted), "{said:?}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn nothing_that_is_judged_is_not_good() {
        let mut text = Vec::new();
        row::json(&[row("known", 1, 3, [4.0, 3.5, 4.5]), row("once", 1, 1, [4.0; 3])], &mut text).unwrap();
        let path = file("unmatched", &text);
        let earlier = Earlier::read(&path).unwrap();
        let same = row("known", 1, 3, [4.0, 3.5, 4.5]);
        for (now, says) in [
            (
                vec![row("renamed", 1, 3, [4.0, 3.5, 4.5]), row("known", 2, 3, [4.0, 3.5, 4.5])],
                "no row there is of the same",
            ),
            (vec![row("once", 1, 3, [4.0, 3.5, 4.5]), row("renamed", 1, 3, [4.0; 3])], "measured once"),
        ] {
            let (said, good) = earlier.verdicts(&now);
            let warning = said.last().unwrap();
            assert!(
                !good && warning.starts_with("WARNING: nothing was compared") && warning.contains(says),
                "{said:?}"
            );
            let (said, good) = earlier.verdicts(&[now, vec![same.clone()]].concat());
            assert!(good && said.iter().all(|line| !line.contains("WARNING")), "one row is enough: {said:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_run_is_refused() {
        for (name, text, says) in [("letter", "Dear friend,\n", "line 1 is no row"), ("empty", "", "it is empty")] {
            let path = file(name, text.as_bytes());
            let said = Earlier::read(&path).err().unwrap().to_string();
            assert!(said.contains(says), "{said}");
            std::fs::remove_file(path).unwrap();
        }
        assert!(Earlier::read(Path::new("/nowhere/at/all")).is_err());
    }
}
