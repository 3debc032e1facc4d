//! The observer: a hook that sees every operation in log order before any replica applies it, for a durable log.

use core::mem;

use archipelago_sync::log::{Cursor, Log};

/// Sees every operation, in log order, before any replica applies it and before it is answered.
///
/// The calls come from the thread that combines, one call at a time. A panic poisons the structure. An observer panics
/// if it cannot make an operation durable.
pub trait Observer<W>: Send {
    /// Receives an operation and its index. Indices increase, with gaps at the positions where the log grew or shrank.
    fn operation(&mut self, index: u64, operation: &W);

    /// Ends a batch: when this call returns, every operation below index `end` may be applied and answered.
    fn commit(&mut self, end: u64);
}

/// The observer and its cursor in the log.
pub(super) struct Observed<W> {
    cursor: Cursor<W>,
    observer: Box<dyn Observer<W>>,
    committed: u64,
}

impl<W: Send + Sync> Observed<W> {
    pub(super) fn new(cursor: Cursor<W>, observer: Box<dyn Observer<W>>) -> Self {
        Self { cursor, observer, committed: 0 }
    }

    /// Shows the observer the filled operations below `end`. Returns whether it has now seen all operations below
    /// `end`.
    pub(super) fn shown(&mut self, log: &Log<W>, end: u64) -> bool {
        let Self { cursor, observer, .. } = self;
        log.replay(cursor, end, |index, operation| observer.operation(index, operation));
        cursor.index() >= end
    }

    /// Commits the operations that were shown. Returns the end of the committed operations, or `None` if nothing was
    /// shown since the last commit.
    pub(super) fn commit(&mut self) -> Option<u64> {
        let end = self.cursor.index();
        if mem::replace(&mut self.committed, end) == end {
            return None;
        }
        self.observer.commit(end);
        Some(end)
    }
}
