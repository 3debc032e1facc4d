//! Insertion into a page, splits, and the growth of the root.

use super::locked::Locked;
use super::page::{Goal, Page};
use super::piece::Piece;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;

/// A split whose new pages are not yet linked in the level above. (With long keys, a split may make several pages.)
pub(super) struct Split<'g, F: SlotForm, P: Policy> {
    piece: Piece<F>,
    cuts: Vec<usize>,
    parts: Vec<Page<'g, F, P>>,
}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Adds an entry to a latched page that covers the key and does not have it, and unlatches the page.
    pub(super) fn insert<'g>(
        &self,
        locked: Locked<'g, F, P>,
        slot: usize,
        key: F::Probe<'_>,
        word: u64,
        guard: &'g Guard<'_>,
    ) {
        if let Some(split) = self.place(locked, slot, key, word, guard) {
            self.tell(split, guard);
        }
    }

    /// Works as [`insert`](Self::insert) does, but after a split the caller updates the level above.
    pub(super) fn place<'g>(
        &self,
        locked: Locked<'g, F, P>,
        slot: usize,
        key: F::Probe<'_>,
        word: u64,
        guard: &'g Guard<'_>,
    ) -> Option<Split<'g, F, P>> {
        if locked.page().insert(slot, key, word) {
            locked.changed();
            return None;
        }
        self.split(locked, slot, key, word, guard)
    }

    #[cold]
    fn split<'g>(
        &self,
        locked: Locked<'g, F, P>,
        slot: usize,
        key: F::Probe<'_>,
        word: u64,
        guard: &'g Guard<'_>,
    ) -> Option<Split<'g, F, P>> {
        let page = locked.page();
        let (level, len) = (page.level(), page.len());
        let mut piece = Piece::<F> { low: page.low(), high: page.high(), ..Piece::new(level) };
        page.collect(0..slot, &mut piece.run);
        piece.run.push(key, word);
        page.collect(slot..len, &mut piece.run);
        let (mut cuts, room) = (Vec::new(), Page::<F, P>::WORDS);
        if piece.high.is_none() && slot == len && piece.words(0..len) <= room {
            // Keys arrive in ascending order: this page stays full, and the new page gets the new key.
            cuts.push(len);
        } else if slot == 0 && page.left().is_none() && piece.words(1..len + 1) <= room {
            // In descending order: the page to the right gets all present entries.
            cuts.push(1);
        } else {
            piece.cut(0..len + 1, room, &mut cuts);
        }
        // The copies would lead to children that move to the right page.
        page.forget_copies();
        if page == self.root(guard) {
            self.grow(locked, &piece, &cuts, guard);
            return None;
        }
        let parts = self.spread(&piece, &cuts, page, guard);
        locked.changed();
        point(points::SPLIT);
        Some(Split { piece, cuts, parts })
    }

    /// Links the new pages of a split in the level above the split page.
    pub(super) fn tell(&self, split: Split<'_, F, P>, guard: &Guard<'_>) {
        for (part, &cut) in split.parts[1..].iter().zip(&split.cuts) {
            self.link(split.piece.level + 1, split.piece.fence(cut), *part, guard);
        }
    }

    /// Links, in the level above, a page that a split has made.
    fn link(&self, level: usize, key: F::Probe<'_>, child: Page<'_, F, P>, guard: &Guard<'_>) {
        loop {
            // A page with a left neighbour is not the root, so the level above exists. This level is not removed before
            // the page is linked in it, since a root takes over only a child without a right neighbour.
            let found = self.find(Goal::At(key), level, guard);
            let (parent, hold) = found.expect("a split page has a parent");
            if let Some((locked, _)) = Locked::covering(parent, hold.release(), level, key) {
                let found = locked.page().search(key);
                debug_assert!(!found.hit, "a page is told of once");
                return self.insert(locked, found.slot, key, child.as_word(), guard);
            }
        }
    }

    /// Adds a level under the root page, which stays at its address.
    fn grow(&self, locked: Locked<'_, F, P>, piece: &Piece<F>, cuts: &[usize], guard: &Guard<'_>) {
        let parts = self.spread(piece, cuts, self.create_page(piece.level, guard), guard);
        let mut children = Piece::<F>::new(piece.level + 1);
        children.run.push(F::probe(&piece.low), parts[0].as_word());
        for (part, &cut) in parts[1..].iter().zip(cuts) {
            children.run.push(piece.fence(cut), part.as_word());
        }
        locked.page().fill(&children, 0..parts.len());
        locked.changed();
    }

    /// Distributes a piece over `first`, a new page or one that this thread has latched, and over new pages to its
    /// right, one for each cut. Returns all pages.
    fn spread<'g>(
        &self,
        piece: &Piece<F>,
        cuts: &[usize],
        first: Page<'g, F, P>,
        guard: &'g Guard<'_>,
    ) -> Vec<Page<'g, F, P>> {
        // SAFETY: the neighbour of a page that this thread has latched is in the tree.
        let right: Option<Page<'g, F, P>> = first.right().map(|right| unsafe { Page::from_address(right) });
        let mut pages = vec![first];
        pages.extend(cuts.iter().map(|_| self.create_page(piece.level, guard)));
        for (at, page) in pages.iter().enumerate() {
            let start = at.checked_sub(1).map_or(0, |before| cuts[before]);
            let end = cuts.get(at).copied().unwrap_or(piece.run.len());
            page.set_right(pages.get(at + 1).copied().or(right));
            if at > 0 {
                page.set_left(Some(pages[at - 1]));
            }
            page.fill(piece, start..end);
        }
        if let Some(right) = right {
            // This store is the last, since it makes the new pages reachable for walks to the left.
            right.set_left(pages.last().copied());
        }
        pages
    }
}
