//! What becomes of pages that hold little: they become one with a neighbour, or get some of its entries.
//!
//! All of it happens under the latches of the parent and of both pages, so a thread that sees the three unlatched finds that the
//! keys of the parent are exactly the fences of the pages. A neighbour that the parent does not know yet, or that has
//! another parent, is left alone.

use super::locked::Locked;
use super::page::{Goal, Page};
use super::piece::Piece;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::thin::WELL;
use archipelago_sync::rcu::Guard;

/// Why a page is looked after.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It holds little.
    Underfull,
    /// It is full, and its neighbour may have room.
    Full,
    /// A walk has come to it, which moves it if it is not to stay where it lies, and if `merge` says so merges it with its
    /// right neighbour where both fit well into one.
    Swept { merge: bool },
}

/// What is to be done about a parent next.
#[derive(PartialEq, Eq)]
enum Next {
    Nothing,
    /// It holds little itself.
    Balance,
    /// It has one child, which therefore has no neighbour to share with before it is balanced itself.
    BalanceAndReturn,
}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Looks after the child that `key` leads to of a page of `level`, and after what follows from that. Says whether
    /// anything changed.
    #[cold]
    pub(super) fn balance(&self, level: usize, key: F::Probe<'_>, guard: &Guard<'_>) -> bool {
        let mut changed = false;
        loop {
            let (here, next) = self.balance_child(level, key, Why::Underfull, guard);
            changed |= here;
            let above = next != Next::Nothing && self.balance(level + 1, key, guard);
            // If there is no neighbour still, the child stays as it is until its next removal.
            if !above || next != Next::BalanceAndReturn {
                return changed;
            }
        }
    }

    /// Gives entries of the full leaf that `key` leads to, to a neighbour that has room for them.
    #[cold]
    pub(super) fn relieve(&self, key: F::Probe<'_>, guard: &Guard<'_>) {
        self.balance_child(1, key, Why::Full, guard);
    }

    /// Looks after the child that `key` leads to of a page of `level`, for whatever reason, and after what follows from that.
    pub(super) fn balance_from(&self, level: usize, key: F::Probe<'_>, why: Why, guard: &Guard<'_>) {
        if self.balance_child(level, key, why, guard).1 != Next::Nothing {
            self.balance(level + 1, key, guard);
        }
    }

    fn balance_child(&self, level: usize, key: F::Probe<'_>, why: Why, guard: &Guard<'_>) -> (bool, Next) {
        let locked = loop {
            // The tree may have become lower meanwhile.
            let Some((parent, hold)) = self.find(Goal::At(key), level, guard) else {
                return (false, Next::Nothing);
            };
            if let Some((locked, _)) = Locked::covering(parent, hold.release(), level, key) {
                break locked;
            }
        };
        let (parent, root) = (locked.page(), self.root(guard));
        let mut gone = Vec::new();
        let mut changed = false;
        loop {
            let before = gone.len();
            changed |= match why {
                Why::Swept { merge } => self.bring_together(parent, key, merge, &mut gone, guard),
                Why::Underfull | Why::Full => self.even_out(parent, key, why, &mut gone),
            };
            // A page that has become one with its neighbour may still hold little, or nothing.
            if gone.len() == before {
                break;
            }
        }
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
            parent.forget_copies();
            locked.changed();
        }
        for page in gone {
            self.retire(page, guard);
        }
        (changed, next)
    }

    /// The child in a slot of a latched page.
    pub(super) fn child_of<'g>(&self, parent: Page<'g, F, P>, slot: usize) -> Page<'g, F, P> {
        let child = parent.child(slot).expect("an inner page's entries are pages");
        // SAFETY: a latched page's children are in the tree.
        unsafe { Page::from_address(child) }
    }

    /// Latches the child in a slot of a latched page.
    pub(super) fn lock_child<'g>(&self, parent: Page<'g, F, P>, slot: usize) -> Locked<'g, F, P> {
        Locked::child(self.child_of(parent, slot))
    }

    /// Merges the right neighbour of the child that `key` leads to into it, if both fit well into one page and `merge` says so,
    /// or moves the child. Says whether anything changed.
    fn bring_together<'g>(
        &self,
        parent: Page<'g, F, P>,
        key: F::Probe<'_>,
        merge: bool,
        gone: &mut Vec<Page<'g, F, P>>,
        guard: &'g Guard<'_>,
    ) -> bool {
        let slot = parent.child_slot(Goal::At(key));
        (merge && slot + 1 < parent.len() && self.even_out_two(parent, slot, Why::Swept { merge }, gone))
            || self.move_child(parent, slot, gone, guard)
    }

    /// Evens out the child that `key` leads to with a neighbour that has the same latched parent: with the right one, or if
    /// that cannot be, with the left one. Says whether anything changed.
    fn even_out<'g>(
        &self,
        parent: Page<'g, F, P>,
        key: F::Probe<'_>,
        why: Why,
        gone: &mut Vec<Page<'g, F, P>>,
    ) -> bool {
        let slot = parent.child_slot(Goal::At(key));
        (slot + 1 < parent.len() && self.even_out_two(parent, slot, why, gone))
            || (slot > 0 && self.even_out_two(parent, slot - 1, why, gone))
    }

    /// Evens out the children in a slot and the next.
    fn even_out_two<'g>(&self, parent: Page<'g, F, P>, slot: usize, why: Why, gone: &mut Vec<Page<'g, F, P>>) -> bool {
        let (left, right) = (self.lock_child(parent, slot), self.lock_child(parent, slot + 1));
        let cared_for = why != Why::Underfull || left.page().is_underfull() || right.page().is_underfull();
        if !cared_for || left.page().right() != Some(right.page().address()) {
            return false;
        }
        // One page has its fences once, and in front of its entries less of their prefixes is left out.
        let most = match why {
            Why::Underfull => usize::MAX,
            Why::Full => Page::<F, P>::WORDS * 7 / 4,
            Why::Swept { .. } => Page::<F, P>::WORDS * 5 / 4,
        };
        if left.page().used() + right.page().used() > most {
            return false;
        }
        let mut piece = left.page().piece();
        right.page().collect(0..right.page().len(), &mut piece.run);
        piece.high = right.page().high();
        // Before either is unlocked: entries of one come to the other.
        left.page().forget_copies();
        right.page().forget_copies();
        let (all, room) = (0..piece.run.len(), Page::<F, P>::WORDS);
        // Not so full that it is split soon; but what holds nothing goes, if it can.
        let holds_nothing = |page: Page<'g, F, P>| page.len() <= usize::from(page.level() > 0);
        let one_goes = why == Why::Underfull && (holds_nothing(left.page()) || holds_nothing(right.page()));
        let part = if let Why::Swept { .. } = why { WELL.1 } else { 4 };
        let spare = if one_goes { 0 } else { (room - piece.fence_words(&all)) / part };
        if piece.words(all.clone()) > room - spare {
            return !matches!(why, Why::Swept { .. }) && share(parent, slot + 1, left, right, &piece);
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

/// Gives two neighbours about the same of their entries. Says whether that was possible, and they had not.
fn share<F: SlotForm, P: Policy>(
    parent: Page<'_, F, P>,
    slot: usize,
    left: Locked<'_, F, P>,
    right: Locked<'_, F, P>,
    piece: &Piece<F>,
) -> bool {
    let len = piece.run.len();
    let cut = piece.middle(0..len);
    if cut == left.page().len() {
        // As evenly as it can be, already. (A change would have the caller come again, for ever.)
        return false;
    }
    let fits = |part| piece.words(part) <= Page::<F, P>::WORDS;
    if !(fits(0..cut) && fits(cut..len) && parent.has_room_instead(F::probe(&right.page().low()), piece.fence(cut))) {
        return false;
    }
    parent.remove(slot);
    let told = parent.insert(slot, piece.fence(cut), right.page().as_word());
    debug_assert!(told, "there is room");
    left.page().fill(piece, 0..cut);
    right.page().fill(piece, cut..len);
    left.changed();
    right.changed();
    true
}
