//! References to values in a map: a [`Ref`] belongs to its thread; an [`Entry`] also has the key, and may be sent to
//! other threads.

use super::batch::Batch;
use super::fetched::{Fetched, Kept};
use super::{FormOf, Map};
use crate::{Key, value};
use archipelago_sync::rcu::Guard;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

/// A reference to a value in a map.
///
/// A `Ref` shows the value that the key had when it was looked up, even after other threads have replaced or removed
/// this value. While a `Ref` exists, *no* memory that is removed from the map is freed, under any key: 100,000
/// overwrites of 1 kB take 100 MB until the `Ref` is dropped or, if it is leaked, until the map is dropped. So a `Ref`
/// should be short-lived; clone values that you keep. The map's [`stats`](super::Map::stats) show the garbage, and how
/// many readers keep it (`garbage.bytes`, `garbage.readers`); a [`backlog_limit`](super::Builder::backlog_limit) bounds
/// it. A `Ref` to a value that is stored in a word of the map (a primitive number) contains a copy of the value.
///
/// A `Ref` is bound to the thread that made it. An [`Entry`] may be sent to other threads, and kept across an `await`.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let map = archipelago::HydraList::from([(1, String::new())]);
/// send(map.pin().get_ref(&1));
/// ```
pub struct Ref<'m, V> {
    word: u64,
    _guard: Guard<'m>,
    value: PhantomData<V>,
}

impl<'m, V: Send + Sync + 'static> Ref<'m, V> {
    /// # Safety
    /// `word` must be a word of a `V` that was in the map under `guard`, or that the caller took out of the map under
    /// `guard`. It must not be reclaimed before `guard` ends.
    pub(super) unsafe fn new(word: u64, guard: Guard<'m>) -> Self {
        Self { word, _guard: guard, value: PhantomData }
    }
}

impl<V: Send + Sync + 'static> Deref for Ref<'_, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: the guard keeps the value, as the contract of `new` requires.
        unsafe { value::as_ref(&self.word) }
    }
}

impl<V: Send + Sync + fmt::Debug + 'static> fmt::Debug for Ref<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<V: Send + Sync + PartialEq + 'static> PartialEq<V> for Ref<'_, V> {
    fn eq(&self, other: &V) -> bool {
        **self == *other
    }
}

/// A reference to an entry of a map: its key, and the value that the key had when it was looked up.
///
/// Entries may be sent to other threads and kept across an `await`. The entries of one batch of an iterator share their
/// memory, so each of them needs no allocation of its own.
///
/// As long as an `Entry` exists, *no* memory that is removed from the map is freed, as with a [`Ref`]. If an entry is
/// leaked, this lasts until the map is dropped.
pub struct Entry<'m, K: Key, V> {
    kept: Kept<'m, K>,
    at: usize,
    value: PhantomData<V>,
}

impl<'m, K: Key, V: Send + Sync + 'static> Entry<'m, K, V> {
    /// # Safety
    /// The batch's words must be words of `V`s of a map of `K`, read under the guard that is stored with the batch. The
    /// batch must have an entry `at`.
    #[inline]
    pub(super) unsafe fn new(kept: Kept<'m, K>, at: usize) -> Self {
        debug_assert!(at < kept.batch().len());
        Self { kept, at, value: PhantomData }
    }

    /// Makes a single entry from the one that `look` finds under a fresh guard.
    pub(super) fn alone<S: super::Kind>(
        map: &'m Map<S, K, V>,
        look: impl FnOnce(&mut Batch<FormOf<K>>) -> bool,
    ) -> Option<Self> {
        let mut fetched = Fetched::new(map);
        // SAFETY: `look` has put an entry of the map into the batch, under the guard.
        look(&mut fetched.batch).then(|| unsafe { Self::new(Kept::new(fetched), 0) })
    }

    /// Returns the holder of the entry's batch, and the entry's position in the batch.
    pub(super) fn place(&self) -> (&Kept<'m, K>, usize) {
        (&self.kept, self.at)
    }

    /// Returns the key's encoding.
    pub(super) fn encoded_key(&self) -> crate::Probe<'_, K> {
        self.kept.batch().key(self.at)
    }

    /// Returns the key, borrowed from the entry.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(("Bern".to_string(), 7), "seven")]);
    /// let entry = map.pin().first().unwrap();
    /// let (city, number) = entry.key(); // no `String` is made
    /// assert_eq!((&*city, number), ("Bern", 7));
    /// ```
    #[inline]
    pub fn key(&self) -> K::Ref<'_> {
        // SAFETY: the contract of `new`.
        unsafe { self.kept.show::<V>(self.at) }.0
    }

    /// Returns an owned key, decoded from the key's encoding.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("one".to_string(), 1)]);
    /// let key: Option<String> = map.pin().first().map(|entry| entry.to_key()); // `key()` would borrow from the entry
    /// assert_eq!(key.as_deref(), Some("one"));
    /// ```
    pub fn to_key(&self) -> K {
        // SAFETY: the entry's key is an encoding of a K (contract of `new`).
        unsafe { K::decode(self.encoded_key()) }
    }

    /// Returns a reference to the value.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string())]);
    /// let entry = map.pin().get_entry(&1).unwrap();
    /// map.pin().insert(1, "uno".into());
    /// assert_eq!(entry.value(), "one"); // the value that the key had at the look-up
    /// ```
    #[inline]
    pub fn value(&self) -> &V {
        // SAFETY: the contract of `new`.
        unsafe { self.kept.show(self.at) }.1
    }
}

impl<K: Key, V> Clone for Entry<'_, K, V> {
    fn clone(&self) -> Self {
        Self { kept: self.kept.clone(), at: self.at, value: PhantomData }
    }
}

impl<K: Key, V: Send + Sync + 'static> Deref for Entry<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: Key + fmt::Debug, V: Send + Sync + fmt::Debug + 'static> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.to_key()).field(self.value()).finish()
    }
}
