//! Entries copied out of a structure: keys in one list, words in another, so that copying allocates at most as they grow.

use crate::hydra::PageForm;
use crate::key::KeyForm;

/// A list of encoded keys. See [`PageForm::Keys`].
pub trait KeyList<F: PageForm>: Default + Send + Sync + 'static {
    /// Adds a key at the end.
    fn push(&mut self, key: F::Probe<'_>);

    /// The key at a place.
    fn get(&self, at: usize) -> F::Probe<'_>;

    /// Removes all keys, and keeps the memory.
    fn clear(&mut self);
}

/// Keys that are words.
impl KeyList<crate::Word> for Vec<u64> {
    #[inline]
    fn push(&mut self, key: u64) {
        Vec::push(self, key);
    }

    #[inline]
    fn get(&self, at: usize) -> u64 {
        self[at]
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }
}

/// Byte strings, one behind the other.
#[derive(Default)]
pub struct Joined {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList<crate::Bytes> for Joined {
    #[inline]
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Entries, in some order.
pub struct Batch<F: KeyForm> {
    keys: F::Keys,
    words: Vec<u64>,
}

impl<F: KeyForm> Default for Batch<F> {
    fn default() -> Self {
        Self { keys: Default::default(), words: Vec::new() }
    }
}

impl<F: KeyForm> Batch<F> {
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
