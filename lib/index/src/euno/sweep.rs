//! Sweeping: compacting chunks after removals all over a map.
//!
//! Chunks (leaves of the map) are allocated in memory regions of up to 2 MiB, and a region is freed only when it has no
//! chunk. (A `BlockArena` calls such a region a chunk, and what it allocates a block.) So after most chunks have been
//! merged, the remaining chunks occupy nearly as many regions as before. A walk along the list moves chunks out of
//! regions that are mostly free: such regions are *closed* for allocation
//! ([`BlockArena::close_sparse`](archipelago_platform::memory::BlockArena::close_sparse)). A thorough walk also merges
//! neighbours that fit well into one chunk, although neither is underfull.
//!
//! `settle` repeats walks while they free memory, at most [`MOST_WALKS`] times. In addition, each merge advances the
//! current walk by [`STEPS`] chunks, or begins a walk if half of an arena's memory is free. So walks proceed as long as
//! chunks are merged, at a bounded cost for each merge.

use super::chunk::{Chunk, Scatter};
use super::core::Core;
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index};
use super::look::Alone;
use super::size::Size;
use super::waste::Waste;
use crate::tally::Growth;
use crate::thin::{Extent, WELL};
use archipelago_platform::memory::Sparse;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::ptr::NonNull;

/// The number of chunks that are examined after each merge.
const STEPS: usize = 8;

/// The number of chunks that are examined under one guard.
const BATCH: usize = 256;

/// The greatest number of walks of one `settle`.
const MOST_WALKS: usize = 6;

impl<F: ChunkForm, I: Index<F>> Core<F, I> {
    /// A walk merges two neighbouring chunks if they have at most this many entries together.
    const MOST: usize = I::Size::SLOTS * WELL.0 / WELL.1;

    /// Advances the current walk after a merge, as the module's documentation describes. The caller holds no lock.
    pub(super) fn sweep_in_passing(&self, guard: &Guard<'_>) {
        // If the lock is held, the thread skips the sweep and does not wait: the holder may be this thread, in a
        // destructor.
        let Ok(mut at) = self.sweeping.try_lock() else { return };
        let begin = || (self.memory.close_sparse(Sparse::Half) > 0).then(F::least);
        let Some(from) = at.take().or_else(begin) else { return };
        *at = guard.hold_back(|| self.sweep_some(guard, from, STEPS, false));
    }

    /// Merges and moves chunks while this frees memory, and frees chunks that no reader can be using.
    pub(super) fn sweep(&self) {
        self.reclaim();
        // Walks that merge are repeated while each of them removes more than an eighth of the chunks. Later walks only
        // move the chunks that are the last ones in their regions after the merges.
        let mut merge = self.is_due();
        for _ in 0..MOST_WALKS {
            if self.memory.close_sparse(Sparse::Third) == 0 && !merge {
                return;
            }
            let began = self.extent();
            self.walk(merge);
            self.reclaim();
            if merge {
                let ended = self.extent();
                self.thin.walked(began, ended);
                merge = 8 * ended.pages < 7 * began.pages;
            }
        }
    }

    fn walk(&self, merge: bool) {
        let mut from = Some(F::least());
        while let Some(key) = from {
            let guard = self.domain.pin();
            from = self.sweep_some(&guard, key, BATCH, merge);
        }
    }

    /// For tests: moves every chunk except the first.
    pub(super) fn move_chunks(&self) {
        self.memory.close_all();
        self.walk(false);
        self.reclaim();
    }

    /// Returns whether [`sweep`](Self::sweep) would walk.
    pub(super) fn is_thin(&self) -> bool {
        self.is_due() || self.memory.is_sparse(Sparse::Third)
    }

    fn is_due(&self) -> bool {
        self.thin.is_due(self.extent(), I::Size::SLOTS)
    }

    fn extent(&self) -> Extent {
        let pages = usize::try_from(self.tally.sum().nodes).unwrap_or(0);
        Extent { entries: self.tally.entries(), pages }
    }

    fn reclaim(&self) {
        // One attempt frees everything if no reader is behind. A guard of another thread can make an attempt fail, even
        // a guard that another attempt holds for a moment. So several attempts are made.
        (0..4).for_each(|_| self.domain.collect());
    }

    /// Examines up to `chunks` chunks. Returns the key at which to continue, or `None` if the walk has ended.
    fn sweep_some(&self, guard: &Guard<'_>, from: F::Owned, chunks: usize, merge: bool) -> Option<F::Owned> {
        let mut at = from;
        for _ in 0..chunks {
            at = self.sweep_after(guard, F::probe(&at), merge)?;
        }
        Some(at)
    }

    /// If `merge` is true, merges following chunks into the chunk of `key`. Then moves the next chunk, if it is in a
    /// closed region. Returns the key at which the next chunk begins, if there is one.
    fn sweep_after(&self, guard: &Guard<'_>, key: F::Probe<'_>, merge: bool) -> Option<F::Owned> {
        let (mut waste, backoff) = (Waste::default(), Backoff::new());
        if merge {
            // The first chunk below an inner node is never merged into another chunk, so nodes with few children are
            // merged first.
            self.index.compact(key, &mut waste);
        }
        let mut left = loop {
            let (chunk, version) = self.locate(guard, Aim::At(key));
            match Held::at(chunk, version) {
                Some(held) => break held,
                None => backoff.wait(),
            }
        };
        while merge && self.take_over_next(&mut left, Self::MOST, &mut waste) {}
        self.move_next(&mut left, &mut waste);
        // SAFETY: the word is the bound of a chunk that is locked and has a neighbour.
        let next = (!left.next.load().is_null()).then(|| F::own(unsafe { F::kept(left.high.load()) }));
        drop(left);
        // SAFETY: the garbage was removed from the map above.
        unsafe { waste.retire::<F>(guard, &self.memory) };
        next
    }

    /// Replaces the chunk after the locked chunk `left` by a copy with the same range and entries in another region.
    /// Does so only if the old chunk is in a closed region (one that is to be freed), its lock is free, and its entries
    /// fit into the copy's own slots. After the change of the link, a thread that reaches the old chunk finds it
    /// locked, and later obsolete.
    fn move_next(&self, left: &mut Held<'_, Chunk<I::Size>>, waste: &mut Waste) {
        // SAFETY: a locked chunk's neighbour does not become obsolete, so it is not retired under the caller's guard.
        let Some(right) = (unsafe { left.next.load().as_ref() }) else { return };
        if !self.memory.is_closed(right.home(), NonNull::from(right).cast()) {
            return;
        }
        let Some(right) = Held::try_now(right) else { return };
        let all = right.gather::<F>().pairs;
        if all.len() > I::Size::SLOTS {
            return;
        }
        let low = F::keep(right.low::<F>());
        let new = Chunk::new_at(&self.memory, right.home(), low, right.high.load(), right.next.load());
        // SAFETY: the chunk was just made, and no thread retires it while the chunk before it is locked.
        let new = unsafe { &*new };
        new.fill::<F>(&all);
        if right.is_scattered(&Alone) {
            new.set_scatter(Scatter::new());
            new.heat.inherit(&right.heat);
        }
        left.change();
        // SAFETY: the target is a chunk, which RCU frees once nothing leads to it.
        unsafe { left.next.publish(core::ptr::from_ref(new).cast_mut()) };
        self.index.replace(&right, new, waste);
        let outside = new.outside() as isize - right.outside() as isize;
        self.tally.add(Growth { bytes: outside, ..Growth::default() });
        waste.chunk::<F, _>(right.page());
        right.gone();
    }
}
