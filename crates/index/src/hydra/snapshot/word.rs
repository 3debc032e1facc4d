//! The search layer of word keys: one run of anchors and, beside it, their pages.

use archipelago_platform::hint::prefetch_read;

use super::merge::Merge;
use super::runs::{BATCH, Near, Run, Runs};
use super::words::{Count, Counter, ROOM, Scalar, flip, trim, unflip};
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
    ///
    /// # Safety
    /// The processor has what `C` needs.
    #[inline(always)]
    unsafe fn count<C: Count>(&self, key: u64) -> usize {
        let Some(run) = &self.run else { return 0 };
        let key = flip(key);
        // SAFETY: our own run, sealed by `finish`; `C` is the caller's.
        unsafe {
            let near = self.runs.approach::<C>(run, key);
            self.prefetch_pages(near);
            self.runs.land::<C>(run, near, key)
        }
    }

    /// [`Self::count`] of a batch.
    ///
    /// # Safety
    /// The processor has what `C` needs.
    #[inline(always)]
    unsafe fn count_many<C: Count>(&self, keys: &[u64; BATCH]) -> [usize; BATCH] {
        let Some(run) = &self.run else { return [0; BATCH] };
        let keys = keys.map(flip);
        // SAFETY: our own run, sealed by `finish`; `C` is the caller's.
        let near = unsafe { self.runs.approach_many::<C>(run, &keys) };
        for &near in &near {
            self.runs.prefetch(run, near);
            self.prefetch_pages(near);
        }
        let mut counts = [0; BATCH];
        for ((count, &key), &near) in counts.iter_mut().zip(&keys).zip(&near) {
            // SAFETY: as above.
            *count = unsafe { self.runs.land::<C>(run, near, key) };
        }
        counts
    }

    /// # Safety
    /// AVX2 and its companions are there ([`Counter::detect`]).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn count_avx2(&self, key: u64) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { self.count::<super::words::Avx2>(key) }
    }

    /// # Safety
    /// AVX2 and its companions are there ([`Counter::detect`]).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn count_many_avx2(&self, keys: &[u64; BATCH]) -> [usize; BATCH] {
        // SAFETY: passed on from the caller.
        unsafe { self.count_many::<super::words::Avx2>(keys) }
    }

    #[inline(always)]
    fn prefetch_pages(&self, near: Near) {
        prefetch_read(self.pages.as_ptr().wrapping_add(near.low()));
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

    fn fill_merged<'a>(&mut self, old: &Self, inserts: &[(u64, P)], removes: &[(u64, P)]) {
        self.start(old.pages[0], old.len() + inserts.len(), &old.runs);
        let mut merge = Merge::<'_, 'a, Word, P>::new(inserts, removes);
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
        let count = match self.counter {
            // SAFETY: the scalar counter needs nothing.
            Counter::Scalar => unsafe { self.count::<Scalar>(key) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected.
            Counter::Avx2 => unsafe { self.count_avx2(key) },
        };
        debug_assert!(count < self.pages.len());
        // SAFETY: a count of anchors is at most their number, and there is one page more than anchors.
        unsafe { *self.pages.get_unchecked(count) }
    }

    fn jump_many(&self, probes: &[u64], pages: &mut [P]) {
        let (probes, rest) = probes.as_chunks::<BATCH>();
        let (pages, rest_pages) = pages.as_chunks_mut::<BATCH>();
        for (probes, pages) in probes.iter().zip(pages) {
            let counts = match self.counter {
                // SAFETY: the scalar counter needs nothing.
                Counter::Scalar => unsafe { self.count_many::<Scalar>(probes) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: AVX2 was detected.
                Counter::Avx2 => unsafe { self.count_many_avx2(probes) },
            };
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
