//! Iterators that remove what they yield.

use super::reference::{Entry, Held};
use super::structure::{Structure, Words};
use super::walk::Walk;
use super::{FormOf, Hold, Kind, Session};
use crate::{Encode, Key, value};
use archipelago_platform::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ops::{Range as Places, RangeBounds};

/// An iterator that removes entries and yields them by reference, in ascending order. See [`Session::extract_if`].
///
/// It is `Send` if its condition is, and removes an entry just before it yields it: what is left when it is dropped stays
/// in the map.
pub struct ExtractIf<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> {
    walk: Walk<'m, S, K, V>,
    condition: F,
    /// Fetched, and the places that are left.
    seen: Option<(Arc<Held<'m, K>>, Places<usize>)>,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> ExtractIf<'m, S, K, V, F>
where
    F: FnMut(K::Ref<'_>, &V) -> bool,
{
    fn fetch(&mut self) -> Option<(Arc<Held<'m, K>>, Places<usize>)> {
        let mut held = Held { batch: Default::default(), guard: self.walk.map().core().domain().pin_owned() };
        self.walk.fetch_front(Words::of::<V>(), |key, word| held.batch.push(key, word));
        let places = 0..held.batch.len();
        (!places.is_empty()).then(|| (Arc::new(held), places))
    }

    /// Removes an entry that was seen, if the condition holds. What to yield.
    fn extract(&mut self, mut held: Arc<Held<'m, K>>, mut at: usize) -> Option<Entry<'m, K, V>> {
        let session = self.walk.map().pin();
        loop {
            let (key, word) = (held.batch.key(at), *held.batch.word(at));
            // SAFETY: an encoding of a K, and a V's word that was read under the guard beside it.
            if !unsafe { value::with_ref(word, |value| (self.condition)(K::decode_ref(key), value)) } {
                return None;
            }
            let guard = session.enter();
            if session.core.take(session.place(), &guard, key, Some(word)).is_some() {
                session.retire_word(&guard, word);
                // SAFETY: the guard beside the batch is older than the retirement.
                return Some(unsafe { Entry::new(&held, at) });
            }
            // Changed since it was seen: it is asked about again as it is now.
            let mut now = Held { batch: Default::default(), guard: session.core.domain().pin_owned() };
            now.batch.push(key, session.core.get(session.place(), &guard, key)?);
            (held, at) = (Arc::new(now), 0);
        }
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> Iterator for ExtractIf<'m, S, K, V, F>
where
    F: FnMut(K::Ref<'_>, &V) -> bool,
{
    type Item = Entry<'m, K, V>;

    fn next(&mut self) -> Option<Entry<'m, K, V>> {
        loop {
            let (held, mut places) = match self.seen.take() {
                Some(seen) => seen,
                None => self.fetch()?,
            };
            let Some(at) = places.next() else { continue };
            self.seen = Some((held.clone(), places));
            if let Some(entry) = self.extract(held, at) {
                return Some(entry);
            }
        }
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, F> fmt::Debug for ExtractIf<'_, S, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractIf").finish_non_exhaustive()
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Removes the entries in `range` for which `condition` is true, one with each step of the iterator, and yields them by
    /// reference, ascending. Each is removed by one atomic operation, with a value that `condition` has approved; the
    /// condition is asked again if the value has changed meanwhile. While the iterator or an entry of it lives, memory
    /// reclamation waits.
    ///
    /// ```
    /// use archipelago_index::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..100).map(|n| (n, n * n)).collect();
    /// let session = map.pin();
    /// let odd = session.extract_if(..10, |_, square| square % 2 == 1);
    /// assert_eq!(odd.map(|entry| entry.key()).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    /// assert_eq!(map.len(), 95);
    /// ```
    pub fn extract_if<Q, R, F>(&self, range: R, condition: F) -> ExtractIf<'m, S, K, V, F>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
        F: FnMut(K::Ref<'_>, &V) -> bool,
    {
        ExtractIf { walk: self.walk(&range), condition, seen: None }
    }

    /// As [`extract_if`](Self::extract_if), everything in `range`. (To remove without looking:
    /// [`remove_range`](Self::remove_range).)
    pub fn drain_range<Q, R>(
        &self,
        range: R,
    ) -> ExtractIf<'m, S, K, V, impl FnMut(K::Ref<'_>, &V) -> bool + use<'m, S, K, V, H, Q, R>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        self.extract_if(range, |_, _| true)
    }
}
