//! Cache-line arrays of 64-bit words, and the one question asked of them: how many of these sorted words are at most
//! the key?
//!
//! Words are kept *sign-flipped* (`w ^ 2^63`, as `i64`), because AVX2 compares only signed lanes: the flip is paid once
//! per look-up, not once per word. There are two counters, chosen once per process ([`Counter`]): four-lane
//! AVX2, and a branch-free scalar loop for everything else.

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
    lines: Vec<Line>,
    len: usize,
}

impl Words {
    /// Words pushed so far, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    /// Forgets the words, keeps the memory.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.len = 0;
    }

    /// Makes room for `words` more.
    pub fn reserve(&mut self, words: usize) {
        self.lines.reserve(words / LINE + 4);
    }

    #[inline]
    pub fn push(&mut self, word: i64) {
        if self.len % LINE == 0 {
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
        let len = self.lines.len();
        self.lines.resize(len + SHORT / LINE, EMPTY);
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
    /// `index < self.len()`, and the array is sealed if anybody reads past `len`.
    #[inline(always)]
    pub unsafe fn at(&self, index: usize) -> *const i64 {
        debug_assert!(index + SHORT <= self.lines.len() * LINE);
        // SAFETY: in bounds by the caller's contract.
        unsafe { self.lines.as_ptr().cast::<i64>().add(index) }
    }
}

/// A way to count. The functions are `inline(always)` so that they compile with their caller's target features.
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
impl Count for Avx2 {
    #[inline(always)]
    unsafe fn line(line: *const i64, key: i64) -> usize {
        use core::arch::x86_64::*;
        // SAFETY: eight words are readable and AVX2 is there by the caller's contract.
        unsafe {
            let key = _mm256_set1_epi64x(key);
            let low = _mm256_cmpgt_epi64(_mm256_loadu_si256(line.cast()), key);
            let high = _mm256_cmpgt_epi64(_mm256_loadu_si256(line.add(4).cast()), key);
            let greater = _mm256_movemask_pd(_mm256_castsi256_pd(low)) as u32
                | (_mm256_movemask_pd(_mm256_castsi256_pd(high)) as u32) << 4;
            (greater | 1 << LINE).trailing_zeros() as usize
        }
    }

    #[inline(always)]
    unsafe fn short(words: *const i64, len: usize, key: i64) -> usize {
        // SAFETY: passed on from the caller; `SHORT` is two lines. The first greater word of a line is found even when
        // words past `len` are out of order, and a count that ran into them is cut to `len`.
        let mut count = unsafe { Self::line(words, key) };
        if count == LINE && len > LINE {
            // SAFETY: as above.
            count += unsafe { Self::line(words.add(LINE), key) };
        }
        count.min(len)
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
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi1") {
            return Self::Avx2;
        }
        Self::Scalar
    }
}
