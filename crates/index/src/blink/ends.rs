//! The first entry and the last, by themselves and taken out.
//!
//! Empty leaves are passed on the way. An entry counts as the first only if none of them has changed since: then they were
//! empty all at a time, the moment when the last version was read.

use super::cursor::go_on;
use super::locked::Locked;
use super::page::Goal;
use super::policy::Policy;
use super::run::Run as _;
use super::tree::{Seen, Tree};
use crate::key::KeyForm;
use crate::points;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;

/// A leaf at an end of the tree, with the empty ones before it.
struct End<'g, F: KeyForm, P: Policy> {
    leaf: Seen<'g, F, P>,
    passed: Vec<Seen<'g, F, P>>,
}

impl<F: KeyForm, P: Policy> End<'_, F, P> {
    fn nothing_came_before(&self) -> bool {
        self.passed.iter().all(|(page, seen)| page.is_still(*seen))
    }
}

impl<F: KeyForm, P: Policy> Tree<F, P> {
    /// Puts the first entry, or the last, into an empty run, if there is one.
    pub(super) fn end<const DOWN: bool>(&self, run: &mut F::Run, guard: &Guard<'_>) {
        loop {
            let end = self.find_end::<DOWN>(guard);
            let (page, seen) = end.leaf;
            let slot = if DOWN { page.len().saturating_sub(1) } else { 0 };
            page.collect(slot..slot + 1, run);
            if page.is_still(seen) && end.nothing_came_before() {
                return;
            }
            run.clear();
        }
    }

    /// As [`end`](Self::end); the entry is taken out, and its word is the caller's.
    pub(super) fn pop<const DOWN: bool>(&self, run: &mut F::Run, guard: &Guard<'_>) {
        loop {
            let end = self.find_end::<DOWN>(guard);
            let (page, seen) = end.leaf;
            let Some(locked) = Locked::at(page, seen) else { continue };
            if !end.nothing_came_before() {
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

    /// The first leaf with an entry, or the last leaf of all.
    fn find_end<'g, const DOWN: bool>(&self, guard: &'g Guard<'_>) -> End<'g, F, P> {
        'again: loop {
            let goal = if DOWN { Goal::Last } else { Goal::First };
            let mut leaf = self.find(goal, 0, guard).expect("there is a lowest level");
            let mut passed = Vec::new();
            loop {
                let page = leaf.0;
                let next = if DOWN { page.left() } else { page.right() };
                if page.len() > 0 || next.is_none() {
                    return End { leaf, passed };
                }
                point(points::PASSED);
                passed.push(leaf);
                match go_on::<F, P, DOWN>(self, (leaf, 0), guard) {
                    Some((next, _)) => leaf = next,
                    None => continue 'again,
                }
            }
        }
    }
}
