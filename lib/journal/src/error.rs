//! Errors, and what the caller can do about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// The error of a failed operation of the journal. Each error's message says what to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another journal, of this process or another, has the directory open.
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// The options contradict each other or the existing journal.
    Options {
        /// The contradiction.
        what: String,
    },
    /// A file's content differs from the written bytes, or a file is missing. The journal has changed no file.
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset of the damage in the file, in bytes.
        offset: u64,
        /// A description of the damage.
        what: String,
    },
    /// The disk is full. The appended records that are not written yet are kept in memory, in order. New records are
    /// refused until an attempt to write succeeds. `append`, `sync`, `close_epoch`, `wait`, `ask` and the interval make
    /// attempts. In a journal without background threads, `try_append` and `ask` make none, nor does `wait` with
    /// epochs.
    NoSpace {
        /// The file that cannot grow.
        file: PathBuf,
    },
    /// A write or a sync failed earlier. Whether its bytes are on the disk is unknown, so the journal acknowledges
    /// nothing any more.
    Poisoned {
        /// The call that failed.
        call: &'static str,
        /// The file of this call.
        file: PathBuf,
        /// The operating system's error.
        cause: Arc<io::Error>,
    },
    /// The record is longer than the queue's limit ([`Options::queue`](crate::Options::queue)).
    TooLong {
        /// The record's length in bytes.
        length: usize,
        /// The most bytes that a record may have.
        limit: usize,
    },
    /// The queue has no room for the record: at most [`Options::queue`](crate::Options::queue) bytes may wait to be
    /// written.
    Full,
    /// The epoch is closed: no record can be added to it.
    EpochClosed {
        /// The requested epoch.
        epoch: u64,
        /// The last closed epoch.
        closed: u64,
    },
    /// A call of the operating system failed while the journal was opened, or in an operation that writes no records to
    /// the log (a checkpoint, or a removal of segments). No record is lost, and the journal is not poisoned.
    Io {
        /// The call that failed.
        call: &'static str,
        /// The file or directory of this call.
        file: PathBuf,
        /// The operating system's error.
        cause: Arc<io::Error>,
    },
}

impl Error {
    /// Returns a function that wraps an error of `call` on `file`.
    pub(crate) fn io(call: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| {
            let file = file.to_owned();
            if is_no_space(&cause) { Self::NoSpace { file } } else { Self::Io { call, file, cause: Arc::new(cause) } }
        }
    }

    /// Returns a function that wraps an error of `call` on `file`, for calls whose failure leaves the file in an
    /// unknown state. A full disk is no exception for such calls.
    pub(crate) fn fatal(call: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Poisoned { call, file: file.to_owned(), cause: Arc::new(cause) }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { directory } => write!(
                f,
                "{} is in use by another process or another part of this one: stop that one, or choose another directory",
                directory.display()
            ),
            Self::Options { what } => write!(f, "{what}"),
            Self::Damaged { file, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}. Nothing was changed. Restore the directory from a copy; or, to go on \
                 without this record and all later ones, keep a copy and remove this file and the later ones of its lane",
                file.display()
            ),
            Self::NoSpace { file } => write!(
                f,
                "no space for {}: free some space on its file system and try again; what was acknowledged is safe",
                file.display()
            ),
            Self::Poisoned { call, file, cause } => write!(
                f,
                "{call} of {} failed ({cause}): what was written may be lost, so nothing is acknowledged any more. Look after \
                 the disk, then open the journal again: it recovers what is durable",
                file.display()
            ),
            Self::TooLong { length, limit } => write!(
                f,
                "a record of {length} bytes is longer than {limit}: split it, or open the journal with a longer queue"
            ),
            Self::Full => write!(f, "the disk is slower than the appends: wait until what is queued is written"),
            Self::EpochClosed { epoch, closed } => {
                write!(f, "epoch {epoch} takes no more records: take one after {closed}")
            }
            Self::Io { call, file, cause } => {
                write!(f, "{call} of {} failed: {cause}. Mend the cause and try again", file.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poisoned { cause, .. } | Self::Io { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
