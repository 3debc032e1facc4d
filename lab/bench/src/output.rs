//! The command's output streams. A full or closed stream causes no panic.

use core::fmt::Display;
use std::io::{self, Write};

use crate::failure::Failure;

/// Writes to standard output and flushes it. Returns false if the reader has closed the stream, which is no error.
///
/// # Errors
/// If writing fails for another reason.
pub fn emit(write: impl FnOnce(io::StdoutLock<'_>) -> io::Result<()>) -> Result<bool, Failure> {
    match write(io::stdout().lock()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes a text and a line end, as [`emit`] does.
///
/// # Errors
/// As [`emit`].
pub fn print(text: impl Display) -> Result<bool, Failure> {
    emit(|mut out| writeln!(out, "{text}"))
}

/// Writes a line to standard error, if it can be written to.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
