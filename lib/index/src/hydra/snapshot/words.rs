//! Cache-line arrays of sorted 64-bit words, and the counting of the words that are at most the key.
//!
//! Words are stored *sign-flipped* (`w ^ 2^63`, as `i64`), because AVX2 compares only signed lanes. So the flip is done
//! once per look-up, and not once per word. There are two counters, one of which is chosen when a snapshot is built
//! ([`Counter`]): AVX2 with four lanes, and a branch-free scalar loop for all other processors.

use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

/// The number of words per cache line.
pub const LINE: usize = 8;

/// Up to this many words, a search compares all of them.
pub const SHORT: usize = 2 * LINE;

/// Maps unsigned words to signed ones, in the same order.
#[inline(always)]
pub fn flip(word: u64) -> i64 {
    (word ^ (1 << 63)) as i64
}

/// Inverts [`flip`].
#[inline(always)]
pub fn unflip(word: i64) -> u64 {
    word as u64 ^ (1 << 63)
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([i64; LINE]);

const EMPTY: Line = Line([i64::MAX; LINE]);

/// A growable array of flipped words. It starts at a cache line. Once it is sealed, [`SHORT`] readable words follow it.
#[derive(Default)]
pub struct Words {
    lines: Array<Line>,
    len: usize,
}

impl Words {
    /// Makes an empty array, which will allocate its memory preferably on `node`.
    pub fn on(node: Option<NodeId>) -> Self {
        Self { lines: Array::on(node), len: 0 }
    }

    /// Returns the number of words pushed so far, including padding.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    /// Makes an empty array with a little more room than `like` uses.
    pub fn successor_of(like: &Self) -> Self {
        Self { lines: Array::successor_of(&like.lines), len: 0 }
    }

    #[inline]
    pub fn push(&mut self, word: i64) {
        if self.len.is_multiple_of(LINE) {
            self.lines.push(EMPTY);
        }
        self.lines[self.len / LINE].0[self.len % LINE] = word;
        self.len += 1;
    }

    /// Pads the array to a whole number of lines with the greatest word.
    pub fn align(&mut self) {
        self.len = self.lines.len() * LINE;
    }

    /// Must be called after the last push and before the first [`Self::at`]. It makes sure that reads of [`SHORT`]
    /// words from any position stay inside the array.
    pub fn seal(&mut self) {
        self.align();
        self.lines.extend_with(EMPTY, SHORT / LINE);
    }

    /// Returns all words, including padding.
    #[inline(always)]
    pub fn as_slice(&self) -> &[i64] {
        // SAFETY: a `Line` is `LINE` words without padding (repr(C)), so `lines` is that many initialised words.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * LINE) }
    }

    /// Returns a pointer to the word at `index` and the words behind it.
    ///
    /// # Safety
    /// `index < self.len()` must hold. If the caller reads beyond `len`, the array must be sealed.
    #[inline(always)]
    pub unsafe fn at(&self, index: usize) -> *const i64 {
        debug_assert!(index + SHORT <= self.lines.len() * LINE);
        // SAFETY: in bounds by the caller's contract.
        unsafe { self.lines.as_ptr().cast::<i64>().add(index) }
    }
}

/// A method of counting. Its functions are `inline(always)`, and so is all code between them and the functions that
/// enable target features. Otherwise every single instruction would be a function call. (For the same reason this code
/// has plain loops instead of closures.)
pub trait Count: Copy {
    /// Returns how many of the eight ascending words at `line` are `<= key`.
    ///
    /// # Safety
    /// Eight words must be readable at `line`, and the processor must have the features that the counter needs.
    unsafe fn line(line: *const i64, key: i64) -> usize;

    /// Returns how many of the `len <= SHORT` ascending words at `words` are `<= key`. The words behind them may have
    /// any value.
    ///
    /// # Safety
    /// [`SHORT`] words must be readable at `words`, and the processor must have the features that the counter needs.
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize;
}

/// Compares one word at a time, without branches.
#[derive(Clone, Copy)]
pub enum Scalar {}

impl Count for Scalar {
    #[inline(always)]
    unsafe fn line(line: *const i64, key: i64) -> usize {
        // SAFETY: eight words are readable by the caller's contract.
        let words = unsafe { &*line.cast::<[i64; LINE]>() };
        words.iter().map(|&word| usize::from(word <= key)).sum()
    }

    #[inline(always)]
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize {
        // SAFETY: `len <= SHORT` words are readable by the caller's contract.
        let words = unsafe { core::slice::from_raw_parts(words, len) };
        words.iter().map(|&word| usize::from(word <= key)).sum()
    }
}

/// Compares four words at a time.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub enum Avx2 {}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Returns a mask that tells for each of four words whether it is greater than the key.
    ///
    /// # Safety
    /// Four words must be readable at `words`, and the processor must have AVX2.
    #[inline(always)]
    unsafe fn greater(words: *const i64, key: i64) -> __m256i {
        // SAFETY: the caller guarantees the contract.
        unsafe { _mm256_cmpgt_epi64(_mm256_loadu_si256(words.cast()), _mm256_set1_epi64x(key)) }
    }

    /// Returns the mask of [`Self::greater`] as four bits.
    ///
    /// # Safety
    /// The contract of [`Self::greater`] must hold.
    #[inline(always)]
    unsafe fn bits(words: *const i64, key: i64) -> u32 {
        // SAFETY: the caller guarantees the contract.
        unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(Self::greater(words, key))) as u32 }
    }
}

#[cfg(target_arch = "x86_64")]
impl Count for Avx2 {
    #[inline(always)]
    unsafe fn line(line: *const i64, key: i64) -> usize {
        // SAFETY: by the caller's contract eight words are readable and the processor has AVX2.
        let greater = unsafe {
            let greater = _mm256_packs_epi32(Self::greater(line, key), Self::greater(line.add(4), key));
            _mm256_movemask_ps(_mm256_castsi256_ps(greater)) as u32
        };
        LINE - greater.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize {
        // Words behind `len` may have any order. So the count is the position of the first greater word, and not the
        // number of greater words. SAFETY: by the caller's contract `SHORT` words are readable and the processor has
        // AVX2.
        let mut greater = unsafe { Self::bits(words, key) | Self::bits(words.add(4), key) << 4 } | 1 << SHORT;
        if len > LINE {
            // SAFETY: as above.
            greater |= unsafe { Self::bits(words.add(8), key) << 8 | Self::bits(words.add(12), key) << 12 };
        }
        (greater.trailing_zeros() as usize).min(len)
    }
}

/// The counter that this machine uses. It is determined when a snapshot is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Counter {
    /// Returns the fastest counter of this machine.
    pub fn detect() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("popcnt")
        {
            return Self::Avx2;
        }
        Self::Scalar
    }
}
