//! Sessions, and operations that read by key.

use super::walk::Walk;
use super::{CoreOf, Entry, FormOf, Kind, Map, Ref, Structure};
use crate::structure::Form;
use crate::{Encode, Key, value};
use archipelago_sync::rcu::{Guard, Reader};
use core::borrow::Borrow;
use core::fmt;

/// A thread's state for a structure, such as the search layer of its node.
pub(crate) type PlaceOf<'s, S, K> = <CoreOf<S, K> as Structure<FormOf<K>>>::Place<'s>;

/// The way in which a session accesses its map: bound to one thread, or from any thread.
pub trait Hold<'m, S: Kind, K: Key>: sealed::Sealed {
    /// Begins a critical section of the calling thread.
    fn enter(&self, core: &'m CoreOf<S, K>) -> Guard<'m>;

    /// Returns the calling thread's state for the structure.
    fn place(&self, core: &'m CoreOf<S, K>) -> PlaceOf<'m, S, K>;
}

mod sealed {
    pub trait Sealed {}
    impl<S: super::Kind, K: super::Key> Sealed for super::Pinned<'_, S, K> {}
    impl Sealed for super::Roaming {}
}

/// The access of one thread to the map, found when the session was made.
pub struct Pinned<'m, S: Kind, K: Key> {
    reader: Reader<'m>,
    place: PlaceOf<'m, S, K>,
}

/// An access from any thread: each operation looks up the state of the thread in which it runs.
#[derive(Clone, Copy, Debug)]
pub struct Roaming;

impl<'m, S: Kind, K: Key> Hold<'m, S, K> for Pinned<'m, S, K> {
    #[inline(always)]
    fn enter(&self, _: &'m CoreOf<S, K>) -> Guard<'m> {
        self.reader.enter()
    }

    #[inline(always)]
    fn place(&self, _: &'m CoreOf<S, K>) -> PlaceOf<'m, S, K> {
        self.place
    }
}

impl<'m, S: Kind, K: Key> Hold<'m, S, K> for Roaming {
    #[inline]
    fn enter(&self, core: &'m CoreOf<S, K>) -> Guard<'m> {
        core.domain().reader().enter()
    }

    #[inline]
    fn place(&self, core: &'m CoreOf<S, K>) -> PlaceOf<'m, S, K> {
        core.place()
    }
}

/// A session on a [`Map`]: made by [`Map::pin`] for one thread, or by [`Map::pin_owned`] for any thread.
///
/// A session consists of a few references. Making one costs a few loads, whatever the number of live sessions, and
/// forgetting one costs nothing. A session holds no lock and no guard between calls, so keeping it for a long time
/// delays no other thread and no reclamation. A session made by `pin` remembers the NUMA node on which it was made. If
/// its thread moves to another node, the session stays correct, but continues to read the first node's memory.
///
/// Closures that receive a value (in [`get_with`](Self::get_with), [`scan`](Self::scan), [`update`](Self::update),
/// [`compute`](Self::compute), [`retain`](Self::retain)) run inside a guard, and so does the cloning of values. Memory
/// that is removed or replaced meanwhile is not freed before the closure returns, so closures should be short.
/// References ([`Ref`], [`Entry`]) hold a guard as long as they live. [`Map::stats`] shows the garbage, and a
/// [`backlog_limit`](super::Builder::backlog_limit) bounds it. Closures and iterators that make values (in
/// [`get_or_insert_with`](Self::get_or_insert_with), [`extend`](Self::extend)) run outside any guard.
///
/// All operations on single keys are linearizable. In a `HydraList` such an operation costs one search-layer look-up
/// and, nearly always, one page: expected O(log n) comparisons in a few cache lines for words, and O(key length) for
/// byte strings. In an `Art` it costs at most one step per byte of the key.
pub struct Session<'m, S: Kind, K: Key, V: Send + Sync + 'static, H = Pinned<'m, S, K>> {
    pub(super) map: &'m Map<S, K, V>,
    pub(crate) core: &'m CoreOf<S, K>,
    pub(super) hold: H,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Session<'m, S, K, V> {
    #[inline]
    pub(super) fn pinned(map: &'m Map<S, K, V>) -> Self {
        let core = map.core();
        Self { map, core, hold: Pinned { reader: core.domain().reader(), place: core.place() } }
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static> Session<'m, S, K, V, Roaming> {
    pub(super) fn roaming(map: &'m Map<S, K, V>) -> Self {
        Self { map, core: map.core(), hold: Roaming }
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    #[inline(always)]
    pub(super) fn enter(&self) -> Guard<'m> {
        self.hold.enter(self.core)
    }

    /// Begins an operation that may remove or replace a value. If the map has a limit with `OnBacklog::Wait`, and the
    /// thread has no guard of the map, the call waits while the garbage exceeds the limit.
    #[inline]
    pub(super) fn enter_to_store(&self) -> Guard<'m> {
        self.core.limits().backlog.admit(self.core.domain());
        self.enter()
    }

    #[inline(always)]
    pub(super) fn place(&self) -> PlaceOf<'m, S, K> {
        self.hold.place(self.core)
    }

    /// Returns the map of this session.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one")]);
    /// let session = map.pin();
    /// assert_eq!(session.map().stats().entries, 1); // operations on the whole map are not methods of a session
    /// ```
    pub fn map(&self) -> &'m Map<S, K, V> {
        self.map
    }

    /// Returns the number of entries; see [`Map::len`].
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one")]);
    /// let map = map.pin();
    /// map.insert(1, "uno"); // replaces
    /// map.insert(2, "two");
    /// assert_eq!(map.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.core.entries()
    }

    /// Returns whether there are no entries, with the consistency of [`len`](Self::len).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one")]);
    /// let map = map.pin();
    /// assert_eq!(map.pop_first(), Some((1, "one")));
    /// assert!(map.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for background work and frees memory; see [`Map::sync`].
    ///
    /// ```
    /// use archipelago::BLinkTree;
    ///
    /// let map: BLinkTree<u64, u64> = (0..1_000).map(|n| (n, n)).collect();
    /// let map = map.pin();
    /// map.retain(|key, _| key % 100 == 0);
    /// map.sync(); // merges the pages, which are nearly empty now
    /// assert_eq!(map.range(..=200).collect::<Vec<_>>(), [(0, 0), (100, 100), (200, 200)]);
    /// ```
    pub fn sync(&self) {
        self.core.settle();
    }

    #[inline(always)]
    pub(super) fn word<Q>(&self, guard: &Guard<'m>, key: &Q) -> Option<u64>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let place = self.place();
        key.encode(|key| self.core.get(place, guard, key))
    }

    /// Calls `read` with a reference to the value of `key`, without cloning the value. Memory reclamation waits while
    /// `read` runs.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string())]);
    /// let map = map.pin();
    /// assert_eq!(map.get_with(&1, String::len), Some(3)); // the string is not cloned
    /// assert_eq!(map.get_with(&2, |_| unreachable!("there is no such key")), None::<()>);
    /// ```
    #[inline(always)]
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        let word = self.word(&guard, key)?;
        // SAFETY: the word was in the map under our guard, so its value is not reclaimed yet.
        Some(unsafe { value::with_ref(word, read) })
    }

    /// Returns a reference to the value of `key`. Memory reclamation waits while the reference lives.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::sync::RwLock;
    ///
    /// // Values need not be `Clone`.
    /// let map: HydraList<u64, RwLock<Vec<u64>>> = HydraList::new();
    /// let map = map.pin();
    /// map.get_or_insert_with(1, RwLock::default).write().unwrap().push(7);
    /// assert_eq!(*map.get_ref(&1).unwrap().read().unwrap(), [7]);
    /// ```
    #[inline]
    pub fn get_ref<Q>(&self, key: &Q) -> Option<Ref<'m, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter();
        let word = self.word(&guard, key)?;
        // SAFETY: the word was in the map under the guard.
        Some(unsafe { Ref::new(word, guard) })
    }

    /// Returns a reference to the entry of `key`. The reference may be sent to other threads, and kept across an
    /// `await`. It costs some allocations. While it is made or dropped, it takes a lock that all such references of the
    /// map share. Within a thread [`get_ref`](Self::get_ref) is better.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("one".to_string(), 1)]);
    /// let entry = map.pin().get_entry("one").unwrap();
    /// map.pin().remove("one");
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert_eq!((entry.key(), *entry.value()), ("one", 1))); // still, and in another thread
    /// });
    /// ```
    pub fn get_entry<Q>(&self, key: &Q) -> Option<Entry<'m, K, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        Entry::alone(self.map, |found| {
            let place = self.place();
            let look = |from: crate::Probe<'_, K>| {
                // The key is read from the map and not from the caller, since only stored encodings may be decoded.
                self.core.ceiling(place, &self.enter(), from, |key, word| {
                    let same = FormOf::<K>::compare(key, from).is_eq();
                    same.then(|| found.push(key, word)).is_some()
                })
            };
            key.encode(look) == Some(true)
        })
    }

    /// Returns whether `key` is in the map.
    ///
    /// ```
    /// use archipelago::Art;
    ///
    /// let map = Art::from([("house".to_string(), 1)]);
    /// let map = map.pin();
    /// assert!(map.contains_key("house"));
    /// assert!(!map.contains_key("hous")); // a prefix of a key is no key
    /// ```
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.word(&self.enter(), key).is_some()
    }

    /// Returns a reference to the entry with the least key.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2, "two"), (1, "one")]);
    /// let map = map.pin();
    /// let least = map.first().unwrap();
    /// map.insert(1, "uno");
    /// assert_eq!((least.key(), *least.value()), (1, "one")); // as it was found
    /// ```
    pub fn first(&self) -> Option<Entry<'m, K, V>> {
        Entry::alone(self.map, |found| Walk::all(self.map).fetch_first(|key, word| found.push(key, word)).is_some())
    }

    /// Returns a reference to the entry with the greatest key.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<i32, &str> = HydraList::new();
    /// let map = map.pin();
    /// assert!(map.last().is_none());
    /// map.extend([(-1, "minus one"), (-2, "minus two")]);
    /// assert_eq!(map.last().map(|entry| entry.key()), Some(-1));
    /// ```
    pub fn last(&self) -> Option<Entry<'m, K, V>> {
        Entry::alone(self.map, |found| Walk::all(self.map).fetch_last(|key, word| found.push(key, word)).is_some())
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Returns a clone of the value of `key`.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("one".to_string(), 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.get("one"), Some(1)); // looked up by a `str`, as in a `BTreeMap`
    /// assert_eq!(map.get("two"), None);
    /// ```
    #[inline(always)]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.get_with(key, V::clone)
    }

    /// Returns clones of the values of several keys, in the order of `keys`. The call is faster than separate look-ups
    /// if the structure overlaps the memory accesses of several look-ups, as `HydraList` does. Each look-up is
    /// linearizable on its own.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one"), (3, "three")]);
    /// assert_eq!(map.pin().get_many(&[3, 2, 1, 3]), [Some("three"), None, Some("one"), Some("three")]);
    /// ```
    pub fn get_many<Q>(&self, keys: &[Q]) -> Vec<Option<V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>>,
    {
        let mut found = Vec::with_capacity(keys.len());
        self.get_many_into(keys, &mut found);
        found
    }

    pub(super) fn get_many_into<Q>(&self, keys: &[Q], found: &mut Vec<Option<V>>)
    where
        Q: Encode<Form = FormOf<K>>,
    {
        let guard = self.enter();
        self.core.get_many(self.place(), &guard, keys, |word| {
            // SAFETY: the word was in the map under our guard.
            found.push(word.map(|word| unsafe { value::clone_of(word) }));
        });
    }

    /// Returns a clone of the entry with the least key, with the consistency of a [`scan`](Self::scan) of one entry.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("b".to_string(), 2), ("a".to_string(), 1)]);
    /// assert_eq!(map.pin().first_key_value(), Some(("a".to_string(), 1))); // owned, and still in the map
    /// assert_eq!(map.len(), 2);
    /// ```
    pub fn first_key_value(&self) -> Option<(K, V)> {
        self.range::<K, _>(..).next()
    }

    /// Returns a clone of the entry with the greatest key, with the consistency of a [`scan_rev`](Self::scan_rev) of
    /// one entry.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2.5, "b"), (f64::INFINITY, "c"), (-7.0, "a")]);
    /// assert_eq!(map.pin().last_key_value(), Some((f64::INFINITY, "c")));
    /// ```
    pub fn last_key_value(&self) -> Option<(K, V)> {
        self.range::<K, _>(..).next_back()
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, H> fmt::Debug for Session<'_, S, K, V, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("of", &S::NAME).finish_non_exhaustive()
    }
}
