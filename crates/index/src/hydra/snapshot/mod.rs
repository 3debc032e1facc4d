//! The search layer as an immutable snapshot: "the page whose anchor is the greatest one at most this key".
//!
//! HydraList (thesis section 4.3.4) keeps its search layer in an adaptive radix tree that an updater changes in place
//! under ROWEX while readers descend it. Because the layer may lag behind the data list anyway, this one goes the
//! whole way: a snapshot is built, published, read without any synchronisation, and replaced by the next one, which a
//! sequential merge makes out of it and the changes logged meanwhile. What that buys is layouts that an updatable tree
//! cannot have: no pointers, no versions, nodes that are exactly cache lines ([`runs`], [`trie`]).
//!
//! * Words: one run of anchors, searched by radix table or static search tree ([`word`]).
//! * Byte strings: a trie whose nodes are such runs over 7-byte slices ([`trie`]).
//!
//! Answers are exact for the anchors in the snapshot. Invariants of a snapshot: anchors are distinct; what is below all
//! anchors belongs to the head page; nothing changes after building, so `&self` methods need no ordering of their own
//! (publication is the owner's release store, a reader's acquire load).

mod merge;
mod runs;
#[cfg(test)]
mod tests;
mod trie;
mod trie_build;
mod word;
mod words;

use core::cmp::Ordering;
use core::fmt;

use crate::key::{Bytes, Form, Word};

/// What an anchor leads to: a page pointer or id, compared to tell pages apart.
pub trait Page: Copy + PartialEq {}

impl<P: Copy + PartialEq> Page for P {}

/// A form of keys that has a search layer. Both have.
pub trait SearchForm: Form {
    /// The layout for this form.
    type Index<P: Page>: AnchorIndex<Self, P>;

    /// The order of two encodings, whatever their lifetimes.
    fn compare(a: Self::Probe<'_>, b: Self::Probe<'_>) -> Ordering;
}

impl SearchForm for Word {
    type Index<P: Page> = word::WordIndex<P>;

    #[inline(always)]
    fn compare(a: u64, b: u64) -> Ordering {
        a.cmp(&b)
    }
}

impl SearchForm for Bytes {
    type Index<P: Page> = trie::Trie<P>;

    #[inline(always)]
    fn compare(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// What a layout must do; [`Snapshot`] tells what the methods mean.
pub trait AnchorIndex<F: SearchForm, P: Page> {
    /// See [`Snapshot::entries`].
    type Entries<'a>: Iterator<Item = P>
    where
        Self: 'a,
        P: 'a;

    /// An object without memory, to be filled before anything else.
    fn empty() -> Self;

    /// Replaces what is there, reusing its memory.
    fn fill(&mut self, head: P, anchors: &[(F::Probe<'_>, P)]);

    /// Replaces what is there by `old` with the changes, reusing memory.
    fn fill_merged<'a>(&mut self, old: &Self, inserts: &[(F::Probe<'a>, P)], removes: &[(F::Probe<'a>, P)]);

    fn jump(&self, probe: F::Probe<'_>) -> P;
    fn jump_many(&self, probes: &[F::Probe<'_>], pages: &mut [P]);
    fn len(&self) -> usize;
    fn bytes(&self) -> usize;
    fn entries(&self) -> Self::Entries<'_>;
}

/// An immutable map from anchors to pages. See the module's text.
pub struct Snapshot<F: SearchForm, P: Page> {
    index: F::Index<P>,
}

impl<F: SearchForm, P: Page> Snapshot<F, P> {
    /// A snapshot of `anchors`, ascending and distinct, over the page `head` for keys below all of them. Linear.
    ///
    /// # Panics
    /// From about 2^31 anchors on.
    pub fn build(head: P, anchors: &[(F::Probe<'_>, P)]) -> Self {
        debug_assert!(anchors.windows(2).all(|pair| F::compare(pair[0].0, pair[1].0).is_lt()));
        let mut index = F::Index::empty();
        index.fill(head, anchors);
        Self { index }
    }

    /// This snapshot with changes: `inserts` first (an existing anchor gets the new page), then `removes` (ignored
    /// unless the anchor then leads to that very page). Both ascending; of several inserts of one anchor the last
    /// counts. Linear in the number of anchors. The memory of `spare` is used first: with the last snapshot but one,
    /// which no reader sees any more, a rebuild touches no fresh memory.
    ///
    /// # Panics
    /// From about 2^31 anchors on.
    pub fn merge<'a>(&self, inserts: &[(F::Probe<'a>, P)], removes: &[(F::Probe<'a>, P)], spare: Option<Self>) -> Self {
        let mut index = spare.map_or_else(F::Index::empty, |spare| spare.index);
        index.fill_merged(&self.index, inserts, removes);
        Self { index }
    }

    /// The page of the greatest anchor at most `probe`, or the head page.
    #[inline]
    pub fn jump(&self, probe: F::Probe<'_>) -> P {
        self.index.jump(probe)
    }

    /// [`Self::jump`] for each of `probes` into the same place of `pages`, their cache misses overlapped.
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg_attr(not(test), expect(dead_code, reason = "get_many does not collect probes yet"))]
    pub fn jump_many(&self, probes: &[F::Probe<'_>], pages: &mut [P]) {
        assert_eq!(probes.len(), pages.len(), "one page per probe");
        self.index.jump_many(probes, pages);
    }

    /// The pages in the order of their anchors, without the head page.
    pub fn entries(&self) -> impl Iterator<Item = P> + '_ {
        self.index.entries()
    }

    /// Number of anchors, the head page's not counted.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.index.bytes()
    }
}

impl<F: SearchForm, P: Page> fmt::Debug for Snapshot<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
