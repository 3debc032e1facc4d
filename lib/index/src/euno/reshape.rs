//! Operations that restructure chunks: sorting, emptying parts into their chunk, adding and removing parts (scattering
//! and joining), splits, merges, and balancing with the next chunk. Each operation locks the chunks that it changes
//! explicitly. So each changed chunk gets a new version, even if the structure's other changes are hardware
//! transactions, which may leave the version as it is.
//!
//! | from | to | when |
//! |---|---|---|
//! | quiet | scattered | writes are refused too often ([`heat`](super::heat)) |
//! | scattered | quiet | its parts were emptied often enough |
//! | quiet, many entries out of order | quiet, sorted | a scan has copied the entries |
//! | scattered, a part full | scattered, parts empty | all entries fill at most 3/4 of the chunk's own slots |
//! | full | less full, and one or two new chunks instead of the next one | otherwise, if the chunks can be balanced |
//! | full | two chunks | otherwise |
//! | two chunks, together with few entries | the left one, with all entries | one is underfull, or a sweep finds both |
//!
//! A full chunk and the next chunk can be balanced if keys do not arrive in ascending order, both chunks are quiet, the
//! next chunk's lock is free, and the index can remove the next chunk. A split makes a new chunk to the right. The new
//! chunk gets the upper half of the entries. If keys arrive in ascending order, it gets only the entries that do not
//! fit, and a few more if the keys were not exactly in order.
//!
//! A split makes the new chunk, shortens the old one, adds the new one to the index, and then unlocks the old one.
//! Until the new chunk is in the index, a thread that searches for a moved key reaches the old chunk, which is locked.
//! The thread waits, and then repeats its walk. A merge locks both chunks, removes the right one from the index, moves
//! its entries, makes it obsolete, and retires it. A walk that enters a chunk validates the link to the chunk
//! (`Walk::follow`), so no walk enters a removed chunk.

use super::Contention;
use super::chunk::{Chunk, Gathered, Scatter};
use super::core::Core;
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index};
use super::look::Alone;
use super::size::Size;
use super::waste::Waste;
use crate::tally::Growth;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::Version;

impl<F: ChunkForm, I: Index<F>> Core<F, I> {
    /// If a chunk in which there is no room has more than this many entries, parts included, it is split, or its
    /// entries are spread. Otherwise its parts are emptied into it.
    const FILL: usize = I::Size::SLOTS * 3 / 4;
    /// If two neighbouring chunks have more than this many entries together, their entries are distributed over three
    /// chunks.
    const SPREAD: usize = I::Size::SLOTS * 7 / 4;
    /// The number of free slots that a chunk keeps for keys that arrive nearly in order.
    const LATE: usize = I::Size::SLOTS / 16;
    /// Two neighbouring chunks are merged if they have at most this many entries together.
    const FIT: usize = I::Size::SLOTS / 2;

    /// If the chunk still has this version, makes room for `key` in it.
    #[cold]
    pub(super) fn make_room(&self, guard: &Guard<'_>, chunk: &Chunk<I::Size>, version: Version, key: F::Probe<'_>) {
        let Some(mut held) = Held::at(chunk, version) else { return };
        let mut waste = Waste::default();
        held.change();
        let all = chunk.gather::<F>();
        if chunk.is_scattered(&Alone) && chunk.heat.folded() && self.config.contention == Contention::Adaptive {
            self.join(chunk, &mut waste);
        }
        if all.pairs.len() <= Self::FILL {
            chunk.fill::<F>(&all.pairs);
        } else if !self.spread(chunk, &all, key, &mut waste) {
            self.split(chunk, &all, key);
        }
        drop(held);
        // SAFETY: the garbage was removed from the map above.
        unsafe { waste.retire::<F>(guard, &self.memory) };
    }

    /// Sorts a quiet chunk's entries, if the chunk still has this version.
    #[cold]
    pub(super) fn tidy(&self, chunk: &Chunk<I::Size>, version: Version) {
        if let Some(mut held) = Held::at(chunk, version) {
            held.change();
            chunk.fill::<F>(&chunk.gather::<F>().pairs);
        }
    }

    /// For tests: scatters every quiet chunk, and joins every scattered chunk whose entries fit into the chunk's own
    /// slots.
    pub(super) fn flip_chunks(&self, guard: &Guard<'_>) {
        let mut at = Some(self.first());
        let mut waste = Waste::default();
        while let Some(chunk) = at {
            if !chunk.is_scattered(&Alone) {
                self.scatter_chunk(chunk);
            } else if let Some(mut held) = Held::wait(chunk) {
                let all = chunk.gather::<F>().pairs;
                if all.len() <= I::Size::SLOTS && chunk.is_scattered(&Alone) {
                    held.change();
                    self.join(chunk, &mut waste);
                    chunk.fill::<F>(&all);
                }
            }
            // SAFETY: the guard keeps the next chunk; the next chunk of a removed chunk was in the list at the removal.
            at = unsafe { chunk.next.load().as_ref() };
        }
        // SAFETY: the garbage was removed from the map above.
        unsafe { waste.retire::<F>(guard, &self.memory) };
    }

    /// Gives a chunk parts, if it has none.
    #[cold]
    pub(super) fn scatter_chunk(&self, chunk: &Chunk<I::Size>) {
        let scatter = Scatter::new();
        let held = Held::wait(chunk).filter(|_| !chunk.is_scattered(&Alone));
        let Some(mut held) = held else {
            // SAFETY: the scatter was made above, and is stored nowhere.
            return drop(unsafe { Box::from_raw(scatter) });
        };
        held.change();
        chunk.set_scatter(scatter);
        chunk.heat.reset();
        self.tally.add(Growth { bytes: Scatter::<I::Size>::bytes() as isize, ..Growth::default() });
    }

    /// Removes the scatter of a locked chunk, whose entries have been gathered.
    fn join(&self, chunk: &Chunk<I::Size>, waste: &mut Waste) {
        // SAFETY: the pointer is null, or leads to the scatter of a chunk that is locked.
        if let Some(scatter) = unsafe { chunk.scatter.load().as_ref() } {
            chunk.set_scatter(core::ptr::null_mut());
            chunk.heat.reset();
            waste.page(scatter);
            self.tally.add(Growth { bytes: -(Scatter::<I::Size>::bytes() as isize), ..Growth::default() });
        }
    }

    /// Balances a locked chunk with the next one, if possible (see the module's text). If the two have more than
    /// [`SPREAD`](Self::SPREAD) entries together, distributes the entries over three chunks, otherwise over two. Splits
    /// alone would leave chunks half empty, and chunks that fill at the same pace would all be half empty at the same
    /// time. Returns whether the entries were distributed.
    ///
    /// A chunk's lower bound never changes. So the next chunk is removed, and one or two new chunks get its keys.
    /// Between the removal and the addition of the new chunks to the index, threads that search for these keys wait at
    /// the locked chunk.
    fn spread(&self, chunk: &Chunk<I::Size>, all: &Gathered, key: F::Probe<'_>, waste: &mut Waste) -> bool {
        // SAFETY: a locked chunk's neighbour does not become obsolete, so it is not retired under the caller's guard.
        let Some(right) = (unsafe { chunk.next.load().as_ref() }) else { return false };
        // SAFETY: the word is a key of a chunk that is locked.
        let rising = F::compare(unsafe { F::kept(all.pairs[all.pairs.len() - 1].0) }, key).is_lt();
        if rising || chunk.is_scattered(&Alone) {
            return false;
        }
        let Some(right) = Held::try_now(right) else { return false };
        if right.is_scattered(&Alone) || !self.index.forget(&right, waste) {
            return false;
        }
        let mut pairs = all.pairs.clone();
        pairs.append(&mut right.gather::<F>().pairs);
        let size = pairs.len().div_ceil(if pairs.len() > Self::SPREAD { 3 } else { 2 });
        let (mut high, mut next) = (right.high.load(), right.next.load());
        waste.key(chunk.high.load());
        let mut added = Vec::new();
        let mut parts = pairs.chunks(size);
        let first = parts.next().unwrap_or(&[]);
        for part in parts.rev() {
            // SAFETY: the word is a key of a chunk that is locked.
            let low = unsafe { F::kept(part[0].0) };
            next = Chunk::new(&self.memory, F::keep(low), high, next);
            // SAFETY: the chunk was just made, and no thread retires it while the chunk before it is locked.
            let new = unsafe { &*next };
            new.fill::<F>(part);
            added.push(new);
            high = F::keep(low);
        }
        chunk.fill::<F>(first);
        chunk.high.set(high);
        // SAFETY: the target is a chunk, which is freed by RCU after it was unlinked.
        unsafe { chunk.next.publish(next) };
        point(crate::points::CHUNK_SPLIT);
        for new in added {
            self.index.add(new);
            self.tally.add(Growth::default().node(0));
        }
        self.tally.add(Growth::default().node_gone(right.outside()));
        waste.chunk::<F, _>(right.page());
        right.gone();
        true
    }

    /// Splits a locked chunk, whose entries are `all`, to make room for `key`.
    fn split(&self, chunk: &Chunk<I::Size>, all: &Gathered, key: F::Probe<'_>) {
        let pairs = &all.pairs;
        // SAFETY: the words are keys of a chunk that is locked.
        let kept = |at: usize| unsafe { F::kept(pairs[at].0) };
        // If keys arrive in ascending order, this chunk stays full and the next one gets the new keys. If the keys were
        // not exactly in order, since several threads insert them, some slots stay free for late keys.
        let last = pairs.len() - 1;
        let rising = F::compare(kept(last), key).is_lt();
        let middle = match all.in_order {
            _ if !rising => pairs.len() / 2,
            true => pairs.len().min(I::Size::SLOTS),
            false => pairs.len().min(I::Size::SLOTS) - Self::LATE,
        };
        let separator = match pairs.get(middle) {
            Some(_) => F::keep(kept(middle)),
            // The new chunk's range begins just above the last present key, so that it contains all later keys that are
            // above this key.
            None => F::just_above(kept(last)).map_or_else(|| F::keep(key), |above| F::keep(F::probe(&above))),
        };
        let right = Chunk::new(&self.memory, separator, chunk.high.load(), chunk.next.load());
        // SAFETY: no other thread has access to the new chunk yet.
        let right = unsafe { &*right };
        right.fill::<F>(&pairs[middle..]);
        self.share_scatter(chunk, right, rising);
        chunk.fill::<F>(&pairs[..middle]);
        chunk.high.set(F::keep(right.low::<F>()));
        // SAFETY: the target is a chunk, which is freed by RCU after it was unlinked.
        unsafe { chunk.next.publish(core::ptr::from_ref(right).cast_mut()) };
        point(crate::points::CHUNK_SPLIT);
        self.index.add(right);
        self.tally.add(Growth::default().node(0));
    }

    /// Gives the right half of a split the same contention state as the left half. Exception: if keys are ascending,
    /// and chunks are scattered only while they are contended, the scatter moves to the right half, since only this
    /// half will be contended.
    fn share_scatter(&self, chunk: &Chunk<I::Size>, right: &Chunk<I::Size>, rising: bool) {
        if !chunk.is_scattered(&Alone) {
            return;
        }
        if rising && self.config.contention == Contention::Adaptive {
            right.set_scatter(chunk.scatter.load());
            chunk.set_scatter(core::ptr::null_mut());
            // The parts' entries were gathered.
            right.parts().iter().for_each(super::chunk::Part::empty);
            right.heat.inherit(&chunk.heat);
            chunk.heat.reset();
        } else {
            right.set_scatter(Scatter::new());
            right.heat.inherit(&chunk.heat);
            self.tally.add(Growth { bytes: Scatter::<I::Size>::bytes() as isize, ..Growth::default() });
        }
    }

    /// Merges a chunk that has few entries with a neighbour, if one fits.
    #[cold]
    pub(super) fn shrink(&self, guard: &Guard<'_>, chunk: &Chunk<I::Size>) {
        let mut waste = Waste::default();
        let merged = self.merge_next(chunk, &mut waste) || self.merge_into_previous(guard, chunk, &mut waste);
        if merged {
            self.index.compact(chunk.low::<F>(), &mut waste);
        }
        // SAFETY: the garbage was removed from the map above.
        unsafe { waste.retire::<F>(guard, &self.memory) };
        if merged {
            self.sweep_in_passing(guard);
        }
    }

    fn merge_next(&self, chunk: &Chunk<I::Size>, waste: &mut Waste) -> bool {
        Self::seems_to_fit(chunk)
            && Held::wait(chunk).is_some_and(|mut left| self.take_over_next(&mut left, Self::FIT, waste))
    }

    /// Returns whether the entries of a chunk and of the next one seem few enough for a merge. The result is not
    /// validated. The check avoids useless locking, which would stop all threads at the chunk each time that a key is
    /// inserted and removed again. The caller holds a guard.
    fn seems_to_fit(chunk: &Chunk<I::Size>) -> bool {
        // SAFETY: chunks are retired after they have left the list, so the caller's guard keeps the next chunk.
        let next = unsafe { chunk.next.load().as_ref() };
        next.is_some_and(|next| chunk.total() + next.total() <= Self::FIT)
    }

    fn merge_into_previous(&self, guard: &Guard<'_>, chunk: &Chunk<I::Size>, waste: &mut Waste) -> bool {
        let low = chunk.low::<F>();
        if core::ptr::eq(chunk, self.first()) {
            return false;
        }
        let (left, version) = self.locate(guard, Aim::Below(low));
        if !Self::seems_to_fit(left) {
            return false;
        }
        let Some(mut left) = Held::at(left, version) else { return false };
        core::ptr::eq(left.next.load(), chunk) && self.take_over_next(&mut left, Self::FIT, waste)
    }

    /// Merges the next chunk into the locked chunk `left`, if the two have at most `most` entries, the next chunk's
    /// lock is free, and the index can remove the next chunk.
    pub(super) fn take_over_next(&self, left: &mut Held<'_, Chunk<I::Size>>, most: usize, waste: &mut Waste) -> bool {
        // SAFETY: a locked chunk's neighbour does not become obsolete, so it is not retired under the caller's guard.
        let Some(right) = (unsafe { left.next.load().as_ref() }) else { return false };
        let Some(right) = Held::try_now(right) else { return false };
        if left.total() + right.total() > most || !self.index.forget(&right, waste) {
            return false;
        }
        left.change();
        let mut pairs = left.gather::<F>().pairs;
        pairs.append(&mut right.gather::<F>().pairs);
        left.fill::<F>(&pairs);
        waste.key(left.high.load());
        left.high.set(right.high.load());
        // SAFETY: the target is a chunk, which stays in the list.
        unsafe { left.next.publish(right.next.load()) };
        self.tally.add(Growth::default().node_gone(right.outside()));
        waste.chunk::<F, _>(right.page());
        point(crate::points::MERGED);
        right.gone();
        true
    }
}
