//! The operation phase: changes of a chunk, which succeed only at the version at which the key was found. `chunk.rs`
//! explains the chunk, its tags, and the parts of a *scattered* chunk; a *quiet* chunk has no parts.
//!
//! If the version is unchanged, the chunk has changed only in place since the walk: values were replaced, entries were
//! marked as removed, or parts were changed. Facts that the walk has found and that such changes preserve are still
//! true. If walks are transactions, too, an unchanged version proves only that the chunk was not restructured (split,
//! merged, sorted, scattered or joined): entries may have been added, removed, or moved within the chunk. So each
//! change checks again whether the key is present.

use super::chunk::{Chunk, Part, Slots};
use super::find::Spot;
use super::form::{ChunkForm, GONE};
use super::look::{Alone, InChange, Look, order, settled};
use super::size::Size;
use archipelago_sync::region::{Change, Changing, Stale, Var};

/// A key to be added.
pub(super) struct New<'k, F: ChunkForm> {
    pub(super) key: F::Probe<'k>,
    pub(super) tag: u8,
    /// The key's word.
    pub(super) kept: u64,
    pub(super) value: u64,
}

impl<F: ChunkForm> Clone for New<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm> Copy for New<'_, F> {}

/// Adds an absent key to a chunk that is not scattered. The result is `false` if the chunk is full.
pub(super) struct Insert<'g, 'k, F: ChunkForm, S: Size> {
    pub(super) chunk: &'g Chunk<S>,
    pub(super) new: New<'k, F>,
    /// The first free slot. It is `Some` only if an unchanged version proves that this slot is free and the key is
    /// absent.
    pub(super) free: Option<usize>,
}

impl<F: ChunkForm, S: Size> Clone for Insert<'_, '_, F, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, S: Size> Copy for Insert<'_, '_, F, S> {}

impl<F: ChunkForm, S: Size> Change for Insert<'_, '_, F, S> {
    type Out = bool;

    fn aborted(&self) {
        self.chunk.heat.aborted();
    }

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<bool, Stale> {
        let Self { chunk, new, free } = self;
        let look = InChange(change);
        if free.is_none() && is_there::<F, _>(chunk, &look, &new) {
            return Err(Stale);
        }
        let count = free.unwrap_or_else(|| chunk.count(&look));
        debug_assert_eq!(count, chunk.count(&look), "a version says how many entries there are");
        if count == S::SLOTS {
            return Ok(false);
        }
        let follows = |last: usize| settled(order::<F>(&look, look.get(&chunk.entries()[last].key), new.key)).is_lt();
        if look.get(&chunk.sorted) == count as u64 && count.checked_sub(1).is_none_or(follows) {
            change.set(&chunk.sorted, count as u64 + 1);
        }
        write(change, chunk, count, (new.kept, new.value), new.tag);
        Ok(true)
    }
}

/// Adds an absent key to a part of a scattered chunk. The result is `false` if the part is full.
pub(super) struct InsertPart<'g, 'k, F: ChunkForm, S: Size> {
    pub(super) part: &'g Part<S>,
    pub(super) new: New<'k, F>,
}

impl<F: ChunkForm, S: Size> Clone for InsertPart<'_, '_, F, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, S: Size> Copy for InsertPart<'_, '_, F, S> {}

impl<F: ChunkForm, S: Size> Change for InsertPart<'_, '_, F, S> {
    type Out = bool;

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<bool, Stale> {
        let look = InChange(change);
        // The part has its own version, and the chunk's version does not change with insertions into parts.
        if is_there::<F, _>(self.part, &look, &self.new) {
            return Err(Stale);
        }
        let count = self.part.count(&look);
        if count == self.part.entries().len() {
            return Ok(false);
        }
        write(change, self.part, count, (self.new.kept, self.new.value), self.new.tag);
        Ok(true)
    }
}

#[inline(always)]
fn is_there<F: ChunkForm, P: Slots>(page: &P, look: &impl Look, new: &New<'_, F>) -> bool {
    settled(page.find::<F>(look, new.key, new.tag)).is_some()
}

#[inline(always)]
fn write(change: &mut impl Changing, page: &impl Slots, slot: usize, entry: (u64, u64), tag: u8) {
    let tags = change.get(&page.tags()[slot / 8]);
    page.write(slot, entry, tag, |_| tags, |word, value| change.set(word, value));
}

/// Replaces the value of a key that was found, or returns the current value if another value is expected. This change
/// is used with transactions.
#[derive(Clone, Copy)]
pub(super) struct Replace<'g, S: Size> {
    pub(super) chunk: &'g Chunk<S>,
    pub(super) spot: Spot<'g>,
    pub(super) tag: u8,
    pub(super) expected: Option<u64>,
    pub(super) new: u64,
}

impl<S: Size> Change for Replace<'_, S> {
    type Out = Result<u64, u64>;

    const IN_PLACE: bool = true;

    fn aborted(&self) {
        if !self.chunk.is_scattered(&Alone) {
            self.chunk.heat.aborted();
        }
    }

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<Self::Out, Stale> {
        let Spot { entry, tag: (tags, shift), key, .. } = self.spot;
        // A slot that was cleared keeps its key.
        if (change.get(tags) >> shift) as u8 != self.tag || change.get(&entry.key) != key {
            return Err(Stale);
        }
        let old = change.get(&entry.value);
        if self.expected.is_some_and(|expected| expected != old) {
            return Ok(Err(old));
        }
        change.set(&entry.value, self.new);
        Ok(Ok(old))
    }
}

/// Removes a key from a quiet chunk, or from a part.
pub(super) struct Remove<'g, 'k, F: ChunkForm, S: Size, P> {
    pub(super) chunk: &'g Chunk<S>,
    /// The chunk itself, or its part.
    pub(super) page: &'g P,
    pub(super) key: F::Probe<'k>,
    pub(super) tag: u8,
    pub(super) expected: Option<u64>,
}

impl<F: ChunkForm, S: Size, P> Clone for Remove<'_, '_, F, S, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, S: Size, P> Copy for Remove<'_, '_, F, S, P> {}

/// The removed entry.
#[derive(Clone, Copy)]
pub(super) struct Removed {
    pub(super) key: u64,
    pub(super) value: u64,
}

impl<F: ChunkForm, S: Size, P: Run> Change for Remove<'_, '_, F, S, P> {
    type Out = Option<Removed>;

    fn aborted(&self) {
        if !self.chunk.is_scattered(&Alone) {
            self.chunk.heat.aborted();
        }
    }

    #[inline]
    fn run(self, change: &mut impl Changing) -> Result<Option<Removed>, Stale> {
        let look = InChange(change);
        let Some(slot) = settled(self.page.find::<F>(&look, self.key, self.tag)) else { return Ok(None) };
        let (key, value) = self.page.pair(&look, slot);
        if self.expected.is_some_and(|expected| expected != value) {
            return Ok(None);
        }
        close(change, self.page, slot);
        Ok(Some(Removed { key, value }))
    }
}

/// Removes an entry from a scattered chunk's own slots, only by marking the entry's slot as [`GONE`]. The change writes
/// one cache line of tags, so it conflicts only with transactions that access this line. The reserve (the sorted
/// entries) stays in order until the parts are emptied.
#[derive(Clone, Copy)]
pub(super) struct Mark<'g> {
    pub(super) spot: Spot<'g>,
    pub(super) tag: u8,
    pub(super) expected: Option<u64>,
}

impl Change for Mark<'_> {
    type Out = Option<Removed>;

    /// The change writes one word of tags, so a walk sees the entry either present or absent. An unchanged version does
    /// not prove that the entry is still present. So a transaction that replaces the entry's value checks the tag.
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<Option<Removed>, Stale> {
        let Spot { entry, tag: (tags, shift), key, .. } = self.spot;
        let seen = change.get(tags);
        // At this version the entry has not moved.
        if (seen >> shift) as u8 != self.tag {
            return Ok(None);
        }
        let value = change.get(&entry.value);
        if self.expected.is_some_and(|expected| expected != value) {
            return Ok(None);
        }
        change.set(tags, seen & !(0xFF << shift) | u64::from(GONE) << shift);
        Ok(Some(Removed { key, value }))
    }
}

/// Removes a key from a chunk that the caller has locked explicitly.
pub(super) fn take_out<F: ChunkForm, S: Size>(chunk: &Chunk<S>, key: F::Probe<'_>, tag: u8) -> Option<Removed> {
    let own = settled(chunk.find::<F>(&Alone, key, tag));
    if let Some(slot) = own.filter(|_| chunk.is_scattered(&Alone)) {
        let (key, value) = chunk.pair(&Alone, slot);
        chunk.retag(slot, GONE, Var::load, Var::set);
        return Some(Removed { key, value });
    }
    if own.is_some() {
        let removed = Remove::<F, _, _> { chunk, page: chunk, key, tag, expected: None }.run(&mut Alone);
        return removed.ok().flatten();
    }
    let part = chunk.part(tag)?;
    Remove::<F, _, _> { chunk, page: part, key, tag, expected: None }.run(&mut Alone).ok().flatten()
}

/// A page of slots whose first entries may be in order.
pub(super) trait Run: Slots {
    /// Returns the word with the number of entries in order, if the slots have one.
    fn sorted(&self) -> Option<&Var>;
}

impl<S: Size> Run for Chunk<S> {
    fn sorted(&self) -> Option<&Var> {
        Some(&self.sorted)
    }
}

impl<S: Size> Run for Part<S> {
    fn sorted(&self) -> Option<&Var> {
        None
    }
}

/// Closes the gap at `slot`. If all entries are in order, the later ones are shifted, so that they stay in order;
/// otherwise the last entry moves into the gap.
#[inline]
fn close(change: &mut impl Changing, page: &impl Run, slot: usize) {
    let count = page.count(&InChange(change));
    let last = count - 1;
    let sorted = page.sorted().map_or(0, |word| change.get(word) as usize);
    // The entries stay in order, so that after removals in key order (queues, expiry) scans are still cheap.
    let left = if sorted == count {
        shift(change, page, slot, last);
        last
    } else {
        move_last(change, page, slot, last);
        sorted.min(slot)
    };
    if let Some(word) = page.sorted().filter(|_| left != sorted) {
        change.set(word, left as u64);
    }
}

/// Moves the last entry into `slot`, which may be the last slot itself, and then clears the last slot.
#[inline]
fn move_last(change: &mut impl Changing, page: &impl Slots, slot: usize, last: usize) {
    let look = InChange(change);
    let (entry, tag) = (page.pair(&look, last), page.tag(&look, last));
    write(change, page, slot, entry, tag);
    let tags = change.get(&page.tags()[last / 8]);
    page.retag(last, 0, |_: &Var| tags, |word, value| change.set(word, value));
}

/// Shifts the entries behind `slot` down by one slot. Tags are shifted eight at a time, since a shift of single tags
/// would wait each time for the previous write to the same word.
#[inline]
fn shift(change: &mut impl Changing, page: &impl Slots, slot: usize, last: usize) {
    for pair in page.entries()[slot..=last].windows(2) {
        change.set(&pair[0].key, change.get(&pair[1].key));
        change.set(&pair[0].value, change.get(&pair[1].value));
    }
    let (words, mut kept) = (&page.tags()[slot / 8..=last / 8], (1 << (slot % 8 * 8)) - 1);
    for (at, word) in words.iter().enumerate() {
        let (seen, next) = (change.get(word), words.get(at + 1).map_or(0, |next| change.get(next)));
        change.set(word, seen & kept | (seen >> 8 | next << 56) & !kept);
        kept = 0;
    }
}
