//! Balancing: an underfull page is merged with a neighbour, or gets some of the neighbour's entries.
//!
//! Balancing runs under the latches of the parent and of both pages. So when the three are unlatched, the keys of the
//! parent are exactly the fences (bounds) of the pages. A neighbour that is not linked in the parent yet, or that has
//! another parent, is left unchanged.

use super::locked::Locked;
use super::page::{Goal, Page};
use super::piece::Piece;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::thin::WELL;
use archipelago_sync::rcu::Guard;

/// Why a page is balanced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The page is underfull.
    Underfull,
    /// The page is full, and its neighbour may have room.
    Full,
    /// A sweep has reached the page. With `merge`, it merges the page with its right neighbour if both fit well into
    /// one page. Otherwise it moves the page if the page's memory region is to be freed (`sweep.rs`).
    Swept { merge: bool },
}

/// The next step for the parent after one of its children was balanced.
#[derive(PartialEq, Eq)]
enum Next {
    Nothing,
    /// The parent is underfull itself.
    Balance,
    /// The parent has only one child, so the child has no neighbour under the same parent. The parent is balanced
    /// first, and then the child again.
    BalanceAndReturn,
}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Balances the child for `key` of a page of `level`, and then the levels above as needed. Returns whether
    /// anything changed.
    #[cold]
    pub(super) fn balance(&self, level: usize, key: F::Probe<'_>, guard: &Guard<'_>) -> bool {
        let mut changed = false;
        loop {
            let (here, next) = self.balance_child(level, key, Why::Underfull, guard);
            changed |= here;
            let above = next != Next::Nothing && self.balance(level + 1, key, guard);
            // If the child still has no neighbour, it stays as it is until its next removal.
            if !above || next != Next::BalanceAndReturn {
                return changed;
            }
        }
    }

    /// Moves entries of the full leaf for `key` to a neighbour that has room for them.
    #[cold]
    pub(super) fn relieve(&self, key: F::Probe<'_>, guard: &Guard<'_>) {
        self.balance_child(1, key, Why::Full, guard);
    }

    /// Balances the child for `key` of a page of `level`, for any reason, and then the levels above as needed.
    pub(super) fn balance_from(&self, level: usize, key: F::Probe<'_>, why: Why, guard: &Guard<'_>) {
        if self.balance_child(level, key, why, guard).1 != Next::Nothing {
            self.balance(level + 1, key, guard);
        }
    }

    fn balance_child(&self, level: usize, key: F::Probe<'_>, why: Why, guard: &Guard<'_>) -> (bool, Next) {
        let locked = loop {
            // The height of the tree may have decreased meanwhile.
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
            // A page that was merged with its neighbour may still be underfull or empty.
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

    /// Returns the child in a slot of a latched page.
    pub(super) fn child_of<'g>(&self, parent: Page<'g, F, P>, slot: usize) -> Page<'g, F, P> {
        let child = parent.child(slot).expect("an inner page's entries are pages");
        // SAFETY: a latched page's children are in the tree.
        unsafe { Page::from_address(child) }
    }

    /// Latches the child in a slot of a latched page.
    pub(super) fn lock_child<'g>(&self, parent: Page<'g, F, P>, slot: usize) -> Locked<'g, F, P> {
        Locked::child(self.child_of(parent, slot))
    }

    /// If `merge` is true, and the child for `key` and its right neighbour fit well into one page, merges the neighbour
    /// into the child. Otherwise moves the child if its memory region is to be freed. Returns whether anything changed.
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

    /// Balances the child for `key` with a neighbour under the same latched parent: with the right one, or if that is
    /// impossible, with the left one. Returns whether anything changed.
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

    /// Balances the child in a slot with the child in the next slot. Returns whether anything changed.
    fn even_out_two<'g>(&self, parent: Page<'g, F, P>, slot: usize, why: Why, gone: &mut Vec<Page<'g, F, P>>) -> bool {
        let (left, right) = (self.lock_child(parent, slot), self.lock_child(parent, slot + 1));
        let cared_for = why != Why::Underfull || left.page().is_underfull() || right.page().is_underfull();
        if !cared_for || left.page().right() != Some(right.page().address()) {
            return false;
        }
        // A rough check before the exact one. The size of a merged page is not exactly the sum: it has only one pair of
        // fences, but perhaps a shorter common prefix, so its entries may take more room.
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
        // The copies are forgotten before either page is unlocked, since entries of one page move to the other.
        left.page().forget_copies();
        right.page().forget_copies();
        let (all, room) = (0..piece.run.len(), Page::<F, P>::WORDS);
        // The merged page must not be so full that it is soon split. But an empty page is removed if possible.
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
        // The removed page is unlatched first. A thread that waited for the removed page then searches the merged page,
        // which is unlatched shortly afterwards.
        gone.push(right.gone());
        left.changed();
        true
    }

    /// While the latched root has only one child, copies the child's content into the root and removes the child.
    /// Returns whether anything changed.
    fn collapse<'g>(&self, root: Page<'g, F, P>, gone: &mut Vec<Page<'g, F, P>>) -> bool {
        let before = gone.len();
        while root.level() > 0 && root.len() == 1 {
            let child = self.lock_child(root, 0);
            if child.page().right().is_some() {
                // A split of the child is not yet linked in the root.
                break;
            }
            let piece = child.page().piece();
            root.fill(&piece, 0..piece.run.len());
            gone.push(child.gone());
        }
        gone.len() > before
    }
}

/// Distributes the entries of two neighbours evenly. Changes nothing and returns `false` if this is impossible, or if
/// the entries are already distributed evenly.
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
        // The entries are already distributed as evenly as possible. (If this counted as a change, the caller would
        // repeat forever.)
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
