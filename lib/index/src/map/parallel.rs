//! Parallel iteration, with `rayon`. A map is divided at some of its own keys ([`Map::split_points`]), and `rayon`
//! distributes the parts to its threads.
#![cfg(feature = "rayon")]

use super::walk::{OwnedKey, Walk, bounds};
use super::{FormOf, Kind, Map, Range};
use crate::structure::Form;
use crate::{Encode, Key};
use core::borrow::Borrow;
use core::fmt;
use core::ops::RangeBounds;
use rayon::iter::plumbing::UnindexedConsumer;
use rayon::prelude::*;

/// The number of parts for each thread. There are several, since parts differ in size.
const PARTS: usize = 8;
/// The number of entries that a thread collects before it inserts them.
const COLLECTED: usize = 1024;

type Part<K> = (Option<OwnedKey<K>>, Option<OwnedKey<K>>);

/// A parallel iterator over a range of entries, in no particular order. See [`Map::par_range`].
pub struct ParRange<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static> {
    map: &'m Map<S, K, V>,
    parts: Vec<Part<K>>,
}

impl<S: Kind, K: Key, V: Clone + Send + Sync + 'static> Map<S, K, V> {
    /// Returns a parallel iterator over all entries; its consistency is that of
    /// [`Session::range`](super::Session::range).
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use rayon::prelude::*;
    ///
    /// let map: HydraList<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    /// assert_eq!(map.par_iter().map(|(_, value)| value).sum::<u64>(), 9_999 * 5_000);
    /// ```
    pub fn par_iter(&self) -> ParRange<'_, S, K, V> {
        self.par_range::<K, _>(..)
    }

    /// Returns a parallel iterator over the entries whose keys are in `range`.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use rayon::prelude::*;
    ///
    /// let map: HydraList<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    /// let mut multiples: Vec<u64> = map.par_range(..50).map(|(key, _)| key).filter(|key| key % 20 == 0).collect();
    /// multiples.sort(); // the items are in no particular order
    /// assert_eq!(multiples, [0, 20, 40]);
    /// ```
    pub fn par_range<Q, R>(&self, range: R) -> ParRange<'_, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        let (mut low, high) = bounds::<K, Q>(&range);
        let mut parts = Vec::new();
        for point in self.split_points(PARTS * rayon::current_num_threads()) {
            let point = point.encode(FormOf::<K>::own);
            let probe = FormOf::<K>::probe(&point);
            let above = low.as_ref().is_some_and(|low| FormOf::<K>::probe(low) < probe);
            let below = high.as_ref().is_none_or(|high| probe < FormOf::<K>::probe(high));
            if above && below {
                parts.push((low.replace(point.clone()), Some(point)));
            }
        }
        parts.push((low, high));
        ParRange { map: self, parts }
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static> ParallelIterator for ParRange<'m, S, K, V> {
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<(K, V)>>(self, consumer: C) -> C::Result {
        let Self { map, parts } = self;
        let entries = |part| -> Range<'m, S, K, V> { Range::over(Walk::new(map, part)) };
        parts.into_par_iter().flat_map_iter(entries).drive_unindexed(consumer)
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static> IntoParallelIterator for &'m Map<S, K, V> {
    type Item = (K, V);
    type Iter = ParRange<'m, S, K, V>;

    fn into_par_iter(self) -> ParRange<'m, S, K, V> {
        self.par_iter()
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> ParallelExtend<(K, V)> for Map<S, K, V> {
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        let map = &*self;
        let insert = |mut collected: Vec<(K, V)>, entry| {
            collected.push(entry);
            if collected.len() == COLLECTED {
                map.pin().extend(collected.drain(..));
            }
            collected
        };
        entries.into_par_iter().fold(Vec::new, insert).for_each(|rest| map.pin().extend(rest));
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> FromParallelIterator<(K, V)> for Map<S, K, V> {
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.par_extend(entries);
        map
    }
}

impl<S: Kind, K: Key, V: Clone + Send + Sync + 'static> fmt::Debug for ParRange<'_, S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParRange").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
