//! SSE2, x86-64's baseline: 16 bytes at a time. Can be inlined into any caller.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};

use crate::atomic::AtomicU8;
#[cfg(not(archipelago_sim))]
use crate::atomic::{AtomicU64, Ordering};

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

/// Searches a row of up to sixteen words in memory.
#[cfg(not(archipelago_sim))]
#[inline(always)]
pub(super) fn match_row(words: &[AtomicU64], byte: u8) -> u128 {
    let wanted = splat(byte);
    let (pairs, last) = words.as_chunks::<2>();
    let half = |pairs: &[[AtomicU64; 2]]| {
        // SAFETY: the reference keeps both words readable.
        let loaded = |pair: &[AtomicU64; 2]| unsafe { load_at(pair.as_ptr().cast()) };
        pairs.iter().enumerate().fold(0, |mask, (at, pair)| mask | matches(loaded(pair), wanted) << (16 * at))
    };
    let (low, high) = pairs.split_at(pairs.len().min(4));
    let pairs = u128::from(half(low)) | u128::from(half(high)) << 64;
    last.iter().fold(pairs, |mask, word| {
        // SAFETY: SSE2 is part of x86-64.
        let word = unsafe { _mm_set_epi64x(0, word.load(Ordering::Relaxed).cast_signed()) };
        mask | u128::from(matches(word, wanted) & 0xff) << (8 * (words.len() - 1))
    })
}

/// Equivalent to sixteen relaxed loads: the parent module explains why one vector load in `asm!` is.
#[inline]
pub(super) fn load(bytes: &[AtomicU8; 16]) -> __m128i {
    // SAFETY: the reference keeps the bytes readable.
    unsafe { load_at(bytes.as_ptr().cast()) }
}

/// # Safety
/// Sixteen bytes must be readable at `bytes`, and all of them must be atomics.
#[inline]
unsafe fn load_at(bytes: *const u8) -> __m128i {
    let loaded: __m128i;
    // The block is not `pure`: two searches must not be merged into one.
    // SAFETY: reads 16 bytes, which the caller guarantees to be readable, and has no other effect.
    unsafe {
        // If the surrounding code uses AVX, the old encoding would cost a state transition.
        #[cfg(target_feature = "avx")]
        asm!("vmovdqu {}, [{}]", out(xmm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
        #[cfg(not(target_feature = "avx"))]
        asm!("movdqu {}, [{}]", out(xmm_reg) loaded, in(reg) bytes, options(readonly, nostack, preserves_flags));
    }
    loaded
}
