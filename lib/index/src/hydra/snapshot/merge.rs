//! One pass over the old anchors and the changes, in order.
//!
//! Within one batch inserts apply before removes, and a remove takes effect only if the anchor leads to the very page
//! that it names: the batch may have been logged by several threads in an order that is not known, and a page that was
//! split off and merged away again must not take a younger page's anchor with it.

use core::cmp::Ordering;

use super::{SearchForm, Target};

/// The changes not yet consumed. Old entries go in through [`Self::old`] in ascending order, then [`Self::finish`];
/// the result's entries come out of `emit` in ascending order.
pub struct Merge<'s, 'a, F: SearchForm, P> {
    inserts: &'s [(F::Probe<'a>, P)],
    removes: &'s [(F::Probe<'a>, P)],
}

impl<'s, 'a, F: SearchForm, P: Target> Merge<'s, 'a, F, P> {
    /// Both are sorted by anchor. Of several inserts of one anchor the last counts.
    pub fn new(inserts: &'s [(F::Probe<'a>, P)], removes: &'s [(F::Probe<'a>, P)]) -> Self {
        Self { inserts, removes }
    }

    /// The least anchor with a change not yet consumed: old entries before it may bypass [`Self::old`].
    pub fn next(&self) -> Option<F::Probe<'a>> {
        match (self.inserts.first(), self.removes.first()) {
            (Some(&(insert, _)), Some(&(remove, _))) => Some(insert.min(remove)),
            (Some(&(anchor, _)), None) | (None, Some(&(anchor, _))) => Some(anchor),
            (None, None) => None,
        }
    }

    /// Takes the next old entry.
    #[inline(always)]
    pub fn old(&mut self, anchor: F::Probe<'_>, mut page: P, mut emit: impl for<'p> FnMut(F::Probe<'p>, P)) {
        while let Some(&(insert, new)) = self.inserts.first() {
            match F::compare(insert, anchor) {
                Ordering::Less => self.insert(&mut emit),
                Ordering::Equal => {
                    page = new;
                    self.inserts = &self.inserts[1..];
                }
                Ordering::Greater => break,
            }
        }
        if !self.removed(anchor, page) {
            emit(anchor, page);
        }
    }

    /// Takes the end of the old entries.
    pub fn finish(mut self, mut emit: impl for<'p> FnMut(F::Probe<'p>, P)) {
        while !self.inserts.is_empty() {
            self.insert(&mut emit);
        }
    }

    /// Consumes one insert of an anchor that is not among the old ones.
    fn insert(&mut self, emit: &mut impl for<'p> FnMut(F::Probe<'p>, P)) {
        let (anchor, page) = self.inserts[0];
        self.inserts = &self.inserts[1..];
        let overtaken = self.inserts.first().is_some_and(|&(next, _)| F::compare(next, anchor).is_eq());
        if !overtaken && !self.removed(anchor, page) {
            emit(anchor, page);
        }
    }

    /// Consumes the removes up to `anchor`; whether one of them names `page`.
    #[inline(always)]
    fn removed(&mut self, anchor: F::Probe<'_>, page: P) -> bool {
        let mut found = false;
        while let Some(&(remove, old)) = self.removes.first() {
            let order = F::compare(remove, anchor);
            if order.is_gt() {
                break;
            }
            found |= order.is_eq() && old == page;
            self.removes = &self.removes[1..];
        }
        found
    }
}
