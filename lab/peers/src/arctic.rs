//! arctic: a lock-free adaptive radix tree. Byte strings must not contain a zero byte.

use core::ops::ControlFlow;

use ::arctic::concurrent::map::Update;
use ::arctic::key::{BoxedSlice, NonNull, Slice};
use ::arctic::{ConcurrentMap, Key, Order};
use archipelago_bench::BenchKey;
use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};

/// Converts a key of this library to a key of arctic.
pub trait ArcticKey: BenchKey {
    /// Arctic's key type.
    type Native: Key + Send + Sync + 'static;

    /// Returns the key for look-ups.
    fn borrowed(&self) -> &<Self::Native as Key>::Borrowed;

    /// Returns the key for inserts.
    fn inserted(&self) -> <Self::Native as Key>::Insert<'_>;

    /// Converts a key that arctic passes to visitors to a key of this library.
    fn shown_of<'a>(native: <Self::Native as Key>::Insert<'a>) -> Self::Ref<'a>;
}

impl ArcticKey for u64 {
    type Native = u64;

    #[inline]
    fn borrowed(&self) -> &u64 {
        self
    }

    #[inline]
    fn inserted(&self) -> u64 {
        *self
    }

    #[inline]
    fn shown_of<'a>(native: <u64 as Key>::Insert<'a>) -> Self::Ref<'a> {
        native
    }
}

impl ArcticKey for Vec<u8> {
    type Native = BoxedSlice<NonNull>;

    #[inline]
    fn borrowed(&self) -> &Slice<NonNull> {
        // SAFETY: the driver gives this index no key with a zero byte (`Info::zero_bytes`).
        unsafe { Slice::new_unchecked(self.as_slice()) }
    }

    #[inline]
    fn inserted(&self) -> &Slice<NonNull> {
        self.borrowed()
    }

    #[inline]
    fn shown_of<'a>(native: <Self::Native as Key>::Insert<'a>) -> Self::Ref<'a> {
        native.as_bytes()
    }
}

/// `arctic::ConcurrentMap` with its default reclamation (seize).
pub struct ArcticMap<K: ArcticKey>(ConcurrentMap<K::Native, u64>);

impl<K: ArcticKey> BenchIndex<K> for ArcticMap<K>
where
    ConcurrentMap<K::Native, u64>: Send + Sync,
{
    fn empty() -> Self {
        ArcticMap(ConcurrentMap::new())
    }
}

impl<K: ArcticKey> OrderedIndex<K, u64> for ArcticMap<K>
where
    ConcurrentMap<K::Native, u64>: Send + Sync,
{
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl<K: ArcticKey> OrderedSession<K, u64> for &ArcticMap<K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key.borrowed()).map(|value| *value)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        self.0.upsert(key.inserted(), value).old().copied()
    }

    #[inline]
    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        match self.0.update_with(key.borrowed(), None, |old, _| ControlFlow::Continue(f(old))) {
            Update::Success(updated) => Some(*updated.old()),
            _ => None,
        }
    }

    fn remove(&self, key: &K) -> Option<u64> {
        self.0.remove(key.borrowed()).map(|value| *value)
    }

    #[inline]
    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let range = self.0.range(from.borrowed()..);
        let mut entries = range.entries(Order::Ascend);
        let mut visited = 0;
        while visited < limit
            && let Some((key, value)) = entries.lend()
        {
            visit(K::shown_of(key), value);
            visited += 1;
        }
        visited
    }
}
