//! The sizes of pages. Maps have [`Wide`] pages; [`Narrow`] pages are the paper's, for experiments.

use archipelago_sync::region::{Link, Var};

/// The number of parts of a scatter.
pub(super) const PARTS: usize = 4;

/// A key and a value.
#[repr(C, align(16))]
pub struct Entry {
    pub(super) key: Var,
    pub(super) value: Var,
}

impl Entry {
    pub(super) const fn empty() -> Self {
        Self { key: Var::new(0), value: Var::new(0) }
    }
}

/// The arrays of which pages consist. The size is a compile-time parameter, so that each size has its own code.
pub trait Size: Copy + Send + Sync + 'static {
    /// A chunk's tags: a byte for each entry, and at least one more.
    type Tags: Array<Var>;
    /// A chunk's entries.
    type Entries: Array<Entry>;
    /// A part's entries.
    type PartEntries: Array<Entry>;
    /// An inner node's words: two more than separators.
    type Words: Array<Var>;
    /// An inner node's links to children of type `P`: one more than separators. `P` has no bound: with the bound
    /// `Sync`, the compiler could show that a node is `Sync` only from the node being `Sync` (E0275).
    type Children<P>: Array<Link<P>>;

    /// The number of a chunk's own slots.
    const SLOTS: usize = <Self::Entries as Array<Entry>>::LEN;
    /// The number of slots of a part.
    const PART_SLOTS: usize = <Self::PartEntries as Array<Entry>>::LEN;
    /// The greatest number of entries of a scattered chunk, including its parts.
    const MOST: usize = Self::SLOTS + PARTS * Self::PART_SLOTS;
    /// The index of the word of tags whose last byte is not a tag.
    const LAST_TAGS: usize = <Self::Tags as Array<Var>>::LEN - 1;
    /// The greatest number of separators of an inner node.
    const KEYS: usize = <Self::Words as Array<Var>>::LEN - 2;
}

/// An array of any length.
pub trait Array<T>: AsRef<[T]> + Send + Sync {
    /// The array's length.
    const LEN: usize;

    /// Makes an array by calling `make` for each index.
    fn of(make: impl FnMut(usize) -> T) -> Self;
}

impl<T: Send + Sync, const N: usize> Array<T> for [T; N] {
    const LEN: usize = N;

    #[inline]
    fn of(make: impl FnMut(usize) -> T) -> Self {
        core::array::from_fn(make)
    }
}

/// The greatest number of entries of a scattered chunk of the largest size.
pub(super) const MOST: usize = Wide::MOST;
/// The number of words of tags in the largest chunk.
pub(super) const MOST_TAGS: usize = Wide::LAST_TAGS + 1;

/// The maps' own sizes: chunks of 31 cache lines, parts of 2 cache lines, inner nodes of 16 cache lines.
#[derive(Clone, Copy)]
pub enum Wide {}

impl Size for Wide {
    type Tags = [Var; 14];
    type Entries = [Entry; 111];
    type PartEntries = [Entry; 7];
    /// As many words as a search in six steps can distinguish.
    type Words = [Var; 64];
    type Children<P> = [Link<P>; 63];
}

/// The paper's fanout (section 6.1): 16 entries and separators. A part, which is the paper's segment, is one line.
#[derive(Clone, Copy)]
pub enum Narrow {}

impl Size for Narrow {
    type Tags = [Var; 3];
    type Entries = [Entry; 16];
    type PartEntries = [Entry; 3];
    type Words = [Var; 18];
    type Children<P> = [Link<P>; 17];
}

/// Returns whether the sizes are consistent: a mask has a bit for each of a chunk's slots and one more; the words of
/// tags have a byte for each slot and one more; the halves of a split fit into chunks; and the buffers for copies are
/// large enough.
const fn fits<S: Size>() -> bool {
    let masks = S::SLOTS < 128 && S::SLOTS < 8 * (S::LAST_TAGS + 1);
    let halves = S::MOST.div_ceil(2) <= S::SLOTS;
    let copies = S::MOST <= MOST && S::LAST_TAGS < MOST_TAGS;
    masks && halves && copies && <S::Children<()> as Array<Link<()>>>::LEN == S::KEYS + 1
}

const _: () = assert!(fits::<Wide>() && fits::<Narrow>());
