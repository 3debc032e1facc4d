//! Iteration over a range of keys, from both ends.

use super::cursor::{BATCH, Batch, Cursor};
use super::form::KeyBuf;
use super::node::Node;
use super::raw::RawArt;
use super::{leaf::Leaf, session};
use crate::{Encode, Key};
use archipelago_sync::rcu::Guard;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};

/// An iterator over a range of an [`Art`](super::Art)'s entries, in key order, from both ends.
///
/// It holds no lock. It never shows a key twice, and shows every key that is in the map from its creation to its end;
/// keys that are inserted or removed meanwhile may or may not be shown (it reads up to 16 keys ahead). A range that ends
/// before it starts is empty.
///
/// While it exists, nothing that is removed from the map is freed; see [`Art::stats`](super::Art::stats).
pub struct Range<'a, K: Key, V> {
    front: End<'a, K, false>,
    back: End<'a, K, true>,
    finished: bool,
    _values: PhantomData<V>,
    // Last: the ends hold leaves and nodes that this keeps alive.
    _guard: Guard<'a>,
}

/// One end: the walk from its bound on.
struct End<'a, K: Key, const DOWN: bool> {
    bound: Bound<KeyBuf>,
    cursor: Cursor<'a, K::Form, DOWN>,
    batch: Batch<'a, K::Form>,
    /// How many to read ahead next time: little at first, for those who want only one.
    ahead: usize,
    shown: Option<Leaf<'a, K::Form>>,
}

impl<'a, K: Key, const DOWN: bool> End<'a, K, DOWN> {
    fn new(bound: Bound<KeyBuf>, root: Node<'a>) -> Self {
        End { bound, cursor: Cursor::at(root), batch: Batch::new(), ahead: 2, shown: None }
    }

    fn bound(&self) -> Bound<&[u8]> {
        self.bound.as_ref().map(KeyBuf::bytes)
    }

    fn advance(&mut self) -> Option<Leaf<'a, K::Form>> {
        if let Some(leaf) = self.batch.take() {
            return Some(leaf);
        }
        self.cursor.fill(self.bound.as_ref().map(KeyBuf::bytes), &mut self.batch, self.ahead);
        self.ahead = (self.ahead * 2).min(BATCH);
        self.batch.take()
    }
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static> Range<'a, K, V> {
    pub(super) fn new<Q>(tree: &RawArt<K::Form>, guard: Guard<'a>, range: impl RangeBounds<Q>) -> Self
    where
        Q: Encode<Form = K::Form> + ?Sized,
    {
        // SAFETY: the guard moves into the iterator and is dropped after everything that uses this lifetime.
        let root: Node<'a> = unsafe { Node::from_edge(tree.root(&guard).edge()) };
        Range {
            front: End::new(range.start_bound().map(KeyBuf::of), root),
            back: End::new(range.end_bound().map(KeyBuf::of), root),
            finished: false,
            _values: PhantomData,
            _guard: guard,
        }
    }

    /// Shows `leaf` unless it is outside the range or was met from the other end.
    fn show(&mut self, leaf: Option<Leaf<'a, K::Form>>) -> Option<(K, V)> {
        let inside = leaf.filter(|leaf| {
            let key = leaf.key();
            RangeBounds::<[u8]>::contains(&(self.front.bound(), self.back.bound()), key)
                && self.front.shown.is_none_or(|shown| shown.key() < key)
                && self.back.shown.is_none_or(|shown| key < shown.key())
        });
        self.finished = inside.is_none();
        // SAFETY: a leaf of this map, found under the guard that the iterator holds.
        inside.map(|leaf| unsafe { session::entry(leaf) })
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Iterator for Range<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        if self.finished {
            return None;
        }
        let leaf = self.front.advance();
        let shown = self.show(leaf);
        self.front.shown = leaf;
        shown
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        if self.finished {
            return None;
        }
        let leaf = self.back.advance();
        let shown = self.show(leaf);
        self.back.shown = leaf;
        shown
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> FusedIterator for Range<'_, K, V> {}

impl<K: Key, V> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
