//! The invariants of a whole tree, for tests: see [`page`](super::page).

use super::cursor::Cursor;
use super::page::Page;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use archipelago_sync::rcu::Guard;
use core::ops::Bound;

/// Checks all invariants, while no thread writes. Returns the number of entries.
pub(super) fn check<F: SlotForm, P: Policy>(tree: &Tree<F, P>, guard: &Guard<'_>) -> usize {
    let root = tree.root(guard);
    assert!(root.left().is_none() && root.right().is_none(), "the root has no neighbours");
    let mut pages = 1;
    let mut level = vec![root];
    loop {
        let (entries, children) = check_level(&level);
        pages += children.len();
        if children.is_empty() {
            assert!(tree.pages() >= pages, "every page is of an arena");
            return entries;
        }
        level = children;
    }
}

/// Checks the pages of a level, in order; `level` are all pages that the level above knows. Returns the number of their
/// entries, and their children.
fn check_level<'g, F: SlotForm, P: Policy>(level: &[Page<'g, F, P>]) -> (usize, Vec<Page<'g, F, P>>) {
    let (mut entries, mut children) = (0, Vec::new());
    let least = F::least();
    assert!(F::compare(F::probe(&level[0].low()), F::probe(&least)).is_eq(), "a level begins at the least key");
    assert!(level[0].left().is_none(), "the first page of a level has nothing to its left");
    assert!(level[level.len() - 1].high().is_none(), "a level ends at the greatest key");
    for pair in level.windows(2) {
        assert!(pair[0].right() == Some(pair[1].address()), "a page's right neighbour is the parent's next child");
        assert!(pair[1].left() == Some(pair[0].address()), "a page's left neighbour is the parent's child before");
        let (high, low) = (pair[0].high().expect("a neighbour"), pair[1].low());
        assert!(F::compare(F::probe(&high), F::probe(&low)).is_eq(), "a page ends where the next begins");
    }
    for page in level {
        assert!(page.latch().read().is_some(), "no page is latched or gone");
        assert_eq!(page.level(), level[0].level(), "pages of one level");
        check_copies(*page);
        let piece = page.piece();
        assert_eq!(piece.run.len(), page.len());
        assert_eq!(page.used(), piece.words(0..piece.run.len()), "words in use are counted");
        for at in 0..piece.run.len() {
            let key = piece.run.key(at);
            assert!(page.covers(key), "{key:?} lies outside its page");
            assert!(at == 0 || F::compare(piece.run.key(at - 1), key).is_lt(), "{key:?} is out of order");
            if page.level() == 0 {
                assert!(page.search(key).hit && page.search(key).slot == at, "{key:?} is found");
                entries += 1;
                continue;
            }
            let child = page.child(at).expect("an inner page's entries are pages");
            // SAFETY: the page is a child of a page in the tree, and no thread writes.
            let child: Page<'g, F, P> = unsafe { Page::from_address(child) };
            assert_eq!(child.level() + 1, page.level(), "a child is one level down");
            assert!(F::compare(F::probe(&child.low()), key).is_eq(), "a child begins at its entry's key");
            children.push(child);
        }
        assert!(page.level() == 0 || page.len() > 0, "an inner page has a child");
    }
    (entries, children)
}

/// Checks that a page's copies lead only to its children, and that copies of its present version have its content.
fn check_copies<F: SlotForm, P: Policy>(page: Page<'_, F, P>) {
    let children: Vec<_> = (0..page.len()).filter_map(|slot| page.child(slot)).collect();
    let version = page.latch().read().map(|seen| seen.number());
    for copy in page.live_copies() {
        assert!(copy.source() == page && copy.level() == page.level(), "a copy of this page");
        let copied = (0..copy.len()).filter_map(|slot| copy.child(slot));
        // SAFETY: an entry of a copy of a page above level 1 is a copy.
        let source = |child| unsafe { Page::<F, P>::from_address(child) }.source().address();
        let copied: Vec<_> = copied.map(|child| if page.level() == 1 { child } else { source(child) }).collect();
        assert!(copied.iter().all(|child| children.contains(child)), "a copy leads to children of its source");
        assert!(version != Some(copy.copied_version()) || copied == children, "a copy of this version is the same");
    }
}

/// Checks that two trees have the same entries, while no thread writes.
pub(super) fn check_same<F: SlotForm, P: Policy>(tree: &Tree<F, P>, other: &Tree<F, P>, guard: &Guard<'_>) {
    let (mut run, mut other_run) = (F::Run::default(), F::Run::default());
    let [mut cursor, mut other_cursor] = [(); 2].map(|()| Cursor::<F, P, false>::new(Bound::Unbounded));
    loop {
        // Entry by entry, since the trees' pages may end at different keys.
        cursor.fill(tree, 1, &mut run, guard);
        other_cursor.fill(other, 1, &mut other_run, guard);
        assert_eq!(run.len(), other_run.len(), "replicas have the same number of entries");
        if run.len() == 0 {
            return;
        }
        assert!(F::compare(run.key(0), other_run.key(0)).is_eq(), "replicas have the same keys");
        assert_eq!(run.value(0), other_run.value(0), "replicas have the same values");
    }
}
