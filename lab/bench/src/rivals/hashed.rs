//! A key's hash, as a table and a leaf with tags use it.

use core::hash::{Hash, Hasher};

/// A hash in which every bit counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hashed(u64);

/// Folds words to a hash.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mixed = self.0.wrapping_mul(0xC6A4_A793_5BD1_E995);
        mixed ^ mixed >> 29
    }
}

impl Hashed {
    #[inline]
    pub fn of(key: &impl Hash) -> Hashed {
        let mut folded = Folded::default();
        key.hash(&mut folded);
        Hashed(folded.finish())
    }

    /// Returns the low bits, by which a table of 2ⁿ places chooses one.
    #[inline]
    pub fn low(self) -> usize {
        self.0 as usize
    }

    /// Returns one byte, on which all bits of the hash bear.
    #[inline]
    pub fn tag(self) -> u8 {
        let half = (self.0 ^ self.0 >> 32) as u32;
        let quarter = half ^ half >> 16;
        (quarter ^ quarter >> 8) as u8
    }
}
