//! Iteration over a range of keys, from both ends.

use super::BLinkTree;
use super::cursor::Cursor;
use super::policy::Policy;
use super::run::Run as _;
use super::session::{Run, entry};
use super::tree::Tree;
use crate::hydra::{PageForm, SearchForm};
use crate::key::KeyForm;
use crate::{Encode, Key, Probe};
use archipelago_sync::rcu::Guard;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::Bound;

/// Entries that an end reads ahead, at most.
const AHEAD: usize = 64;

type Owned<K> = <<K as Encode>::Form as PageForm>::Owned;

/// An iterator over a range of a [`BLinkTree`]'s entries, in key order, from both ends.
///
/// It holds no latch. It never shows a key twice, and shows every key that is in the map from its creation to its end; keys
/// that are inserted or removed meanwhile may or may not be shown (it reads up to 64 entries ahead). A range that ends before
/// it starts is empty. While it exists, nothing that is removed from the map is freed.
pub struct Range<'a, K: Key, V: Clone + Send + Sync + 'static, P: Policy> {
    // The same throughout: pages belong to one tree.
    tree: &'a Tree<K::Form, P>,
    bounds: (Bound<Owned<K>>, Bound<Owned<K>>),
    front: End<'a, K, P, false>,
    back: End<'a, K, P, true>,
    finished: bool,
    _values: PhantomData<V>,
    // Last: it keeps what the ends hold alive.
    guard: Guard<'a>,
}

/// One end: the walk from its bound on.
struct End<'a, K: Key, P: Policy, const DOWN: bool> {
    cursor: Cursor<'a, K::Form, P, DOWN>,
    run: Run<K>,
    /// Entries of the run that were shown.
    shown: usize,
    /// How many to read next time: little at first, for those who want only one.
    ahead: usize,
}

impl<'a, K: Key, P: Policy, const DOWN: bool> End<'a, K, P, DOWN> {
    fn new(from: Bound<Probe<'_, K>>) -> Self {
        End { cursor: Cursor::new(from), run: Run::<K>::default(), shown: 0, ahead: 2 }
    }

    /// The place in the run of the entry that was shown last.
    fn last(&self) -> Option<usize> {
        let shown = self.shown.checked_sub(1)?;
        Some(if DOWN { self.run.len() - 1 - shown } else { shown })
    }

    /// The key that was shown last.
    fn last_key(&self) -> Option<Probe<'_, K>> {
        self.last().map(|at| self.run.key(at))
    }

    /// Goes to the next entry, and says where it is in the run.
    fn advance(&mut self, tree: &Tree<K::Form, P>, guard: &Guard<'a>) -> Option<usize> {
        if self.shown == self.run.len() {
            // SAFETY: the lifetime says how long pages live that the cursor has; the guard, which lives as long as the
            // iterator, sees to it. No reference to it is kept.
            let guard: &'a Guard<'a> = unsafe { &*core::ptr::from_ref(guard) };
            self.cursor.fill(tree, self.ahead, &mut self.run, guard);
            self.ahead = (self.ahead * 2).min(AHEAD);
            self.shown = 0;
            if self.run.len() == 0 {
                return None;
            }
        }
        self.shown += 1;
        self.last()
    }
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static, P: Policy> Range<'a, K, V, P> {
    pub(super) fn new<Q>(map: &'a BLinkTree<K, V, P>, guard: Guard<'a>, start: Bound<&Q>, end: Bound<&Q>) -> Self
    where
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let own = |bound: Bound<&Q>| bound.map(|key| key.encode(K::Form::own));
        let bounds = (own(start), own(end));
        let front = End::new(bounds.0.as_ref().map(K::Form::probe));
        let back = End::new(bounds.1.as_ref().map(K::Form::probe));
        Range { tree: map.trees.local(), bounds, front, back, finished: false, _values: PhantomData, guard }
    }

    fn show(&self, run: &Run<K>, at: usize) -> (K, V) {
        // SAFETY: an entry of this map, read under the guard that the iterator holds.
        unsafe { entry(run, at) }
    }
}

/// Whether a key does not lie past the bound that a walk comes to.
fn is_before<F: KeyForm>(key: F::Probe<'_>, bound: &Bound<F::Owned>, down: bool) -> bool {
    let order =
        |bound| if down { F::compare(key, F::probe(bound)).reverse() } else { F::compare(key, F::probe(bound)) };
    match bound {
        Bound::Included(bound) => order(bound).is_le(),
        Bound::Excluded(bound) => order(bound).is_lt(),
        Bound::Unbounded => true,
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> Iterator for Range<'_, K, V, P> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        if self.finished {
            return None;
        }
        let at = self.front.advance(self.tree, &self.guard).filter(|&at| {
            let key = self.front.run.key(at);
            is_before::<K::Form>(key, &self.bounds.1, false)
                && self.back.last_key().is_none_or(|last| K::Form::compare(key, last).is_lt())
        });
        self.finished = at.is_none();
        at.map(|at| self.show(&self.front.run, at))
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> DoubleEndedIterator for Range<'_, K, V, P> {
    fn next_back(&mut self) -> Option<(K, V)> {
        if self.finished {
            return None;
        }
        let at = self.back.advance(self.tree, &self.guard).filter(|&at| {
            let key = self.back.run.key(at);
            is_before::<K::Form>(key, &self.bounds.0, true)
                && self.front.last_key().is_none_or(|last| K::Form::compare(key, last).is_gt())
        });
        self.finished = at.is_none();
        at.map(|at| self.show(&self.back.run, at))
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> FusedIterator for Range<'_, K, V, P> {}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> fmt::Debug for Range<'_, K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
