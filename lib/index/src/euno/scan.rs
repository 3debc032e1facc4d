//! Walks over entries, and the ends of the map.
//!
//! A scan copies a chunk, proves (validates) the whole copy, shows the copied entries, and continues at the *key* at
//! which the chunk's range ended. If the next chunk is still in the list, it begins at this key, and the scan copies
//! it. Otherwise, and in a tree once every few chunks, the scan finds the key's chunk by the index. So splits and
//! merges between two copies neither hide an entry nor show one twice.

use super::change::{Removed, take_out};
use super::chunk::{Chunk, sort};
use super::core::Core;
use super::find::{Copied, Copying};
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index};
use super::size::{MOST, Size};
use crate::structure::{End, Words};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::cell::Cell;
use core::cmp::Ordering;

/// The greatest number of chunks that a scan prefetches at a time.
const AHEAD: usize = 4;
/// A chunk is not sorted if at most this many of its entries are outside the reserve (the chunk's first entries, which
/// are in order).
const LOOSE: usize = 4;

/// The chunk to copy, see [`Copying`].
struct Which<'g, P, S: Size> {
    aim: Aim<P>,
    near: Option<&'g Chunk<S>>,
    ahead: usize,
}

impl<P, S: Size> Which<'_, P, S> {
    fn by_index(aim: Aim<P>) -> Self {
        Self { aim, near: None, ahead: 0 }
    }
}

/// The copied entries of one chunk.
struct Page([(u64, u64); MOST]);

impl Page {
    fn new() -> Self {
        Self([(0, 0); MOST])
    }

    /// Returns how many of the first `len` entries, which are ascending, have keys that are `before`.
    fn rank<F: ChunkForm>(&self, len: usize, key: F::Probe<'_>, before: impl Fn(Ordering) -> bool) -> usize {
        // SAFETY: a proven copy's keys live as long as the guard under which it was made.
        self.0[..len].partition_point(|pair| before(F::compare(unsafe { F::kept(pair.0) }, key)))
    }

    /// Removes duplicates of keys among the first `len` entries, which are ascending. A key that was removed from its
    /// chunk's own slots and inserted into a part during the copy may have been copied twice. Returns the number of
    /// entries that are left.
    fn once<F: ChunkForm>(&mut self, len: usize) -> usize {
        let mut left = len.min(1);
        for at in 1..len {
            let [last, this] = [left - 1, at].map(|at| self.0[at].0);
            // SAFETY: as in `rank`.
            if unsafe { F::compare(F::kept(last), F::kept(this)) }.is_ne() {
                self.0[left] = self.0[at];
                left += 1;
            }
        }
        left
    }

    /// Prefetches what the caller of a scan will read of some entries.
    ///
    /// # Safety
    /// The entries were in the structure, under a guard that still lasts.
    unsafe fn fetch(&self, entries: core::ops::Range<usize>, words: Words<'_>) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { words.fetch(self.0[entries].iter().map(|pair| pair.1)) }
    }
}

impl<F: ChunkForm, I: Index<F>> Core<F, I> {
    /// The approximate number of entries of a chunk, by which a scan estimates how many chunks it will read.
    const SCANNED: usize = I::Size::SLOTS * 2 / 3;

    /// Copies a chunk's entries, in order. If the chunk is quiet and many of its entries were not in order, also sorts
    /// the chunk.
    fn copy<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        which: Which<'g, F::Probe<'_>, I::Size>,
        limit: usize,
        page: &mut Page,
    ) -> Copied<'g, I::Size> {
        let Which { aim, near, ahead } = which;
        let to = Cell::from_mut(&mut page.0[..]).as_slice_of_cells();
        let mut copied =
            self.region.traverse(guard, Copying::<F, I> { index: &self.index, aim, near, ahead, limit, to });
        sort::<F>(&mut page.0[..copied.len], copied.run);
        if copied.scattered {
            copied.len = page.once::<F>(copied.len);
        }
        // A few entries outside the reserve cost each scan less than sorting them costs.
        if copied.run + LOOSE < copied.len && !copied.scattered {
            self.tidy(copied.chunk, copied.version);
        }
        copied
    }

    /// Implements [`Structure::scan`](crate::map::Structure::scan).
    pub(super) fn ascend(
        &self,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words<'_>,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let (mut page, mut seen) = (Page::new(), 0);
        // Without a limit the caller may end the scan soon, so only little is prefetched at first.
        let mut ahead = if limit == usize::MAX { 1 } else { AHEAD };
        let (mut fetched, mut next) = (0, None::<(&Chunk<I::Size>, u64)>);
        while seen < limit {
            // SAFETY: the bound was proven under this guard.
            let at = next.map_or(from, |(_, high)| unsafe { F::kept(high) });
            // Every few chunks the scan uses the index, which has the addresses of many chunks to prefetch.
            let near = next.map(|(chunk, _)| chunk).filter(|_| fetched > 0 || !I::WHOLE);
            if near.is_none() {
                fetched = ahead.min((limit - seen).div_ceil(Self::SCANNED));
                ahead = AHEAD.min(2 * ahead);
            }
            let which = Which { aim: Aim::At(at), near, ahead: fetched };
            let copied = self.copy(guard, which, limit - seen, &mut page);
            // If the chunk was removed meanwhile, the copied chunk may begin before the key.
            let begins_there = near.is_some_and(|near| core::ptr::eq(near, copied.chunk));
            let first = if begins_there { 0 } else { page.rank::<F>(copied.len, at, Ordering::is_lt) };
            // SAFETY: the entries were copied in one region, under the caller's guard.
            unsafe { page.fetch(first..copied.len.min(first.saturating_add(limit - seen)), words) };
            for &(key, word) in &page.0[first..copied.len] {
                seen += 1;
                // SAFETY: as in `rank`.
                if !visit(unsafe { F::kept(key) }, word) || seen == limit {
                    return seen;
                }
            }
            let Some((chunk, high)) = copied.next else { break };
            // SAFETY: the pointer is proven to lead to a live chunk's neighbour, under this guard.
            next = Some((unsafe { &*chunk }, high));
            fetched = fetched.saturating_sub(1);
        }
        seen
    }

    /// Implements [`Structure::scan_back`](crate::map::Structure::scan_back).
    pub(super) fn descend(
        &self,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let (mut page, mut seen) = (Page::new(), 0);
        let mut before: Option<&Chunk<I::Size>> = None;
        while seen < limit {
            // SAFETY: a chunk's bound is freed with the chunk, after this guard.
            let bound = before.map(|chunk| unsafe { F::kept(chunk.low_word()) }).or(bound);
            // Nothing is below the least key.
            if bound.is_some_and(F::is_least) {
                break;
            }
            let copied = self.copy(guard, Which::by_index(bound.map_or(Aim::Last, Aim::Below)), usize::MAX, &mut page);
            let end = bound.map_or(copied.len, |bound| page.rank::<F>(copied.len, bound, Ordering::is_lt));
            // SAFETY: as in `ascend`.
            unsafe { page.fetch(end.saturating_sub(limit - seen)..end, words) };
            for &(key, word) in page.0[..end].iter().rev() {
                seen += 1;
                // SAFETY: as in `rank`.
                if !visit(unsafe { F::kept(key) }, word) || seen == limit {
                    return seen;
                }
            }
            before = Some(copied.chunk);
        }
        seen
    }

    /// Removes the entry at the given end of the map, if the map has entries. `found` is called with the entry after
    /// all locks are released.
    ///
    /// This is linearizable: the entry is removed while its chunk is locked, and while all chunks between this chunk
    /// and the end of the map are locked and empty.
    pub(super) fn take_outermost<R>(
        &self,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let backoff = Backoff::new();
        let (chunk, removed) = loop {
            match self.try_take(guard, end) {
                Ok(taken) => break taken?,
                Err(Busy) => backoff.wait(),
            }
        };
        // SAFETY: the entry was removed under this guard.
        let key: F::Probe<'_> = unsafe { F::kept(removed.key) };
        let word = self.let_go(guard, chunk, key, removed);
        Some(found(key, word))
    }

    fn try_take<'g>(&'g self, guard: &'g Guard<'_>, end: End) -> Result<Taken<'g, I::Size>, Busy> {
        let mut empty: Vec<Held<'_, Chunk<I::Size>>> = Vec::new();
        let mut held = self.lock_end(guard, end)?;
        while held.total() == 0 {
            let next = match end {
                // SAFETY: a locked chunk's neighbour is not retired.
                End::First => unsafe { held.next.load().as_ref() }.map(|next| Held::try_now(next).ok_or(Busy)),
                End::Last => self.before(guard, held.page()),
            };
            let Some(next) = next else { return Ok(None) };
            empty.push(core::mem::replace(&mut held, next?));
        }
        held.change();
        // SAFETY: the word is an entry's key, of a chunk that is locked.
        let key: F::Probe<'_> = unsafe { F::kept(held.outermost::<F>(end)) };
        let removed = take_out::<F, _>(&held, key, F::slot_tag(key));
        Ok(Some((held.page(), removed.expect("what is locked has the key that was read there"))))
    }

    fn lock_end<'g>(&'g self, guard: &'g Guard<'_>, end: End) -> Result<Held<'g, Chunk<I::Size>>, Busy> {
        match end {
            End::First => Held::wait(self.first()).ok_or(Busy),
            End::Last => {
                let (last, version) = self.locate(guard, Aim::Last);
                Held::at(last, version).ok_or(Busy)
            }
        }
    }

    /// Locks the chunk to the left of a locked one, if there is one.
    fn before<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        chunk: &'g Chunk<I::Size>,
    ) -> Option<Result<Held<'g, Chunk<I::Size>>, Busy>> {
        if core::ptr::eq(chunk, self.first()) {
            return None;
        }
        let (left, version) = self.locate(guard, Aim::Below(chunk.low::<F>()));
        Some(Held::at(left, version).ok_or(Busy))
    }
}

/// The entry that was removed, and its chunk. `None` if the map has no entry.
type Taken<'g, S> = Option<(&'g Chunk<S>, Removed)>;

/// A lock was not free, or a chunk had another version, so the operation is repeated.
struct Busy;
