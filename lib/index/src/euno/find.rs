//! The index phase (the search for a chunk) and all reads of chunks. Both are walks, see
//! [`region`](archipelago_sync::region). A walk's result is proven (its reads were validated), and includes the version
//! at which the result was true.

use super::chunk::{Chunk, Scatter, Slots, each_of, first};
use super::form::{ChunkForm, GONE};
use super::index::{Aim, Index};
use super::look::{Look as _, rank, walking};
use super::size::{Entry, Size};
use archipelago_platform::hint::point;
use archipelago_sync::region::{Again, Traverse, Var, Versioned, Walk};
use archipelago_sync::version_lock::{Look, Version};
use core::cell::Cell;

/// A key that was found.
#[derive(Clone, Copy)]
pub(super) struct Spot<'g> {
    pub(super) entry: &'g Entry,
    /// The position of the key's tag: a word, and a shift.
    pub(super) tag: (&'g Var, usize),
    pub(super) key: u64,
    pub(super) value: u64,
}

/// The chunk whose range contains a key, and the key's position in it.
#[derive(Clone, Copy)]
pub(super) struct Found<'g, S: Size> {
    pub(super) chunk: &'g Chunk<S>,
    pub(super) version: Version,
    /// The chunk's scatter, if the chunk has one and the key is not in the chunk's own slots.
    pub(super) scatter: Option<&'g Scatter<S>>,
    pub(super) spot: Option<Spot<'g>>,
}

/// A walk that looks a key up. (`derive` would require the index to be `Copy`.)
pub(super) struct Find<'g, 'k, F: ChunkForm, I> {
    pub(super) index: &'g I,
    pub(super) key: F::Probe<'k>,
    pub(super) tag: u8,
}

impl<F: ChunkForm, I> Clone for Find<'_, '_, F, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, I> Copy for Find<'_, '_, F, I> {}

impl<'g, F: ChunkForm, I: Index<F>> Traverse<'g> for Find<'g, '_, F, I> {
    type Out = Found<'g, I::Size>;

    #[inline(always)]
    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again> {
        let chunk = self.index.seek(walk, Aim::At(self.key), 0)?;
        look_up::<F, _>(walk, chunk, self.key, self.tag)
    }
}

/// A walk that reads the value word of a key.
pub(super) struct Get<'g, 'k, F: ChunkForm, I>(pub(super) Find<'g, 'k, F, I>);

impl<F: ChunkForm, I> Clone for Get<'_, '_, F, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, I> Copy for Get<'_, '_, F, I> {}

impl<'g, F: ChunkForm, I: Index<F>> Traverse<'g> for Get<'g, '_, F, I> {
    /// Two words, which a function returns in registers.
    type Out = Option<u64>;

    #[inline(always)]
    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again> {
        Ok(self.0.run(walk)?.spot.map(|spot| spot.value))
    }
}

/// Finds the key's position in the page that the walk has entered.
#[inline(always)]
fn spot<'g, F: ChunkForm, P: Slots>(
    walk: &impl Walk<'g>,
    page: &'g P,
    key: F::Probe<'_>,
    tag: u8,
) -> Result<Option<Spot<'g>>, Again> {
    let look = walking(walk);
    let slot = page.find::<F>(&look, key, tag)?;
    point(crate::points::FOUND);
    Ok(slot.map(|slot| {
        let (key, value) = page.pair(&look, slot);
        Spot { entry: &page.entries()[slot], tag: (&page.tags()[slot / 8], slot % 8 * 8), key, value }
    }))
}

/// Searches the chunk that the walk has entered, and then the part for the key's tag if the chunk is scattered.
#[inline(always)]
fn look_up<'g, F: ChunkForm, S: Size>(
    walk: &mut impl Walk<'g>,
    chunk: &'g Chunk<S>,
    key: F::Probe<'_>,
    tag: u8,
) -> Result<Found<'g, S>, Again> {
    let version = walk.version();
    let found = Found { chunk, version, scatter: None, spot: spot::<F, _>(walk, chunk, key, tag)? };
    if found.spot.is_some() || !chunk.is_scattered(&walking(walk)) {
        return Ok(found);
    }
    let scatter = walk.follow(&chunk.scatter)?.ok_or(Again)?;
    let part = walk.enter(scatter.part(tag))?;
    point(crate::points::PART);
    let spot = spot::<F, _>(walk, part, key, tag)?;
    go_back(walk, chunk, version)?;
    Ok(Found { scatter: Some(scatter), spot, ..found })
}

/// Proves (validates) the reads of a part, and that the chunk has not changed meanwhile.
#[inline]
fn go_back<'g, S: Size>(walk: &mut impl Walk<'g>, chunk: &'g Chunk<S>, version: Version) -> Result<(), Again> {
    walk.enter(chunk)?;
    if walk.version() == version { Ok(()) } else { Err(Again) }
}

/// A walk that only finds a chunk.
pub(super) struct Locate<'g, 'k, F: ChunkForm, I> {
    pub(super) index: &'g I,
    pub(super) aim: Aim<F::Probe<'k>>,
}

impl<F: ChunkForm, I> Clone for Locate<'_, '_, F, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, I> Copy for Locate<'_, '_, F, I> {}

impl<'g, F: ChunkForm, I: Index<F>> Traverse<'g> for Locate<'g, '_, F, I> {
    type Out = (&'g Chunk<I::Size>, Version);

    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again> {
        Ok((self.index.seek(walk, self.aim, 0)?, walk.version()))
    }
}

/// A walk that copies what a scan needs of a chunk.
pub(super) struct Copying<'g, 'k, 'b, F: ChunkForm, I: Index<F>> {
    pub(super) index: &'g I,
    pub(super) aim: Aim<F::Probe<'k>>,
    /// The chunk that begins at the goal, if known. If this chunk was removed from the list meanwhile, the walk uses
    /// the index.
    pub(super) near: Option<&'g Chunk<I::Size>>,
    /// The number of chunks to prefetch in addition, see [`Index::seek`].
    pub(super) ahead: usize,
    /// With [`Aim::At`]: if the chunk is quiet and all of its entries are in order, at most this many are copied, from
    /// the goal on.
    pub(super) limit: usize,
    /// The destination, with room for all entries of a chunk.
    pub(super) to: &'b [Cell<(u64, u64)>],
}

impl<F: ChunkForm, I: Index<F>> Clone for Copying<'_, '_, '_, F, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ChunkForm, I: Index<F>> Copy for Copying<'_, '_, '_, F, I> {}

/// The result of a copy.
#[derive(Clone, Copy)]
pub(super) struct Copied<'g, S: Size> {
    pub(super) chunk: &'g Chunk<S>,
    pub(super) version: Version,
    /// The number of entries, of which the first `run` are in order.
    pub(super) len: usize,
    pub(super) run: usize,
    pub(super) scattered: bool,
    /// The next chunk, if there is one, and the word of the bound between the two chunks.
    pub(super) next: Option<(*const Chunk<S>, u64)>,
}

impl<'g, F: ChunkForm, I: Index<F>> Traverse<'g> for Copying<'g, '_, '_, F, I> {
    type Out = Copied<'g, I::Size>;

    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again> {
        // A live chunk still begins at the goal, since its lower bound never changes.
        let near = self.near.filter(|near| near.lock().look() != Look::Obsolete);
        let chunk = match near {
            Some(near) => walk.enter(near)?,
            None => self.index.seek(walk, self.aim, self.ahead)?,
        };
        let version = walk.version();
        let look = walking(walk);
        let count = chunk.count(&look);
        let (run, scattered) = (chunk.reserve(&look, count), chunk.is_scattered(&look));
        let next = chunk.next.load().cast_const();
        if near.is_some() && self.limit > I::Size::SLOTS {
            Chunk::fetch(next);
        }
        let next = (!next.is_null()).then(|| (next, look.get(&chunk.high)));
        let slots = match self.aim {
            Aim::At(_) if run == count && !scattered && near.is_some() => 0..count.min(self.limit),
            Aim::At(from) if run == count && !scattered => {
                let key = |slot: usize| &chunk.entries()[slot.min(I::Size::SLOTS - 1)].key;
                let steps = (I::Size::SLOTS + 1).next_power_of_two().trailing_zeros();
                let start = rank::<F>(&look, steps, key, count, from, core::cmp::Ordering::is_lt)?;
                start..count.min(start.saturating_add(self.limit))
            }
            _ => 0..count,
        };
        let mut len = slots.len();
        let mut copied = Copied { chunk, version, len, run: run.min(len), scattered, next };
        if !scattered {
            for (to, slot) in self.to.iter().zip(slots) {
                to.set(chunk.pair(&look, slot));
            }
        } else {
            let live = !chunk.candidates(&look, GONE) & first(count);
            for (to, slot) in self.to.iter().zip(each_of(live)) {
                to.set(chunk.pair(&look, slot));
            }
            len = live.count_ones() as usize;
            copied.run = (live & first(run)).count_ones() as usize;
            let scatter = walk.follow(&chunk.scatter)?.ok_or(Again)?;
            for part in scatter.parts() {
                let part = walk.enter(part)?;
                point(crate::points::PART);
                let look = walking(walk);
                for slot in 0..part.count(&look) {
                    self.to[len].set(part.pair(&look, slot));
                    len += 1;
                }
            }
            go_back(walk, chunk, version)?;
            copied.len = len;
        }
        Ok(copied)
    }
}
