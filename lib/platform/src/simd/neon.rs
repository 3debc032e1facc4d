//! NEON, AArch64's baseline: 16 bytes at a time.
//!
//! NEON has no `movemask`. Each matching byte is masked to one bit, given by its position among eight bytes. The sum of
//! eight such bytes is the mask of this half.

use core::arch::aarch64::{uint8x16_t, vaddv_u8, vandq_u8, vceqq_u8, vdupq_n_u8, vget_high_u8, vget_low_u8, vld1q_u8};
use core::arch::asm;

use crate::atomic::AtomicU8;

const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

#[inline]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let (chunks, _) = bytes.as_chunks::<16>();
    chunks.iter().enumerate().fold(0, |mask, (at, chunk)| mask | matches(load(chunk), byte) << (16 * at))
}

#[inline]
fn matches(bytes: uint8x16_t, byte: u8) -> u64 {
    // SAFETY: NEON is part of AArch64's baseline, and `BITS` contains the 16 bytes that are loaded.
    unsafe {
        let found = vandq_u8(vceqq_u8(bytes, vdupq_n_u8(byte)), vld1q_u8(BITS.as_ptr()));
        u64::from(vaddv_u8(vget_low_u8(found))) | u64::from(vaddv_u8(vget_high_u8(found))) << 8
    }
}

/// Equivalent to sixteen relaxed loads: the parent module explains why one vector load in `asm!` is.
#[inline]
fn load(bytes: &[AtomicU8; 16]) -> uint8x16_t {
    let loaded: uint8x16_t;
    // SAFETY: reads the 16 bytes of `bytes`, which the reference keeps readable, and has no other effect.
    unsafe {
        asm!("ldr {:q}, [{}]", out(vreg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
    }
    loaded
}
