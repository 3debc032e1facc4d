//! The B-link tree as a [`Structure`], the interface that maps use.

use super::BLink;
use super::check;
use super::cursor::Cursor;
use super::page::Page;
use super::policy::Policy;
use super::replicas::Trees;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::limits::Limits;
use crate::structure::{Bytes, End, Held, Kind, Put, Structure, When, Word, Words};
use crate::tally::{Growth, Tally};
use crate::thin::{Extent, Thin};
use archipelago_platform::sync::{Arc, Weak};
use archipelago_platform::topology::Topology;
use archipelago_sync::rcu::{Domain, Guard, Owner};
use core::any::Any;
use core::ops::Bound;

/// The most walks that one [`Structure::settle`] makes.
const MOST_WALKS: usize = 6;

/// The greatest number of entries of a leaf that a scan copies at a time.
const AT_ONCE: usize = 64;

/// The settings of a map.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) topology: Topology,
}

impl Default for Config {
    fn default() -> Self {
        Config { topology: Topology::current().clone() }
    }
}

/// The trees of a map, and the domain that reclaims their memory.
pub struct Core<F: SlotForm, P: Policy> {
    // Dropped first, since retired pages are returned to the trees' arenas.
    domain: Domain,
    trees: Trees<F, P>,
    tally: Tally,
    limits: Limits,
    thin: Thin,
}

impl<P: Policy> Kind for BLink<P> {
    type OfWords = Core<Word, P>;
    type OfBytes = Core<Bytes, P>;
    type Config = Config;
    type Hooks = dyn Hooks;

    const NAME: &'static str = "BLinkTree";
}

/// Methods for tests of a B-link tree of either form.
pub trait Hooks {
    fn retries(&self) -> u64;
    fn move_pages(&self);
    fn levels(&self) -> usize;
}

impl<F: SlotForm, P: Policy> Hooks for Core<F, P> {
    fn retries(&self) -> u64 {
        self.trees.all().iter().map(Tree::retries).sum()
    }

    fn move_pages(&self) {
        self.trees.all().iter().for_each(|tree| tree.move_pages(&self.domain));
        self.reclaim();
    }

    fn levels(&self) -> usize {
        let guard = self.domain.pin();
        self.trees.all().iter().map(|tree| tree.root(&guard).level() + 1).max().unwrap_or(1)
    }
}

impl<F: SlotForm, P: Policy> Owner for Core<F, P> {
    fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<F: SlotForm, P: Policy> Core<F, P> {
    /// Calls `visit` with the entries of one run after another, without a latch held; see [`Structure::scan`].
    fn walk<const DOWN: bool>(
        tree: &Tree<F, P>,
        guard: &Guard<'_>,
        from: Bound<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let mut cursor = Cursor::<F, P, DOWN>::new(from);
        let mut run = F::Run::with_room(AT_ONCE.min(limit));
        let mut visited = 0;
        while visited < limit {
            cursor.fill(tree, AT_ONCE.min(limit - visited), &mut run, guard);
            let len = run.len();
            // SAFETY: the cursor has validated the run's entries, under the caller's guard.
            unsafe { words.fetch((0..len).map(|at| run.value(at))) };
            if len == 0 {
                break;
            }
            for step in 0..len {
                let at = if DOWN { len - 1 - step } else { step };
                visited += 1;
                if !visit(run.key(at), run.value(at)) {
                    return visited;
                }
            }
        }
        visited
    }

    /// Returns whether a walk should merge pages.
    fn is_due(&self) -> bool {
        self.thin.is_due(self.extent(), Page::<F, P>::MOST)
    }

    /// Returns the numbers of the map's entries and of a tree's pages.
    fn extent(&self) -> Extent {
        Extent { entries: self.tally.entries(), pages: self.pages() }
    }

    /// Returns the number of pages of a tree.
    fn pages(&self) -> usize {
        self.trees.all()[0].pages()
    }

    /// Merges and moves pages while this frees memory, and frees pages that no reader can be using.
    fn sweep(&self) {
        self.reclaim();
        // Walks that merge are repeated while each of them removes more than an eighth of the pages. Later walks only
        // move the pages that are the last ones in their memory regions after the merges.
        let mut merge = self.is_due();
        for _ in 0..MOST_WALKS {
            let began = self.extent();
            // `filter` visits all trees, rather than only the first that has work.
            if self.trees.all().iter().filter(|tree| tree.sweep(merge, &self.domain)).count() == 0 {
                return;
            }
            self.reclaim();
            if merge {
                let ended = self.extent();
                self.thin.walked(began, ended);
                merge = 8 * ended.pages < 7 * began.pages;
            }
        }
    }

    fn reclaim(&self) {
        // One attempt frees everything if no reader is behind. A guard of another thread can make an attempt fail, even
        // a guard that another attempt holds for a moment. So several attempts are made.
        (0..4).for_each(|_| self.domain.collect());
    }

    #[inline]
    fn counted(&self, put: Put) -> Put {
        if let Put::Inserted = put {
            self.tally.add(Growth::entry(0));
        }
        put
    }
}

// SAFETY: the contract is what the modules of this structure prove, part by part.
unsafe impl<F: SlotForm, P: Policy> Structure<F> for Core<F, P> {
    /// The tree that this thread reads.
    type Place<'s> = &'s Tree<F, P>;
    /// The leaf of the last write.
    type Near<'g> = Option<Page<'g, F, P>>;
    type Config = Config;
    type Hooks = dyn Hooks;

    const LONGEST_KEY: usize = Page::<F, P>::LONGEST_KEY;

    fn build(config: &Config, limits: Limits) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let domain = limits.backlog.domain().tended_by(this.clone());
            Core {
                domain,
                trees: Trees::new(config.topology.clone()),
                tally: Tally::new(),
                limits,
                thin: Thin::default(),
            }
        })
    }

    fn hooks(&self) -> &Self::Hooks {
        self
    }

    #[inline]
    fn place(&self) -> &Tree<F, P> {
        self.trees.local()
    }

    #[inline]
    fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn get(&self, place: &Tree<F, P>, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        self.trees.freshen(place, key, guard);
        place.get(key, guard)
    }

    fn put(&self, place: &Tree<F, P>, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        self.counted(self.trees.put(place, &mut None, key, word, when, guard))
    }

    fn take(&self, place: &Tree<F, P>, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        let word = self.trees.remove(place, key, expected, guard)?;
        self.tally.add(Growth::default().entry_gone(0));
        Some(word)
    }

    fn take_end<R>(
        &self,
        place: &Tree<F, P>,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let mut run = F::Run::with_room(1);
        match end {
            End::First => self.trees.pop::<false>(place, &mut run, guard),
            End::Last => self.trees.pop::<true>(place, &mut run, guard),
        }
        if run.len() == 0 {
            return None;
        }
        self.tally.add(Growth::default().entry_gone(0));
        Some(found(run.key(0), run.value(0)))
    }

    fn scan(
        &self,
        place: &Tree<F, P>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.trees.freshen_all(place, guard);
        Self::walk::<false>(place, guard, Bound::Included(from), limit, words, visit)
    }

    fn scan_back(
        &self,
        place: &Tree<F, P>,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.trees.freshen_all(place, guard);
        let from = bound.map_or(Bound::Unbounded, Bound::Excluded);
        Self::walk::<true>(place, guard, from, limit, words, visit)
    }

    fn split_points(&self, place: &Tree<F, P>, guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        self.trees.freshen_all(place, guard);
        let cuts = place.cuts(count.saturating_mul(16), guard);
        let mut last: Option<F::Owned> = None;
        let count = count.min(cuts.len());
        for part in 1..=count {
            let cut = F::probe(&cuts[part * cuts.len() / (count + 1)]);
            // A fence may not be a key, but the first entry at or above it is.
            self.ceiling(place, guard, cut, |key, _| {
                if last.as_ref().is_none_or(|last| F::compare(F::probe(last), key).is_lt()) {
                    last = Some(F::own(key));
                    show(key);
                }
            });
        }
    }

    fn put_near<'g>(
        &self,
        place: &Tree<F, P>,
        guard: &'g Guard<'_>,
        near: &mut Option<Page<'g, F, P>>,
        key: F::Probe<'_>,
        word: u64,
    ) -> Put {
        self.counted(self.trees.put(place, near, key, word, When::Always, guard))
    }

    fn entries(&self) -> usize {
        self.tally.entries()
    }

    fn held(&self) -> Held {
        let trees = self.trees.all();
        let pages = trees.iter().map(Tree::pages).sum();
        let bytes: usize = trees.iter().map(Tree::bytes).sum();
        let logs = self.trees.feed().map_or(0, |feed| feed.bytes());
        Held { bytes: bytes + logs, pages, room: 0, layers: 0 }
    }

    fn outside(&self, _: F::Probe<'_>) -> usize {
        0
    }

    fn spare(&self, _: &Tree<F, P>) -> usize {
        // An insertion into the map is an insertion into each tree.
        let trees = self.trees.all();
        trees.iter().map(Tree::spare).min().unwrap_or(0) * trees.len()
    }

    fn fits(&self, place: &Tree<F, P>, guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        place.fits(key, guard)
    }

    fn is_thin(&self) -> bool {
        self.is_due() || self.trees.all().iter().any(Tree::is_sparse)
    }

    fn settle(&self) {
        if let Some(feed) = self.trees.feed() {
            feed.settle(self.trees.all(), &self.domain.pin());
        }
        self.sweep();
    }

    unsafe fn dismantle(&self, each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        self.domain.stop_tending();
        if let Some(feed) = self.trees.feed() {
            // Replays the log first: otherwise words that only another replica has would be lost.
            feed.settle(self.trees.all(), &self.domain.pin());
            if !feed.is_level(&self.trees.all()[0]) {
                // Some words of this replica are retired. In this child process all of the replica's words leak.
                return None;
            }
        }
        self.trees.all()[0].show_words(each);
        None
    }

    fn check(&self) {
        let guard = self.domain.pin();
        for tree in self.trees.all() {
            self.trees.freshen_all(tree, &guard);
            assert_eq!(check::check(tree, &guard), self.entries(), "the count is the number of entries");
            check::check_same(tree, &self.trees.all()[0], &guard);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::blink::{BLinkTree, Builder, LogFed, Standard};

    /// Makes a map with two replicas that are fed from a log.
    pub(in super::super) fn logged() -> BLinkTree<u64, u64, LogFed<Standard>> {
        Builder::default().topology(Topology::synthetic(2, 1)).build()
    }

    impl<F: SlotForm, P: Policy> Core<F, P> {
        pub(in super::super) fn trees(&self) -> &Trees<F, P> {
            &self.trees
        }
    }
}
