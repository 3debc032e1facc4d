//! Walks over the leaves, a run of entries at a time, in both directions.
//!
//! A walk remembers its leaf, the leaf's version, and the next slot. If the leaf still has this version, the walk
//! continues in the leaf or in its neighbour; otherwise it finds its position by key. It yields no key twice, and
//! misses no key that is present throughout the walk: each run has the keys of a part of one leaf as of one moment, and
//! the next run begins at the key where the previous one ended. (Values may be replaced while the leaf has one version,
//! so the values of a run may be of different moments.)

use super::locked::Held;
use super::locked::Hold;
use super::page::Goal;
use super::page::Seen;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;
use core::ops::Bound;

/// The position at which a walk continues, in its direction.
enum Position<O> {
    /// The walk begins at its first key.
    Start,
    /// The walk continues at this key.
    At(O),
    /// The walk continues just after this key, in its direction.
    Behind(O),
    /// The walk has ended.
    End,
}

/// A walk over a tree's leaves; with `DOWN` from greater keys to smaller ones. One guard is held from the first use to
/// the last.
pub(super) struct Cursor<'g, F: SlotForm, P: Policy, const DOWN: bool> {
    place: Position<F::Owned>,
    /// The leaf of the last run, and the slot at which the run ended. The next run begins at this slot. (In walks down,
    /// the next run ends before this slot.)
    leaf: Option<(Seen<'g, F, P>, usize)>,
}

impl<'g, F: SlotForm, P: Policy, const DOWN: bool> Cursor<'g, F, P, DOWN> {
    /// Makes a walk that begins at a bound.
    pub(super) fn new(from: Bound<F::Probe<'_>>) -> Self {
        let place = match from {
            Bound::Included(key) => Position::At(F::own(key)),
            Bound::Excluded(key) => Position::Behind(F::own(key)),
            Bound::Unbounded => Position::Start,
        };
        Cursor { place, leaf: None }
    }

    /// Replaces the content of `run` by up to `limit` next entries. They are ascending, even if the walk goes down. The
    /// run gets at least one entry if any is left, so an empty run means that the walk has ended.
    pub(super) fn fill(&mut self, tree: &Tree<F, P>, limit: usize, run: &mut F::Run, guard: &'g Guard<'_>) {
        loop {
            run.clear();
            if matches!(self.place, Position::End) {
                return;
            }
            let at = self.leaf.take().and_then(|leaf| go_on::<F, P, DOWN>(tree, leaf, guard));
            let (((page, seen), _hold), slot) = at.unwrap_or_else(|| self.look_up(tree, guard));
            let len = page.len();
            let slot = slot.min(len);
            let part = if DOWN { slot.saturating_sub(limit)..slot } else { slot..slot.saturating_add(limit).min(len) };
            point(points::COPYING);
            page.collect(part.clone(), run);
            let is_done = if DOWN { part.start == 0 } else { part.end == len };
            let edge = match (is_done, DOWN) {
                (false, _) => None,
                (true, true) => page.left().map(|_| page.low()),
                (true, false) => page.high(),
            };
            if !page.is_still(seen) {
                tree.note_retry();
                continue;
            }
            self.leaf = Some(((page, seen), if DOWN { part.start } else { part.end }));
            self.place = match edge {
                Some(low) if DOWN => Position::Behind(low),
                Some(high) => Position::At(high),
                None if is_done => Position::End,
                None => Position::Behind(F::own(run.key(if DOWN { 0 } else { run.len() - 1 }))),
            };
            if run.len() > 0 {
                return;
            }
        }
    }

    /// Finds the walk's leaf from the root.
    fn look_up(&self, tree: &Tree<F, P>, guard: &'g Guard<'_>) -> (Held<'g, F, P>, usize) {
        let goal = match &self.place {
            Position::Behind(key) if DOWN => Goal::Below(F::probe(key)),
            Position::At(key) | Position::Behind(key) => Goal::At(F::probe(key)),
            Position::Start if DOWN => Goal::Last,
            Position::Start | Position::End => Goal::First,
        };
        let leaf = match goal {
            Goal::At(key) => tree.leaf(key, guard),
            goal => tree.find(goal, 0, guard).expect("there is a lowest level"),
        };
        let page = leaf.0.0;
        let slot = match &self.place {
            Position::At(key) => {
                let found = page.search(F::probe(key));
                found.slot + usize::from(DOWN && found.hit)
            }
            Position::Behind(key) => {
                let found = page.search(F::probe(key));
                found.slot + usize::from(!DOWN && found.hit)
            }
            Position::Start if DOWN => page.len(),
            Position::Start | Position::End => 0,
        };
        (leaf, slot)
    }
}

/// Returns the position after a run, in the same leaf or the next one. Returns `None` if the leaf or its link to the
/// next leaf has changed, or if the position is in the same leaf and this leaf has no latch of its own. Then the caller
/// searches from the root.
#[inline]
pub(super) fn go_on<'g, F: SlotForm, P: Policy, const DOWN: bool>(
    tree: &Tree<F, P>,
    ((page, seen), slot): (Seen<'g, F, P>, usize),
    guard: &'g Guard<'_>,
) -> Option<(Held<'g, F, P>, usize)> {
    if !page.has_latch() {
        // The walk finds the next leaf by a descent. If readers take latches, the descent also takes the latch of the
        // page above that covers the leaf.
        return go_on_below::<F, P, DOWN>(tree, (page, seen), slot, guard);
    }
    // The caller holds no latch, so latching a left neighbour does not violate the order of latches.
    let hold = Hold::none();
    if DOWN && slot == 0 {
        let left = tree.step((page, seen), hold, page.left(), guard)?;
        let it = left.0.0;
        // The page's version does not cover its left link, since a page may have been inserted between the two pages.
        // The left page's version covers the left page's right link. It is validated together with the other reads of
        // the left page.
        return (it.right() == Some(page.address())).then(|| (left, it.len()));
    }
    if !DOWN && slot >= page.len() {
        let right = page.right();
        return Some((tree.step((page, seen), hold, right, guard)?, 0));
    }
    Some((((page, seen), Hold::of(page)), slot))
}

/// Does the work of [`go_on`] if the next entry is in another leaf. It makes a descent to the fence: if the present
/// leaf has not changed, the found leaf is its neighbour.
#[cold]
fn go_on_below<'g, F: SlotForm, P: Policy, const DOWN: bool>(
    tree: &Tree<F, P>,
    (page, seen): Seen<'g, F, P>,
    slot: usize,
    guard: &'g Guard<'_>,
) -> Option<(Held<'g, F, P>, usize)> {
    let fence = match (DOWN, slot) {
        (true, 0) => Some(page.low()),
        (false, slot) if slot >= page.len() => page.high(),
        _ => None,
    }?;
    if !page.is_still(seen) {
        return None;
    }
    let edge = F::probe(&fence);
    let leaf = tree.find(if DOWN { Goal::Below(edge) } else { Goal::At(edge) }, 0, guard)?;
    let slot = leaf.0.0.search(edge).slot;
    Some((leaf, slot))
}
