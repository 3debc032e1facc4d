//! AVX2: 32 bytes at a time, and 16 for the rest.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_movemask_epi8,
    _mm256_set1_epi8,
};

use crate::atomic::AtomicU8;

#[target_feature(enable = "avx2")]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<32>();
    let wanted = _mm256_set1_epi8(byte.cast_signed());
    let matches = |bytes: __m256i| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, wanted)) as u32);
    let mask = chunks.iter().enumerate().fold(0, |mask, (at, chunk)| mask | matches(load_32(chunk)) << (32 * at));
    let Some(half) = rest.first_chunk::<16>() else { return mask };
    let wanted = _mm_set1_epi8(byte.cast_signed());
    let matches = u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(load_16(half), wanted)) as u16);
    mask | matches << (N - 16)
}

/// Equivalent to thirty-two relaxed loads: see the parent module.
#[target_feature(enable = "avx2")]
fn load_32(bytes: &[AtomicU8; 32]) -> __m256i {
    let loaded: __m256i;
    // SAFETY: reads the 32 bytes of `bytes`, which the reference keeps readable, and has no other effect.
    unsafe {
        asm!("vmovdqu {}, [{}]", out(ymm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
    }
    loaded
}

/// Equivalent to sixteen relaxed loads, in the encoding that suits the surrounding AVX code.
#[target_feature(enable = "avx2")]
fn load_16(bytes: &[AtomicU8; 16]) -> __m128i {
    let loaded: __m128i;
    // SAFETY: reads the 16 bytes of `bytes`, which the reference keeps readable, and has no other effect.
    unsafe {
        asm!("vmovdqu {}, [{}]", out(xmm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
    }
    loaded
}
