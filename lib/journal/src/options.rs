//! The options for opening a journal.

use crate::Error;
use std::sync::Arc;
use std::time::Duration;

/// When [`wait`](crate::Journal::wait) returns, and when files are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Files are synced as soon as a thread calls [`wait`](crate::Journal::wait) or [`ask`](crate::Journal::ask);
    /// threads that wait at the same time share one sync.
    Always,
    /// Files are synced after each interval. A wait returns after the next sync.
    Every(Duration),
    /// Files are not synced: a wait returns when the operating system has the bytes. But a segment's header and name
    /// are synced, and so are the records for which [`sync`](crate::Journal::sync) is called.
    Never,
}

/// The options for opening a journal. `lanes` and `epochs` cannot be changed later.
#[derive(Clone)]
pub struct Options {
    /// When files are synced. Default: `Always`.
    pub policy: Policy,
    /// The number of log files that are written concurrently, 1 to 1,000. Default: 1.
    pub lanes: usize,
    /// Whether a record counts only once its epoch is durable in every lane. Default: no; then each lane is an
    /// independent log.
    pub epochs: bool,
    /// The length in bytes at which a lane begins another segment (a file). Default: 64 MiB.
    pub segment: u64,
    /// The most bytes per lane that are appended and not written yet. It also bounds a record's length. 4 KiB to 1 GiB.
    /// Default: 8 MiB.
    pub queue: usize,
    /// Whether a background thread per lane writes and syncs records that were requested without a wait. Default: yes.
    /// Without background threads, only calls of `wait` (not with epochs), `sync`, `append` (when the queue or the disk
    /// is full), `close_epoch` and `close` write. `Every` then syncs as `Always` does, and the caller determines the
    /// order of all calls on the disk.
    pub background: bool,
    /// A function that is called after each attempt to write or sync a lane, whether the attempt has succeeded, has
    /// found the disk full, or has poisoned the journal. The function is for event loops, which then call
    /// [`is_durable`](crate::Journal::is_durable). It must not block; its panics are ignored.
    pub observer: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Always,
            lanes: 1,
            epochs: false,
            segment: 64 << 20,
            queue: 8 << 20,
            background: true,
            observer: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |what: &str| Err(Error::Options { what: what.into() });
        if !(1..=1000).contains(&self.lanes) {
            return bad("a journal has 1 to 1,000 lanes: choose such a number");
        }
        if !(4 << 10..=1 << 30).contains(&self.queue) {
            return bad("the queue has 4 KiB to 1 GiB: choose such a length");
        }
        if self.policy == Policy::Every(Duration::ZERO) {
            return bad("an interval of zero: take Policy::Always");
        }
        Ok(())
    }

    /// Returns the number of pending bytes from which on the background thread writes without a request. The bound
    /// keeps batches small enough for the processor's cache.
    pub(crate) fn threshold(&self) -> usize {
        (self.queue / 2).min(512 << 10)
    }
}
