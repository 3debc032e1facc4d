//! The search layer as an immutable snapshot. It answers one question: which page has the greatest *anchor* (the page's
//! lowest possible key) that is at most a given key?
//!
//! HydraList (thesis section 4.3.4) keeps its search layer in an adaptive radix tree. An updater changes the tree in
//! place under ROWEX (read-optimized write exclusion) while readers descend it. The layer may lag behind the data list
//! anyway, so this implementation never updates in place: a snapshot is built, published, read without any
//! synchronisation, and replaced by the next one. The next one is made by a sequential merge of the snapshot and the
//! changes logged meanwhile. So a snapshot can use layouts that an updatable tree cannot have: no pointers, no
//! versions, nodes that are exactly cache lines.
//!
//! * Words: an interpolation trie, nearly always one cache line per look-up ([`word`], [`lines`]).
//! * Byte strings: a trie of sorted runs of 7-byte slices ([`trie`], [`runs`]).
//!
//! Invariants of a snapshot:
//! - Anchors are distinct. Keys below all anchors belong to the head page.
//! - An answer is the page of the greatest anchor at or below the key or, rarely, of an anchor further left.
//! - Nothing changes after the snapshot was built. So `&self` methods need no ordering of their own: the owner
//!   publishes the snapshot by a release store, and readers load it with acquire.

mod ids;
mod lines;
mod merge;
mod runs;
#[cfg(test)]
mod tests;
mod trie;
mod trie_build;
mod word;
mod words;

use archipelago_platform::topology::NodeId;
use core::fmt;

use crate::structure::{Bytes, Form, Word};

/// The target of an anchor: a page pointer or id, which can be compared.
pub trait Target: Copy + PartialEq {
    /// The distance of the addresses of adjacent pages.
    const STRIDE: usize;

    /// Returns the page's address.
    fn addr(self) -> usize;

    /// Returns the page at an address.
    ///
    /// # Safety
    /// The address must be a result of [`Self::addr`].
    unsafe fn at(addr: usize) -> Self;
}

/// A form of keys that has a search layer. Both forms have one.
pub trait SearchForm: Form {
    /// The layout for this form.
    type Index<P: Target>: AnchorIndex<Self, P>;
}

impl SearchForm for Word {
    type Index<P: Target> = word::WordIndex<P>;
}

impl SearchForm for Bytes {
    type Index<P: Target> = trie::Trie<P>;
}

/// The interface of a layout. [`Snapshot`] documents the methods.
pub trait AnchorIndex<F: SearchForm, P: Target> {
    /// The places of the pages behind a page.
    type Behind;

    /// The iterator of [`Snapshot::entries`].
    type Entries<'a>: Iterator<Item = P>
    where
        Self: 'a,
        P: 'a;

    /// Makes an object without memory, which must be filled before any other use. Its memory will prefer `node`.
    fn empty(node: Option<NodeId>) -> Self;

    /// Returns the node that the index's memory prefers.
    fn node(&self) -> Option<NodeId>;

    /// Fills an empty index.
    fn fill(&mut self, head: P, anchors: &[(F::Probe<'_>, P)]);

    /// Fills an empty index with the content of `old`, and the changes.
    fn fill_merged<'a>(&mut self, old: &Self, inserts: &[(F::Probe<'a>, P)], removes: &[(F::Probe<'a>, P)]);

    fn jump(&self, probe: F::Probe<'_>) -> P;

    fn jump_below(&self, bound: Option<F::Probe<'_>>) -> P;

    /// Implements [`Snapshot::prefetch`].
    fn prefetch(&self, probe: F::Probe<'_>) {
        let _ = probe;
    }

    /// Implements [`Snapshot::jump_ahead`].
    fn jump_ahead(&self, probe: F::Probe<'_>) -> (P, Self::Behind);

    /// Implements [`Followers`].
    fn follower(&self, behind: &mut Self::Behind) -> Option<P>;

    fn len(&self) -> usize;
    fn bytes(&self) -> usize;
    fn entries(&self) -> Self::Entries<'_>;
}

/// Pages behind a page, in the order of their anchors. The iterator may end early, before the last page.
pub struct Followers<'a, F: SearchForm, P: Target> {
    index: &'a F::Index<P>,
    behind: <F::Index<P> as AnchorIndex<F, P>>::Behind,
}

impl<F: SearchForm, P: Target> Iterator for Followers<'_, F, P> {
    type Item = P;

    #[inline]
    fn next(&mut self) -> Option<P> {
        self.index.follower(&mut self.behind)
    }
}

/// An immutable map from anchors to pages, as the module's documentation describes it.
pub struct Snapshot<F: SearchForm, P: Target> {
    index: F::Index<P>,
}

impl<F: SearchForm, P: Target> Snapshot<F, P> {
    /// Makes a snapshot of `anchors`, ascending and distinct, with the page `head` for keys below all of them. It takes
    /// linear time. Its memory, and that of all snapshots that are merged from it, prefers `node`, whichever thread
    /// merges.
    ///
    /// # Panics
    /// If there are about 2^31 anchors or more.
    pub fn build(node: Option<NodeId>, head: P, anchors: &[(F::Probe<'_>, P)]) -> Self {
        debug_assert!(anchors.windows(2).all(|pair| F::compare(pair[0].0, pair[1].0).is_lt()));
        let mut index = F::Index::empty(node);
        index.fill(head, anchors);
        Self { index }
    }

    /// Returns a copy of this snapshot with changes. `inserts` are applied first: an existing anchor gets the new page.
    /// Then `removes` are applied: a remove takes effect only if the anchor then leads to the page that the remove
    /// names. Both lists must be ascending. If one anchor has several inserts, the last one counts. The time is linear
    /// in the number of anchors.
    ///
    /// # Panics
    /// If there are about 2^31 anchors or more.
    pub fn merge<'a>(&self, inserts: &[(F::Probe<'a>, P)], removes: &[(F::Probe<'a>, P)]) -> Self {
        let mut index = F::Index::empty(self.index.node());
        index.fill_merged(&self.index, inserts, removes);
        Self { index }
    }

    /// Returns the page of the greatest anchor at most `probe`, or of an anchor a little further left. If there is no
    /// such anchor, returns the head page.
    #[inline(always)]
    pub fn jump(&self, probe: F::Probe<'_>) -> P {
        self.index.jump(probe)
    }

    /// Returns the page of the greatest anchor below `bound`, or of an anchor a little further left. If there is no
    /// such anchor, returns the head page. Without a bound, returns the page of the greatest anchor. The bound is not
    /// the least key.
    pub fn jump_below(&self, bound: Option<F::Probe<'_>>) -> P {
        self.index.jump_below(bound)
    }

    /// Prefetches the memory that [`Self::jump`] will read first.
    #[inline(always)]
    pub fn prefetch(&self, probe: F::Probe<'_>) {
        self.index.prefetch(probe);
    }

    /// Returns the page that [`Self::jump`] returns, and the pages behind it. They are found one by one, as they are
    /// asked for.
    #[inline]
    pub fn jump_ahead(&self, probe: F::Probe<'_>) -> (P, Followers<'_, F, P>) {
        let (page, behind) = self.index.jump_ahead(probe);
        (page, Followers { index: &self.index, behind })
    }

    /// Returns the pages in the order of their anchors, without the head page.
    pub fn entries(&self) -> impl Iterator<Item = P> + '_ {
        self.index.entries()
    }

    /// Returns the number of anchors, without the head page's.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.index.bytes()
    }
}

impl<F: SearchForm, P: Target> fmt::Debug for Snapshot<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
