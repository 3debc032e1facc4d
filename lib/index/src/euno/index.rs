//! The seam between the two phases of an operation: an index finds the chunk, the chunk is worked on.

use super::chunk::Chunk;
use super::form::ChunkForm;
use super::size::Size;
use super::waste::Waste;
use archipelago_sync::region::{Again, Walk};

/// Which chunk is meant.
#[derive(Clone, Copy)]
pub enum Aim<P> {
    /// The one whose range has this key.
    At(P),
    /// The one with the greatest keys below: `low < bound <= high`. The bound is not the least key.
    Below(P),
    /// The last one.
    Last,
}

/// An index over a list of chunks, exact at any time: a chunk gets its place while the chunk to its left, from which it was
/// split, is locked; and loses it while both are, before it becomes obsolete. The list's first chunk always is there.
pub trait Index<F: ChunkForm>: Send + Sync + Sized + 'static {
    /// How large chunks are.
    type Size: Size;

    /// Whether it has a place for each chunk; otherwise walks go on from chunk to chunk.
    const WHOLE: bool;

    /// An index that leads to one chunk.
    fn new(first: *mut Chunk<Self::Size>) -> Self;

    /// Walks to a chunk, and enters it. If `ahead` is not 0 it starts fetching all of the chunk and of that number of those that
    /// follow, as far as it has their addresses.
    ///
    /// # Errors
    /// To be passed on.
    fn seek<'g>(
        &'g self,
        walk: &mut impl Walk<'g>,
        aim: Aim<F::Probe<'_>>,
        ahead: usize,
    ) -> Result<&'g Chunk<Self::Size>, Again>;

    /// Adds a chunk. The caller holds a guard, and the lock of the chunk to its left.
    fn add(&self, chunk: &Chunk<Self::Size>);

    /// Takes a chunk out, if that can be done now. The caller holds a guard, and the locks of this chunk and of the one to its
    /// left.
    fn forget(&self, chunk: &Chunk<Self::Size>, waste: &mut Waste) -> bool;

    /// Puts a chunk in the place of another with the same range. The caller holds a guard, and the locks of the old one and of
    /// the one to its left.
    fn replace(&self, old: &Chunk<Self::Size>, new: &Chunk<Self::Size>, waste: &mut Waste);

    /// Tidies up after chunks near `key` were taken out. The caller holds a guard, and no lock.
    fn compact(&self, key: F::Probe<'_>, waste: &mut Waste);

    /// Shows up to `count` keys, ascending, that cut the chunks into about equal parts. The caller holds a guard.
    fn cut(&self, count: usize, show: impl FnMut(F::Probe<'_>));

    /// Bytes that it takes, without its keys' boxes and what waits for readers.
    fn bytes(&self) -> usize;

    /// Checks the index while no thread uses it, and shows the chunks that have a place in it, in order.
    fn check(&self, each: impl FnMut(*const Chunk<Self::Size>));
}

/// Shows `count` of some keys, at equal distances.
pub(super) fn show_some<F: ChunkForm>(keys: &[u64], count: usize, show: &mut impl FnMut(F::Probe<'_>)) {
    let count = count.min(keys.len());
    for part in 1..=count {
        // SAFETY: proven separators, within the caller's guard.
        show(unsafe { F::kept(keys[part * keys.len() / (count + 1)]) });
    }
}
