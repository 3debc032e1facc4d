//! Iterators over clones of entries, of keys or of values, from both ends.

use super::walk::{Batches, Walk, bounds};
use super::{FormOf, Hold, Kind, Map, Session, Words};
use crate::structure::{Bytes, Form};
use crate::{Encode, Key, value};
use core::borrow::Borrow;
use core::fmt;
use core::iter::FusedIterator;
use core::ops::RangeBounds;
use std::collections::VecDeque;

/// How an entry is converted into an item of a [`Range`].
pub trait Take<K: Key, V: Send + Sync + 'static> {
    /// The type of the range's items.
    type Item;

    /// Returns how [`take`](Self::take) uses the words of a map's values.
    #[doc(hidden)]
    #[inline]
    fn words<S: Kind>(map: &Map<S, K, V>) -> Words<'_> {
        map.words()
    }

    /// # Safety
    /// `key` must be an encoding of a `K`, and `word` a word of a `V` that is not reclaimed during the call.
    #[doc(hidden)]
    unsafe fn take(key: crate::Probe<'_, K>, word: u64) -> Self::Item;
}

/// Items are pairs of a key and a value.
#[derive(Debug)]
pub enum Pairs {}
/// Items are keys.
#[derive(Debug)]
pub enum KeysOnly {}
/// Items are values.
#[derive(Debug)]
pub enum ValuesOnly {}

impl<K: Key, V: Clone + Send + Sync + 'static> Take<K, V> for Pairs {
    type Item = (K, V);

    #[inline]
    unsafe fn take(key: crate::Probe<'_, K>, word: u64) -> (K, V) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { (K::decode(key), value::clone_of(word)) }
    }
}

impl<K: Key, V: Send + Sync + 'static> Take<K, V> for KeysOnly {
    type Item = K;

    fn words<S: Kind>(_: &Map<S, K, V>) -> Words<'_> {
        Words::Shown
    }

    unsafe fn take(key: crate::Probe<'_, K>, _: u64) -> K {
        // SAFETY: the caller guarantees the same contract.
        unsafe { K::decode(key) }
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Take<K, V> for ValuesOnly {
    type Item = V;

    unsafe fn take(_: crate::Probe<'_, K>, word: u64) -> V {
        // SAFETY: the caller guarantees the same contract.
        unsafe { value::clone_of(word) }
    }
}

/// A double-ended iterator over a range of entries, in key order. See [`Session::range`].
///
/// The iterator yields owned items, and is `Send`. It holds no lock, and holds no guard between calls. So a paused or
/// leaked iterator delays no reclamation. It fetches entries ahead from each end: one at first, later up to 256 at a
/// time. So an entry that it yields may have changed since it was fetched.
pub struct Range<'m, S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V> = Pairs> {
    walk: Walk<'m, S, K, V>,
    front: Ahead<T::Item>,
    back: Ahead<T::Item>,
}

/// Items that were fetched from one end, in ascending order, and the sizes of this end's next batches.
struct Ahead<T> {
    items: VecDeque<T>,
    batches: Batches,
}

/// An iterator over keys, in order. See [`Session::keys`].
pub type Keys<'m, S, K, V> = Range<'m, S, K, V, KeysOnly>;

/// An iterator over values, in the order of their keys. See [`Session::values`].
pub type Values<'m, S, K, V> = Range<'m, S, K, V, ValuesOnly>;

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V>> Range<'m, S, K, V, T> {
    pub(super) fn over(walk: Walk<'m, S, K, V>) -> Self {
        let ahead = || Ahead { items: VecDeque::new(), batches: Batches::FROM_ONE };
        Self { walk, front: ahead(), back: ahead() }
    }

    pub(super) fn all(map: &'m Map<S, K, V>) -> Self {
        Self::over(Walk::all(map))
    }

    #[cold]
    fn fetch_front(&mut self) -> Option<T::Item> {
        let Ahead { items, batches } = &mut self.front;
        // SAFETY: the walk shows entries of the map, under the walk's guard.
        let take = |key: crate::Probe<'_, K>, word| unsafe { T::take(key, word) };
        match batches.next() {
            1 => self.walk.fetch_first(take),
            batch => {
                let words = T::words(self.walk.map());
                self.walk.fetch_front(batch, words, |key, word| items.push_back(take(key, word)));
                items.pop_front()
            }
        }
    }

    #[cold]
    fn fetch_back(&mut self) -> Option<T::Item> {
        let Ahead { items, batches } = &mut self.back;
        // SAFETY: as in `fetch_front`.
        let take = |key: crate::Probe<'_, K>, word| unsafe { T::take(key, word) };
        match batches.next() {
            1 => self.walk.fetch_last(take),
            batch => {
                let words = T::words(self.walk.map());
                self.walk.fetch_back(batch, words, |key, word| items.push_front(take(key, word)));
                items.pop_back()
            }
        }
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V>> Iterator for Range<'_, S, K, V, T> {
    type Item = T::Item;

    #[inline]
    fn next(&mut self) -> Option<T::Item> {
        let fetched = self.front.items.pop_front();
        fetched.or_else(|| self.fetch_front()).or_else(|| self.back.items.pop_front())
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V>> DoubleEndedIterator for Range<'_, S, K, V, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T::Item> {
        let fetched = self.back.items.pop_back();
        fetched.or_else(|| self.fetch_back()).or_else(|| self.front.items.pop_back())
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V>> FusedIterator for Range<'_, S, K, V, T> {}

/// Removes fetched items from one end as long as they are `unwanted`.
fn pass_by<T>(
    fetched: &mut VecDeque<T>,
    end: fn(&VecDeque<T>) -> Option<&T>,
    pop: fn(&mut VecDeque<T>) -> Option<T>,
    unwanted: impl Fn(&T) -> bool,
) {
    while end(fetched).is_some_and(&unwanted) {
        pop(fetched);
    }
}

impl<S: Kind, K: Key, V: Clone + Send + Sync + 'static> Range<'_, S, K, V> {
    /// Skips the remaining entries with keys below `key`. The iterator never moves back. It keeps the entries at or
    /// above `key` that it has already fetched.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// let mut iter = map.pin().range(10..90);
    /// iter.next();
    /// iter.seek(&50);
    /// iter.seek_back(&60);
    /// assert_eq!((iter.next(), iter.next_back()), (Some((50, 50)), Some((60, 60))));
    /// ```
    pub fn seek<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        key.encode(|key| {
            let below = |entry: &(K, V)| entry.0.encode(|it| FormOf::<K>::compare(it, key).is_lt());
            pass_by(&mut self.front.items, VecDeque::front, VecDeque::pop_front, below);
            if self.front.items.is_empty() {
                self.walk.raise(key);
                pass_by(&mut self.back.items, VecDeque::front, VecDeque::pop_front, below);
            }
        });
    }

    /// Skips the remaining entries with keys above `key` at the back, as [`seek`](Self::seek) does at the front.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// let mut iter = map.pin().range(..90);
    /// assert_eq!(iter.next_back(), Some((89, 89)));
    /// iter.seek_back(&60); // 60 itself remains
    /// iter.seek_back(&70); // no effect, since the iterator never moves back
    /// assert_eq!(iter.next_back(), Some((60, 60)));
    /// ```
    pub fn seek_back<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        key.encode(|key| {
            let above = |entry: &(K, V)| entry.0.encode(|it| FormOf::<K>::compare(it, key).is_gt());
            pass_by(&mut self.back.items, VecDeque::back, VecDeque::pop_back, above);
            if self.back.items.is_empty() {
                self.walk.lower(key);
                pass_by(&mut self.front.items, VecDeque::back, VecDeque::pop_back, above);
            }
        });
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, T: Take<K, V>> fmt::Debug for Range<'_, S, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    pub(super) fn walk<Q>(&self, range: &impl RangeBounds<Q>) -> Walk<'m, S, K, V>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        Walk::new(self.map, bounds::<K, Q>(range))
    }

    /// Returns an iterator over all keys, ascending; see [`range`](Self::range).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2, "two"), (-1, "minus one"), (1, "one")]);
    /// assert_eq!(map.pin().keys().collect::<Vec<_>>(), [-1, 1, 2]); // owned keys
    /// assert_eq!(map.pin().keys().next_back(), Some(2));
    /// ```
    pub fn keys(&self) -> Keys<'m, S, K, V> {
        Range::all(self.map)
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Returns an iterator over clones of the entries whose keys are in `range`, ascending; `.rev()` descends. A range
    /// whose start is after its end is empty. [`scan_range`](Self::scan_range) and [`entries`](Self::entries) do not
    /// clone.
    ///
    /// The iterator yields keys in order and yields no key twice. It yields every key that is in the map from the call
    /// to the iterator's end.
    ///
    /// Bounds are keys. To pass bounds of a borrowed type, pass a pair of `Bound`s, and name the type as a type
    /// argument of the call:
    ///
    /// ```
    /// use archipelago::index::{HydraList, Parts, by_parts};
    /// use std::ops::Bound::{Excluded, Included};
    ///
    /// let map = HydraList::from(["ant", "bee", "cat"].map(|name| (name.to_string(), name.len())));
    /// let map = map.pin();
    /// assert_eq!(map.range("b".to_string()..).count(), 2);
    /// assert_eq!(map.range::<str, _>((Included("b"), Excluded("c"))).count(), 1);
    ///
    /// let map = HydraList::from([(("Bern".to_string(), 7), "seven"), (("Bern".to_string(), 8), "eight")]);
    /// let (from, to) = (Included(by_parts(&("Bern", 8))), Excluded(by_parts(&("Bern", 9))));
    /// assert_eq!(map.pin().range::<dyn Parts<_>, _>((from, to)).count(), 1);
    /// ```
    ///
    /// `"b".."c"` does not compile, as with a `BTreeMap`. It is a range of `&str`, but `String`
    /// implements `Borrow<str>` and not `Borrow<&str>`:
    ///
    /// ```compile_fail,E0277
    /// # let map: archipelago::HydraList<String, u64> = Default::default();
    /// map.pin().range("b".."c");
    /// ```
    pub fn range<Q, R>(&self, range: R) -> Range<'m, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        Range::over(self.walk(&range))
    }

    /// Returns an iterator over all entries, ascending; see [`range`](Self::range).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2, "two"), (1, "one"), (3, "three")]);
    /// let map = map.pin();
    /// for (key, _) in map.iter() {
    ///     map.remove(&key); // the map may change meanwhile, and the iterator owns its items
    /// }
    /// assert!(map.is_empty());
    /// ```
    pub fn iter(&self) -> Range<'m, S, K, V> {
        Range::all(self.map)
    }

    /// Returns an iterator over all values, in the order of their keys; see [`range`](Self::range).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2, "a"), (1, "z"), (3, "a")]);
    /// assert_eq!(map.pin().values().collect::<Vec<_>>(), ["z", "a", "a"]); // in the order of the keys
    /// ```
    pub fn values(&self) -> Values<'m, S, K, V> {
        Range::all(self.map)
    }
}

impl<'m, S: Kind, K, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H>
where
    K: Key<Form = Bytes>,
{
    /// Returns an iterator over the entries whose keys begin with `prefix`, ascending; see [`range`](Self::range). A
    /// string or byte vector is its own encoding. Keys of other types are compared by their encodings: the iterator
    /// yields a key if its encoding begins with the encoding of `prefix`.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from(["a/", "b/1", "b/2", "c/"].map(|path| (path.to_string(), ())));
    /// let map = map.pin();
    /// assert_eq!(map.prefix("b/").map(|(path, ())| path).collect::<Vec<_>>(), ["b/1", "b/2"]);
    /// ```
    pub fn prefix<Q>(&self, prefix: &Q) -> Range<'m, S, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = Bytes> + ?Sized,
    {
        Range::over(Walk::new(self.map, prefix_bounds(prefix)))
    }
}

/// Returns the bounds of the strings that begin with a prefix. The lower bound is the prefix itself. The upper bound is
/// the first string above all strings that begin with the prefix: the prefix without trailing `0xFF` bytes, with its
/// last byte incremented. A prefix that consists of `0xFF` bytes has no upper bound.
pub(super) fn prefix_bounds<Q: Encode<Form = Bytes> + ?Sized>(prefix: &Q) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    prefix.encode(|prefix| {
        let end = prefix.iter().rposition(|&byte| byte < 0xFF).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        (Some(prefix.to_vec()), end)
    })
}
