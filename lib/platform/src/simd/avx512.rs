//! AVX-512: 64 bytes at once. A mask keeps shorter rows from being read beyond their end.

use core::arch::asm;
use core::arch::x86_64::{__m512i, __mmask64, _mm512_mask_cmpeq_epi8_mask, _mm512_set1_epi8};

use crate::atomic::AtomicU8;

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    let row: __mmask64 = u64::MAX >> (64 - N);
    _mm512_mask_cmpeq_epi8_mask(row, load(bytes, row), _mm512_set1_epi8(byte.cast_signed()))
}

/// Equivalent to one relaxed load for every bit that is set in `row`; the other bytes are zero. See the parent module.
#[target_feature(enable = "avx512f,avx512bw")]
fn load<const N: usize>(bytes: &[AtomicU8; N], row: __mmask64) -> __m512i {
    let loaded: __m512i;
    // SAFETY: a masked load neither reads nor faults on bytes whose bit is 0. The others are the `N` bytes of `bytes`,
    // which the reference keeps readable.
    unsafe {
        asm!(
            "vmovdqu8 {loaded} {{{row}}} {{z}}, [{bytes}]",
            loaded = out(zmm_reg) loaded, row = in(kreg) row, bytes = in(reg) bytes,
            options(readonly, nostack, preserves_flags)
        );
    }
    loaded
}
