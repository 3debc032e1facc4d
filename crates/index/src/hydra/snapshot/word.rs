//! The search layer of word keys: one run of anchors and, beside it, their pages.

use archipelago_platform::hint::prefetch_read;

use super::merge::Merge;
use super::runs::{BATCH, Run, Runs};
use super::words::{Counter, ROOM, Scalar, flip, trim, unflip};
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
    fn start(&mut self, head: P, room: usize, like: &Runs) {
        self.runs.clear();
        self.runs.reserve(room, like);
        self.runs.start(usize::MAX);
        self.pages.clear();
        self.pages.reserve_exact(room + room / ROOM + 1);
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
        trim(&mut self.pages);
    }

    /// How many anchors are `<= key`.
    #[inline]
    fn count(&self, key: u64) -> usize {
        let Some(run) = &self.run else { return 0 };
        match self.counter {
            // SAFETY: our own, sealed runs; the scalar counter needs nothing.
            Counter::Scalar => unsafe { self.runs.count::<Scalar>(run, flip(key), |count| self.near(count)) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected, our own run.
            Counter::Avx2 => unsafe { self.count_avx2(run, flip(key)) },
        }
    }

    /// # Safety
    /// AVX2 is there, and `run` is our own.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn count_avx2(&self, run: &Run, key: i64) -> usize {
        // SAFETY: passed on from the caller; `finish` sealed the runs.
        unsafe { self.runs.count::<super::words::Avx2>(run, key, |count| self.near(count)) }
    }

    /// [`Self::count`] of a batch.
    #[inline]
    fn count_many(&self, run: &Run, keys: &[i64; BATCH]) -> [usize; BATCH] {
        match self.counter {
            // SAFETY: our own, sealed runs; the scalar counter needs nothing.
            Counter::Scalar => unsafe { self.runs.count_many::<Scalar>(run, keys, |count| self.near(count)) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected, our own run.
            Counter::Avx2 => unsafe { self.count_many_avx2(run, keys) },
        }
    }

    /// # Safety
    /// AVX2 is there, and `run` is our own.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn count_many_avx2(&self, run: &Run, keys: &[i64; BATCH]) -> [usize; BATCH] {
        // SAFETY: passed on from the caller; `finish` sealed the runs.
        unsafe { self.runs.count_many::<super::words::Avx2>(run, keys, |count| self.near(count)) }
    }

    /// Starts fetching the pages of the anchors from `position` on.
    #[inline(always)]
    fn near(&self, position: usize) {
        prefetch_read(self.pages.as_ptr().wrapping_add(position + 1));
    }

    /// The anchors, flipped.
    fn anchors(&self) -> &[i64] {
        self.run.as_ref().map_or(&[], |run| self.runs.words(run))
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
        self.start(head, anchors.len(), &Runs::default());
        for &(anchor, page) in anchors {
            self.push(anchor, page);
        }
        self.finish();
    }

    fn fill_merged<'a>(&mut self, old: &Self, inserts: &'a [(u64, P)], removes: &'a [(u64, P)]) {
        self.start(old.pages[0], old.len() + inserts.len(), &old.runs);
        let mut merge = Merge::<Word, P>::new(inserts, removes);
        let mut words = old.anchors();
        let mut pages = &old.pages[1..];
        while let Some(change) = merge.next() {
            let unchanged = words.iter().take_while(|&&word| word < flip(change)).count();
            self.runs.extend(&words[..unchanged]);
            self.pages.extend_from_slice(&pages[..unchanged]);
            let (Some(&word), Some(&page)) = (words.get(unchanged), pages.get(unchanged)) else {
                (words, pages) = (&[], &[]);
                break;
            };
            merge.old(unflip(word), page, |anchor, page| self.push(anchor, page));
            (words, pages) = (&words[unchanged + 1..], &pages[unchanged + 1..]);
        }
        self.runs.extend(words);
        self.pages.extend_from_slice(pages);
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
        let Some(run) = &self.run else { return pages.fill(self.pages[0]) };
        let (probes, rest) = probes.as_chunks::<BATCH>();
        let (pages, rest_pages) = pages.as_chunks_mut::<BATCH>();
        for (probes, pages) in probes.iter().zip(pages) {
            let counts = self.count_many(run, &probes.map(flip));
            *pages = counts.map(|count| self.pages[count]);
        }
        for (&probe, page) in rest.iter().zip(rest_pages) {
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
