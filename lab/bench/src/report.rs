//! Reports: the rows as tables, JSON lines or CSV, and a page with charts.

mod chart;
pub mod compare;
pub mod curve;
pub mod date;
pub mod fields;
pub mod html;
pub mod row;
pub mod summary;
pub mod svg;
pub mod table;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::args::{Format, Show};
use crate::failure::Failure;
use crate::output::{emit, tell};
use row::Row;

pub use row::{Look, digits};

/// Writes the rows to standard output, and the page to its file.
///
/// # Errors
/// If writing fails. It is no error if the reader has closed standard output.
pub fn show(rows: &[Row], show: &Show, look: &Look<'_>) -> Result<(), Failure> {
    emit(|out| match show.format {
        Format::Table => table::write(rows, look, out),
        Format::Json => row::json(rows, out),
        Format::Csv => row::csv(rows, true, out),
    })?;
    if show.format != Format::Table {
        look.notes.iter().for_each(tell);
    }
    show.report.as_deref().map(|path| html::save(path, &html::page(rows, look))).transpose()?;
    Ok(())
}

/// Replaces the content of a file by a text. The file has either its old or its new content, whenever the process ends.
/// A special file, or a file in a folder where no other file can be made, is written in place and has no such
/// guarantee.
///
/// # Errors
/// If the file cannot be written.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = &target(path);
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return fs::write(path, text);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&beside) else {
        return fs::write(path, text);
    };
    let moved = file.write_all(text.as_bytes()).and_then(|()| {
        there.map_or(Ok(()), |there| file.set_permissions(there.permissions()))?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if moved.is_err() {
        let _ = fs::remove_file(&beside);
    }
    moved
}

/// Returns the file to which a path leads: a symbolic link stays, and its target is written, even a missing one.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| match fs::read_link(path) {
        Ok(to) => path.parent().unwrap_or(Path::new("")).join(to),
        Err(_) => path.to_owned(),
    })
}

/// Checks that a report can be written to this file, before hours are spent on its results. An existing file stays as
/// it is.
///
/// # Errors
/// If the file cannot be written.
pub fn try_to_write(path: &Path) -> Result<(), Failure> {
    let new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    if new {
        // The file was only made for the check. If it cannot be removed, it does no harm.
        let _ = fs::remove_file(target(path));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
