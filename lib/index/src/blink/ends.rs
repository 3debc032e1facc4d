//! Removing the first or the last entry of a tree.
//!
//! A walk from an end of the tree passes empty leaves. An entry counts as the first (or last) only if none of the
//! passed leaves has changed since it was read. Then all passed leaves were empty at one moment: when the version of
//! the last of them was read.

use super::cursor::go_on;
use super::locked::Held;
use super::locked::Locked;
use super::page::Seen;
use super::page::{Goal, Page};
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;

/// A leaf at an end of the tree, with the empty leaves that were passed.
pub(super) struct End<'g, F: SlotForm, P: Policy> {
    leaf: Held<'g, F, P>,
    passed: Vec<Seen<'g, F, P>>,
}

impl<'g, F: SlotForm, P: Policy> End<'g, F, P> {
    /// Adds the leaf's outermost entry to a run, if it has one. Returns whether the read is valid.
    pub(super) fn read<const DOWN: bool>(&self, run: &mut F::Run) -> bool {
        let (page, seen) = self.leaf.0;
        let slot = if DOWN { page.len().saturating_sub(1) } else { 0 };
        page.collect(slot..slot + 1, run);
        page.is_still(seen) && are_still(&self.passed)
    }

    /// Releases the leaf's latch, if readers take latches. Returns the leaf, and the empty leaves that were passed.
    pub(super) fn release(self) -> (Page<'g, F, P>, Vec<Seen<'g, F, P>>) {
        (self.leaf.0.0, self.passed)
    }
}

/// Returns whether the passed pages have not changed.
pub(super) fn are_still<F: SlotForm, P: Policy>(passed: &[Seen<'_, F, P>]) -> bool {
    passed.iter().all(|(page, seen)| page.is_still(*seen))
}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Removes the first entry, or with `DOWN` the last, and adds it to an empty run. The caller then owns its word. If
    /// the tree has no entry, the run stays empty.
    pub(super) fn pop<const DOWN: bool>(&self, run: &mut F::Run, guard: &Guard<'_>) {
        loop {
            let end = self.find_end::<DOWN>(guard);
            let (leaf, hold) = end.leaf;
            let Some(locked) = Locked::at(leaf, hold.release()) else { continue };
            let page = leaf.0;
            if !are_still(&end.passed) {
                continue;
            }
            if let Some(last) = page.len().checked_sub(1) {
                let slot = if DOWN { last } else { 0 };
                page.collect(slot..slot + 1, run);
                self.take(locked, slot, run.key(0), guard);
            }
            return;
        }
    }

    /// Finds the first leaf with an entry, or with `DOWN` the last. If no leaf has an entry, returns the leaf at the
    /// other end.
    pub(super) fn find_end<'g, const DOWN: bool>(&self, guard: &'g Guard<'_>) -> End<'g, F, P> {
        'again: loop {
            let goal = if DOWN { Goal::Last } else { Goal::First };
            let (mut leaf, mut hold) = self.find(goal, 0, guard).expect("there is a lowest level");
            let mut passed = Vec::new();
            loop {
                let page = leaf.0;
                let next = if DOWN { page.left() } else { page.right() };
                if page.len() > 0 || next.is_none() {
                    return End { leaf: (leaf, hold), passed };
                }
                point(points::PASSED);
                passed.push(leaf);
                drop(hold);
                match go_on::<F, P, DOWN>(self, (leaf, 0), guard) {
                    Some((next, _)) => (leaf, hold) = next,
                    None => continue 'again,
                }
            }
        }
    }
}
