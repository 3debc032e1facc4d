//! Byte by byte, with relaxed loads: correct in every world.

use crate::atomic::{AtomicU8, Ordering};

#[inline]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let bit = |at: usize| u64::from(bytes[at].load(Ordering::Relaxed) == byte) << at;
    (0..N).fold(0, |mask, at| mask | bit(at))
}

/// Compares all bytes of a word at once.
#[cfg_attr(all(target_arch = "x86_64", not(any(miri, loom))), allow(dead_code, reason = "compared with by tests"))]
#[inline]
pub(super) fn match_words(words: [u64; 8], byte: u8) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    // Moves the high bit of byte i to bit 56 + i.
    const GATHER: u64 = 0x0002_0408_1020_4081;
    let other = |word: u64| word ^ (u64::from(byte) * 0x0101_0101_0101_0101);
    let high = |other: u64| !(((other & LOW) + LOW) | other | LOW);
    let bits = |word: u64| high(other(word)).wrapping_mul(GATHER) >> 56;
    words.iter().enumerate().fold(0, |mask, (at, &word)| mask | bits(word) << (8 * at))
}
