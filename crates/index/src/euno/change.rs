//! The operation phase: changes of a chunk at the version at which it was found.
//!
//! Without transactions a version says that nothing has changed since, so what was found is still true. In a transaction it only
//! says that nothing has moved: so each body looks again whether the key is there.

use super::chunk::{Chunk, Part, SLOTS, Scatter, Slots};
use super::find::Spot;
use super::form::ChunkForm;
use super::look::{Alone, InChange, Look, order, settled};
use archipelago_sync::region::{Change, Changing, Stale, Word};

/// A key to be added.
pub(super) struct New<'k, F: ChunkForm> {
    pub(super) key: F::Probe<'k>,
    pub(super) tag: u8,
    /// Its word.
    pub(super) kept: u64,
    pub(super) value: u64,
}

impl<F: ChunkForm> Clone for New<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm> Copy for New<'_, F> {}

/// Adds a key that was not found to a chunk that is not scattered. False if there is no room.
pub(super) struct Insert<'g, 'k, F: ChunkForm> {
    pub(super) chunk: &'g Chunk,
    pub(super) new: New<'k, F>,
    /// The first free slot, if the version says so, and that the key is not there.
    pub(super) free: Option<usize>,
}

impl<F: ChunkForm> Clone for Insert<'_, '_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm> Copy for Insert<'_, '_, F> {}

impl<F: ChunkForm> Change for Insert<'_, '_, F> {
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
        if count == SLOTS {
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

/// Adds a key that was not found to a part of a scattered chunk. False if there is no room.
pub(super) struct InsertPart<'g, 'k, F: ChunkForm> {
    pub(super) part: &'g Part,
    pub(super) new: New<'k, F>,
}

impl<F: ChunkForm> Clone for InsertPart<'_, '_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm> Copy for InsertPart<'_, '_, F> {}

impl<F: ChunkForm> Change for InsertPart<'_, '_, F> {
    type Out = bool;

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<bool, Stale> {
        let look = InChange(change);
        // The part has a version of its own: the chunk's does not say what was added meanwhile.
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

/// Replaces the value of a key that was found; or says what it is, if it is not the one expected. For transactions.
#[derive(Clone, Copy)]
pub(super) struct Replace<'g> {
    pub(super) chunk: &'g Chunk,
    pub(super) spot: Spot<'g>,
    pub(super) tag: u8,
    pub(super) expected: Option<u64>,
    pub(super) new: u64,
}

impl Change for Replace<'_> {
    type Out = Result<u64, u64>;

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

/// Takes a key out of a chunk, or of its part.
pub(super) struct Remove<'g, 'k, F: ChunkForm> {
    pub(super) chunk: &'g Chunk,
    pub(super) key: F::Probe<'k>,
    pub(super) tag: u8,
    pub(super) expected: Option<u64>,
}

impl<F: ChunkForm> Clone for Remove<'_, '_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm> Copy for Remove<'_, '_, F> {}

/// What was taken out, and how many entries of its own the chunk still has.
#[derive(Clone, Copy)]
pub(super) struct Removed {
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) left: usize,
}

impl<F: ChunkForm> Change for Remove<'_, '_, F> {
    type Out = Option<Removed>;

    fn aborted(&self) {
        if !self.chunk.is_scattered(&Alone) {
            self.chunk.heat.aborted();
        }
    }

    #[inline]
    fn run(self, change: &mut impl Changing) -> Result<Option<Removed>, Stale> {
        let look = InChange(change);
        if let Some(slot) = settled(self.chunk.find::<F>(&look, self.key, self.tag)) {
            return Ok(self.take(change, self.chunk, slot));
        }
        // SAFETY: a scatter of a chunk that changes now is not retired before the caller's guard ends.
        let scatter: Option<&Scatter> = unsafe { change.target(&self.chunk.scatter).as_ref() };
        let Some(part) = scatter.map(|scatter| scatter.part(self.tag)) else { return Ok(None) };
        let slot = settled(part.find::<F>(&InChange(change), self.key, self.tag));
        Ok(slot.and_then(|slot| self.take(change, part, slot)))
    }
}

impl<F: ChunkForm> Remove<'_, '_, F> {
    #[inline]
    fn take(self, change: &mut impl Changing, page: &impl Slots, slot: usize) -> Option<Removed> {
        let (key, value) = page.pair(&InChange(change), slot);
        if self.expected.is_some_and(|expected| expected != value) {
            return None;
        }
        let own = self.chunk.count(&InChange(change));
        let is_own = core::ptr::addr_eq(page, self.chunk);
        if is_own {
            let sorted = change.get(&self.chunk.sorted) as usize;
            // Not where threads would abort each other's transactions over it.
            let shifts = sorted == own && !self.chunk.is_scattered(&InChange(change));
            let left = close(change, page, slot, own, sorted, shifts);
            if left != sorted {
                change.set(&self.chunk.sorted, left as u64);
            }
        } else {
            let count = page.count(&InChange(change));
            close(change, page, slot, count, 0, false);
        }
        Some(Removed { key, value, left: own - usize::from(is_own) })
    }
}

/// Closes the gap at `slot` among `count` entries, of which the first `sorted` are in order; how many are afterwards. All stay in
/// order if the entries behind it are shifted; otherwise the last one takes its place.
fn close(
    change: &mut impl Changing,
    page: &impl Slots,
    slot: usize,
    count: usize,
    sorted: usize,
    shifts: bool,
) -> usize {
    let last = count - 1;
    let mut copy = |from: usize, to: usize| {
        let (look, entry) = (InChange(change), page.pair(&InChange(change), from));
        let tag = page.tag(&look, from);
        write(change, page, to, entry, tag);
    };
    // What is in order stays in order: removals in key order (queues, expiry) keep scans cheap.
    let left = if shifts {
        (slot..last).for_each(|to| copy(to + 1, to));
        sorted - 1
    } else {
        copy(last, slot);
        sorted.min(slot)
    };
    let tags = change.get(&page.tags()[last / 8]);
    page.clear(last, |_: &Word| tags, |word, value| change.set(word, value));
    left
}
