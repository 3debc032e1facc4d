//! Batches of iterators by reference: entries that were copied from the structure, and the guard that keeps their
//! values.
//!
//! The guard is entered as long as a value may be accessed: each [`Entry`](super::Entry) holds it, and so does an
//! iterator that has returned a reference. Between two steps an iterator delays no reclamation. At the next step it
//! continues with its batch, if the guard proves that the values are still alive, or else fetches the rest again.

use super::batch::Batch;
use super::walk::Walk;
use super::{FormOf, Kind, Map};
use crate::structure::{End, Structure};
use crate::{Key, value};
use archipelago_sync::rcu::{Held, Keeper, OwnedGuard};
use core::ops::Range as Places;

/// The entries of one batch, and their guard.
pub(super) struct Fetched<'m, K: Key> {
    pub(super) batch: Batch<FormOf<K>>,
    /// Begun before the batch was read.
    guard: OwnedGuard<'m>,
}

impl<'m, K: Key> Fetched<'m, K> {
    /// Makes an empty batch, in a section of its own.
    pub(super) fn new<S: Kind, V: Send + Sync + 'static>(map: &'m Map<S, K, V>) -> Self {
        Self { batch: Batch::default(), guard: map.core().domain().pin_owned() }
    }
}

/// A holder of a batch: the batch's entries are not reclaimed while it lives.
#[derive(Clone)]
pub(super) struct Kept<'m, K: Key>(Held<'m, Batch<FormOf<K>>>);

impl<'m, K: Key> Kept<'m, K> {
    /// Makes the first holder of a batch.
    pub(super) fn new(fetched: Fetched<'m, K>) -> Self {
        Self(fetched.guard.keep(fetched.batch))
    }

    #[inline]
    pub(super) fn batch(&self) -> &Batch<FormOf<K>> {
        &self.0
    }

    /// # Safety
    /// The batch's words are `V`s of a map of `K`, read under the guard beside it. It has an entry `at`.
    #[inline]
    pub(super) unsafe fn show<V: Send + Sync + 'static>(&self, at: usize) -> (K::Ref<'_>, &V) {
        // SAFETY: the caller's promise; the guard has had a holder, or has gone on, since the batch was read.
        unsafe { (K::decode_ref(self.batch().key(at)), value::as_ref(self.batch().word(at))) }
    }
}

/// An iterator's batch from one end of its range.
pub(super) struct Side<'m, K: Key> {
    fetched: Keeper<'m, Batch<FormOf<K>>>,
    /// The remaining places; the first is the next to be yielded.
    pub(super) left: Places<usize>,
    /// The iterator's own holder, since the batch was fetched or for a reference that it has returned.
    pub(super) lent: Option<Kept<'m, K>>,
}

impl<'m, K: Key> Side<'m, K> {
    pub(super) fn new(fetched: Fetched<'m, K>) -> Self {
        let kept = Kept::new(fetched);
        Self { left: 0..kept.batch().len(), fetched: Held::keeper(&kept.0), lent: Some(kept) }
    }

    /// Returns a batch to fetch into: this one, if no entry refers to it any more.
    pub(super) fn again(self) -> Option<Fetched<'m, K>> {
        drop(self.lent);
        let (guard, mut batch) = self.fetched.into_parts()?;
        batch.clear();
        Some(Fetched { batch, guard })
    }

    /// Holds the values, unless some of them may have been freed.
    #[inline]
    pub(super) fn keep(&mut self) -> Option<Kept<'m, K>> {
        self.lent.take().or_else(|| self.fetched.hold().map(Kept))
    }

    /// Has a walk fetch what is left of this side once more.
    pub(super) fn give_back<S: Kind, V: Send + Sync + 'static>(mut self, walk: &mut Walk<'m, S, K, V>, end: End) {
        if let Some(next) = self.left.next() {
            let last = self.left.next_back().unwrap_or(next);
            walk.rewind(end, self.fetched.what().key(next), self.fetched.what().key(last));
        }
    }
}
