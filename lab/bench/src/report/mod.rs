//! Reports: the rows as tables, JSON lines, CSV or a page with charts.

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
use std::path::Path;

use crate::args::{Format, Show};
use crate::failure::Failure;
use crate::output::{emit, tell};
use row::Row;

pub use row::{Look, digits};

/// Writes the rows to standard output, and the page.
///
/// # Errors
/// If writing fails, other than because the reader has closed standard output.
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

/// Puts a text into a file, in the place of what is there: as a whole, whenever the process ends. (What is no ordinary file, or
/// lies where no file can be made beside it, is written in place.)
///
/// # Errors
/// If it can't be written.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    // What a link leads to is replaced, and not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
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

/// Whether a report can be written there, tried before hours are spent on it. Leaves what is there as it is.
///
/// # Errors
/// If it cannot.
pub fn try_to_write(path: &Path) -> Result<(), Failure> {
    let new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Failure::new(format!("cannot write the report {}: {error}", path.display())))?;
    if new {
        // It was there to be tried only; a file that stays does no harm.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
