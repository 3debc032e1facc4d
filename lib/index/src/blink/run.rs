//! Runs: private copies of entries, which scans use.

use crate::structure::Form;

/// A list of entries in key order.
pub trait Run<F: Form>: Default + Send {
    /// An empty list with room for that number of short entries.
    fn with_room(entries: usize) -> Self;

    /// Forgets all entries.
    fn clear(&mut self);

    /// How many there are.
    fn len(&self) -> usize;

    /// Appends an entry.
    fn push(&mut self, key: F::Probe<'_>, value: u64);

    /// A key.
    fn key(&self, at: usize) -> F::Probe<'_>;

    /// A value word.
    fn value(&self, at: usize) -> u64;
}
