//! Batches of iterators by reference: entries that were copied from the structure, and the guard that keeps their
//! values.
//!
//! The guard is entered (it delays reclamation) as long as a value may be accessed: each [`Entry`](super::Entry) holds
//! it, and so does an iterator that has returned a reference. Between two steps an iterator delays no reclamation. At
//! its next step it continues with its batch if the guard proves that the values are still alive. Otherwise it fetches
//! the rest of the batch again.

use super::batch::Batch;
use super::walk::Walk;
use super::{FormOf, Kind, Map};
use crate::structure::{End, Structure};
use crate::{Key, value};
use archipelago_sync::rcu::{Held, Keeper, OwnedGuard};
use core::ops::Range as Places;

/// The entries of one batch, and the guard that keeps their values.
pub(super) struct Fetched<'m, K: Key> {
    pub(super) batch: Batch<FormOf<K>>,
    /// The guard began before the batch was read.
    guard: OwnedGuard<'m>,
}

impl<'m, K: Key> Fetched<'m, K> {
    /// Makes an empty batch, with a critical section of its own.
    pub(super) fn new<S: Kind, V: Send + Sync + 'static>(map: &'m Map<S, K, V>) -> Self {
        Self { batch: Batch::default(), guard: map.core().domain().pin_owned() }
    }
}

/// A holder of a batch. The values of the batch's entries are not reclaimed while the holder lives.
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
    /// The batch's words must be words of `V`s of a map of `K`, read under the guard that is stored with the batch. The
    /// batch must have an entry `at`.
    #[inline]
    pub(super) unsafe fn show<V: Send + Sync + 'static>(&self, at: usize) -> (K::Ref<'_>, &V) {
        // SAFETY: the caller guarantees the contract. Since the batch was read, the guard has had a holder, or has
        // proved that nothing was freed.
        unsafe { (K::decode_ref(self.batch().key(at)), value::as_ref(self.batch().word(at))) }
    }
}

/// An iterator's batch from one end of its range.
pub(super) struct Side<'m, K: Key> {
    fetched: Keeper<'m, Batch<FormOf<K>>>,
    /// The positions of the entries that are not yielded yet; the first of them is yielded next.
    pub(super) left: Places<usize>,
    /// The iterator's own holder. At first it is the batch's first holder, which the first step takes; later it is the
    /// holder of a reference that the iterator has returned.
    pub(super) lent: Option<Kept<'m, K>>,
}

impl<'m, K: Key> Side<'m, K> {
    pub(super) fn new(fetched: Fetched<'m, K>) -> Self {
        let kept = Kept::new(fetched);
        Self { left: 0..kept.batch().len(), fetched: Held::keeper(&kept.0), lent: Some(kept) }
    }

    /// Returns a batch to fetch into. This batch is reused if no entry refers to it any more.
    pub(super) fn again(self) -> Option<Fetched<'m, K>> {
        drop(self.lent);
        let (guard, mut batch) = self.fetched.into_parts()?;
        batch.clear();
        Some(Fetched { batch, guard })
    }

    /// Returns a holder of the batch, or `None` if some of its values may have been freed.
    #[inline]
    pub(super) fn keep(&mut self) -> Option<Kept<'m, K>> {
        self.lent.take().or_else(|| self.fetched.hold().map(Kept))
    }

    /// Makes a walk fetch the rest of this side again.
    pub(super) fn give_back<S: Kind, V: Send + Sync + 'static>(mut self, walk: &mut Walk<'m, S, K, V>, end: End) {
        if let Some(next) = self.left.next() {
            let last = self.left.next_back().unwrap_or(next);
            walk.rewind(end, self.fetched.what().key(next), self.fetched.what().key(last));
        }
    }
}
