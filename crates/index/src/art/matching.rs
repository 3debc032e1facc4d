//! stub until the platform's arrives
use archipelago_platform::atomic::{AtomicU8, Ordering};
#[inline(always)]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let mut mask = 0;
    for (i, b) in bytes.iter().enumerate() {
        mask |= u64::from(b.load(Ordering::Relaxed) == byte) << i;
    }
    mask
}
