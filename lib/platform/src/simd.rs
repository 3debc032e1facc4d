//! Finds the bytes of a row that equal a given byte, while other threads may be writing the row.
//!
//! Fingerprint rows and the key bytes of trie nodes are searched in this way. The bytes are atomics, so a reader may
//! race with a writer. The result is as if every byte had been loaded once, relaxed, in some order. Before the caller
//! relies on the result, it validates the version of the object to which the bytes belong (see [`racy`](crate::racy)).
//!
//! There is one file per instruction set. The files with vectors load through `asm!`, for correctness: a plain vector
//! load of racing bytes would be undefined behaviour, and Rust has no atomic load of a vector. An `asm!` block may do
//! whatever some Rust code could do. These loads do what relaxed loads of every byte do. x86-64 and AArch64 never tear
//! a single byte, so each byte's value is one that was stored in it. The order among the bytes is not specified, as
//! among relaxed loads.
//!
//! On other targets, and under Miri and loom, which cannot analyze `asm!`, [`Level::Scalar`] loads byte by byte. It
//! does not load eight bytes at once: racing accesses of different sizes to the same memory are undefined behaviour,
//! even if both are atomic.
//!
//! [`match_bytes`] uses the level that is known at compile time. Choosing a wider level at run time does not pay: a
//! function with `#[target_feature]` is not inlined into its caller, and the call costs as much as the wider registers
//! save. The table shows ns per search, each depending on the last, on one core of an AMD EPYC (Zen 3). `cargo bench -p
//! archipelago-benches --bench simd` measures it:
//!
//! | row | SSE2, inlined | AVX2, called | scalar |
//! |---|---|---|---|
//! | 16 bytes | 4.7 | 4.8 | 8.7 |
//! | 48 bytes | 6.6 | 6.6 | 21.0 |
//! | 64 bytes | 6.7 | 6.5 | 33.9 |

use crate::atomic::{AtomicU8, AtomicU64};

#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod avx512;
#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
mod neon;
mod scalar;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod sse2;

/// An instruction set for searching, which the processor may or may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Byte by byte, on any processor.
    Scalar,
    /// x86-64's baseline: 16 bytes at a time.
    Sse2,
    /// x86-64: 32 bytes at a time.
    Avx2,
    /// x86-64: 64 bytes at a time, with a mask for shorter rows (AVX-512BW).
    Avx512,
    /// AArch64's baseline: 16 bytes at a time.
    Neon,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 5] = [Level::Scalar, Level::Sse2, Level::Avx2, Level::Avx512, Level::Neon];

    /// Returns whether this machine, and this build, can use the level. The processor is queried once.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
            Level::Sse2 => true,
            #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
            Level::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
            Level::Avx512 => is_x86_feature_detected!("avx512bw"),
            #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
            Level::Neon => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

/// Refuses, at compile time, lengths that do not fit the 64 bits of the result or the steps of 16 bytes.
const fn check_length(n: usize) {
    assert!(n > 0 && n <= 64 && n.is_multiple_of(16), "N must be 16, 32, 48 or 64");
}

/// Returns a mask: bit `i` is set if and only if `bytes[i]` equals `byte`. Every byte is loaded once, relaxed.
///
/// `N` must be 16, 32, 48 or 64; other values do not compile.
///
/// ```
/// use archipelago::platform::{atomic::AtomicU8, simd::match_bytes};
/// let row: [AtomicU8; 16] = core::array::from_fn(|at| AtomicU8::new(at as u8 / 4));
/// assert_eq!(match_bytes(&row, 2), 0x0f00);
/// ```
#[inline]
pub fn match_bytes<const N: usize>(bytes: &[AtomicU8; N], byte: u8) -> u64 {
    const { check_length(N) }
    crate::touch(bytes, N);
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return sse2::match_bytes(bytes, byte);
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
    return neon::match_bytes(bytes, byte);
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    return scalar::match_bytes(bytes, byte);
}

/// Returns a mask: bit `i` is set if and only if byte `i` of the words equals `byte`, with the lowest byte of a word
/// first. This is for rows that must be loaded word by word.
///
/// ```
/// use archipelago::platform::simd::match_words;
/// assert_eq!(match_words([0x0007_0000_0000_0700, !0, 0, 0, 0, 0, 0, 7], 7), 1 << 56 | 0b0100_0010);
/// ```
#[inline]
pub fn match_words(words: [u64; 8], byte: u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return sse2::match_words(words, byte);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    return scalar::match_words(words, byte);
}

/// Returns the mask that [`match_words`] returns, for a row of up to sixteen words in memory. On x86-64 the row is
/// loaded sixteen bytes at a time, which takes fewer instructions than loads of the words.
///
/// A vector load does what eight relaxed loads of each word would do, if each contributed one byte. The simulator
/// (whose model counts accesses) and the other targets load each word once, relaxed.
///
/// ```
/// use archipelago::platform::{atomic::AtomicU64, simd::match_row};
/// let row = [0x0007_0000_0000_0700, !0, 7].map(AtomicU64::new);
/// assert_eq!(match_row(&row, 7), 1 << 16 | 0b0100_0010);
/// ```
#[inline(always)]
pub fn match_row(words: &[AtomicU64], byte: u8) -> u128 {
    debug_assert!(words.len() <= 16, "a row has at most 128 bytes");
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim))))]
    return sse2::match_row(words, byte);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim)))))]
    {
        let half = |from: usize| {
            let word =
                |at| words.get(from + at).map_or(0, |word: &AtomicU64| word.load(crate::atomic::Ordering::Relaxed));
            u128::from(match_words(core::array::from_fn(word), byte))
        };
        let beyond = if words.len() == 16 { 0 } else { u128::MAX << (8 * words.len()) };
        (half(0) | half(8) << 64) & !beyond
    }
}

/// Works as [`match_bytes`] does, at the level that the caller chooses.
///
/// # Panics
/// If the level is not available.
#[inline]
pub fn match_bytes_with<const N: usize>(level: Level, bytes: &[AtomicU8; N], byte: u8) -> u64 {
    const { check_length(N) }
    assert!(level.is_available(), "this machine has no {level:?}");
    match level {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        Level::Sse2 => sse2::match_bytes(bytes, byte),
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // SAFETY: the processor has AVX2, as asserted above.
        Level::Avx2 => unsafe { avx2::match_bytes(bytes, byte) },
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // SAFETY: the processor has AVX-512BW (and so AVX-512F), as asserted above.
        Level::Avx512 => unsafe { avx512::match_bytes(bytes, byte) },
        #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
        Level::Neon => neon::match_bytes(bytes, byte),
        _ => scalar::match_bytes(bytes, byte),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agree<const N: usize>(plain: &[u8], byte: u8) {
        let bytes: [AtomicU8; N] = core::array::from_fn(|at| AtomicU8::new(plain[at]));
        let expected = (0..N).filter(|&at| plain[at] == byte).fold(0, |mask, at| mask | 1 << at);
        assert_eq!(match_bytes(&bytes, byte), expected);
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            assert_eq!(match_bytes_with(level, &bytes, byte), expected, "{level:?}, {N}");
        }
    }

    fn agree_for_all_lengths(plain: &[u8], byte: u8) {
        agree::<16>(plain, byte);
        agree::<32>(plain, byte);
        agree::<48>(plain, byte);
        agree::<64>(plain, byte);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 2000 },
            ..ProptestConfig::default() })]

        /// Few different bytes, so that many match; and all bytes, so that signs and equal low bits occur.
        #[test]
        fn levels_agree(few in prop::collection::vec(0u8..3, 64), any in prop::collection::vec(any::<u8>(), 64),
            byte in any::<u8>()) {
            agree_for_all_lengths(&few, byte % 3);
            agree_for_all_lengths(&any, byte);
            agree_for_all_lengths(&any, any[usize::from(byte) % 64]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 2000 },
            ..ProptestConfig::default() })]

        #[test]
        fn words_agree_with_bytes(few in prop::collection::vec(0u8..3, 64), any in prop::collection::vec(any::<u8>(), 64)) {
            for (plain, byte) in [(&few, 1), (&few, 0), (&any, any[7]), (&any, 0x80)] {
                let expected = (0..64).filter(|&at| plain[at] == byte).fold(0, |mask, at| mask | 1 << at);
                let words: [u64; 8] = core::array::from_fn(|at| u64::from_le_bytes(*plain[8 * at..].first_chunk().unwrap()));
                assert_eq!((match_words(words, byte), scalar::match_words(words, byte)), (expected, expected));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 500 },
            ..ProptestConfig::default() })]

        #[test]
        fn rows_agree_with_bytes(few in prop::collection::vec(0u8..3, 128),
            any in prop::collection::vec(any::<u8>(), 128)) {
            for (plain, byte) in [(&few, 1), (&few, 0), (&any, any[7]), (&any, 0x80)] {
                let word = |at: usize| AtomicU64::new(u64::from_le_bytes(*plain[8 * at..].first_chunk().unwrap()));
                let words: [AtomicU64; 16] = core::array::from_fn(word);
                for len in 1..=16 {
                    let same = |at: &usize| plain[*at] == byte;
                    let expected = (0..8 * len).filter(same).fold(0, |mask, at| mask | 1u128 << at);
                    assert_eq!(match_row(&words[..len], byte), expected, "{len} words");
                }
            }
        }
    }

    #[test]
    fn every_single_position() {
        for at in 0..64 {
            let mut plain = [0x80u8; 64];
            plain[at] = 0xff;
            agree_for_all_lengths(&plain, 0xff);
            agree_for_all_lengths(&plain, 0x80);
        }
    }

    /// A search reads no bytes outside its row, and any alignment is permitted.
    #[test]
    fn neighbours_do_not_count() {
        let bytes: [AtomicU8; 66] = core::array::from_fn(|_| AtomicU8::new(7));
        let inner: &[AtomicU8; 48] = bytes[1..49].try_into().unwrap();
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            assert_eq!(match_bytes_with(level, inner, 7), (1 << 48) - 1, "{level:?}");
        }
    }
}
