//! Writes each row as soon as it is complete, so that no row is lost: to standard output (JSON, CSV), and to the file
//! of `--out`. The next run takes the rows of that file instead of measuring them again. Tables and pages are written
//! at the end, from the rows that are complete.
//!
//! A row of the file is reused for the same contender, workload and threads, if it has the same *stamp*. The stamp
//! covers the program's bytes, the machine, times, seeds, variations and faults.

use core::fmt::Display;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::report;
use crate::args::{Format, SimCommon};
use crate::failure::Failure;
use crate::harness::simulated::{Contender, Setting, cells};
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

impl Stored {
    /// Returns whether the row has a figure for each seed, and for each cell of the sweep if the setting has a sweep.
    fn is_whole(&self, setting: &Setting) -> bool {
        let cells = cells(setting);
        let swept = if setting.sweep { cells } else { 0 };
        let lengths = (self.seeds.len(), self.sweep.len());
        lengths == (setting.seeds as usize, swept) && self.counts.values().all(|count| count.len() == cells)
    }
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

/// The file of `--out`. Several processes may append rows to it at a time, each row as a whole.
pub struct Out {
    path: PathBuf,
    file: File,
    /// True if rows are appended, and a cut last line is removed. False if the file stays as it is.
    changes: bool,
    /// The rows up to the position `read` of the file.
    done: Vec<Stored>,
    read: u64,
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
        let (format, report, stamp) = (common.show.format, common.show.report.clone(), Stamps::own().of(setting));
        Ok(Sink { format, report, comparison, stamp, out, rows: Vec::new(), read: true })
    }

    /// Returns the contender's row of an earlier run.
    pub fn done(&self, contender: &Contender, threads: usize, setting: &Setting) -> Option<Row> {
        self.out.as_ref()?.done(&self.stamp, contender, threads, setting)
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
        Self::opened(path, true)
    }

    /// Opens a file that exists for reading its rows, and leaves it as it is.
    ///
    /// # Errors
    /// If the file cannot be read, or has other content.
    pub fn open_to_read(path: &Path) -> Result<Out, Failure> {
        Self::opened(path, false)
    }

    fn opened(path: &Path, changes: bool) -> Result<Out, Failure> {
        // Reading a pipe or a device might never end.
        if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Err(failure(path, changes, &"it is no ordinary file"));
        }
        let file = OpenOptions::new().read(true).append(changes).create(changes).open(path);
        let file = file.map_err(|error| failure(path, changes, &error))?;
        let mut out = Out { path: path.to_owned(), file, changes, done: Vec::new(), read: 0 };
        out.read()?;
        Ok(out)
    }

    /// Reads the rows that were appended since the file was last read.
    ///
    /// # Errors
    /// If the file cannot be read, or has other content.
    pub fn read(&mut self) -> Result<(), Failure> {
        self.alone(Self::read_on)
    }

    /// Reads on, while no other process uses the file. Removes what a killed process has left of a row at the end, so
    /// that the next row begins a line. Nothing is removed unless all that precedes it are rows.
    fn read_on(&mut self) -> Result<(), Failure> {
        let mut text = Vec::new();
        let read = (&self.file).seek(SeekFrom::Start(self.read)).and_then(|_| (&self.file).read_to_end(&mut text));
        read.map_err(|error| self.failure(&error))?;
        let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let (lines, last) = text.split_at(end);
        let mut rows = Vec::new();
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            rows.push(serde_json::from_slice(line).map_err(|_| self.foreign(rows.len()))?);
        }
        let begun = self.read + end as u64;
        let mended = match serde_json::from_slice(last) {
            _ if last.is_empty() => Ok(begun),
            Ok(row) => {
                rows.push(row);
                if self.changes { (&self.file).write_all(b"\n") } else { Ok(()) }
                    .map(|()| begun + last.len() as u64 + 1)
            }
            Err(_) if !begins_row(last) => return Err(self.foreign(rows.len())),
            Err(_) => {
                let done = if self.changes { "removed" } else { "ignored" };
                let path = self.path.display();
                tell(format!("--out {path}: the last line is only a part of a row, and is {done}"));
                if self.changes { self.file.set_len(begun) } else { Ok(()) }.map(|()| begun)
            }
        };
        self.read = mended.map_err(|error| self.failure(&error))?;
        self.done.extend(rows);
        Ok(())
    }

    /// The error for a line that is no row, after `more` rows that were read on.
    fn foreign(&self, more: usize) -> Failure {
        let (path, number) = (self.path.display(), self.done.len() + more + 1);
        Failure::new(format!("--out {path}: line {number} is no row of `sim`; is it another file?"))
    }

    fn failure(&self, why: &dyn Display) -> Failure {
        failure(&self.path, self.changes, why)
    }

    /// Does `work` with the file while no other process uses it. File systems without locks are used by one process.
    fn alone(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), Failure> {
        let locked = if self.changes { self.file.lock() } else { self.file.lock_shared() };
        locked.or_else(|error| match error.kind() {
            ErrorKind::Unsupported => Ok(()),
            _ => Err(self.failure(&error)),
        })?;
        let done = work(self);
        let _ = self.file.unlock();
        done
    }

    /// Returns the fields of all rows.
    pub fn rows(&self) -> impl Iterator<Item = &Fields> {
        self.done.iter().map(|stored| &stored.fields)
    }

    /// Returns the contender's row in the setting of the stamp. A row that does not have all cells of the setting is
    /// none.
    pub fn done(&self, stamp: &str, contender: &Contender, threads: usize, setting: &Setting) -> Option<Row> {
        let Contender { name, cell, .. } = contender;
        let mut facts = cell.facts();
        facts.extend([("structure", name.clone().into()), ("threads", threads.into())]);
        let is_of = |stored: &&Stored| {
            stored.stamp == stamp && facts.iter().all(|(key, value)| stored.fields.get(key) == Some(value))
        };
        let is_whole = |stored: &&Stored| {
            let is_whole = stored.is_whole(setting);
            if !is_whole {
                let (path, column) = (self.path.display(), cell.column());
                tell(format!(
                    "--out {path}: the row of {column}: {name}, {threads} threads, does not have the {} cells of the \
                     model's variations, and counts as not run",
                    cells(setting)
                ));
            }
            is_whole
        };
        let Stored { fields, seeds, sweep, counts, .. } = self.done.iter().filter(is_of).find(is_whole)?;
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

    fn store(&mut self, row: &Stored) -> Result<(), Failure> {
        let line = serde_json::to_string(row).expect("a row is made of numbers and text") + "\n";
        self.alone(|out| {
            out.read_on()?;
            (&out.file).write_all(line.as_bytes()).map_err(|error| out.failure(&error))?;
            out.read_on()
        })
    }
}

/// What each row begins with.
const BEGIN: &[u8] = b"{\"structure\":";

/// Returns whether a line that was cut off may have been a row.
fn begins_row(line: &[u8]) -> bool {
    line.starts_with(BEGIN) || BEGIN.starts_with(line)
}

fn failure(path: &Path, changes: bool, why: &dyn Display) -> Failure {
    let what = if changes { "write" } else { "read" };
    Failure::new(format!("cannot {what} --out {}: {why}", path.display()))
}

/// The stamps of a program's rows. A stamp is a hash of everything that must be equal for two runs of a contender to
/// give equal rows.
pub struct Stamps {
    /// What has hashed the program.
    program: DefaultHasher,
}

impl Stamps {
    /// Returns the stamps of this program. A program that cannot be read is assumed to be unchanged.
    pub fn own() -> Self {
        Self::hashed(&std::env::current_exe().and_then(std::fs::read).unwrap_or_default())
    }

    /// Returns the stamps of a program: a file, or what another text stands for. A text with folders is a file's name.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_program(program: &str) -> io::Result<Self> {
        let path = Path::new(program);
        let is_file = path.exists() || path.components().count() > 1;
        Ok(Self::hashed(&if is_file { std::fs::read(path)? } else { program.as_bytes().to_vec() }))
    }

    fn hashed(program: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        program.hash(&mut hasher);
        Stamps { program: hasher }
    }

    /// Returns the stamp of rows that the program measures in this setting.
    pub fn of(&self, setting: &Setting) -> String {
        let mut hasher = self.program.clone();
        format!("{setting:?}").hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
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
        // A text without an end of line is no cut row either, nor is the last line of a foreign file.
        for text in ["precious", "{\"name\":", "a letter\n{\"structure\":"] {
            std::fs::write(&path, text).unwrap();
            assert!(Out::open(&path).err().unwrap().to_string().contains("line 1 is no row"), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // A killed run leaves half a line.
        std::fs::write(&path, "{\"structure\":\"hä".as_bytes().split_last().unwrap().1).unwrap();
        assert!(Out::open(&path).unwrap().done.is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        // Opened to be read, the file keeps the half, and a missing file stays missing.
        std::fs::write(&path, "{\"structure\":").unwrap();
        assert!(Out::open_to_read(&path).unwrap().done.is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"structure\":");
        std::fs::remove_file(&path).unwrap();
        let failure = Out::open_to_read(&path).err().unwrap().to_string();
        assert!(failure.starts_with("cannot read --out ") && !path.exists(), "{failure}");
        // A device without an end is not read.
        #[cfg(unix)]
        assert!(Out::open(Path::new("/dev/zero")).err().unwrap().to_string().contains("no ordinary file"));
    }

    #[test]
    fn several_processes_append_rows() {
        let path = std::env::temp_dir().join(format!("archipelago-sink-shared-{}", std::process::id()));
        let row = |stamp: &str| Stored {
            fields: Fields(vec![("structure".to_owned(), "tas".into())]),
            seeds: Vec::new(),
            sweep: Vec::new(),
            counts: BTreeMap::new(),
            stamp: stamp.to_owned(),
        };
        let (mut one, mut two) = (Out::open(&path).unwrap(), Out::open(&path).unwrap());
        let stamps = |out: &mut Out| {
            out.read().unwrap();
            out.done.iter().map(|row| row.stamp.clone()).collect::<Vec<_>>()
        };
        one.store(&row("a")).unwrap();
        assert_eq!(stamps(&mut two), ["a"]);
        // What a killed process has left of a row is dropped, and no row is lost or read twice.
        let add = |part: &str| std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + part).unwrap();
        add("{\"structure\":\"t");
        assert_eq!(stamps(&mut two), ["a"]);
        two.store(&row("b")).unwrap();
        assert_eq!(
            (stamps(&mut one), stamps(&mut two)),
            (vec!["a".to_owned(), "b".to_owned()], ["a", "b"].map(Into::into).to_vec())
        );
        // The same if no process has read the file since.
        add("{\"str");
        one.store(&row("c")).unwrap();
        assert_eq!(stamps(&mut two), ["a", "b", "c"]);
        // A whole row lacks only its line's end.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.trim_end()).unwrap();
        let mut three = Out::open(&path).unwrap();
        three.store(&row("d")).unwrap();
        assert_eq!(
            (stamps(&mut two), stamps(&mut three)),
            (["a", "b", "c", "d"].map(Into::into).to_vec(), ["a", "b", "c", "d"].map(Into::into).to_vec())
        );
        std::fs::remove_file(&path).unwrap();
    }
}
