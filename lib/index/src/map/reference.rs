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

/// A value in a map, by reference.
///
/// It shows the value that the key had when it was looked up, also after other threads have replaced or removed it.
/// While a `Ref` exists, *no* memory that is removed from the map is freed, of any key: 100,000 overwrites of 1 kB take
/// 100 MB until the `Ref` is dropped, and if it is leaked, until the map is dropped. So it should be short-lived; clone
/// values that you keep. The map's [`stats`](super::Map::stats) show the garbage, and how many readers keep it
/// (`garbage.bytes`, `garbage.readers`); a [`backlog_limit`](super::Builder::backlog_limit) bounds it. Values that live
/// in a word of the map (primitive numbers) are copied in.
///
/// It belongs to the thread that made it. An [`Entry`] may be sent, and kept over an `await`.
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
    /// `word` is a word of a `V` that was in the map, or is the caller's, under `guard`, and is not reclaimed before
    /// `guard` ends.
    pub(super) unsafe fn new(word: u64, guard: Guard<'m>) -> Self {
        Self { word, _guard: guard, value: PhantomData }
    }
}

impl<V: Send + Sync + 'static> Deref for Ref<'_, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: the guard keeps the value, as `new` was promised.
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

/// An entry of a map, by reference: its key, and the value that the key had when it was looked up.
///
/// Entries may be sent to other threads and kept over an `await`. Entries of one batch of an iterator share their
/// memory, so they need no allocations of their own.
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
    /// The batch's words are `V`s of a map of `K`, read under the guard beside it. It has an entry `at`.
    #[inline]
    pub(super) unsafe fn new(kept: Kept<'m, K>, at: usize) -> Self {
        debug_assert!(at < kept.batch().len());
        Self { kept, at, value: PhantomData }
    }

    /// Makes a single entry from what `look` shows under a fresh guard.
    pub(super) fn alone<S: super::Kind>(
        map: &'m Map<S, K, V>,
        look: impl FnOnce(&mut Batch<FormOf<K>>) -> bool,
    ) -> Option<Self> {
        let mut fetched = Fetched::new(map);
        // SAFETY: `look` has put an entry of the map in, under the guard.
        look(&mut fetched.batch).then(|| unsafe { Self::new(Kept::new(fetched), 0) })
    }

    /// Returns the holder of its batch, and its place in the batch.
    pub(super) fn place(&self) -> (&Kept<'m, K>, usize) {
        (&self.kept, self.at)
    }

    /// The key's encoding.
    pub(super) fn encoded_key(&self) -> crate::Probe<'_, K> {
        self.kept.batch().key(self.at)
    }

    /// The key, borrowed.
    #[inline]
    pub fn key(&self) -> K::Ref<'_> {
        // SAFETY: as `new` was promised.
        unsafe { self.kept.show::<V>(self.at) }.0
    }

    /// The key, rebuilt.
    pub fn to_key(&self) -> K {
        // SAFETY: an encoding of a K (`new`).
        unsafe { K::decode(self.encoded_key()) }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &V {
        // SAFETY: as `new` was promised.
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
