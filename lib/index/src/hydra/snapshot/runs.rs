//! Search in immutable runs of sorted, distinct words: the "how many anchors are at most this key" of the search layer.
//!
//! A [`Run`] is a stretch of one shared array; each is searched in the way that suits its distribution:
//!
//! | kind | when | how |
//! |---|---|---|
//! | short | up to 16 words | counted through |
//! | radix | fewer than 1 % of the words sit in crowded buckets | `(key - first) >> shift` indexes a table of run positions; the few words of that bucket are counted through |
//! | tree | else | static search tree (S+tree): every level holds each eighth word of the level below, so a node is one cache line of eight words and a child's number is a count |
//!
//! HydraList's search layer is an adaptive radix tree that is updated in place. This one is never updated: it is built
//! anew by a sequential merge, needs no locks, no versions and no pointers, and answers in a few lines touched.

use super::words::{Count, LINE, SHORT, Words};
use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
use archipelago_platform::touch;

/// Words per bucket aimed at: the table has between `len / 2 PER_BUCKET` and `len / PER_BUCKET` buckets.
const PER_BUCKET: usize = 2;

/// A bucket with more words than this is crowded.
const CROWDED: usize = SHORT;

/// A radix table is taken when at most one word in this many sits in a crowded bucket.
const CROWDED_SHARE: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Short,
    Radix,
    Tree,
}

/// A sorted stretch of [`Runs`] and how to search it.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The least word.
    first: i64,
    /// Position of the least word.
    start: u32,
    /// Number of words.
    len: u32,
    /// Where the table starts, or the line where the tree's top level starts.
    aux: u32,
    /// Radix: number of buckets.
    buckets: u32,
    /// Radix: bits dropped. Tree: number of levels above the words.
    shift: u8,
    kind: RunKind,
}

impl Run {
    /// Positions of the run's words.
    #[inline(always)]
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }

    /// Words in level `level` of the tree, the words themselves being level 0; also the lines of the level below.
    #[inline(always)]
    fn level(&self, level: u32) -> usize {
        (self.len as usize + (1 << (3 * level)) - 1) >> (3 * level)
    }

    /// The words that word `child` of level 1 leads to.
    #[inline(always)]
    fn leaf(&self, child: usize) -> Near {
        let low = (child * LINE) as u32;
        Near { low, high: self.len.min(low + LINE as u32) }
    }

    /// The lines where the levels below the top one start, downwards.
    #[inline(always)]
    fn inner_levels(&self) -> impl Iterator<Item = usize> {
        let mut line = self.aux as usize;
        (1..u32::from(self.shift)).rev().map(move |level| {
            line += self.level(level + 2);
            line
        })
    }
}

/// Where in a run the answer lies: the count is at least `low` and at most `high`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Near {
    low: u32,
    high: u32,
}

impl Near {
    /// The least count possible.
    #[inline(always)]
    pub fn low(self) -> usize {
        self.low as usize
    }
}

/// Runs and their search structures, in three arrays whatever the number of runs.
#[derive(Default)]
pub struct Runs {
    words: Words,
    levels: Words,
    table: Array<u32>,
}

impl Runs {
    /// An object without memory, whose memory is to prefer `node`.
    pub fn on(node: Option<NodeId>) -> Self {
        Self { words: Words::on(node), levels: Words::on(node), table: Array::on(node) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.bytes() + self.levels.bytes() + self.table.bytes()
    }

    /// An empty object with a little more room than `like` takes.
    pub fn successor_of(like: &Self) -> Self {
        Self {
            words: Words::successor_of(&like.words),
            levels: Words::successor_of(&like.levels),
            table: Array::successor_of(&like.table),
        }
    }

    /// Starts a run that will have `len` words, and returns the position of the first one.
    pub fn start(&mut self, len: usize) -> usize {
        if len > SHORT {
            self.words.align();
        }
        self.words.len()
    }

    /// Adds the next word of the run. Words come in ascending order.
    #[inline(always)]
    pub fn push(&mut self, word: i64) {
        self.words.push(word);
    }

    /// Ends the run that started at `start`.
    ///
    /// # Panics
    /// If the run is empty, or there are 2^32 words.
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

    /// To be called after the last run and before the first search.
    pub fn seal(&mut self) {
        self.words.seal();
        self.levels.seal();
    }

    /// The word at a position.
    #[inline(always)]
    pub fn word(&self, position: usize) -> i64 {
        self.words.as_slice()[position]
    }

    /// Tries the radix table; leaves no trace if too many words are in crowded buckets.
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
        // First the end of each bucket that has words, in the next one's cell; then the cells of empty ones.
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

    /// The first half of a search, which touches table or levels but no words: a few words of which the last one
    /// `<= key` is one, or the one before them. What lies beside them can be fetched before [`Self::land`].
    ///
    /// # Safety
    /// `run` was made by this object, which is sealed, and the processor has what `C` needs.
    #[inline(always)]
    pub unsafe fn approach<C: Count>(&self, run: &Run, key: i64) -> Near {
        if key < run.first {
            return Near { low: 0, high: 0 };
        }
        // SAFETY: passed on from the caller, and `key >= run.first`.
        unsafe {
            match run.kind {
                RunKind::Short => Near { low: 0, high: run.len },
                RunKind::Radix => self.bucket(run, key),
                // The only key that padding does not exceed.
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

    /// The second half of a search: how many words of `run` are `<= key`.
    ///
    /// # Safety
    /// As for [`Self::approach`], from which `near` came.
    #[inline(always)]
    pub unsafe fn land<C: Count>(&self, run: &Run, near: Near, key: i64) -> usize {
        let (low, len) = (near.low as usize, (near.high - near.low) as usize);
        let start = run.start as usize + low;
        if len > CROWDED {
            return low + self.count_crowd(start..start + len, key);
        }
        touch(self.words.as_slice().as_ptr().wrapping_add(start), len * size_of::<i64>());
        // SAFETY: `low` is at most the run's length, so `start` is within the sealed words; `C` is the caller's.
        low + unsafe { C::short(self.words.at(start), len, key) }
    }

    #[cold]
    fn count_crowd(&self, crowd: core::ops::Range<usize>, key: i64) -> usize {
        self.words.as_slice()[crowd].partition_point(|&word| word <= key)
    }

    /// A key's bucket in its radix run.
    ///
    /// # Safety
    /// As for [`Self::approach`], for `key >= run.first`.
    #[inline(always)]
    unsafe fn bucket(&self, run: &Run, key: i64) -> Near {
        let bucket = (key as u64).wrapping_sub(run.first as u64) >> run.shift;
        let cell = run.aux as usize + bucket.min(u64::from(run.buckets) - 1) as usize;
        debug_assert!(cell + 1 < self.table.len());
        touch(self.table.as_ptr().wrapping_add(cell), 2 * size_of::<u32>());
        // SAFETY: the table has `buckets + 1` cells from `aux` on.
        unsafe { Near { low: *self.table.get_unchecked(cell), high: *self.table.get_unchecked(cell + 1) } }
    }

    /// Which word of a tree run's top level is the last one `<= key`. It leads to the line of that number, one level
    /// below, whose first word it is.
    ///
    /// # Safety
    /// As for [`Self::approach`], for `run.first <= key < i64::MAX`.
    #[inline(always)]
    unsafe fn tree_top<C: Count>(&self, run: &Run, key: i64) -> usize {
        let words = run.level(u32::from(run.shift));
        // SAFETY: the top level has at most `SHORT` words, and levels are sealed.
        unsafe { C::short(self.levels.at(run.aux as usize * LINE), words, key) - 1 }
    }

    /// The same one level further down, in the level that starts at line `level`.
    ///
    /// # Safety
    /// As for [`Self::tree_top`]; `child` came from the level above.
    #[inline(always)]
    unsafe fn tree_step<C: Count>(&self, level: usize, child: usize, key: i64) -> usize {
        touch(self.levels.as_slice().as_ptr().wrapping_add((level + child) * LINE), LINE * size_of::<i64>());
        // SAFETY: each level has a line for each word of the level above. The line's first word is `<= key`.
        child * LINE + unsafe { C::line(self.levels.at((level + child) * LINE), key) } - 1
    }

    /// Whether the run has a radix table.
    #[cfg(test)]
    pub fn is_radix(run: &Run) -> bool {
        run.kind == RunKind::Radix
    }
}
