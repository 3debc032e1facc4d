//! Where an iterator stands: what is not fetched yet is the range of keys `low..high`.
//!
//! Fetching from either end moves that end past what was fetched, so no key can come twice, whatever happens to the map in
//! between. If something panics while it is being fetched, what has been fetched still comes, and that is the end.

use super::{FormOf, Kind, Map, Structure, Words};
use crate::hydra::{PageForm, SearchForm};
use crate::{Encode, Key};
use core::ops::{Bound, RangeBounds};

/// A kept key.
pub(super) type OwnedKey<K> = <FormOf<K> as PageForm>::Owned;

/// How many entries are fetched at a time: one, without a buffer, for those who want no more; then more and more.
const FIRST_BATCH: usize = 16;
const MAX_BATCH: usize = 256;

/// A range of keys from both ends.
pub(super) struct Walk<'m, S: Kind, K: Key, V: Send + Sync + 'static> {
    map: &'m Map<S, K, V>,
    /// The least key not fetched yet; `None`: there is nothing more to fetch.
    low: Option<OwnedKey<K>>,
    /// Exclusive; `None` means +∞.
    high: Option<OwnedKey<K>>,
    /// How many entries were fetched last.
    batch: usize,
}

/// The bounds of a range, as encodings: from the first, if there is any, to below the second, or +∞.
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
        Self { map, low, high, batch: 0 }
    }

    /// Over everything.
    pub(super) fn all(map: &'m Map<S, K, V>) -> Self {
        Self::new(map, (Some(FormOf::<K>::least()), None))
    }

    pub(super) fn map(&self) -> &'m Map<S, K, V> {
        self.map
    }

    /// Whether nothing is left to fetch. (In a map that was never used there is nothing, and nothing shall be made.)
    pub(super) fn is_drained(&mut self) -> bool {
        if self.map.used().is_none() {
            self.low = None;
        }
        match (&self.low, &self.high) {
            (None, _) => true,
            (Some(low), Some(high)) => FormOf::<K>::probe(low) >= FormOf::<K>::probe(high),
            (Some(_), None) => false,
        }
    }

    /// Whether nothing has been fetched yet.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.batch == 0
    }

    fn next_batch(&mut self) -> usize {
        self.batch = if self.is_fresh() { FIRST_BATCH } else { (self.batch * 4).min(MAX_BATCH) };
        self.batch
    }

    /// Fetches the first entry alone.
    pub(super) fn fetch_one<R>(&mut self, take: impl FnOnce(crate::Probe<'_, K>, u64) -> R) -> Option<R> {
        self.batch = 1;
        let low = self.low.take()?;
        let core = self.map.used()?;
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        if high.is_some_and(|high| FormOf::<K>::probe(&low) >= high) {
            return None;
        }
        let guard = core.domain().reader().enter();
        let (next, taken) = core.ceiling(core.place(), &guard, FormOf::<K>::probe(&low), |key, word| {
            let inside = high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt());
            inside.then(|| (FormOf::<K>::just_above(key), take(key, word)))
        })??;
        self.low = next;
        Some(taken)
    }

    /// Shows the next entries from the front, ascending.
    pub(super) fn fetch_front(&mut self, words: Words, mut take: impl FnMut(crate::Probe<'_, K>, u64)) {
        if self.is_drained() {
            return;
        }
        let batch = self.next_batch();
        let Some(low) = self.low.take() else { return };
        let core = self.map.core();
        let guard = core.domain().reader().enter();
        let high = self.high.as_ref().map(FormOf::<K>::probe);
        let (mut taken, mut last) = (0, None);
        core.scan(core.place(), &guard, FormOf::<K>::probe(&low), batch, words, |key, word| {
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
        // Fewer than asked for: the range is exhausted, and `low` stays `None`.
        self.low = last;
    }

    /// Shows the next entries from the back, descending.
    pub(super) fn fetch_back(&mut self, words: Words, mut take: impl FnMut(crate::Probe<'_, K>, u64)) {
        if self.is_drained() {
            return;
        }
        let batch = self.next_batch();
        let Some(low) = self.low.take() else { return };
        let core = self.map.core();
        let guard = core.domain().reader().enter();
        let from = FormOf::<K>::probe(&low);
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
        // Fewer than asked for: as in `fetch_front`.
        if last.is_some() {
            (self.low, self.high) = (Some(low), last);
        }
    }

    /// Leaves out what is below `key`.
    pub(super) fn raise(&mut self, key: crate::Probe<'_, K>) {
        if self.low.as_ref().is_some_and(|low| FormOf::<K>::compare(FormOf::<K>::probe(low), key).is_lt()) {
            self.low = Some(FormOf::<K>::own(key));
        }
    }

    /// Leaves out what is above `key`.
    pub(super) fn lower(&mut self, key: crate::Probe<'_, K>) {
        let lower = |high: &OwnedKey<K>| FormOf::<K>::compare(FormOf::<K>::probe(high), key).is_le();
        // Without a key above this one there is nothing to leave out.
        if let Some(above) = FormOf::<K>::just_above(key)
            && !self.high.as_ref().is_some_and(lower)
        {
            self.high = Some(above);
        }
    }
}
