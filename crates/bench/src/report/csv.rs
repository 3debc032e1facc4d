//! CSV with a header line. What was not measured is empty.

use std::io::{self, Write};

use super::Row;

/// Writes the rows.
///
/// # Errors
/// If writing fails.
pub fn write(rows: &[Row], out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for row in rows {
        writer.serialize(row).map_err(io::Error::other)?;
    }
    writer.flush()
}
