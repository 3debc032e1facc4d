//! The trait that every ordered map of this library implements, and its peers' adapters too.

use crate::Key;

/// A concurrent ordered map.
///
/// Operations go through a *session*, this thread's pinned handle: `index.pin()` is cheap (a thread-local look-up),
/// keeping the session over many operations is cheaper.
///
/// Every single-key operation is linearizable. Scans are not atomic over several keys: see [`OrderedSession::scan`].
pub trait OrderedIndex<K: Key, V: Clone + Send + Sync + 'static>: Send + Sync {
    /// A thread's handle.
    type Session<'a>: OrderedSession<K, V>
    where
        Self: 'a;

    /// This thread's session.
    fn pin(&self) -> Self::Session<'_>;

    /// Waits until background work (if the index has any) has caught up with everything done before the call.
    fn quiesce(&self) {}
}

/// The operations of one thread on an [`OrderedIndex`].
pub trait OrderedSession<K: Key, V: Clone + Send + Sync + 'static> {
    /// The value of `key`.
    fn get(&self, key: &K) -> Option<V>;

    /// Inserts or replaces; returns the value replaced.
    fn insert(&self, key: &K, value: V) -> Option<V>;

    /// Replaces the value of a key that is there; returns the old value.
    fn replace(&self, key: &K, value: V) -> Option<V> {
        self.update(key, |_| value.clone())
    }

    /// Replaces the value of a key that is there by `f(old)`, atomically; returns the old value. `f` may run more
    /// than once.
    fn update(&self, key: &K, f: impl FnMut(&V) -> V) -> Option<V>;

    /// Removes; returns the value removed.
    fn remove(&self, key: &K) -> Option<V>;

    /// Visits up to `limit` entries with keys `>= from` in ascending order; returns how many.
    ///
    /// Never visits a key twice, never misses a key that was there throughout the call; entries that come and go
    /// meanwhile may or may not be seen.
    fn scan(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize;

    /// As [`scan`](Self::scan), descending over keys `<= from`. `None` when the index cannot.
    fn scan_rev(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        let _ = (from, limit, visit);
        None
    }

    /// Looks up several keys; `found` is cleared and receives one entry per key. Each look-up is linearizable on its
    /// own.
    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        found.clear();
        found.extend(keys.iter().map(|key| self.get(key)));
    }
}
