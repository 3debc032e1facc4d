//! JSON lines: one object per row.

use std::io::{self, Write};

use serde::Serialize;

/// Writes the rows.
///
/// # Errors
/// If writing fails.
pub fn write<R: Serialize>(rows: &[R], mut out: impl Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut out, row)?;
        writeln!(out)?;
    }
    Ok(())
}
