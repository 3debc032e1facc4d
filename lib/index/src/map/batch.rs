//! Entries copied out of a structure. Keys are in one list and words in another, so that copying allocates only when a
//! list grows.

use crate::structure::{Form, KeyList};

/// Copied entries, in the order in which they were copied.
pub struct Batch<F: Form> {
    keys: F::Keys,
    words: Vec<u64>,
}

impl<F: Form> Default for Batch<F> {
    fn default() -> Self {
        Self { keys: Default::default(), words: Vec::new() }
    }
}

impl<F: Form> Batch<F> {
    #[inline]
    pub(super) fn push(&mut self, key: F::Probe<'_>, word: u64) {
        self.keys.push(key);
        self.words.push(word);
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> F::Probe<'_> {
        self.keys.get(at)
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> &u64 {
        &self.words[at]
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.words.clear();
    }
}
