//! SSE2, x86-64's baseline: 16 bytes at a time. Can be inlined into any caller.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};

use crate::atomic::AtomicU8;

#[inline]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let wanted = splat(byte);
    let (chunks, _) = bytes.as_chunks::<16>();
    chunks.iter().enumerate().fold(0, |mask, (at, chunk)| mask | matches(load(chunk), wanted) << (16 * at))
}

#[inline]
fn splat(byte: u8) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set1_epi8(byte.cast_signed()) }
}

#[inline]
fn matches(bytes: __m128i, wanted: __m128i) -> u64 {
    // SAFETY: SSE2 is part of x86-64.
    u64::from(unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) } as u16)
}

/// Searches words that were loaded before, two at a time.
#[inline]
pub(super) fn match_words(words: [u64; 8], byte: u8) -> u64 {
    let wanted = splat(byte);
    let (pairs, _) = words.as_chunks::<2>();
    // SAFETY: SSE2 is part of x86-64.
    let pair = |&[low, high]: &[u64; 2]| unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) };
    pairs.iter().enumerate().fold(0, |mask, (at, words)| mask | matches(pair(words), wanted) << (16 * at))
}

/// Equivalent to sixteen relaxed loads: the parent module explains why one vector load in `asm!` is.
#[inline]
pub(super) fn load(bytes: &[AtomicU8; 16]) -> __m128i {
    let loaded: __m128i;
    // The block is not `pure`: two searches must not be merged into one.
    // SAFETY: reads the 16 bytes of `bytes`, which the reference keeps readable, and has no other effect.
    unsafe {
        // If the surrounding code uses AVX, the old encoding would cost a state transition.
        #[cfg(target_feature = "avx")]
        asm!("vmovdqu {}, [{}]", out(xmm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
        #[cfg(not(target_feature = "avx"))]
        asm!("movdqu {}, [{}]", out(xmm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
    }
    loaded
}
