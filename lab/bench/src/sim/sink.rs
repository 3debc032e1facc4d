//! Writes each row as soon as it is complete, so that no row is lost: to standard output (JSON, CSV), and to the file
//! of `--out`. The next run takes the rows of that file instead of measuring them again. Tables and pages are written
//! at the end, from the rows that are complete.
//!
//! A row of the file is reused for the same contender, workload and threads, if it has the same *stamp*. The stamp
//! covers the program's bytes, the machine, times, seeds, variations and faults.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::report;
use crate::args::{Format, SimCommon};
use crate::failure::Failure;
use crate::harness::simulated::{Contender, Setting};
use crate::output::{emit, tell};
use crate::report::compare::Comparison;
use crate::report::fields::Fields;
use crate::report::row::{self, Row};
use crate::report::{self as reports, html};

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    fields: Fields,
    seeds: Vec<f64>,
    sweep: Vec<f64>,
    #[serde(default)]
    counts: BTreeMap<String, Vec<f64>>,
    stamp: String,
}

/// The rows of a run, and the outputs to which they are written.
pub struct Sink {
    format: Format,
    report: Option<PathBuf>,
    comparison: Comparison,
    out: Option<Out>,
    stamp: String,
    rows: Vec<Row>,
    /// Whether standard output is still being read.
    read: bool,
}

/// The file of `--out`.
pub struct Out {
    path: PathBuf,
    file: File,
    done: Vec<Stored>,
}

impl Sink {
    /// Opens the files that the arguments name, before anything is measured.
    ///
    /// # Errors
    /// If a file cannot be written, or the file of `--out` has other content.
    pub fn open(common: &SimCommon, setting: &Setting) -> Result<Sink, Failure> {
        common.show.report.as_deref().map(reports::try_to_write).transpose()?;
        let comparison = Comparison::of(&common.show)?;
        let out = common.out.as_deref().map(Out::open).transpose()?;
        let (format, report, stamp) = (common.show.format, common.show.report.clone(), stamp(setting));
        Ok(Sink { format, report, comparison, stamp, out, rows: Vec::new(), read: true })
    }

    /// Returns the contender's row of an earlier run.
    pub fn done(&self, contender: &Contender, threads: usize) -> Option<Row> {
        self.out.as_ref()?.done(&self.stamp, contender, threads)
    }

    /// Takes a row that is complete; `new` tells that the row is not from the file. Returns false if no output remains,
    /// because the reader has closed standard output.
    ///
    /// # Errors
    /// If the row cannot be written.
    pub fn take(&mut self, row: Row, new: bool) -> Result<bool, Failure> {
        if let Some(out) = self.out.as_mut().filter(|_| new) {
            out.append(&row, &self.stamp)?;
        }
        self.print(&row)?;
        self.rows.push(row);
        Ok(self.read || self.out.is_some() || self.report.is_some())
    }

    fn print(&mut self, row: &Row) -> Result<(), Failure> {
        let first = self.rows.is_empty();
        let format = self.format;
        if self.read && format != Format::Table {
            self.read = emit(|out| match format {
                Format::Json => row::json(std::slice::from_ref(row), out),
                _ => row::csv(std::slice::from_ref(row), first, out),
            })?;
        }
        Ok(())
    }

    /// Writes the outputs that come at the end. Returns the exit code that `--fail-on-slower` asks for.
    ///
    /// # Errors
    /// If an output cannot be written.
    pub fn finish(mut self, setting: &Setting, partial: bool) -> Result<ExitCode, Failure> {
        let more = self.comparison.verdicts(&self.rows);
        if let Some(path) = &self.report {
            html::save(path, &report::page(&self.rows, &setting.machine, partial, &more))?;
        }
        if self.format != Format::Table {
            more.iter().for_each(tell);
        } else if self.read && !self.rows.is_empty() {
            emit(|out| report::tables(&self.rows, partial, &more, out))?;
        }
        Ok(self.comparison.exit_code())
    }

    /// Returns the rows so far.
    #[cfg(test)]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl Out {
    /// Opens the file for reading its rows and appending to it.
    ///
    /// # Errors
    /// If the file cannot be written, or has other content.
    pub fn open(path: &Path) -> Result<Out, Failure> {
        let failed = |error: io::Error| Failure::new(format!("cannot write --out {}: {error}", path.display()));
        // Reading a pipe or a device might never end.
        if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Err(Failure::new(format!("cannot write --out {}: it is no ordinary file", path.display())));
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        // A last line without its end was cut off, and is dropped.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut done = Vec::new();
        let lines = text[..whole].split_inclusive(|&byte| byte == b'\n');
        for (number, line) in lines.enumerate() {
            let stored: Stored = serde_json::from_slice(line).map_err(|_| {
                let number = number + 1;
                Failure::new(format!("--out {}: line {number} is no row of `sim`; is it another file?", path.display()))
            })?;
            done.push(stored);
        }
        // The file is truncated only if its last line was cut off, since another run may have appended a row meanwhile.
        if whole < text.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        Ok(Out { path: path.to_owned(), file, done })
    }

    /// Returns the contender's row in the setting of the stamp.
    pub fn done(&self, stamp: &str, contender: &Contender, threads: usize) -> Option<Row> {
        let Contender { name, cell, .. } = contender;
        let mut facts = cell.facts();
        facts.extend([("structure", name.clone().into()), ("threads", threads.into())]);
        let is_of = |stored: &&Stored| {
            stored.stamp == stamp && facts.iter().all(|(key, value)| stored.fields.get(key) == Some(value))
        };
        let Stored { fields, seeds, sweep, counts, .. } = self.done.iter().find(is_of)?;
        let (name, cell, fields) = (name.clone(), cell.clone(), fields.clone());
        let (seeds, sweep, counts) = (seeds.clone(), sweep.clone(), counts.clone());
        Some(Row { name, threads, cell, ours: false, fields, seeds, sweep, counts })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// If the row cannot be written.
    pub fn append(&mut self, row: &Row, stamp: &str) -> Result<(), Failure> {
        let (seeds, sweep, counts) = (row.seeds.clone(), row.sweep.clone(), row.counts.clone());
        self.store(&Stored { fields: row.fields.clone(), seeds, sweep, counts, stamp: stamp.to_owned() })
    }

    /// Moves the rows of another file of rows to this one. A missing file has no rows.
    ///
    /// # Errors
    /// If the file is not one of rows, or a row cannot be written.
    pub fn take(&mut self, path: &Path) -> Result<(), Failure> {
        if !path.exists() {
            return Ok(());
        }
        for row in Out::open(path)?.done {
            self.store(&row)?;
            self.done.push(row);
        }
        // The rows are in this file now; a file that remains is only in the way.
        let _ = std::fs::remove_file(path);
        Ok(())
    }

    fn store(&mut self, row: &Stored) -> Result<(), Failure> {
        let line = serde_json::to_string(row).expect("a row is made of numbers and text") + "\n";
        self.file
            .write_all(line.as_bytes())
            .map_err(|error| Failure::new(format!("cannot write --out {}: {error}", self.path.display())))
    }
}

/// Returns a hash of everything that must be equal for two runs of a contender to give equal rows, if this program runs
/// them.
pub fn stamp(setting: &Setting) -> String {
    // A program that cannot be read is assumed to be unchanged.
    stamp_of(&std::env::current_exe().and_then(std::fs::read).unwrap_or_default(), setting)
}

/// Returns the [`stamp`] of rows that the program with these bytes measures.
pub fn stamp_of(program: &[u8], setting: &Setting) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!("{setting:?}").hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_row_is_not_appended_to() {
        let path = std::env::temp_dir().join(format!("archipelago-sink-{}", std::process::id()));
        std::fs::write(&path, "a letter\nto a friend\n").unwrap();
        let failure = Out::open(&path).err().unwrap().to_string();
        assert!(failure.contains("line 1 is no row"), "{failure}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter\nto a friend\n");
        // A killed run leaves half a line.
        std::fs::write(&path, "{\"structure\":\"hä".as_bytes().split_last().unwrap().1).unwrap();
        assert!(Out::open(&path).unwrap().done.is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        std::fs::remove_file(&path).unwrap();
        // A device without an end is not read.
        #[cfg(unix)]
        assert!(Out::open(Path::new("/dev/zero")).err().unwrap().to_string().contains("no ordinary file"));
    }
}
