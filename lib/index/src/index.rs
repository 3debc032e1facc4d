//! The trait that every ordered map of this library, and every adapter of another author's map, implements.

use crate::Key;

/// A concurrent ordered map.
///
/// Operations are called on a *session*, the thread's own handle. `index.pin()` is cheap (a thread-local look-up), and
/// keeping the session for many operations is cheaper still.
///
/// Every single-key operation is linearizable. Scans are not atomic over several keys, see [`OrderedSession::scan`].
pub trait OrderedIndex<K: Key, V: Clone + Send + Sync + 'static>: Send + Sync {
    /// A thread's session.
    type Session<'a>: OrderedSession<K, V>
    where
        Self: 'a;

    /// Returns a session of the calling thread.
    fn pin(&self) -> Self::Session<'_>;

    /// Waits until background work, if the index has any, has caught up with everything done before the call.
    fn quiesce(&self) {}
}

/// The operations of one thread on an [`OrderedIndex`].
pub trait OrderedSession<K: Key, V: Clone + Send + Sync + 'static> {
    /// Returns the value of `key`.
    fn get(&self, key: &K) -> Option<V>;

    /// Inserts or replaces. Returns the replaced value.
    fn insert(&self, key: &K, value: V) -> Option<V>;

    /// Replaces the value of a key that is present. Returns the old value.
    fn replace(&self, key: &K, value: V) -> Option<V> {
        self.update(key, |_| value.clone())
    }

    /// Replaces the value of a key that is present by `f(old)`, atomically. Returns the old value. `f` may run more
    /// than once.
    fn update(&self, key: &K, f: impl FnMut(&V) -> V) -> Option<V>;

    /// Removes a key. Returns the removed value.
    fn remove(&self, key: &K) -> Option<V>;

    /// Calls `visit` with up to `limit` entries with keys `>= from`, in ascending order. Returns the number of visited
    /// entries.
    ///
    /// The scan visits no key twice, and visits every key that is present throughout the call, up to the limit. It may
    /// or may not visit entries that are inserted or removed meanwhile.
    fn scan(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize;

    /// Scans as [`scan`](Self::scan) does, but in descending order over keys `<= from`. Returns `None` if the index
    /// cannot scan backwards.
    fn scan_rev(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        let _ = (from, limit, visit);
        None
    }

    /// Looks up several keys. `found` is cleared and receives one element per key. Each look-up is linearizable on its
    /// own.
    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        found.clear();
        found.extend(keys.iter().map(|key| self.get(key)));
    }
}
