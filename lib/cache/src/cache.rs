//! The public interface: caches and sessions.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::mem::needs_drop;
use core::panic::{RefUnwindSafe, UnwindSafe};

use archipelago_platform::time::Duration;
use archipelago_sync::rcu::Guard;

use crate::cause::Cause;
use crate::entry::Entry;
use crate::inner::{Inner, timed};
use crate::iter::Iter;
use crate::makers::Asked;
use crate::policy::{Policy, S3Fifo};
use crate::stats::Stats;

/// Entries of at most this many cache lines are not prefetched: the processor fetches a line's neighbour by itself.
const FEW_LINES: usize = 2;

/// A bounded cache, shared by threads. See [the crate](crate).
pub struct Cache<K, V, P = S3Fifo, S = foldhash::quality::RandomState> {
    inner: Inner<K, V, P, S>,
}

// SAFETY: the cache owns its keys and values, hands out shared references to them, and may drop them in any thread. The
// policies' data is protected by locks.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Send, S: Send> Send for Cache<K, V, P, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Send, S: Sync> Sync for Cache<K, V, P, S> {}

/// A thread's session of look-ups. References that it returns are valid as long as the session is borrowed, even if the
/// entry has left the cache.
///
/// A session holds an RCU guard: entries that leave the cache during the session are not freed before the session ends.
/// If too many entries wait to be freed ([the crate's guarantees](crate) state the bound), insertions are refused. So
/// keep a session for a batch of look-ups, not permanently.
pub struct Pinned<'c, K, V, P = S3Fifo, S = foldhash::quality::RandomState> {
    inner: &'c Inner<K, V, P, S>,
    guard: Guard<'c>,
}

// A panic in users' code leaves the cache consistent. The bounds are those of references to keys, values and the
// hasher.
impl<K: RefUnwindSafe, V: RefUnwindSafe, P, S: RefUnwindSafe> UnwindSafe for Cache<K, V, P, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, P, S: RefUnwindSafe> RefUnwindSafe for Cache<K, V, P, S> {}

impl<K, V, P, S> Cache<K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    pub(crate) fn of(inner: Inner<K, V, P, S>) -> Self {
        Self { inner }
    }

    /// Begins a session, for look-ups that return references.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// cache.insert(1_u64, vec![0_u8; 1000]);
    /// let pinned = cache.pin();
    /// assert_eq!(pinned.get(&1).map(Vec::len), Some(1000)); // no copy
    /// ```
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, P, S> {
        Pinned { inner: &self.inner, guard: self.inner.domain().pin() }
    }

    /// Returns a clone of the value of `key`. O(1). Takes no lock.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// cache.insert("one", 1);
    /// assert_eq!((cache.get("one"), cache.get("two")), (Some(1), None));
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        let hash = self.inner.hash(key);
        let guard = self.inner.domain().pin();
        // A clone reads the whole value. (A value with a destructor probably stores most of its data outside the entry,
        // so its entry is not prefetched.)
        if !needs_drop::<V>() && Entry::<K, V>::LINES > FEW_LINES {
            self.inner.shard(hash).table().foresee(&guard, hash, Entry::<K, V>::LINES);
        }
        let found = self.inner.look_up(&guard, hash, |other| other.borrow() == key);
        found.map(|entry| entry.value().clone())
    }

    /// Calls `read` with a reference to the value of `key`, and returns the result, or `None` if the cache does not
    /// have the key. O(1). Takes no lock.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// cache.insert(1, "a long text".to_owned());
    /// assert_eq!(cache.with(&1, |text| text.len()), Some(11));
    /// ```
    #[inline]
    pub fn with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.pin().get(key).map(read)
    }

    /// Returns whether the cache has `key`. The call does not count as a use of the entry.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.inner.hash(key);
        let guard = self.inner.domain().pin();
        let found = self.inner.shard(hash).table().find(&guard, hash, |other| other.borrow() == key);
        found.is_some_and(|entry| !self.inner.is_expired(&guard, entry))
    }

    /// Inserts `value` for `key`, and replaces the previous value. Returns whether the value is kept. The value is not
    /// kept if it weighs more than the whole cache may weigh, if the removed entries that wait for readers exceed their
    /// bound, or if concurrent insertions repeatedly take the room that this one has made. The previous value is
    /// removed even then. O(1), and O(1) for each evicted entry.
    ///
    /// # Panics
    /// If `Eq`, the weigher or the listener panics. The cache stays consistent.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::builder().entries(2);
    /// assert!((0..10).all(|key| cache.insert(key, key)));
    /// assert_eq!(cache.stats().len, 2);
    /// ```
    pub fn insert(&self, key: K, value: V) -> bool {
        self.put(key, value, None)
    }

    /// Inserts as [`insert`](Self::insert) does, but with `time` instead of the cache's time to live: the entry expires
    /// when `time` has passed, at most a millisecond later. It expires earlier only by the cache's time to idle.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    /// use std::time::Duration;
    ///
    /// let cache = Cache::new(1 << 20);
    /// cache.insert_for("token", 7, Duration::from_secs(60));
    /// assert_eq!(cache.get("token"), Some(7));
    /// ```
    pub fn insert_for(&self, key: K, value: V, time: Duration) -> bool {
        self.put(key, value, Some(time))
    }

    fn put(&self, key: K, value: V, time: Option<Duration>) -> bool {
        self.inner.insert(self.inner.prepare(key, value, time))
    }

    /// Returns the value of `key`; if the cache has none, inserts the value that `make` returns. If several threads and
    /// tasks request a key, one of them makes the value and the others wait. If its `make` panics, the next one calls
    /// its own `make`. If the cache does not keep the made value (for example, because it weighs more than the
    /// capacity), each request that has waited calls its own `make`, without another wait. The same may happen to keys
    /// that have the same hash. If another thread inserts a value while `make` runs, the inserted value counts as newer
    /// than the made one, and all requests return it.
    ///
    /// A removal does not stop a maker. If [`remove`](Self::remove), [`invalidate_if`](Self::invalidate_if) or
    /// [`clear`](Self::clear) is called while `make` runs, the made value is inserted afterwards. It may have been made
    /// from data that the removal was to invalidate. If this matters, insert the new value instead of removing the old
    /// one: a made value never replaces an inserted one. Or store the version of the data in the value, and remove the
    /// key again if the version is old.
    ///
    /// # Panics
    /// If `make` panics, in the cases of [`insert`](Self::insert), and if the call would wait for itself. A call would
    /// wait for itself if a maker of this cache runs in the same thread, makes the call, and requests
    /// - the key that this maker makes, or another key with the same hash, or
    /// - a key whose maker waits for this one, directly or through the makers of other threads: the makers of A and B
    ///   request each other's keys.
    ///
    /// The maker whose request closes the circle panics. The other makers then make the key themselves, or get its
    /// value.
    ///
    /// # Deadlocks
    /// If makers wait for each other, and the circle contains a task (a maker of
    /// [`get_or_insert_async`](Self::get_or_insert_async)), another cache, or a lock of yours. Such circles are not
    /// detected, and their threads block forever.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// let length = cache.get_or_insert_with("a key".to_owned(), |key| key.len());
    /// assert_eq!((length, cache.get("a key")), (5, Some(5)));
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce(&K) -> V) -> V
    where
        V: Clone,
    {
        let made = self.get_or_try_insert_with(key, |key| Ok::<_, core::convert::Infallible>(make(key)));
        made.unwrap_or_else(|never| match never {})
    }

    /// Works as [`get_or_insert_with`](Self::get_or_insert_with) does, for makers that may fail.
    ///
    /// # Errors
    /// The error of `make`. It is not cached: the next request calls its own `make`.
    ///
    /// # Panics
    /// In the cases of [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache: Cache<String, u64> = Cache::new(1 << 20);
    /// let parse = |key: &String| key.parse();
    /// assert!(cache.get_or_try_insert_with("x".to_owned(), parse).is_err());
    /// assert_eq!(cache.get_or_try_insert_with("12".to_owned(), parse), Ok(12));
    /// ```
    pub fn get_or_try_insert_with<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E>
    where
        V: Clone,
    {
        let hash = self.inner.hash(&key);
        let (mut permit, mut made) = (None, false);
        while permit.is_none() && !made {
            if let Some(value) = self.requested(&key, hash) {
                return Ok(value);
            }
            match self.inner.makers.ask(self.inner.shard_index(hash), hash) {
                Asked::Permit(given) => permit = Some(given),
                Asked::Ended(with) => made = with,
            }
        }
        // Another thread may have made the value since the look-up.
        if let Some(value) = self.requested(&key, hash) {
            return Ok(value);
        }
        self.inner.count(false);
        let value = make(&key)?;
        permit.iter_mut().for_each(|permit| permit.made = true);
        Ok(self.keep_made(key, value))
    }

    /// Returns the value of a key that is to be made if the cache does not have it. Counts only a hit: a request that
    /// looks the key up again and again counts as a miss once, when it makes the value.
    fn requested(&self, key: &K, hash: u64) -> Option<V>
    where
        V: Clone,
    {
        let guard = self.inner.domain().pin();
        let found = self.inner.find(&guard, hash, |other| other == key)?;
        self.inner.count(true);
        Some(found.value().clone())
    }

    /// Inserts a made value, unless another thread has inserted a value since the look-up, which counts as newer.
    /// Returns the newer value if there is one, and otherwise the made value.
    fn keep_made(&self, key: K, value: V) -> V
    where
        V: Clone,
    {
        let new = self.inner.prepare(key, value.clone(), None);
        self.inner.insert_new(new, V::clone).unwrap_or(value)
    }

    /// Works as [`get_or_insert_with`](Self::get_or_insert_with) does, for a future. Waiting tasks do not block their
    /// threads. If the future of the task that makes the value is dropped, the next task makes it. The method works
    /// with any runtime.
    ///
    /// # Panics
    /// In the cases of [`insert`](Self::insert).
    ///
    /// # Deadlocks
    /// If `make` awaits its own key, or a key whose maker awaits this one, directly or through others. No such circle
    /// is detected, and its futures stay pending until one of them is dropped, for example by a time limit. A thread
    /// that waits in [`get_or_insert_with`](Self::get_or_insert_with) for a task blocks. So it must not be the thread
    /// that runs this task.
    ///
    /// ```
    /// # use archipelago_cache::Cache;
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
    /// #             return done;
    /// #         }
    /// #     }
    /// # }
    /// let cache: Cache<&str, u64> = Cache::new(1 << 20);
    /// let answer = block_on(cache.get_or_insert_async("answer", async { 42 }));
    /// assert_eq!((answer, cache.get("answer")), (42, Some(42)));
    /// ```
    pub async fn get_or_insert_async(&self, key: K, make: impl Future<Output = V>) -> V
    where
        V: Clone,
    {
        let made = self.get_or_try_insert_async(key, async { Ok::<_, core::convert::Infallible>(make.await) }).await;
        made.unwrap_or_else(|never| match never {})
    }

    /// Works as [`get_or_insert_async`](Self::get_or_insert_async) does, for futures that may fail.
    ///
    /// # Errors
    /// The error of `make`. It is not cached: the next request calls its own `make`.
    ///
    /// # Panics
    /// In the cases of [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn get_or_try_insert_async<E>(&self, key: K, make: impl Future<Output = Result<V, E>>) -> Result<V, E>
    where
        V: Clone,
    {
        let hash = self.inner.hash(&key);
        let (mut permit, mut made) = (None, false);
        while permit.is_none() && !made {
            if let Some(value) = self.requested(&key, hash) {
                return Ok(value);
            }
            match self.inner.makers.ask_later(self.inner.shard_index(hash), hash).await {
                Asked::Permit(given) => permit = Some(given),
                Asked::Ended(with) => made = with,
            }
        }
        // Another thread may have made the value since the look-up.
        if let Some(value) = self.requested(&key, hash) {
            return Ok(value);
        }
        self.inner.count(false);
        let value = make.await?;
        permit.iter_mut().for_each(|permit| permit.made = true);
        Ok(self.keep_made(key, value))
    }

    /// Removes `key`. Returns whether the cache had it. An entry that has expired is removed, too, and reported as
    /// expired; then the result is `false`. The value is dropped later, when no reader can have a reference to it.
    /// [`sync`](Self::sync) drops at once all removed values to which no reader can have a reference. O(1).
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// cache.insert(1, 1);
    /// assert!(cache.remove(&1));
    /// assert!(!cache.remove(&1));
    /// ```
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.inner.remove(self.inner.hash(key), |other| other.borrow() == key)
    }

    /// Removes the entries for which `is_invalid` returns `true`, of those that are in the cache when the call begins.
    /// Returns the number of removed entries. The call may miss entries that are inserted while it runs. Expired
    /// entries are removed, too, but neither shown to `is_invalid` nor counted. O(capacity).
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::new(1 << 20);
    /// (0..10).for_each(|key| _ = cache.insert(key, key));
    /// assert_eq!(cache.invalidate_if(|key, _| key % 2 == 0), 5);
    /// ```
    pub fn invalidate_if(&self, mut is_invalid: impl FnMut(&K, &V) -> bool) -> usize {
        self.inner.remove_all(Cause::Removed, |guard, entry| {
            // SAFETY: found under the guard.
            let found = unsafe { entry.as_ref() };
            self.inner.is_expired(guard, entry) || is_invalid(found.key(), found.value())
        })
    }

    /// Removes expired entries, and frees memory that is no longer needed: removed entries, oversized tables, and the
    /// memory blocks that the calling thread keeps for new entries. Room that a shard does not use becomes common to
    /// all shards. Returns how many entries were removed. Look-ups never find expired entries. Without this call,
    /// expired entries occupy memory until they are evicted like others. O(capacity).
    pub fn sync(&self) -> usize {
        let now = self.inner.clock.now();
        let is_expired = |guard: &Guard<'_>, entry| timed(guard, entry).is_some_and(|timed| timed.is_expired(now));
        let expired = self.inner.remove_all(Cause::Expired, is_expired);
        self.inner.shrink();
        expired
    }

    /// Removes all entries, as [`invalidate_if`](Self::invalidate_if) does. [`sync`](Self::sync) then frees the memory.
    pub fn clear(&self) {
        self.invalidate_if(|_, _| true);
    }

    /// Sets the bound. When the call returns, the entries are within the bound, unless another call has changed the
    /// bound meanwhile. O(entries that leave).
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let cache = Cache::builder().entries(100);
    /// (0..100).for_each(|key| _ = cache.insert(key, ()));
    /// cache.resize(10);
    /// assert_eq!(cache.stats().len, 10);
    /// ```
    pub fn resize(&self, capacity: usize) {
        self.inner.resize(capacity);
    }

    /// Returns the bound, in bytes, entries, or units of the weigher.
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Returns the cache's statistics. Takes every shard's lock in turn, so use it for reports only.
    pub fn stats(&self) -> Stats {
        let guard = self.inner.domain().pin();
        let mut stats =
            Stats { capacity: self.capacity(), waiting: self.inner.domain().sealed_bytes(), ..Stats::default() };
        for shard in self.inner.shards() {
            let shard = shard.lock();
            let counts = shard.counts();
            stats.len += shard.len();
            stats.weight += shard.used();
            stats.overhead_bytes += shard.overhead(&guard);
            stats.insertions += counts.insertions;
            stats.evictions += counts.evictions;
            stats.expirations += counts.expirations;
            stats.refusals += counts.refusals;
        }
        for (hits, misses) in self.inner.hits.iter().map(|hits| hits.read()) {
            stats.hits += hits;
            stats.misses += misses;
        }
        stats
    }

    /// Checks the invariants of the cache. No other thread may use the cache during the call.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.inner.check_invariants();
    }
}

impl<K, V, P, S> Pinned<'_, K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    /// Returns the value of `key`. O(1). Takes no lock, and writes no shared memory except the entry's mark, and its
    /// deadline if the cache has a time to idle.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.inner.hash(key);
        self.inner.look_up(&self.guard, hash, |other| other.borrow() == key).map(Entry::value)
    }

    /// Returns an iterator over the entries, in no particular order. It yields each entry that is present during the
    /// whole iteration once, and perhaps some of the entries that are inserted or removed during the iteration. Expired
    /// entries are skipped. Iteration does not count as a use of the entries.
    pub fn iter(&self) -> Iter<'_, K, V, P, S> {
        Iter::new(self.inner, &self.guard)
    }
}

/// Inserts the pairs, in their order. Pairs that the cache does not keep are dropped.
impl<K, V, P, S> Extend<(K, V)> for Cache<K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        (&*self).extend(pairs);
    }
}

/// As for a cache, which threads may share.
impl<K, V, P, S> Extend<(K, V)> for &Cache<K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        pairs.into_iter().for_each(|(key, value)| _ = self.insert(key, value));
    }
}

impl<'p, K, V, P, S> IntoIterator for &'p Pinned<'_, K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    type Item = (&'p K, &'p V);
    type IntoIter = Iter<'p, K, V, P, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod clocks;

impl<K, V, P, S> fmt::Debug for Cache<K, V, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl<K, V, P, S> fmt::Debug for Pinned<'_, K, V, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}
