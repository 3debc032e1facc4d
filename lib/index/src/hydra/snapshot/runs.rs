//! Search in immutable runs of sorted, distinct words. The search layer asks: how many anchors (the lowest keys of
//! pages) are at most this key?
//!
//! A [`Run`] is a part of an array that all runs share. Each run has a kind, which suits the distribution of its words:
//!
//! - *Short*, if the run has up to 16 words: a search compares the key with all words.
//! - *Radix*, if at most 1 % of the words are in crowded buckets (of more than 16 words): `(key - first) >> shift` is
//!   the index of the key's bucket in a table of positions of the run. A search compares the key with the few words of
//!   this bucket.
//! - *Tree*, otherwise: a static search tree (S+tree), in which every level contains each eighth word of the level
//!   below. So a node is one cache line of eight words, and a child's number is a count.
//!
//! The paper's search layer is an adaptive radix tree that is updated in place. The search layer here is never updated:
//! a sequential merge builds it anew. It needs no locks, no versions and no pointers, and a search reads few cache
//! lines.

use super::words::{Count, LINE, SHORT, Words};
use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
use archipelago_platform::touch;

/// The intended number of words per bucket. The table has between `len / (2 * PER_BUCKET)` and `len / PER_BUCKET`
/// buckets.
const PER_BUCKET: usize = 2;

/// The number of words above which a bucket is crowded.
const CROWDED: usize = SHORT;

/// A radix table is used if at most one word in this many is in a crowded bucket.
const CROWDED_SHARE: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Short,
    Radix,
    Tree,
}

/// A sorted part of [`Runs`], and the data for searching it.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The least word.
    first: i64,
    /// The position of the least word.
    start: u32,
    /// The number of words.
    len: u32,
    /// Radix: the start of the table. Tree: the line at which the top level starts.
    aux: u32,
    /// Radix: the number of buckets.
    buckets: u32,
    /// Radix: the number of bits that are dropped. Tree: the number of levels above the words.
    shift: u8,
    kind: RunKind,
}

impl Run {
    /// Returns the positions of the run's words.
    #[inline(always)]
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }

    /// Returns the number of words in level `level` of the tree, where level 0 is the words themselves. From level 1 on
    /// it is also the number of lines of the level below.
    #[inline(always)]
    fn level(&self, level: u32) -> usize {
        (self.len as usize + (1 << (3 * level)) - 1) >> (3 * level)
    }

    /// Returns the bounds of the result if the last word of level 1 that is at most the key is word `child`.
    #[inline(always)]
    fn leaf(&self, child: usize) -> Near {
        let low = (child * LINE) as u32;
        Near { low, high: self.len.min(low + LINE as u32) }
    }

    /// Returns the lines at which the levels below the top level start, from top to bottom.
    #[inline(always)]
    fn inner_levels(&self) -> impl Iterator<Item = usize> {
        let mut line = self.aux as usize;
        (1..u32::from(self.shift)).rev().map(move |level| {
            line += self.level(level + 2);
            line
        })
    }
}

/// Bounds of the result of a search in a run: the count is at least `low` and at most `high`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Near {
    low: u32,
    high: u32,
}

impl Near {
    /// Returns the least possible count.
    #[inline(always)]
    pub fn low(self) -> usize {
        self.low as usize
    }
}

/// Runs and their search structures. They are in three arrays, whatever the number of runs.
#[derive(Default)]
pub struct Runs {
    words: Words,
    levels: Words,
    table: Array<u32>,
}

impl Runs {
    /// Makes an empty object, which will allocate its memory preferably on `node`.
    pub fn on(node: Option<NodeId>) -> Self {
        Self { words: Words::on(node), levels: Words::on(node), table: Array::on(node) }
    }

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.words.bytes() + self.levels.bytes() + self.table.bytes()
    }

    /// Makes an empty object with a little more room than `like` uses.
    pub fn successor_of(like: &Self) -> Self {
        Self {
            words: Words::successor_of(&like.words),
            levels: Words::successor_of(&like.levels),
            table: Array::successor_of(&like.table),
        }
    }

    /// Starts a run that will have `len` words. Returns the position of the first one.
    pub fn start(&mut self, len: usize) -> usize {
        if len > SHORT {
            self.words.align();
        }
        self.words.len()
    }

    /// Appends the next word of the run. Words must be ascending.
    #[inline(always)]
    pub fn push(&mut self, word: i64) {
        self.words.push(word);
    }

    /// Ends the run that started at `start`.
    ///
    /// # Panics
    /// If the run is empty, or there are 2^32 words or more in all.
    pub fn finish(&mut self, start: usize) -> Run {
        let end = self.words.len();
        assert!(start < end && u32::try_from(end).is_ok(), "a run has words, and a snapshot at most 2^32 of them");
        let mut run = Run {
            first: self.word(start),
            start: start as u32,
            len: (end - start) as u32,
            aux: 0,
            buckets: 0,
            shift: 0,
            kind: RunKind::Short,
        };
        if end - start > SHORT {
            self.words.align();
            if !self.build_table(&mut run) {
                self.build_tree(&mut run);
            }
        }
        run
    }

    /// Must be called after the last run and before the first search.
    pub fn seal(&mut self) {
        self.words.seal();
        self.levels.seal();
    }

    /// Returns the word at a position.
    #[inline(always)]
    pub fn word(&self, position: usize) -> i64 {
        self.words.as_slice()[position]
    }

    /// Tries to build the radix table. If too many words are in crowded buckets, returns false and leaves no trace.
    fn build_table(&mut self, run: &mut Run) -> bool {
        let words = &self.words.as_slice()[run.range()];
        let bucket_of = |word: i64, shift: u8| (word as u64).wrapping_sub(run.first as u64) >> shift;
        let last = words[words.len() - 1];
        let most = (words.len() / PER_BUCKET) as u64;
        let mut shift = (64 - (bucket_of(last, 0) / most).leading_zeros()) as u8;
        if bucket_of(last, shift) >= most {
            shift += 1;
        }
        let buckets = bucket_of(last, shift) as usize + 1;
        let aux = self.table.len();
        // The end of each bucket that has words is stored in the next bucket's cell. Then the cells of empty buckets
        // are filled.
        self.table.extend_with(0, buckets + 1);
        let table = &mut self.table[aux..];
        for (position, &word) in words.iter().enumerate() {
            table[bucket_of(word, shift) as usize + 1] = position as u32 + 1;
        }
        let (mut filled, mut crowded) = (0, 0);
        for cell in table {
            let size = cell.saturating_sub(filled);
            crowded += if size > CROWDED as u32 { size as usize } else { 0 };
            filled = filled.max(*cell);
            *cell = filled;
        }
        if crowded * CROWDED_SHARE > words.len() {
            self.table.truncate(aux);
            return false;
        }
        (run.aux, run.buckets, run.shift, run.kind) = (aux as u32, buckets as u32, shift, RunKind::Radix);
        true
    }

    /// Builds the levels above the words, the top one (at most [`SHORT`] words) first.
    fn build_tree(&mut self, run: &mut Run) {
        let mut height = 1;
        while run.level(height) > SHORT {
            height += 1;
        }
        run.aux = (self.levels.len() / LINE) as u32;
        (run.shift, run.kind) = (height as u8, RunKind::Tree);
        let words = &self.words.as_slice()[run.range()];
        for level in (1..=height).rev() {
            for &word in words.iter().step_by(1 << (3 * level)) {
                self.levels.push(word);
            }
            self.levels.align();
        }
    }

    /// The first half of a search. It reads the table or the levels, but no words of the run. It returns bounds of the
    /// count, which select a few words. The caller can prefetch data that belongs to these words before [`Self::land`].
    ///
    /// # Safety
    /// `run` must have been made by this object, which must be sealed, and the processor must have the features that
    /// `C` needs.
    #[inline(always)]
    pub unsafe fn approach<C: Count>(&self, run: &Run, key: i64) -> Near {
        if key < run.first {
            return Near { low: 0, high: 0 };
        }
        // SAFETY: the caller guarantees the same contract, and `key >= run.first`.
        unsafe {
            match run.kind {
                RunKind::Short => Near { low: 0, high: run.len },
                RunKind::Radix => self.bucket(run, key),
                // This is the only key that is not less than the padding.
                RunKind::Tree if key == i64::MAX => Near { low: run.len, high: run.len },
                RunKind::Tree => {
                    let mut child = self.tree_top::<C>(run, key);
                    for level in run.inner_levels() {
                        child = self.tree_step::<C>(level, child, key);
                    }
                    run.leaf(child)
                }
            }
        }
    }

    /// The second half of a search. Returns the number of words of `run` that are `<= key`.
    ///
    /// # Safety
    /// The contract of [`Self::approach`] must hold, and `near` must be its result.
    #[inline(always)]
    pub unsafe fn land<C: Count>(&self, run: &Run, near: Near, key: i64) -> usize {
        let (low, len) = (near.low as usize, (near.high - near.low) as usize);
        let start = run.start as usize + low;
        if len > CROWDED {
            return low + self.count_crowd(start..start + len, key);
        }
        touch(self.words.as_slice().as_ptr().wrapping_add(start), len * size_of::<i64>());
        // SAFETY: `low` is at most the run's length, so the start is within the sealed words; the caller guarantees the
        // features for `C`.
        low + unsafe { C::short(self.words.at(start), len, key) }
    }

    #[cold]
    fn count_crowd(&self, crowd: core::ops::Range<usize>, key: i64) -> usize {
        self.words.as_slice()[crowd].partition_point(|&word| word <= key)
    }

    /// Returns the bounds of a key's bucket in a radix run.
    ///
    /// # Safety
    /// The contract of [`Self::approach`] must hold, and `key >= run.first`.
    #[inline(always)]
    unsafe fn bucket(&self, run: &Run, key: i64) -> Near {
        let bucket = (key as u64).wrapping_sub(run.first as u64) >> run.shift;
        let cell = run.aux as usize + bucket.min(u64::from(run.buckets) - 1) as usize;
        debug_assert!(cell + 1 < self.table.len());
        touch(self.table.as_ptr().wrapping_add(cell), 2 * size_of::<u32>());
        // SAFETY: the table has `buckets + 1` cells from `aux` on.
        unsafe { Near { low: *self.table.get_unchecked(cell), high: *self.table.get_unchecked(cell + 1) } }
    }

    /// Returns the index of the last word of a tree run's top level that is `<= key`. It leads to the line of that
    /// number one level below, whose first word is the same word.
    ///
    /// # Safety
    /// The contract of [`Self::approach`] must hold, and `run.first <= key < i64::MAX`.
    #[inline(always)]
    unsafe fn tree_top<C: Count>(&self, run: &Run, key: i64) -> usize {
        let words = run.level(u32::from(run.shift));
        // SAFETY: the top level has at most `SHORT` words, and levels are sealed.
        unsafe { C::short(self.levels.at(run.aux as usize * LINE), words, key) - 1 }
    }

    /// Does the work of [`Self::tree_top`] one level further down, in the level that starts at line `level`.
    ///
    /// # Safety
    /// The contract of [`Self::tree_top`] must hold; `child` must be the result for the level above.
    #[inline(always)]
    unsafe fn tree_step<C: Count>(&self, level: usize, child: usize, key: i64) -> usize {
        touch(self.levels.as_slice().as_ptr().wrapping_add((level + child) * LINE), LINE * size_of::<i64>());
        // SAFETY: each level has a line for each word of the level above. The line's first word is `<= key`.
        child * LINE + unsafe { C::line(self.levels.at((level + child) * LINE), key) } - 1
    }

    /// Returns whether the run has a radix table.
    #[cfg(test)]
    pub fn is_radix(run: &Run) -> bool {
        run.kind == RunKind::Radix
    }
}
