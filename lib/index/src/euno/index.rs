//! The interface between the two phases of an operation: an index finds the chunk, and then the chunk is read or
//! changed.

use super::chunk::Chunk;
use super::form::ChunkForm;
use super::size::Size;
use super::waste::Waste;
use archipelago_sync::region::{Again, Walk};

/// The goal of a walk: which chunk it searches for.
#[derive(Clone, Copy)]
pub enum Aim<P> {
    /// The chunk whose range contains this key.
    At(P),
    /// The chunk with the greatest keys below a bound: `low < bound <= high`. The bound is not the least key.
    Below(P),
    /// The last chunk.
    Last,
}

/// An index over a list of chunks. Its entries lead to chunks of the list. (While a chunk is being replaced, its entry
/// may still lead to the old chunk, which is locked.) A chunk is added to the index while the chunk from which it was
/// split, to the left of it, is locked. A chunk is removed from the index while it and the chunk to its left are
/// locked, before it becomes obsolete. The list's first chunk is never removed.
pub trait Index<F: ChunkForm>: Send + Sync + Sized + 'static {
    /// The sizes of chunks.
    type Size: Size;

    /// Whether the index has an entry for each chunk; otherwise walks also step from chunk to chunk.
    const WHOLE: bool;

    /// Makes an index with one chunk.
    fn new(first: *mut Chunk<Self::Size>) -> Self;

    /// Walks to a chunk, and enters it. If `ahead` is not 0, prefetches the whole chunk and up to `ahead` chunks behind
    /// it, if the index has their addresses.
    ///
    /// # Errors
    /// If the walk must restart. The caller returns the error to the code that runs the walk.
    fn seek<'g>(
        &'g self,
        walk: &mut impl Walk<'g>,
        aim: Aim<F::Probe<'_>>,
        ahead: usize,
    ) -> Result<&'g Chunk<Self::Size>, Again>;

    /// Adds a chunk. The caller holds a guard, and the lock of the chunk from which this chunk was split.
    fn add(&self, chunk: &Chunk<Self::Size>);

    /// Removes a chunk, if that is possible now. Returns whether it was removed. The caller holds a guard, and the
    /// locks of this chunk and of the chunk to its left.
    fn forget(&self, chunk: &Chunk<Self::Size>, waste: &mut Waste) -> bool;

    /// Replaces a chunk by another one with the same range. The caller holds a guard, and the locks of the old chunk
    /// and of the chunk to the left of it.
    fn replace(&self, old: &Chunk<Self::Size>, new: &Chunk<Self::Size>, waste: &mut Waste);

    /// Compacts the index after chunks near `key` were removed. The caller holds a guard, and no lock.
    fn compact(&self, key: F::Probe<'_>, waste: &mut Waste);

    /// Calls `show` with up to `count` keys, ascending, that divide the chunks into about equal parts. The caller holds
    /// a guard.
    fn cut(&self, count: usize, show: impl FnMut(F::Probe<'_>));

    /// Returns the bytes of the index, without its keys' boxes and without garbage.
    fn bytes(&self) -> usize;

    /// Checks the index while no thread uses it, and calls `each` with its chunks, in order.
    fn check(&self, each: impl FnMut(*const Chunk<Self::Size>));
}

/// Calls `show` with up to `count` of the given keys, at equal distances.
pub(super) fn show_some<F: ChunkForm>(keys: &[u64], count: usize, show: &mut impl FnMut(F::Probe<'_>)) {
    let count = count.min(keys.len());
    for part in 1..=count {
        // SAFETY: the words are proven separators, within the caller's guard.
        show(unsafe { F::kept(keys[part * keys.len() / (count + 1)]) });
    }
}
