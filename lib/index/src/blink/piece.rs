//! Entries of a level that are distributed over pages, and the positions at which they are cut.

use super::run::Run as _;
use super::slots::SlotForm;
use core::ops::Range;

/// The entries of one level between two fences (bounds of a range of keys), to be distributed over pages.
pub(super) struct Piece<F: SlotForm> {
    pub(super) run: F::Run,
    pub(super) level: usize,
    pub(super) low: F::Owned,
    /// The upper fence; `None` at the right end of the level.
    pub(super) high: Option<F::Owned>,
}

impl<F: SlotForm> Piece<F> {
    /// Makes a piece that covers all keys and has no entries.
    pub(super) fn new(level: usize) -> Self {
        Piece { run: F::Run::default(), level, low: F::least(), high: None }
    }

    /// Returns the fence between the part that begins with entry `at` and the previous part. In leaves the fence may be
    /// shorter than the entry's key. (In inner pages the key is the `low` of a page, and must not change.)
    pub(super) fn fence(&self, at: usize) -> F::Probe<'_> {
        let key = self.run.key(at);
        if self.level == 0 { F::separator(self.run.key(at - 1), key) } else { key }
    }

    /// Returns the lower fence of a part.
    pub(super) fn lower(&self, part: &Range<usize>) -> F::Probe<'_> {
        if part.start == 0 { F::probe(&self.low) } else { self.fence(part.start) }
    }

    /// Returns the upper fence of a part.
    pub(super) fn upper(&self, part: &Range<usize>) -> Option<F::Probe<'_>> {
        if part.end < self.run.len() { Some(self.fence(part.end)) } else { self.high.as_ref().map(F::probe) }
    }

    /// Returns the number of words that a part takes in a page of its own.
    pub(super) fn words(&self, part: Range<usize>) -> usize {
        let (low, high) = (self.lower(&part), self.upper(&part));
        let prefix = F::prefix(low, high);
        let entries = part.clone().map(|at| F::entry_words(self.stored(at, &part, prefix), prefix));
        self.fence_words(&part) + entries.sum::<usize>()
    }

    /// Returns how many of these words the fences take.
    pub(super) fn fence_words(&self, part: &Range<usize>) -> usize {
        let high = self.upper(part).map_or(0, |high| F::fence_words(F::len(high)));
        F::fence_words(F::len(self.lower(part))) + high
    }

    /// Returns the key under which an entry of a part is stored. In an inner page, the key of the first entry may be
    /// any key at or below all keys that are searched for in the page.
    pub(super) fn stored(&self, at: usize, part: &Range<usize>, prefix: usize) -> F::Probe<'_> {
        if self.level > 0 && at == part.start { F::floor(self.lower(part), prefix) } else { self.run.key(at) }
    }

    /// Returns the entry at which to cut a part of two entries or more, so that both sides take about the same room.
    pub(super) fn middle(&self, part: Range<usize>) -> usize {
        let prefix = F::prefix(self.lower(&part), self.upper(&part));
        let mut words = 0;
        let sums: Vec<usize> = part
            .clone()
            .map(|at| {
                words += F::entry_words(self.run.key(at), prefix);
                words
            })
            .collect();
        let half = sums.partition_point(|&sum| sum <= words / 2);
        (part.start + half).clamp(part.start + 1, part.end - 1)
    }

    /// Cuts a part in two, recursively until each part fits in `room` words. Two parts are nearly always enough. But
    /// with long keys the new fences can take much more room than the page's fences. A single entry always fits.
    pub(super) fn cut(&self, part: Range<usize>, room: usize, cuts: &mut Vec<usize>) {
        debug_assert!(part.len() > 1, "an entry fits, whatever the fences");
        let middle = self.middle(part.clone());
        if self.words(part.start..middle) > room {
            self.cut(part.start..middle, room, cuts);
        }
        cuts.push(middle);
        if self.words(middle..part.end) > room {
            self.cut(middle..part.end, room, cuts);
        }
    }
}
