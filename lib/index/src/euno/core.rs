//! The operations on one key. A walk finds the key, and then a change runs at the version that the walk has read.

use super::change::{Insert, InsertPart, Mark, New, Remove, Removed, Replace};
use super::chunk::{Chunk, Scatter, Slots};
use super::find::{Find, Found, Get, Locate, Spot};
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index};
use super::look::Alone;
use super::memory::Memory;
use super::size::Size;
use super::waste::retire_key;
use super::{Config, Contention, Walks};
use crate::map::{Limits, Put, When};
use crate::tally::{Growth, Tally};
use crate::thin::Thin;
use ::core::alloc::Layout;
use archipelago_platform::hint::point;
use archipelago_platform::sync::{Mutex, Weak};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Owner};
use archipelago_sync::region::{Change as _, Region, Stale};
use archipelago_sync::version_lock::Version;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Chunks and an index over them.
pub struct Core<F: ChunkForm, I: Index<F>> {
    pub(super) index: I,
    pub(super) region: Region,
    pub(super) config: Config,
    pub(super) tally: Tally,
    pub(super) limits: Limits,
    /// The position at which the current sweep continues, see `sweep`.
    pub(super) sweeping: Mutex<Option<F::Owned>>,
    pub(super) thin: Thin,
    pub(super) first: NonNull<Chunk<I::Size>>,
    form: PhantomData<F>,
    // The domain is declared, and so dropped, before the memory: dropping the domain frees retired chunks in the
    // memory's arenas.
    pub(super) domain: Domain,
    pub(super) memory: Memory,
}

// SAFETY: threads share chunks by the rules of `chunk`; the index is `Send` and `Sync`.
unsafe impl<F: ChunkForm, I: Index<F>> Send for Core<F, I> {}
// SAFETY: as above.
unsafe impl<F: ChunkForm, I: Index<F>> Sync for Core<F, I> {}

impl<F: ChunkForm, I: Index<F>> Owner for Core<F, I> {
    fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<F: ChunkForm, I: Index<F>> Core<F, I> {
    /// If fewer than this many of a chunk's own slots have entries, the chunk is merged with a neighbour if the two
    /// fit.
    const UNDERFULL: usize = I::Size::SLOTS / 4;

    pub(super) fn new(config: Config, limits: Limits, this: Weak<Self>) -> Self {
        let memory = Memory::new(Layout::new::<Chunk<I::Size>>());
        let first = Chunk::new(&memory, F::keep(F::probe(&F::least())), 0, core::ptr::null_mut());
        let core = Self {
            index: I::new(first),
            region: match config.walks {
                _ if !config.transactions => Region::by_version_locks(),
                Walks::ByVersions => Region::walking_by_versions(),
                Walks::InTransactions => Region::new(),
            },
            config,
            tally: Tally::new(),
            domain: limits.backlog.domain().tended_by(this),
            limits,
            sweeping: Mutex::new(None),
            thin: Thin::default(),
            first: NonNull::new(first).expect("just made"),
            form: PhantomData,
            memory,
        };
        core.tally.add(Growth::default().node(0));
        if config.contention == Contention::Always {
            core.scatter_chunk(core.first());
        }
        core
    }

    /// Returns the first chunk, which is never removed.
    pub(super) fn first(&self) -> &Chunk<I::Size> {
        // SAFETY: the first chunk is freed with the map.
        unsafe { self.first.as_ref() }
    }

    #[inline(always)]
    fn find<'g>(&'g self, guard: &'g Guard<'_>, key: F::Probe<'_>, tag: u8) -> Found<'g, I::Size> {
        self.region.traverse(guard, Find::<F, I> { index: &self.index, key, tag })
    }

    /// Returns the chunk that `aim` selects, and its version.
    pub(super) fn locate<'g>(&'g self, guard: &'g Guard<'_>, aim: Aim<F::Probe<'_>>) -> (&'g Chunk<I::Size>, Version) {
        self.region.traverse(guard, Locate::<F, I> { index: &self.index, aim })
    }

    /// Returns the value word of `key`.
    #[inline(always)]
    pub(super) fn look_up(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        let find = Find::<F, I> { index: &self.index, key, tag: F::slot_tag(key) };
        self.region.traverse(guard, Get(find))
    }

    /// Returns whether `key` is present, or its chunk (if scattered, the key's part) has a free slot.
    pub(super) fn has_place(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        let tag = F::slot_tag(key);
        let Found { chunk, spot, scatter, .. } = self.find(guard, key, tag);
        let free = match scatter {
            None => chunk.count(&Alone) < I::Size::SLOTS,
            Some(scatter) => scatter.part(tag).count(&Alone) < I::Size::PART_SLOTS,
        };
        spot.is_some() || free
    }

    /// Stores `word` under `key`. This path is for the most frequent case: the key is present, and no thread conflicts.
    #[inline]
    pub(super) fn store(&self, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        let tag = F::slot_tag(key);
        let found = self.find(guard, key, tag);
        let (Some(spot), When::Always | When::Present) = (found.spot, when) else {
            return self.store_slowly(guard, (key, tag), word, when, Some(found));
        };
        match self.replace(&found, spot, tag, word, when) {
            Ok(put) => put,
            Err(Stale) => self.store_slowly(guard, (key, tag), word, when, None),
        }
    }

    /// Stores as [`store`](Self::store) does, in all cases. `found` is the result of a walk, or `None` if a change at
    /// the walk's version was already refused.
    #[inline(never)]
    fn store_slowly<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        (key, tag): (F::Probe<'_>, u8),
        word: u64,
        when: When,
        found: Option<Found<'g, I::Size>>,
    ) -> Put {
        let backoff = Backoff::new();
        let mut found = found.unwrap_or_else(|| self.find(guard, key, tag));
        let mut new: Option<New<'_, F>> = None;
        let put = loop {
            let tried = match (found.spot, when) {
                (Some(spot), When::Absent) => break Put::Kept(spot.value),
                (Some(spot), _) => self.replace(&found, spot, tag, word, when),
                (None, When::Present | When::Holds(_)) => break Put::Missing,
                (None, _) => {
                    let new = *new.get_or_insert_with(|| New { key, tag, kept: F::keep(key), value: word });
                    self.add(guard, &found, new)
                }
            };
            match tried {
                Ok(put) => break put,
                Err(Stale) => backoff.wait(),
            }
            found = self.find(guard, key, tag);
        };
        match (&put, new) {
            (Put::Inserted, _) => self.tally.add(Growth::entry(F::kept_bytes(key))),
            // SAFETY: the word was made above, and is stored nowhere.
            (_, Some(new)) => unsafe { F::discard(new.kept) },
            _ => {}
        }
        put
    }

    /// Replaces the word of a key that was found.
    #[inline(always)]
    fn replace(
        &self,
        found: &Found<'_, I::Size>,
        spot: Spot<'_>,
        tag: u8,
        word: u64,
        when: When,
    ) -> Result<Put, Stale> {
        let expected = if let When::Holds(expected) = when { Some(expected) } else { None };
        let _within = self.door(found.scatter).map(|scatter| scatter.door.enter(tag));
        point(crate::points::REPLACING);
        let replace = Replace { chunk: found.chunk, spot, tag, expected, new: word };
        let old = self.region.exchange(found.chunk, found.version, &spot.entry.value, (expected, word), replace);
        match self.noted(found, old)? {
            Ok(old) => Ok(Put::Replaced(old)),
            Err(kept) => Ok(Put::Kept(kept)),
        }
    }

    /// Adds a key that was not found.
    #[inline]
    fn add(&self, guard: &Guard<'_>, found: &Found<'_, I::Size>, new: New<'_, F>) -> Result<Put, Stale> {
        let Found { chunk, version, scatter, .. } = *found;
        point(crate::points::ADDING);
        let added = match scatter {
            None => match chunk.count(&Alone) {
                // The count is not proven (validated); here it is only a hint.
                full if full == I::Size::SLOTS => Ok(false),
                // If versions change with every insertion, the free slot and the absence still hold when the change
                // runs at this version.
                free => {
                    let free = Some(free).filter(|_| self.region.versions_tell());
                    self.region.update(chunk, version, Insert { chunk, new, free })
                }
            },
            Some(scatter) => {
                let part = scatter.part(new.tag);
                self.region.update_part(chunk, version, part, InsertPart { part, new })
            }
        };
        if self.noted(found, added)? {
            return Ok(Put::Inserted);
        }
        self.make_room(guard, chunk, version, new.key);
        Err(Stale)
    }

    /// Returns the scatter at whose door a thread waits before it replaces a value in a part. Returns `None` if the key
    /// is not in a part, or if changes are not transactions, so that they cannot abort each other.
    #[inline(always)]
    fn door<'g>(&self, scatter: Option<&'g Scatter<I::Size>>) -> Option<&'g Scatter<I::Size>> {
        if self.region.is_transactional() && self.config.doors { scatter } else { None }
    }

    /// Updates the chunk's heat by a result, scatters the chunk if it is contended now, and returns the result.
    #[inline(always)]
    fn noted<R>(&self, found: &Found<'_, I::Size>, result: Result<R, Stale>) -> Result<R, Stale> {
        if self.config.contention == Contention::Adaptive && !found.chunk.is_scattered(&Alone) {
            match result {
                Ok(_) if found.chunk.heat.write() => self.scatter_chunk(found.chunk),
                Err(Stale) if found.chunk.heat.refused() => self.scatter_chunk(found.chunk),
                Ok(_) | Err(Stale) => {}
            }
        }
        result
    }

    /// Removes `key`; if a word is expected, only if the key has this word.
    pub(super) fn remove(&self, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        let (tag, backoff) = (F::slot_tag(key), Backoff::new());
        loop {
            let found = self.find(guard, key, tag);
            let spot = found.spot?;
            if expected.is_some_and(|expected| expected != spot.value) {
                return None;
            }
            point(crate::points::REMOVING);
            let removed = self.take_out(&found, spot, (key, tag), expected);
            match self.noted(&found, removed) {
                Ok(None) => return None,
                Ok(Some(removed)) => return Some(self.let_go(guard, found.chunk, key, removed)),
                Err(Stale) => backoff.wait(),
            }
        }
    }

    /// Removes an entry that was found.
    #[inline]
    fn take_out(
        &self,
        found: &Found<'_, I::Size>,
        spot: Spot<'_>,
        (key, tag): (F::Probe<'_>, u8),
        expected: Option<u64>,
    ) -> Result<Option<Removed>, Stale> {
        let Found { chunk, version, .. } = *found;
        match found.scatter {
            Some(scatter) => {
                let part = scatter.part(tag);
                let remove = Remove::<F, _, _> { chunk, page: part, key, tag, expected };
                match self.region.is_transactional() {
                    true => self.region.update_part(chunk, version, part, remove),
                    // Threads that share the chunk's lock may be replacing values, and do not check tags, so the
                    // removal locks the chunk.
                    false => self.region.update(chunk, version, remove),
                }
            }
            // The result of `is_scattered` is not proven. If the result is wrong, the chunk has another version by now,
            // so the change fails.
            None if chunk.is_scattered(&Alone) => self.region.update(chunk, version, Mark { spot, tag, expected }),
            None => {
                let remove = Remove::<F, _, _> { chunk, page: chunk, key, tag, expected };
                match self.region.is_transactional() {
                    true => self.region.update(chunk, version, remove),
                    false => Self::take_by_hand(chunk, version, remove),
                }
            }
        }
    }

    /// Removes a key from a quiet chunk under its lock. A region's change would log each overwritten word, so that it
    /// could be undone. This removal shifts a chunk's entries without a log: it cannot fail or panic halfway.
    #[inline]
    fn take_by_hand(
        chunk: &Chunk<I::Size>,
        version: Version,
        remove: Remove<'_, '_, F, I::Size, Chunk<I::Size>>,
    ) -> Result<Option<Removed>, Stale> {
        let mut held = Held::wait_at(chunk, version).ok_or(Stale)?;
        let removed = remove.run(&mut Alone)?;
        if removed.is_some() {
            held.change();
        }
        Ok(removed)
    }

    /// Does the remaining work after the removal of an entry. The caller owns the entry's word.
    pub(super) fn let_go(&self, guard: &Guard<'_>, chunk: &Chunk<I::Size>, key: F::Probe<'_>, removed: Removed) -> u64 {
        self.tally.add(Growth::default().entry_gone(F::kept_bytes(key)));
        // A merge fails if the neighbours are too full or locked. So it is tried again at every fourth removal from an
        // underfull chunk. The count is not proven (validated); here it is only a hint.
        let left = chunk.entries_now();
        if left < Self::UNDERFULL && left.is_multiple_of(4) {
            self.shrink(guard, chunk);
        }
        // SAFETY: this thread has removed the entry.
        unsafe { retire_key::<F>(guard, removed.key) };
        removed.value
    }
}
