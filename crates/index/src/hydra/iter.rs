//! Iterators: scans a few entries at a time, from both ends.

use super::page::PageForm;
use super::session::{FormOf, Session};
use crate::value;
use crate::{Encode, Key};
use core::fmt;
use core::ops::{Bound, RangeBounds};
use std::collections::VecDeque;

/// An iterator over all entries of a map, in key order.
pub type Iter<'m, K, V> = Range<'m, K, V>;

/// A double-ended iterator over a range of entries, in key order. See [`Session::range`].
///
/// What has not been fetched yet is the key range `low..high`. Fetching from either end moves that end past what was
/// fetched, so no key can come twice, whatever happens to the map in between. If cloning a value panics, what has been
/// fetched still comes, and that is the end.
pub struct Range<'m, K: Key, V: Clone + Send + Sync + 'static> {
    session: Session<'m, K, V>,
    /// The least key not fetched yet; `None`: there is nothing more to fetch.
    low: Option<<FormOf<K> as PageForm>::Owned>,
    /// Exclusive; `None` means +∞.
    high: Option<<FormOf<K> as PageForm>::Owned>,
    /// Fetched from the front, ascending.
    front: VecDeque<(K, V)>,
    /// Fetched from the back, ascending.
    back: VecDeque<(K, V)>,
    /// How many entries to fetch next: few at first, for those who want only one.
    batch: usize,
}

const FIRST_BATCH: usize = 4;
const MAX_BATCH: usize = 64;

impl<'m, K: Key, V: Clone + Send + Sync + 'static> Range<'m, K, V> {
    pub(super) fn new<Q>(session: Session<'m, K, V>, range: impl RangeBounds<Q>) -> Self
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let own = |key: &Q| Some(key.encode(FormOf::<K>::own));
        let above = |key: &Q| key.encode(FormOf::<K>::just_above);
        let low = match range.start_bound() {
            Bound::Included(key) => own(key),
            Bound::Excluded(key) => above(key),
            Bound::Unbounded => Some(FormOf::<K>::least()),
        };
        let high = match range.end_bound() {
            Bound::Included(key) => above(key),
            Bound::Excluded(key) => own(key),
            Bound::Unbounded => None,
        };
        Self { session, low, high, front: VecDeque::new(), back: VecDeque::new(), batch: FIRST_BATCH }
    }

    /// Whether nothing is left to fetch.
    fn is_drained(&self) -> bool {
        match (&self.low, &self.high) {
            (None, _) => true,
            (Some(low), Some(high)) => FormOf::<K>::probe(low) >= FormOf::<K>::probe(high),
            (Some(_), None) => false,
        }
    }

    fn next_batch(&mut self) -> usize {
        let batch = self.batch;
        self.batch = (batch * 2).min(MAX_BATCH);
        batch
    }

    fn fetch_front(&mut self) {
        if self.is_drained() {
            return;
        }
        let batch = self.next_batch();
        let Some(low) = self.low.take() else { return };
        let mut last = None;
        self.session.scan_range(&low, self.high.as_ref(), batch, |key, word| {
            // SAFETY: the key is an encoding of a K; `scan_range` shows words under its guard.
            self.front.push_back(unsafe { (K::decode(key), value::clone_of(word)) });
            if self.front.len() == batch {
                last = FormOf::<K>::just_above(key);
            }
        });
        // Fewer than asked for: the range is exhausted, and `low` stays `None`.
        self.low = last;
    }

    fn fetch_back(&mut self) {
        if self.is_drained() {
            return;
        }
        let batch = self.next_batch();
        let Some(low) = self.low.take() else { return };
        let mut last = None;
        self.session.scan_range_back(&low, self.high.as_ref(), batch, |key, word| {
            // SAFETY: as in `fetch_front`.
            self.back.push_front(unsafe { (K::decode(key), value::clone_of(word)) });
            if self.back.len() == batch {
                last = Some(FormOf::<K>::own(key));
            }
        });
        // Fewer than asked for: as in `fetch_front`.
        if last.is_some() {
            (self.low, self.high) = (Some(low), last);
        }
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Iterator for Range<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        if self.front.is_empty() {
            self.fetch_front();
        }
        self.front.pop_front().or_else(|| self.back.pop_front())
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        if self.back.is_empty() {
            self.fetch_back();
        }
        self.back.pop_back().or_else(|| self.front.pop_back())
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
