//! CSV with a header line. What was not measured is empty.

use std::io::{self, Write};

use serde::Serialize;

/// Writes the rows.
///
/// # Errors
/// If writing fails.
pub fn write<R: Serialize>(rows: &[R], out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for row in rows {
        writer.serialize(row).map_err(io::Error::other)?;
    }
    writer.flush()
}

/// Writes one row, after the header if it is the first.
///
/// # Errors
/// If writing fails.
pub fn append<R: Serialize>(row: &R, first: bool, out: impl Write) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new().has_headers(first).from_writer(out);
    writer.serialize(row).map_err(io::Error::other)?;
    writer.flush()
}
