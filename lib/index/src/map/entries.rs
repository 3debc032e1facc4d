//! Access to entries by reference: iterators of [`Entry`], and methods that call a closure with each entry, which have
//! the lowest cost.

mod map_refs;

pub use map_refs::MapRefs;

use super::fetched::{Fetched, Kept, Side};
use super::range::prefix_bounds;
use super::reference::Entry;
use super::walk::{Batches, Walk, bounds};
use super::{End, FormOf, Hold, Kind, Session, Structure};
use crate::structure::{Bytes, Form};
use crate::{Encode, Key, value};
use core::borrow::Borrow;
use core::fmt;
use core::iter::FusedIterator;
use core::ops::{ControlFlow, RangeBounds};

/// A double-ended iterator over a range of entries by reference, in key order. See [`Session::entries`].
///
/// The iterator is `Send`, and so are its entries. It holds no lock. As long as an [`Entry`] lives, memory that is
/// removed from the map is not freed. A paused or leaked iterator itself delays no reclamation between two steps. The
/// exception is [`next_ref`](Self::next_ref): its result is valid, and delays reclamation, until the next step or
/// [`release`](Self::release). The iterator fetches up to 256 entries ahead from each end, and fetches them again if
/// some of their values may have been freed meanwhile.
pub struct Entries<'m, S: Kind, K: Key, V: Send + Sync + 'static> {
    walk: Walk<'m, S, K, V>,
    front: Ahead<'m, K>,
    back: Ahead<'m, K>,
}

/// Entries that were fetched from one end (in ascending order from the front, descending from the back), and the size
/// of the next batch.
struct Ahead<'m, K: Key> {
    side: Option<Side<'m, K>>,
    batches: Batches,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Entries<'m, S, K, V> {
    pub(super) fn over(walk: Walk<'m, S, K, V>) -> Self {
        let ahead = || Ahead { side: None, batches: Batches::FROM_SOME };
        Self { walk, front: ahead(), back: ahead() }
    }

    #[inline]
    fn ahead(&mut self, end: End) -> &mut Ahead<'m, K> {
        match end {
            End::First => &mut self.front,
            End::Last => &mut self.back,
        }
    }

    #[inline]
    fn has_left(&mut self, end: End) -> bool {
        self.ahead(end).side.as_ref().is_some_and(|side| !side.left.is_empty())
    }

    /// Fetches the next batch from one end, whose previous batch is used up. Returns whether it got any entry.
    fn fetch(&mut self, end: End) -> bool {
        let used = self.ahead(end).side.take();
        if self.walk.is_drained() {
            return false;
        }
        let batch = self.ahead(end).batches.next();
        let mut fetched = used.and_then(Side::again).unwrap_or_else(|| Fetched::new(self.walk.map()));
        let push = |key: crate::Probe<'_, K>, word| fetched.batch.push(key, word);
        let words = self.walk.map().words();
        match end {
            End::First => self.walk.fetch_front(batch, words, push),
            End::Last => self.walk.fetch_back(batch, words, push),
        }
        self.ahead(end).side = Some(Side::new(fetched));
        self.has_left(end)
    }

    /// Returns the next entry from `end`, with the holder that keeps its value. The entry is from this end's batch. If
    /// this batch is empty and nothing is left to fetch, the entry is from the rest of the other end's batch.
    #[inline]
    fn step(&mut self, end: End) -> Option<(End, usize, Kept<'m, K>)> {
        loop {
            let from = if self.has_left(end) || self.fetch(end) { end } else { end.other() };
            let ahead = self.ahead(from);
            let side = ahead.side.as_mut().filter(|side| !side.left.is_empty())?;
            if let Some(kept) = side.keep() {
                let at = if from == end { side.left.next() } else { side.left.next_back() };
                return Some((from, at?, kept));
            }
            self.fetch_again(from);
        }
    }

    /// Fetches an end's remaining entries again, since some of their values may have been freed.
    #[cold]
    fn fetch_again(&mut self, end: End) {
        let ahead = self.ahead(end);
        ahead.batches = Batches::FROM_SOME;
        if let Some(side) = ahead.side.take() {
            side.give_back(&mut self.walk, end);
        }
    }

    #[inline]
    fn yielded(&mut self, end: End) -> Option<Entry<'m, K, V>> {
        let step = self.step(end);
        self.release();
        // SAFETY: the entry was fetched from a map of K and V, under the guard that is stored with its batch.
        step.map(|(_, at, kept)| unsafe { Entry::new(kept, at) })
    }

    #[inline]
    fn lent(&mut self, end: End) -> Option<(K::Ref<'_>, &V)> {
        let Some((from, at, kept)) = self.step(end) else {
            self.release();
            return None;
        };
        let side = self.ahead(from).side.as_mut()?;
        // SAFETY: as in `yielded`.
        Some(unsafe { side.lent.insert(kept).show(at) })
    }

    /// Tells about how many entries the caller will read, so that the iterator fetches as many, if they are at most 256,
    /// in its first batch. Without this call it fetches 16, then 64, then 256 at a time: 336 for a caller that reads a
    /// hundred.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, String> = (0..1_000).map(|n| (n, n.to_string())).collect();
    /// let page: Vec<_> = map.pin().entries(500..).expecting(20).take(20).map(|entry| entry.to_key()).collect();
    /// assert_eq!(page, (500..520).collect::<Vec<_>>());
    /// ```
    #[must_use]
    pub fn expecting(mut self, entries: usize) -> Self {
        self.front.batches = Batches::beginning_with(entries);
        self.back.batches = Batches::beginning_with(entries);
        self
    }

    /// Returns an iterator over what `make` returns for each entry. It costs less than
    /// [`map`](Iterator::map), whose closure gets an [`Entry`]: like [`next_ref`](Self::next_ref), it changes no
    /// reference count. As long as it is used, and until it is dropped, it delays reclamation as `next_ref` does.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string()), (2, "two".to_string()), (3, "three".to_string())]);
    /// let mut lengths = map.pin().entries(2..).map_refs(|key, value| (key, value.len()));
    /// assert_eq!((lengths.next_back(), lengths.next()), (Some((3, 5)), Some((2, 3))));
    /// ```
    pub fn map_refs<T, F: FnMut(K::Ref<'_>, &V) -> T>(self, make: F) -> MapRefs<'m, S, K, V, F> {
        MapRefs::new(self, make)
    }

    /// Ends the validity of the results of [`next_ref`](Self::next_ref) and [`next_back_ref`](Self::next_back_ref):
    /// until the next step the iterator delays no reclamation.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string()), (2, "two".to_string())]);
    /// let mut entries = map.pin().entries::<i32, _>(..);
    /// assert_eq!(entries.next_ref(), Some((1, &"one".to_string())));
    /// assert_eq!(map.stats().garbage.readers, 1);
    /// entries.release();
    /// assert_eq!(map.stats().garbage.readers, 0);
    /// assert_eq!(entries.next_ref(), Some((2, &"two".to_string())));
    /// ```
    #[inline]
    pub fn release(&mut self) {
        for ahead in [&mut self.front, &mut self.back] {
            if let Some(side) = &mut ahead.side {
                side.lent = None;
            }
        }
    }

    /// Returns the entry that [`next`](Iterator::next) would yield, as a reference that is valid until the next call.
    /// No reference count changes. So a walk over all entries costs little more than [`Session::scan_range`], and the
    /// caller controls the loop.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string()), (2, "two".to_string()), (3, "three".to_string())]);
    /// let mut entries = map.pin().entries(2..);
    /// while let Some((key, value)) = entries.next_ref() {
    ///     println!("{key}: {value}");
    /// }
    /// ```
    #[inline]
    pub fn next_ref(&mut self) -> Option<(K::Ref<'_>, &V)> {
        self.lent(End::First)
    }

    /// Returns the next entry from the back, as [`next_ref`](Self::next_ref) does from the front.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string()), (2, "two".to_string()), (3, "three".to_string())]);
    /// let mut entries = map.pin().entries(..3);
    /// assert_eq!(entries.next_back_ref(), Some((2, &"two".to_string())));
    /// assert_eq!(entries.next_ref(), Some((1, &"one".to_string())));
    /// assert_eq!(entries.next_back_ref(), None); // both ends have met
    /// ```
    #[inline]
    pub fn next_back_ref(&mut self) -> Option<(K::Ref<'_>, &V)> {
        self.lent(End::Last)
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Iterator for Entries<'m, S, K, V> {
    type Item = Entry<'m, K, V>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'m, K, V>> {
        self.yielded(End::First)
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> DoubleEndedIterator for Entries<'m, S, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<Entry<'m, K, V>> {
        self.yielded(End::Last)
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> FusedIterator for Entries<'_, S, K, V> {}

impl<S: Kind, K: Key, V: Send + Sync + 'static> fmt::Debug for Entries<'_, S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Returns an iterator over references to the entries whose keys are in `range`, ascending; `.rev()` descends. Use
    /// this method for values that cannot or should not be cloned. Its consistency is that of [`range`](Self::range). A
    /// batch of entries costs at most a few allocations, and an entry costs about ten nanoseconds;
    /// [`Entries::next_ref`] and [`scan_range`](Self::scan_range) are cheaper.
    ///
    /// ```
    /// use archipelago::HydraList;
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

    /// Calls `visit` with up to `limit` entries with keys `>= from`, ascending. Returns the number of visited entries.
    ///
    /// The scan holds no lock. It visits no key twice, and visits every key that is in the map throughout the call, up
    /// to the limit. It may or may not visit entries that are inserted or removed meanwhile. Each visited entry was in
    /// the map at some moment during the call. Memory reclamation waits until the scan ends.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from(["ant", "bee", "cat", "dog"].map(|name| (name.to_string(), name.len())));
    /// let mut names = String::new();
    /// let visited = map.pin().scan("b", 2, |name, _| names += name); // "b" need not be in the map
    /// assert_eq!((visited, names.as_str()), (2, "beecat"));
    /// ```
    pub fn scan<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        from.encode(|from| {
            self.core.scan(self.place(), &guard, from, limit, self.map.words(), |key, word| {
                // SAFETY: the key is an encoding of a K; the word was in the map under our guard.
                unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
                true
            })
        })
    }

    /// Scans as [`scan`](Self::scan) does, but in descending order, over keys `<= from`.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// let mut squares = Vec::new();
    /// let visited = map.pin().scan_rev(&2, 100, |_, square| squares.push(*square)); // from 2, inclusive
    /// assert_eq!((visited, squares), (3, vec![4, 1, 0]));
    /// ```
    pub fn scan_rev<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        let above = from.encode(FormOf::<K>::just_above);
        let bound = above.as_ref().map(FormOf::<K>::probe);
        self.core.scan_back(self.place(), &guard, bound, limit, self.map.words(), |key, word| {
            // SAFETY: as in `scan`.
            unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
            true
        })
    }

    /// Calls `visit` with the entries whose keys are in `range`, ascending, until `visit` breaks. Returns the value of
    /// the break. Consistency and cost are those of [`scan`](Self::scan): the scan clones nothing, and allocates
    /// nothing per entry.
    ///
    /// ```
    /// use archipelago::HydraList;
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
        self.core.scan(self.place(), &guard, FormOf::<K>::probe(&low?), usize::MAX, self.map.words(), |key, word| {
            if !high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt()) {
                return false;
            }
            // SAFETY: as in `scan`.
            broke = unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) }.break_value();
            broke.is_none()
        });
        broke
    }

    /// Scans as [`scan_range`](Self::scan_range) does, but in descending order.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// let states = HydraList::from([(10, "draft"), (20, "final"), (30, "draft")]);
    /// let draft = |key, state: &&str| if *state == "draft" { Break(key) } else { Continue(()) };
    /// assert_eq!(states.pin().scan_range_rev(..30, draft), Some(10)); // the newest draft before 30
    /// ```
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
        self.core.scan_back(self.place(), &guard, high, usize::MAX, self.map.words(), |key, word| {
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
    /// Returns an iterator over references to the entries whose keys begin with `prefix`, see [`prefix`](Self::prefix).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from(["a/", "b/1", "b/2", "c/"].map(|path| (path.to_string(), ())));
    /// let mut entries = map.pin().prefix_entries("b/");
    /// assert_eq!(entries.next_back().map(|entry| entry.to_key()), Some("b/2".into()));
    /// assert_eq!(entries.next_ref(), Some(("b/1", &())));
    /// assert_eq!(entries.next_ref(), None);
    /// ```
    pub fn prefix_entries<Q>(&self, prefix: &Q) -> Entries<'m, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = Bytes> + ?Sized,
    {
        Entries::over(Walk::new(self.map, prefix_bounds(prefix)))
    }
}
