//! The search layer of word keys: one run of anchors and, beside it, their pages.

use super::merge::Merge;
use super::runs::{Run, Runs};
use super::words::{Counter, Scalar, flip};
use super::{AnchorIndex, Page};
use crate::key::Word;

/// See the module's text.
pub struct WordIndex<P> {
    runs: Runs,
    run: Option<Run>,
    /// The head page, then one page per anchor, so that a count of anchors is a position.
    pages: Vec<P>,
    counter: Counter,
}

impl<P: Page> WordIndex<P> {
    fn start(&mut self, head: P, room: usize) {
        self.runs.clear();
        self.runs.reserve(room);
        self.runs.start(usize::MAX);
        self.pages.clear();
        self.pages.reserve(room + 1);
        self.pages.push(head);
    }

    #[inline(always)]
    fn push(&mut self, anchor: u64, page: P) {
        self.runs.push(flip(anchor));
        self.pages.push(page);
    }

    fn finish(&mut self) {
        self.run = if self.pages.len() > 1 { Some(self.runs.finish(0)) } else { None };
        self.runs.seal();
    }

    /// How many anchors are `<= key`.
    #[inline]
    fn count(&self, key: u64) -> usize {
        let Some(run) = &self.run else { return 0 };
        match self.counter {
            // SAFETY: our own, sealed runs; the scalar counter needs nothing.
            Counter::Scalar => unsafe { self.runs.count::<Scalar>(run, flip(key)) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected, our own run.
            Counter::Avx2 => unsafe { self.count_avx2(run, flip(key)) },
        }
    }

    /// # Safety
    /// AVX2 is there, and `run` is our own.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1")]
    unsafe fn count_avx2(&self, run: &Run, key: i64) -> usize {
        // SAFETY: passed on from the caller; `finish` sealed the runs.
        unsafe { self.runs.count::<super::words::Avx2>(run, key) }
    }

    fn anchors(&self) -> impl Iterator<Item = u64> {
        self.run.iter().flat_map(|run| self.runs.iter(run))
    }
}

impl<P: Page> AnchorIndex<Word, P> for WordIndex<P> {
    type Entries<'a>
        = core::iter::Copied<core::slice::Iter<'a, P>>
    where
        P: 'a;

    fn empty() -> Self {
        Self { runs: Runs::default(), run: None, pages: Vec::new(), counter: Counter::detect() }
    }

    fn fill(&mut self, head: P, anchors: &[(u64, P)]) {
        self.start(head, anchors.len());
        for &(anchor, page) in anchors {
            self.push(anchor, page);
        }
        self.finish();
    }

    fn fill_merged<'a>(&mut self, old: &Self, inserts: &'a [(u64, P)], removes: &'a [(u64, P)]) {
        self.start(old.pages[0], old.len() + inserts.len());
        let mut merge = Merge::<Word, P>::new(inserts, removes);
        for (anchor, &page) in old.anchors().zip(&old.pages[1..]) {
            merge.old(anchor, page, |anchor, page| self.push(anchor, page));
        }
        merge.finish(|anchor, page| self.push(anchor, page));
        self.finish();
    }

    #[inline]
    fn jump(&self, key: u64) -> P {
        let count = self.count(key);
        debug_assert!(count < self.pages.len());
        // SAFETY: a count of anchors is at most their number, and there is one page more than anchors.
        unsafe { *self.pages.get_unchecked(count) }
    }

    fn jump_many(&self, probes: &[u64], pages: &mut [P]) {
        for (&probe, page) in probes.iter().zip(pages) {
            *page = self.jump(probe);
        }
    }

    fn len(&self) -> usize {
        self.pages.len() - 1
    }

    fn bytes(&self) -> usize {
        self.runs.bytes() + self.pages.capacity() * size_of::<P>()
    }

    fn entries(&self) -> Self::Entries<'_> {
        self.pages[1..].iter().copied()
    }
}
