//! What becomes of pages that hold little: they become one with a neighbour, or get some of its entries.
//!
//! All of it happens under the latches of the parent and of both pages, so that for whoever sees the three unlatched the
//! keys of the parent are exactly the fences of the pages. A neighbour that the parent does not know yet, or that has
//! another parent, is left alone.

use super::locked::Locked;
use super::page::{Goal, Page};
use super::policy::Policy;
use super::run::{Piece, Run as _};
use super::tree::Tree;
use crate::key::KeyForm;
use archipelago_sync::rcu::Guard;

/// What is to be done about a parent next.
#[derive(PartialEq, Eq)]
enum Next {
    Nothing,
    /// It holds little itself.
    Balance,
    /// It has one child, which therefore has no neighbour to share with before it is balanced itself.
    BalanceAndReturn,
}

impl<F: KeyForm, P: Policy> Tree<F, P> {
    /// Looks after the child that `key` leads to of a page of `level`.
    #[cold]
    pub(super) fn balance(&self, level: usize, key: F::Probe<'_>, guard: &Guard<'_>) {
        let next = self.balance_child(level, key, guard);
        if next != Next::Nothing {
            self.balance(level + 1, key, guard);
        }
        if next == Next::BalanceAndReturn {
            // If there is no neighbour still, the child stays as it is until its next removal.
            self.balance_child(level, key, guard);
        }
    }

    fn balance_child(&self, level: usize, key: F::Probe<'_>, guard: &Guard<'_>) -> Next {
        let locked = loop {
            // The tree may have become lower meanwhile.
            let Some((page, seen)) = self.find(Goal::At(key), level, guard) else { return Next::Nothing };
            if let Some((locked, _)) = Locked::covering(page, seen, level, key) {
                break locked;
            }
        };
        let (parent, root) = (locked.page(), self.root(guard));
        let mut gone = Vec::new();
        let mut changed = parent.len() > 1 && self.even_out(parent, key, &mut gone);
        if parent == root {
            changed |= self.collapse(parent, &mut gone);
        }
        let next = match parent.len() {
            _ if parent == root => Next::Nothing,
            1 => Next::BalanceAndReturn,
            _ if changed && parent.is_underfull() => Next::Balance,
            _ => Next::Nothing,
        };
        if changed {
            locked.changed();
        }
        for page in gone {
            self.retire(page, guard);
        }
        next
    }

    /// Latches the child in a slot of a latched page.
    fn lock_child<'g>(&self, parent: Page<'g, F, P>, slot: usize) -> Locked<'g, F, P> {
        let child = parent.child(slot).expect("an inner page's entries are pages");
        // SAFETY: a latched page's children are in the tree.
        Locked::child(unsafe { Page::from_address(child) })
    }

    /// Evens out the child that `key` leads to with a neighbour that has the same latched parent. Says whether anything
    /// changed.
    fn even_out<'g>(&self, parent: Page<'g, F, P>, key: F::Probe<'_>, gone: &mut Vec<Page<'g, F, P>>) -> bool {
        let slot = parent.child_slot(Goal::At(key)).min(parent.len() - 2);
        let (left, right) = (self.lock_child(parent, slot), self.lock_child(parent, slot + 1));
        if left.page().right() != Some(right.page().address())
            || !(left.page().is_underfull() || right.page().is_underfull())
        {
            return false;
        }
        let mut piece = left.page().piece();
        right.page().collect(0..right.page().len(), &mut piece.run);
        piece.high = right.page().high();
        let (all, room) = (0..piece.run.len(), Page::<F, P>::WORDS);
        // Not so full that it is split soon.
        if piece.words(all.clone()) > room - (room - piece.fence_words(&all)) / 4 {
            return share(parent, slot + 1, left, right, &piece);
        }
        parent.remove(slot + 1);
        let after = right.page().right();
        // SAFETY: the neighbour of a latched page is in the tree.
        let after: Option<Page<'g, F, P>> = after.map(|after| unsafe { Page::from_address(after) });
        left.page().set_right(after);
        left.page().fill(&piece, all);
        if let Some(after) = after {
            after.set_left(Some(left.page()));
        }
        // The page that goes is let go of first: who waits for it finds its keys' new place unlatched soon.
        gone.push(right.gone());
        left.changed();
        true
    }

    /// Makes the latched root take the place of its only child, again and again. Says whether anything changed.
    fn collapse<'g>(&self, root: Page<'g, F, P>, gone: &mut Vec<Page<'g, F, P>>) -> bool {
        let before = gone.len();
        while root.level() > 0 && root.len() == 1 {
            let child = self.lock_child(root, 0);
            if child.page().right().is_some() {
                // A split has not told the root yet.
                break;
            }
            let piece = child.page().piece();
            root.fill(&piece, 0..piece.run.len());
            gone.push(child.gone());
        }
        gone.len() > before
    }
}

/// Gives two neighbours about the same of their entries. Says whether that was possible.
fn share<F: KeyForm, P: Policy>(
    parent: Page<'_, F, P>,
    slot: usize,
    left: Locked<'_, F, P>,
    right: Locked<'_, F, P>,
    piece: &Piece<F>,
) -> bool {
    let len = piece.run.len();
    let cut = piece.middle(0..len);
    let fits = |part| piece.words(part) <= Page::<F, P>::WORDS;
    if !(fits(0..cut) && fits(cut..len) && parent.has_room_for(piece.fence(cut))) {
        return false;
    }
    parent.remove(slot);
    let told = parent.insert(slot, piece.fence(cut), right.page().as_word());
    debug_assert!(told, "there was room even before");
    left.page().fill(piece, 0..cut);
    right.page().fill(piece, cut..len);
    left.changed();
    right.changed();
    true
}
