//! One pass over the old anchors (the lowest keys of pages) and the changes, in order.
//!
//! Within one batch, inserts are applied before removes. A remove takes effect only if the anchor leads to exactly the
//! page that the remove names. There are two reasons. Several threads may have logged the changes of the batch in an
//! unknown order. And a page that was split off and merged away again must not remove the anchor of a younger page.

use core::cmp::Ordering;

use super::{SearchForm, Target};

/// The changes that are not consumed yet. The caller passes the old entries to [`Self::old`] in ascending order, and
/// then calls [`Self::finish`]; both call `emit` with the entries of the result in ascending order.
pub struct Merge<'s, 'a, F: SearchForm, P> {
    inserts: &'s [(F::Probe<'a>, P)],
    removes: &'s [(F::Probe<'a>, P)],
}

impl<'s, 'a, F: SearchForm, P: Target> Merge<'s, 'a, F, P> {
    /// Both lists must be sorted by anchor. If one anchor has several inserts, the last one counts.
    pub fn new(inserts: &'s [(F::Probe<'a>, P)], removes: &'s [(F::Probe<'a>, P)]) -> Self {
        Self { inserts, removes }
    }

    /// Returns the least anchor with a change that is not consumed yet. Old entries before it need not be passed to
    /// [`Self::old`].
    pub fn next(&self) -> Option<F::Probe<'a>> {
        match (self.inserts.first(), self.removes.first()) {
            (Some(&(insert, _)), Some(&(remove, _))) => Some(insert.min(remove)),
            (Some(&(anchor, _)), None) | (None, Some(&(anchor, _))) => Some(anchor),
            (None, None) => None,
        }
    }

    /// Consumes the next old entry.
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

    /// Consumes the remaining changes, after the last old entry.
    pub fn finish(mut self, mut emit: impl for<'p> FnMut(F::Probe<'p>, P)) {
        while !self.inserts.is_empty() {
            self.insert(&mut emit);
        }
    }

    /// Consumes one insert of an anchor that has no old entry.
    fn insert(&mut self, emit: &mut impl for<'p> FnMut(F::Probe<'p>, P)) {
        let (anchor, page) = self.inserts[0];
        self.inserts = &self.inserts[1..];
        let overtaken = self.inserts.first().is_some_and(|&(next, _)| F::compare(next, anchor).is_eq());
        if !overtaken && !self.removed(anchor, page) {
            emit(anchor, page);
        }
    }

    /// Consumes the removes up to `anchor`. Returns whether one of them names `page`.
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
