//! The state of an iterator: the range of keys `low..high` that is not fetched yet.
//!
//! Fetching from one end moves this end past the fetched keys. So no key can be yielded twice, however the map changes
//! between two fetches. If a fetch panics, the iterator still yields the entries that it had fetched, and then ends.

use super::{End, FormOf, Kind, Map, Structure, Words};
use crate::structure::Form;
use crate::{Encode, Key};
use core::ops::{Bound, RangeBounds};

/// An owned encoding of a key.
pub(super) type OwnedKey<K> = <FormOf<K> as Form>::Owned;

/// The number of entries that the next fetch from one end requests. It grows from fetch to fetch.
pub(super) struct Batches(usize);

impl Batches {
    /// The first size for iterators that clone entries. A caller that wants one entry causes only one clone.
    pub(super) const FROM_ONE: Self = Self(1);
    /// The first size for iterators that copy keys and words, and clone no value.
    pub(super) const FROM_SOME: Self = Self(16);
    const MOST: usize = 256;

    /// The first size for a caller that reads about this many entries.
    pub(super) fn beginning_with(entries: usize) -> Self {
        Self(entries.clamp(1, Self::MOST))
    }

    pub(super) fn next(&mut self) -> usize {
        let grown = Self::MOST.min(self.0 * 4);
        core::mem::replace(&mut self.0, grown)
    }
}

/// A range of keys that is fetched from both ends.
pub(super) struct Walk<'m, S: Kind, K: Key, V: Send + Sync + 'static> {
    map: &'m Map<S, K, V>,
    /// Keys below this one have been fetched, or are outside the range.
    low: OwnedKey<K>,
    /// The exclusive upper end; `None` means +∞.
    high: Option<OwnedKey<K>>,
    /// Whether no key is left between `low` and `high`, or a fetch has panicked.
    drained: bool,
}

/// Returns the bounds of a range as encodings: the first is included, and the second is excluded. If the first is
/// `None`, the range is empty. If the second is `None`, the range has no upper bound.
pub(super) fn bounds<K: Key, Q>(range: &impl RangeBounds<Q>) -> (Option<OwnedKey<K>>, Option<OwnedKey<K>>)
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
    (low, high)
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Walk<'m, S, K, V> {
    pub(super) fn new(map: &'m Map<S, K, V>, (low, high): (Option<OwnedKey<K>>, Option<OwnedKey<K>>)) -> Self {
        // A map that was never used is empty, and its structure must not be made.
        let drained = low.is_none() || map.used().is_none();
        Self { map, low: low.unwrap_or_else(FormOf::<K>::least), high, drained }
    }

    /// Makes a walk over all entries.
    pub(super) fn all(map: &'m Map<S, K, V>) -> Self {
        Self::new(map, (Some(FormOf::<K>::least()), None))
    }

    pub(super) fn map(&self) -> &'m Map<S, K, V> {
        self.map
    }

    /// Returns whether nothing is left to fetch.
    pub(super) fn is_drained(&self) -> bool {
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        self.drained || high.is_some_and(|high| FormOf::<K>::probe(&self.low) >= high)
    }

    /// Fetches only the first entry.
    pub(super) fn fetch_first<R>(&mut self, take: impl FnOnce(crate::Probe<'_, K>, u64) -> R) -> Option<R> {
        if self.is_drained() {
            return None;
        }
        self.drained = true;
        let core = self.map.core();
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        let guard = core.domain().reader().enter();
        let (next, taken) = core.ceiling(core.place(), &guard, FormOf::<K>::probe(&self.low), |key, word| {
            let inside = high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt());
            inside.then(|| (FormOf::<K>::just_above(key), take(key, word)))
        })??;
        self.go_on_from(next);
        Some(taken)
    }

    /// Fetches only the last entry.
    pub(super) fn fetch_last<R>(&mut self, take: impl FnOnce(crate::Probe<'_, K>, u64) -> R) -> Option<R> {
        let (mut take, mut taken) = (Some(take), None);
        self.fetch_back(1, Words::Shown, |key, word| taken = take.take().map(|take| take(key, word)));
        taken
    }

    fn go_on_from(&mut self, low: Option<OwnedKey<K>>) {
        if let Some(low) = low {
            (self.low, self.drained) = (low, false);
        }
    }

    /// Calls `take` with up to `batch` entries from the front, ascending.
    pub(super) fn fetch_front(
        &mut self,
        batch: usize,
        words: Words<'_>,
        mut take: impl FnMut(crate::Probe<'_, K>, u64),
    ) {
        if self.is_drained() {
            return;
        }
        self.drained = true;
        let core = self.map.core();
        let guard = core.domain().reader().enter();
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        let (mut taken, mut last) = (0, None);
        core.scan(core.place(), &guard, FormOf::<K>::probe(&self.low), batch, words, |key, word| {
            let inside = high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt());
            if inside {
                take(key, word);
                taken += 1;
                if taken == batch {
                    last = FormOf::<K>::just_above(key);
                }
            }
            inside
        });
        // Fewer entries than requested: the range is exhausted, and stays drained.
        self.go_on_from(last);
    }

    /// Calls `take` with up to `batch` entries from the back, descending.
    pub(super) fn fetch_back(
        &mut self,
        batch: usize,
        words: Words<'_>,
        mut take: impl FnMut(crate::Probe<'_, K>, u64),
    ) {
        if self.is_drained() {
            return;
        }
        self.drained = true;
        let core = self.map.core();
        let guard = core.domain().reader().enter();
        let from = FormOf::<K>::probe(&self.low);
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        let (mut taken, mut last) = (0, None);
        core.scan_back(core.place(), &guard, high, batch, words, |key, word| {
            let inside = FormOf::<K>::compare(key, from).is_ge();
            if inside {
                take(key, word);
                taken += 1;
                if taken == batch {
                    last = Some(FormOf::<K>::own(key));
                }
            }
            inside
        });
        // Fewer entries than requested: as in `fetch_front`.
        if last.is_some() {
            (self.high, self.drained) = (last, false);
        }
    }

    /// Puts entries back that were fetched from one end and not yielded. `next` is the key that was to be yielded next,
    /// and `last` is the fetched key that is farthest from this end. If no key was left to fetch between the two ends,
    /// the other bound is set to `last`: the other end may have yielded the entries behind `last`.
    pub(super) fn rewind(&mut self, end: End, next: crate::Probe<'_, K>, last: crate::Probe<'_, K>) {
        let drained = self.is_drained();
        match end {
            End::First => self.low = FormOf::<K>::own(next),
            End::Last => self.high = FormOf::<K>::just_above(next),
        }
        if drained {
            match end {
                End::First => self.high = FormOf::<K>::just_above(last),
                End::Last => self.low = FormOf::<K>::own(last),
            }
        }
        self.drained = false;
    }

    /// Skips keys below `key`.
    pub(super) fn raise(&mut self, key: crate::Probe<'_, K>) {
        if FormOf::<K>::compare(FormOf::<K>::probe(&self.low), key).is_lt() {
            self.low = FormOf::<K>::own(key);
        }
    }

    /// Skips keys above `key`.
    pub(super) fn lower(&mut self, key: crate::Probe<'_, K>) {
        let lower = |high: &OwnedKey<K>| FormOf::<K>::compare(FormOf::<K>::probe(high), key).is_le();
        // If no key is above `key`, there is nothing to skip.
        if let Some(above) = FormOf::<K>::just_above(key)
            && !self.high.as_ref().is_some_and(lower)
        {
            self.high = Some(above);
        }
    }
}
