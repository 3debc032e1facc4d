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

use super::words::{Count, LINE, ROOM, SHORT, Words, trim};

/// Keys that are looked up side by side.
pub const BATCH: usize = 16;

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

    /// Makes room for as much as `like` holds, and `words` in all.
    pub fn reserve(&mut self, words: usize, like: &Self) {
        self.words.reserve(words.max(like.words.len()));
        self.levels.reserve(like.levels.len());
        self.table.reserve_exact(like.table.len() + like.table.len() / ROOM);
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

    /// Adds many words, as if by [`Self::push`].
    pub fn extend(&mut self, words: &[i64]) {
        self.words.extend(words);
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
        trim(&mut self.table);
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
        // First the end of each bucket that has words, in the next one's cell; then the cells of empty ones.
        self.table.resize(aux + buckets + 1, 0);
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

    /// How many words of `run` are `<= key`. Calls `near` with a position at or just before the last of them, as soon
    /// as it is known and before the words there arrive, so that what lies beside the words can be fetched meanwhile.
    ///
    /// # Safety
    /// `run` was made by this object, which is sealed, and the processor has what `C` needs.
    #[inline(always)]
    pub unsafe fn count<C: Count>(&self, run: &Run, key: i64, near: impl Fn(usize)) -> usize {
        if key < run.first {
            return 0;
        }
        // SAFETY: passed on from the caller, and `key >= run.first`.
        unsafe {
            match run.kind {
                Kind::Short => self.count_short::<C>(run, key, near),
                Kind::Radix => self.count_bucket::<C>(run, self.bucket(run, key, near), key),
                Kind::Tree if key == i64::MAX => run.len as usize,
                Kind::Tree => {
                    let mut child = self.tree_top::<C>(run, key);
                    for level in run.inner_levels() {
                        child = self.tree_step::<C>(level, child, key);
                    }
                    near(run.start as usize + child * LINE);
                    self.tree_leaf::<C>(run, child, key)
                }
            }
        }
    }

    /// [`Self::count`] of each of `keys`, step by step for all of them, so that their cache misses overlap.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    pub unsafe fn count_many<C: Count>(&self, run: &Run, keys: &[i64; BATCH], near: impl Fn(usize)) -> [usize; BATCH] {
        // Keys outside are answered by the one next to them, and corrected at the end.
        let inner = keys.map(|key| key.clamp(run.first, i64::MAX - 1));
        // SAFETY: passed on from the caller, and `inner` keys are `>= run.first`.
        let mut counts = unsafe {
            match run.kind {
                Kind::Short => inner.map(|key| self.count_short::<C>(run, key, &near)),
                Kind::Radix => {
                    let buckets = inner.map(|key| {
                        self.bucket(run, key, |position| {
                            near(position);
                            self.words.prefetch(position);
                        })
                    });
                    each(|i| self.count_bucket::<C>(run, buckets[i], inner[i]))
                }
                Kind::Tree => {
                    let mut children = inner.map(|key| self.tree_top::<C>(run, key));
                    for level in run.inner_levels() {
                        children = each(|i| self.tree_step::<C>(level, children[i], inner[i]));
                    }
                    children.iter().for_each(|child| near(run.start as usize + child * LINE));
                    each(|i| self.tree_leaf::<C>(run, children[i], inner[i]))
                }
            }
        };
        for (count, &key) in counts.iter_mut().zip(keys) {
            if key < run.first {
                *count = 0;
            } else if key == i64::MAX {
                *count = run.len as usize;
            }
        }
        counts
    }

    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn count_short<C: Count>(&self, run: &Run, key: i64, near: impl Fn(usize)) -> usize {
        near(run.start as usize);
        // SAFETY: the run's words are within the sealed array; `C` is the caller's.
        unsafe { C::short(self.words.at(run.start as usize), run.len as usize, key) }
    }

    /// Where a key's bucket begins and ends in its radix run, `key >= run.first`.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn bucket(&self, run: &Run, key: i64, near: impl Fn(usize)) -> (usize, usize) {
        let bucket = (key as u64).wrapping_sub(run.first as u64) >> run.shift;
        let cell = run.aux as usize + bucket.min(u64::from(run.buckets) - 1) as usize;
        debug_assert!(cell + 1 < self.table.len());
        // SAFETY: the table has `buckets + 1` cells from `aux` on.
        let (low, high) = unsafe { (*self.table.get_unchecked(cell), *self.table.get_unchecked(cell + 1)) };
        near((run.start + low) as usize);
        (low as usize, high as usize)
    }

    /// The count within a radix run, given the key's bucket.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn count_bucket<C: Count>(&self, run: &Run, (low, high): (usize, usize), key: i64) -> usize {
        let start = run.start as usize + low;
        if high - low > CROWDED {
            return low + self.count_crowd(start..run.start as usize + high, key);
        }
        // SAFETY: the table's cells are at most `run.len`, so `start` is within the sealed words; `C` is the caller's.
        low + unsafe { C::short(self.words.at(start), high - low, key) }
    }

    #[cold]
    fn count_crowd(&self, crowd: core::ops::Range<usize>, key: i64) -> usize {
        self.words.as_slice()[crowd].partition_point(|&word| word <= key)
    }

    /// Which word of a tree run's top level is the last one `<= key`. It leads to the line of that number, one level
    /// below, whose first word it is.
    ///
    /// # Safety
    /// As for [`Self::count`], for `run.first <= key < i64::MAX`.
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
        // SAFETY: each level has a line for each word of the level above. The line's first word is `<= key`.
        child * LINE + unsafe { C::line(self.levels.at((level + child) * LINE), key) } - 1
    }

    /// The count, from the line of words that the levels lead to.
    ///
    /// # Safety
    /// As for [`Self::tree_step`].
    #[inline(always)]
    unsafe fn tree_leaf<C: Count>(&self, run: &Run, child: usize, key: i64) -> usize {
        // SAFETY: there is a line of words for each word of level 1.
        child * LINE + unsafe { C::line(self.words.at(run.start as usize + child * LINE), key) }
    }

    /// Whether the run has a radix table.
    #[cfg(test)]
    pub fn is_radix(run: &Run) -> bool {
        run.kind == Kind::Radix
    }

    /// The words of a run.
    pub fn words(&self, run: &Run) -> &[i64] {
        &self.words.as_slice()[run.range()]
    }
}

#[inline(always)]
fn each(of: impl FnMut(usize) -> usize) -> [usize; BATCH] {
    core::array::from_fn(of)
}
