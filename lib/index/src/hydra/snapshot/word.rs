//! The search layer of word keys. Look-ups read an interpolation trie ([`lines`](super::lines)). The sorted anchors
//! (the lowest key of each page) and the identifiers of their pages are stored in addition. The merge that makes the
//! next snapshot from this one reads both, and scans read the identifiers.

use super::ids::PageIds;
use super::lines::{self, Found, Line, Node};
use super::merge::Merge;
use super::{AnchorIndex, Target};
use crate::structure::Word;
use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
use archipelago_platform::touch;
use core::marker::PhantomData;

/// The search layer that the module's documentation describes.
pub struct WordIndex<P> {
    root: Node,
    head: u32,
    lines: Array<Line>,
    pages: PageIds,
    anchors: Array<u64>,
    /// The identifier of the head page, then for each anchor the identifier of its page.
    ids: Array<u32>,
    of: PhantomData<P>,
}

impl<P: Target> WordIndex<P> {
    fn start(&mut self, head: P, room: usize) {
        self.anchors = Array::with_capacity(room, self.lines.node());
        self.ids = Array::with_capacity(room + 1, self.lines.node());
        self.head = self.pages.acquire(head).expect("there is room for the first page");
        self.ids.push(self.head);
    }

    /// Appends an anchor, which must be greater than all anchors before. An anchor whose page cannot be numbered is
    /// left out. Then look-ups of keys behind it return a page further left, which is correct but slower.
    #[inline(always)]
    fn push(&mut self, anchor: u64, page: P) {
        if let Some(id) = self.pages.acquire(page) {
            self.anchors.push(anchor);
            self.ids.push(id);
        }
    }

    fn finish(&mut self) {
        self.root = lines::build(&self.anchors, &self.ids, &mut self.lines);
    }

    /// Returns the page of a number from `ids` or `lines`.
    #[inline(always)]
    fn page(&self, id: u32) -> P {
        // SAFETY: all numbers in `ids` and `lines` were returned by `acquire` for a `P`.
        unsafe { self.pages.page(id) }
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Found {
        // SAFETY: `finish` has built `root` and `lines` together.
        unsafe { lines::find(&self.lines, &self.root, self.head, key) }
    }
}

impl<P: Target> AnchorIndex<Word, P> for WordIndex<P> {
    /// An index of `ids`.
    type Behind = usize;

    type Entries<'a>
        = Entries<'a, P>
    where
        P: 'a;

    fn empty(node: Option<NodeId>) -> Self {
        Self {
            root: Node::default(),
            head: 0,
            lines: Array::on(node),
            pages: PageIds::default(),
            anchors: Array::default(),
            ids: Array::default(),
            of: PhantomData,
        }
    }

    fn node(&self) -> Option<NodeId> {
        self.lines.node()
    }

    fn fill(&mut self, head: P, anchors: &[(u64, P)]) {
        self.start(head, anchors.len());
        for &(anchor, page) in anchors {
            self.push(anchor, page);
        }
        self.finish();
    }

    fn fill_merged<'a>(&mut self, old: &Self, inserts: &[(u64, P)], removes: &[(u64, P)]) {
        // The old pages stay in use, except those that `Merge` removes.
        self.pages = old.pages.clone();
        self.pages.release(old.head);
        self.start(old.page(old.head), old.len() + inserts.len());
        let mut merge = Merge::<'_, 'a, Word, P>::new(inserts, removes);
        let mut anchors = &old.anchors[..];
        let mut ids = &old.ids[1..];
        while let Some(change) = merge.next() {
            let unchanged = anchors.partition_point(|&anchor| anchor < change);
            self.anchors.extend_from_slice(&anchors[..unchanged]);
            self.ids.extend_from_slice(&ids[..unchanged]);
            let (Some(&anchor), Some(&id)) = (anchors.get(unchanged), ids.get(unchanged)) else {
                (anchors, ids) = (&[], &[]);
                break;
            };
            self.pages.release(id);
            merge.old(anchor, old.page(id), |anchor, page| self.push(anchor, page));
            (anchors, ids) = (&anchors[unchanged + 1..], &ids[unchanged + 1..]);
        }
        self.anchors.extend_from_slice(anchors);
        self.ids.extend_from_slice(ids);
        merge.finish(|anchor, page| self.push(anchor, page));
        self.finish();
    }

    #[inline(always)]
    fn prefetch(&self, key: u64) {
        lines::prefetch(&self.lines, &self.root, key);
    }

    #[inline(always)]
    fn jump(&self, key: u64) -> P {
        self.page(self.find(key).id)
    }

    fn jump_below(&self, bound: Option<u64>) -> P {
        self.jump(bound.map_or(u64::MAX, |bound| bound - 1))
    }

    #[inline]
    fn jump_ahead(&self, key: u64) -> (P, usize) {
        let found = self.find(key);
        (self.page(found.id), found.rank as usize + 1)
    }

    #[inline]
    fn follower(&self, behind: &mut usize) -> Option<P> {
        let id = self.ids.get(*behind)?;
        touch(id, size_of_val(id));
        *behind += 1;
        Some(self.page(*id))
    }

    fn len(&self) -> usize {
        self.anchors.len()
    }

    fn bytes(&self) -> usize {
        self.lines.bytes() + self.pages.bytes() + self.anchors.bytes() + self.ids.bytes()
    }

    fn entries(&self) -> Entries<'_, P> {
        Entries { index: self, ids: self.ids[1..].iter() }
    }
}

/// The iterator of [`AnchorIndex::entries`].
pub struct Entries<'a, P> {
    index: &'a WordIndex<P>,
    ids: core::slice::Iter<'a, u32>,
}

impl<P: Target> Iterator for Entries<'_, P> {
    type Item = P;

    fn next(&mut self) -> Option<P> {
        self.ids.next().map(|&id| self.index.page(id))
    }
}
