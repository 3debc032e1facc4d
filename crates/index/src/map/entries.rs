//! Visiting entries by reference: iterators of [`Entry`], and closures, which cost least.

use super::range::prefix_bounds;
use super::reference::{Entry, Held};
use super::walk::{Walk, bounds};
use super::{FormOf, Hold, Kind, Session, Structure, Words};
use crate::hydra::{PageForm, SearchForm};
use crate::key::Bytes;
use crate::{Encode, Key, value};
use archipelago_platform::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range as Places, RangeBounds};

/// A double-ended iterator over a range of entries by reference, in key order. See [`Session::entries`].
///
/// It is `Send`, and so are its entries. It holds no lock; it holds a guard, which keeps what the map lets go of from being
/// freed, from one batch of entries to the next (at most 256 of them) or to its end.
pub struct Entries<'m, S: Kind, K: Key, V: Send + Sync + 'static> {
    walk: Walk<'m, S, K, V>,
    front: Option<Side<'m, K>>,
    back: Option<Side<'m, K>>,
    values: PhantomData<V>,
}

/// What has been fetched from one end: the places that are left, the one to be yielded next at the start. The front's lie in
/// ascending order, the back's in descending.
struct Side<'m, K: Key> {
    held: Arc<Held<'m, K>>,
    left: Places<usize>,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Entries<'m, S, K, V> {
    pub(super) fn over(walk: Walk<'m, S, K, V>) -> Self {
        Self { walk, front: None, back: None, values: PhantomData }
    }

    /// Something to fetch into: the used one, if no entry refers to it any more.
    fn fresh(&self, used: Option<Side<'m, K>>) -> Held<'m, K> {
        match used.and_then(|side| Arc::into_inner(side.held)) {
            Some(mut held) => {
                held.batch.clear();
                held.guard.renew();
                held
            }
            None => Held { batch: Default::default(), guard: self.walk.map().core().domain().pin_owned() },
        }
    }

    fn fetch_front(&mut self) {
        let used = self.front.take();
        if self.walk.is_drained() {
            return;
        }
        let mut held = self.fresh(used);
        self.walk.fetch_front(Words::of::<V>(), |key, word| held.batch.push(key, word));
        self.front = Some(Side::of(held));
    }

    fn fetch_back(&mut self) {
        let used = self.back.take();
        if self.walk.is_drained() {
            return;
        }
        let mut held = self.fresh(used);
        self.walk.fetch_back(Words::of::<V>(), |key, word| held.batch.push(key, word));
        self.back = Some(Side::of(held));
    }
}

impl<'m, K: Key> Side<'m, K> {
    fn of(held: Held<'m, K>) -> Self {
        let left = 0..held.batch.len();
        Self { held: Arc::new(held), left }
    }

    fn entry<V: Send + Sync + 'static>(&self, at: usize) -> Entry<'m, K, V> {
        // SAFETY: fetched under the guard beside it, from a map of K and V.
        unsafe { Entry::new(&self.held, at) }
    }

    fn next<V: Send + Sync + 'static>(&mut self) -> Option<Entry<'m, K, V>> {
        self.left.next().map(|at| self.entry(at))
    }

    /// From its other end.
    fn next_back<V: Send + Sync + 'static>(&mut self) -> Option<Entry<'m, K, V>> {
        self.left.next_back().map(|at| self.entry(at))
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Iterator for Entries<'m, S, K, V> {
    type Item = Entry<'m, K, V>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'m, K, V>> {
        if let Some(entry) = self.front.as_mut().and_then(Side::next) {
            return Some(entry);
        }
        self.fetch_front();
        let front = self.front.as_mut().and_then(Side::next);
        front.or_else(|| self.back.as_mut().and_then(Side::next_back))
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> DoubleEndedIterator for Entries<'m, S, K, V> {
    fn next_back(&mut self) -> Option<Entry<'m, K, V>> {
        if let Some(entry) = self.back.as_mut().and_then(Side::next) {
            return Some(entry);
        }
        self.fetch_back();
        let back = self.back.as_mut().and_then(Side::next);
        back.or_else(|| self.front.as_mut().and_then(Side::next_back))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> FusedIterator for Entries<'_, S, K, V> {}

impl<S: Kind, K: Key, V: Send + Sync + 'static> fmt::Debug for Entries<'_, S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// An iterator over the entries whose keys lie in `range`, by reference, ascending; `.rev()` descends. For values that
    /// cannot or should not be cloned. Consistency as for [`range`](Self::range). A batch of entries costs a few
    /// allocations at most, an entry a reference count; [`scan_range`](Self::scan_range) is cheaper.
    ///
    /// ```
    /// use archipelago_index::HydraList;
    /// use std::sync::Mutex;
    ///
    /// let map: HydraList<String, Mutex<u64>> = HydraList::new();
    /// let map = map.pin();
    /// map.upsert("a", Mutex::new(1));
    /// map.upsert("b", Mutex::new(2));
    /// for entry in map.entries("a".to_string()..) {
    ///     *entry.value().lock().unwrap() += entry.key().len() as u64;
    /// }
    /// assert_eq!(map.last().map(|entry| *entry.value().lock().unwrap()), Some(3));
    /// ```
    pub fn entries<Q, R>(&self, range: R) -> Entries<'m, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        Entries::over(self.walk(&range))
    }

    /// Visits up to `limit` entries with keys `>= from`, ascending; returns how many.
    ///
    /// Holds no lock. Never visits a key twice, never misses a key that was in the map throughout the call; entries
    /// that come and go meanwhile may or may not be seen. Each entry was in the map at some moment during the call.
    /// Memory reclamation waits while `visit` runs.
    pub fn scan<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        from.encode(|from| {
            self.core.scan(self.place(), &guard, from, limit, Words::of::<V>(), |key, word| {
                // SAFETY: the key is an encoding of a K; the word was in the map under our guard.
                unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
                true
            })
        })
    }

    /// As [`scan`](Self::scan), descending over keys `<= from`.
    pub fn scan_rev<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        let above = from.encode(FormOf::<K>::just_above);
        let bound = above.as_ref().map(FormOf::<K>::probe);
        self.core.scan_back(self.place(), &guard, bound, limit, Words::of::<V>(), |key, word| {
            // SAFETY: as in `scan`.
            unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
            true
        })
    }

    /// Visits the entries whose keys lie in `range`, ascending, until `visit` breaks; what it broke with. Consistency and
    /// cost are those of [`scan`](Self::scan): nothing is cloned, and nothing allocated for an entry.
    ///
    /// ```
    /// use archipelago_index::HydraList;
    /// use std::ops::ControlFlow;
    ///
    /// let map = HydraList::from([(1, "one".to_string()), (2, "two".to_string()), (3, "three".to_string())]);
    /// let long = map.pin().scan_range(2.., |key, value| {
    ///     if value.len() > 3 { ControlFlow::Break(key) } else { ControlFlow::Continue(()) }
    /// });
    /// assert_eq!(long, Some(3));
    /// ```
    pub fn scan_range<Q, R, B>(&self, range: R, mut visit: impl FnMut(K::Ref<'_>, &V) -> ControlFlow<B>) -> Option<B>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        let (low, high) = bounds::<K, Q>(&range);
        let high = high.as_ref().map(FormOf::<K>::probe);
        let guard = self.enter();
        let mut broke = None;
        self.core.scan(self.place(), &guard, FormOf::<K>::probe(&low?), usize::MAX, Words::of::<V>(), |key, word| {
            if !high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt()) {
                return false;
            }
            // SAFETY: as in `scan`.
            broke = unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) }.break_value();
            broke.is_none()
        });
        broke
    }

    /// As [`scan_range`](Self::scan_range), descending.
    pub fn scan_range_rev<Q, R, B>(
        &self,
        range: R,
        mut visit: impl FnMut(K::Ref<'_>, &V) -> ControlFlow<B>,
    ) -> Option<B>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        let (low, high) = bounds::<K, Q>(&range);
        let low = low?;
        let guard = self.enter();
        let mut broke = None;
        let high = high.as_ref().map(FormOf::<K>::probe);
        self.core.scan_back(self.place(), &guard, high, usize::MAX, Words::of::<V>(), |key, word| {
            if FormOf::<K>::compare(key, FormOf::<K>::probe(&low)).is_lt() {
                return false;
            }
            // SAFETY: as in `scan`.
            broke = unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) }.break_value();
            broke.is_none()
        });
        broke
    }
}

impl<'m, S: Kind, K, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H>
where
    K: Key<Form = Bytes>,
{
    /// As [`prefix`](Self::prefix), by reference.
    pub fn prefix_entries<Q>(&self, prefix: &Q) -> Entries<'m, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = Bytes> + ?Sized,
    {
        Entries::over(Walk::new(self.map, prefix_bounds(prefix)))
    }
}
