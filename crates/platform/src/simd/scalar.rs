//! Byte by byte, with relaxed loads: right in every world.

use crate::atomic::{AtomicU8, Ordering};

#[inline]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let bit = |at: usize| u64::from(bytes[at].load(Ordering::Relaxed) == byte) << at;
    (0..N).fold(0, |mask, at| mask | bit(at))
}
