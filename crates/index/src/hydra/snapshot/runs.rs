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

use super::words::{Count, LINE, SHORT, Words, unflip};

/// Words per bucket aimed at: the table has between `len / 2 PER_BUCKET` and `len / PER_BUCKET` buckets.
const PER_BUCKET: usize = 2;

/// A bucket with more words than this is crowded.
const CROWDED: usize = SHORT;

/// A radix table is taken when at most one word in this many sits in a crowded bucket.
const CROWDED_SHARE: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
    kind: Kind,
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
}

/// Runs and their search structures, in three arrays whatever the number of runs.
#[derive(Default)]
pub struct Runs {
    words: Words,
    levels: Words,
    table: Vec<u32>,
}

impl Runs {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.bytes() + self.levels.bytes() + self.table.capacity() * size_of::<u32>()
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
        self.levels.clear();
        self.table.clear();
    }

    /// Makes room for `words` more.
    pub fn reserve(&mut self, words: usize) {
        self.words.reserve(words);
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
            kind: Kind::Short,
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

    /// Number of positions, padding included.
    pub fn positions(&self) -> usize {
        self.words.len()
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
        self.table.resize(aux + buckets + 1, words.len() as u32);
        let table = &mut self.table[aux..];
        let (mut filled, mut crowded) = (0, 0);
        for (position, &word) in words.iter().enumerate() {
            let bucket = bucket_of(word, shift) as usize;
            if filled <= bucket {
                if filled > 0 {
                    crowded += over(position - table[filled - 1] as usize);
                }
                table[filled..=bucket].fill(position as u32);
                filled = bucket + 1;
            }
        }
        crowded += over(words.len() - table[buckets - 1] as usize);
        if crowded * CROWDED_SHARE > words.len() {
            self.table.truncate(aux);
            return false;
        }
        (run.aux, run.buckets, run.shift, run.kind) = (aux as u32, buckets as u32, shift, Kind::Radix);
        true
    }

    /// Builds the levels above the words, the top one (at most [`SHORT`] words) first.
    fn build_tree(&mut self, run: &mut Run) {
        let mut height = 1;
        while run.level(height) > SHORT {
            height += 1;
        }
        run.aux = (self.levels.len() / LINE) as u32;
        (run.shift, run.kind) = (height as u8, Kind::Tree);
        let words = &self.words.as_slice()[run.range()];
        for level in (1..=height).rev() {
            for &word in words.iter().step_by(1 << (3 * level)) {
                self.levels.push(word);
            }
            self.levels.align();
        }
    }

    /// How many words of `run` are `<= key`.
    ///
    /// # Safety
    /// `run` was made by this object, which is sealed, and the processor has what `C` needs.
    #[inline(always)]
    pub unsafe fn count<C: Count>(&self, run: &Run, key: i64) -> usize {
        if key < run.first {
            return 0;
        }
        // SAFETY: passed on from the caller. Positions below `start + len` are in `words`, which is sealed.
        unsafe {
            match run.kind {
                Kind::Short => C::short(self.words.at(run.start as usize), run.len as usize, key),
                Kind::Radix => self.count_radix::<C>(run, key),
                Kind::Tree => self.count_tree::<C>(run, key),
            }
        }
    }

    /// [`Self::count`] in a radix run, for `key >= run.first`.
    #[inline(always)]
    unsafe fn count_radix<C: Count>(&self, run: &Run, key: i64) -> usize {
        let bucket = (key as u64).wrapping_sub(run.first as u64) >> run.shift;
        let cell = run.aux as usize + bucket.min(u64::from(run.buckets) - 1) as usize;
        debug_assert!(cell + 1 < self.table.len());
        // SAFETY: the table has `buckets + 1` cells from `aux` on.
        let (low, high) =
            unsafe { (*self.table.get_unchecked(cell) as usize, *self.table.get_unchecked(cell + 1) as usize) };
        let start = run.start as usize + low;
        if high - low > CROWDED {
            let words = &self.words.as_slice()[start..run.start as usize + high];
            return low + words.partition_point(|&word| word <= key);
        }
        // SAFETY: the table's cells are at most `run.len`, so `start` is within the sealed words; `C` is the caller's.
        low + unsafe { C::short(self.words.at(start), high - low, key) }
    }

    /// [`Self::count`] in a tree run, for `key >= run.first`: every line that is counted begins with a word `<= key`.
    #[inline(always)]
    unsafe fn count_tree<C: Count>(&self, run: &Run, key: i64) -> usize {
        if key == i64::MAX {
            // The only key that padding does not exceed.
            return run.len as usize;
        }
        let height = u32::from(run.shift);
        let mut line = run.aux as usize;
        // SAFETY: the top level has at most `SHORT` words, and levels are sealed.
        let mut child = unsafe { C::short(self.levels.at(line * LINE), run.level(height), key) } - 1;
        line += run.level(height + 1);
        for level in (1..height).rev() {
            // SAFETY: `child` is a word of the level above, and this level has a line for each of those.
            child = child * LINE + unsafe { C::line(self.levels.at((line + child) * LINE), key) } - 1;
            line += run.level(level + 1);
        }
        // SAFETY: `child` is a word of level 1, and the words have a line for each of those.
        let count = unsafe { C::line(self.words.at(run.start as usize + child * LINE), key) };
        child * LINE + count
    }

    /// Whether the run has a radix table.
    #[cfg(test)]
    pub fn is_radix(run: &Run) -> bool {
        run.kind == Kind::Radix
    }

    /// The words of a run, in their own order.
    pub fn iter(&self, run: &Run) -> impl Iterator<Item = u64> {
        self.words.as_slice()[run.range()].iter().map(|&word| unflip(word))
    }
}

/// The words that a bucket of this size adds to the crowd.
fn over(bucket: usize) -> usize {
    if bucket > CROWDED { bucket } else { 0 }
}
