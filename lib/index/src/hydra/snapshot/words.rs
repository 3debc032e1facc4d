//! Cache-line arrays of 64-bit words, and the one question asked of them: how many of these sorted words are at most
//! the key?
//!
//! Words are kept *sign-flipped* (`w ^ 2^63`, as `i64`), because AVX2 compares only signed lanes: the flip is paid once
//! per look-up, not once per word. There are two counters, chosen once per process ([`Counter`]): four-lane
//! AVX2, and a branch-free scalar loop for everything else.

use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

/// Words per cache line.
pub const LINE: usize = 8;

/// Up to this many words are counted straight through.
pub const SHORT: usize = 2 * LINE;

/// The order-preserving map from unsigned words to signed ones; its own inverse up to the type.
#[inline(always)]
pub fn flip(word: u64) -> i64 {
    (word ^ (1 << 63)) as i64
}

/// The inverse of [`flip`].
#[inline(always)]
pub fn unflip(word: i64) -> u64 {
    word as u64 ^ (1 << 63)
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([i64; LINE]);

const EMPTY: Line = Line([i64::MAX; LINE]);

/// A growable array of flipped words that starts on a cache line and is followed by [`SHORT`] readable words once sealed.
#[derive(Default)]
pub struct Words {
    lines: Array<Line>,
    len: usize,
}

impl Words {
    /// An empty one without memory, whose memory is to prefer `node`.
    pub fn on(node: Option<NodeId>) -> Self {
        Self { lines: Array::on(node), len: 0 }
    }

    /// Words pushed so far, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    /// An empty one with a little more room than `like` takes.
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

    /// Pads to a whole number of lines with the greatest word.
    pub fn align(&mut self) {
        self.len = self.lines.len() * LINE;
    }

    /// To be called after the last push and before the first [`Self::at`]: makes reads of [`SHORT`] words from any
    /// position stay inside.
    pub fn seal(&mut self) {
        self.align();
        self.lines.extend_with(EMPTY, SHORT / LINE);
    }

    /// All words, padding included.
    #[inline(always)]
    pub fn as_slice(&self) -> &[i64] {
        // SAFETY: a `Line` is `LINE` words without padding (repr(C)), so `lines` is that many initialised words.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * LINE) }
    }

    /// The word at `index` and what follows it.
    ///
    /// # Safety
    /// `index < self.len()`, and the array is sealed if a thread reads past `len`.
    #[inline(always)]
    pub unsafe fn at(&self, index: usize) -> *const i64 {
        debug_assert!(index + SHORT <= self.lines.len() * LINE);
        // SAFETY: in bounds by the caller's contract.
        unsafe { self.lines.as_ptr().cast::<i64>().add(index) }
    }
}

/// A way to count. The functions are `inline(always)`, and so is everything between them and the functions that enable
/// target features: what is not inlined there would call every single instruction as a function. (For the same reason
/// there are plain loops on that way, no closures.)
pub trait Count: Copy {
    /// How many of the eight sorted words at `line` are `<= key`, given that they are ascending.
    ///
    /// # Safety
    /// Eight words are readable at `line`, and the processor has what the counter needs.
    unsafe fn line(line: *const i64, key: i64) -> usize;

    /// How many of the `len <= SHORT` ascending words at `words` are `<= key`. What follows them may be anything.
    ///
    /// # Safety
    /// [`SHORT`] words are readable at `words`, and the processor has what the counter needs.
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize;
}

/// One word at a time, without branches.
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

/// Four words at a time.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub enum Avx2 {}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// A bit for each of four words: is it greater?
    ///
    /// # Safety
    /// Four words are readable at `words`, and AVX2 is there.
    #[inline(always)]
    unsafe fn greater(words: *const i64, key: i64) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe { _mm256_cmpgt_epi64(_mm256_loadu_si256(words.cast()), _mm256_set1_epi64x(key)) }
    }

    /// [`Self::greater`] as four bits.
    ///
    /// # Safety
    /// As for [`Self::greater`].
    #[inline(always)]
    unsafe fn bits(words: *const i64, key: i64) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(Self::greater(words, key))) as u32 }
    }
}

#[cfg(target_arch = "x86_64")]
impl Count for Avx2 {
    #[inline(always)]
    unsafe fn line(line: *const i64, key: i64) -> usize {
        // SAFETY: eight words are readable and AVX2 is there by the caller's contract.
        let greater = unsafe {
            let greater = _mm256_packs_epi32(Self::greater(line, key), Self::greater(line.add(4), key));
            _mm256_movemask_ps(_mm256_castsi256_ps(greater)) as u32
        };
        LINE - greater.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize {
        // Words past `len` may be out of order, so it is the first greater word that tells, not the number of them.
        // SAFETY: `SHORT` words are readable and AVX2 is there by the caller's contract.
        let mut greater = unsafe { Self::bits(words, key) | Self::bits(words.add(4), key) << 4 } | 1 << SHORT;
        if len > LINE {
            // SAFETY: as above.
            greater |= unsafe { Self::bits(words.add(8), key) << 8 | Self::bits(words.add(12), key) << 12 };
        }
        (greater.trailing_zeros() as usize).min(len)
    }
}

/// Which counter this machine runs; looked up when a snapshot is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Counter {
    /// The fastest one here.
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
