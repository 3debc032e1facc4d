//! A set of small numbers that threads share: one bit per number, 64 bits per word.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;

/// The set. Reads are relaxed. Changes are read-modify-writes with Acquire and Release. The users of the set have
/// fences of their own.
#[derive(Debug)]
pub(super) struct Bits {
    /// The words are in adjacent cache lines that contain nothing else, because every thread reads them and they seldom
    /// change.
    words: Box<[CachePadded<[AtomicU64; WORDS]>]>,
}

/// Number of words per cache line.
const WORDS: usize = if cfg!(loom) { 1 } else { 8 };

impl Bits {
    /// Makes an empty set of numbers below `limit`.
    pub(super) fn new(limit: usize) -> Self {
        let line = || CachePadded::new(core::array::from_fn(|_| AtomicU64::new(0)));
        Self { words: (0..limit.div_ceil(64 * WORDS)).map(|_| line()).collect() }
    }

    #[inline]
    fn word(&self, at: u32) -> (&AtomicU64, u64) {
        let word = at as usize / 64;
        (&self.words[word / WORDS][word % WORDS], 1 << (at % 64))
    }

    #[inline]
    pub(super) fn has(&self, at: u32) -> bool {
        let (word, bit) = self.word(at);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Adds a number. Writes nothing if the set contains it already.
    #[inline]
    pub(super) fn set(&self, at: u32) {
        if !self.has(at) {
            let (word, bit) = self.word(at);
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    pub(super) fn clear(&self, at: u32) {
        let (word, bit) = self.word(at);
        word.fetch_and(!bit, Ordering::AcqRel);
    }

    /// Returns the numbers in ascending order. Each word is read when the iteration reaches it.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.words.iter().flat_map(|line| line.iter()).zip((0..).step_by(64));
        words.flat_map(|(word, first)| {
            let mut left = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first + bit)
            })
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_set() {
        let bits = Bits::new(600);
        for at in [0, 63, 64, 511, 512, 599, 64] {
            bits.set(at);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 511, 512, 599]);
        bits.clear(64);
        bits.clear(65);
        assert!(!bits.has(64) && bits.has(512));
        assert_eq!(bits.iter().count(), 5);
    }
}
