//! Finding a byte among the bytes of a small node: one vector comparison for sixteen bytes, plain comparisons for four.

use archipelago_platform::atomic::{AtomicU8, Ordering};
use archipelago_platform::simd::match_bytes;

/// The bytes of a [`Sparse`](super::node) node.
pub(super) trait Matching {
    /// Returns a mask whose bit `i` is set if byte `i` equals `byte`. Every byte is loaded once, relaxed.
    fn matching(&self, byte: u8) -> u64;
}

impl Matching for [AtomicU8; 4] {
    #[inline(always)]
    fn matching(&self, byte: u8) -> u64 {
        let hit = |i: usize| u64::from(self[i].load(Ordering::Relaxed) == byte) << i;
        hit(0) | hit(1) | hit(2) | hit(3)
    }
}

impl Matching for [AtomicU8; 16] {
    #[inline(always)]
    fn matching(&self, byte: u8) -> u64 {
        match_bytes(self, byte)
    }
}
