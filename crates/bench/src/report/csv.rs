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
