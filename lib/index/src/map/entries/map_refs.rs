//! Iterators over what a closure makes of entries that it is lent.

use super::{Entries, Kind};
use crate::Key;
use core::fmt;
use core::iter::FusedIterator;

/// A double-ended iterator over what a closure makes of entries. See [`Entries::map_refs`].
pub struct MapRefs<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> {
    entries: Entries<'m, S, K, V>,
    make: F,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> MapRefs<'m, S, K, V, F> {
    pub(super) fn new(entries: Entries<'m, S, K, V>, make: F) -> Self {
        Self { entries, make }
    }

    /// Returns the remaining entries.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one"), (2, "two")]);
    /// let mut lengths = map.pin().entries::<i32, _>(..).map_refs(|_, value| value.len());
    /// assert_eq!(lengths.next(), Some(3));
    /// let mut rest = lengths.into_inner();
    /// rest.release(); // a pause delays no reclamation
    /// assert_eq!(rest.next_ref(), Some((2, &"two")));
    /// ```
    pub fn into_inner(self) -> Entries<'m, S, K, V> {
        self.entries
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T, F: FnMut(K::Ref<'_>, &V) -> T> Iterator for MapRefs<'_, S, K, V, F> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.entries.next_ref().map(|(key, value)| (self.make)(key, value))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T, F: FnMut(K::Ref<'_>, &V) -> T> DoubleEndedIterator
    for MapRefs<'_, S, K, V, F>
{
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        self.entries.next_back_ref().map(|(key, value)| (self.make)(key, value))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T, F: FnMut(K::Ref<'_>, &V) -> T> FusedIterator
    for MapRefs<'_, S, K, V, F>
{
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, F> fmt::Debug for MapRefs<'_, S, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapRefs").finish_non_exhaustive()
    }
}
