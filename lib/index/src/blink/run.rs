//! Runs: private copies of entries, which scans use.

use crate::structure::Form;

/// A list of entries in key order.
pub trait Run<F: Form>: Default + Send {
    /// Makes an empty list with room for that number of short entries.
    fn with_room(entries: usize) -> Self;

    /// Removes all entries.
    fn clear(&mut self);

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Appends an entry.
    fn push(&mut self, key: F::Probe<'_>, value: u64);

    /// Returns the key at an index.
    fn key(&self, at: usize) -> F::Probe<'_>;

    /// Returns the value word at an index.
    fn value(&self, at: usize) -> u64;
}
