//! The builder of caches.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;

use archipelago_platform::memory::taken_by;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use crate::cache::Cache;
use crate::cause::Cause;
use crate::clock::ticks;
use crate::config::{Config, Listener, Weigher};
use crate::entry::Block;
use crate::heap::Heap;
use crate::inner::Inner;
use crate::policy::{Policy, S3Fifo};

/// The approximate number of bytes that tables and queues take for each entry.
const BESIDE: usize = 56;
/// The least capacity of a shard, in entries and in bytes.
const LEAST_ENTRIES: usize = 64;
const LEAST_BYTES: usize = 256 << 10;
/// How much weight of removed entries may wait for readers, in addition to a hundredth of the capacity: enough for some
/// bags (lists of retired entries) of each of a few threads.
const WAITING_ENTRIES: usize = 512;
const WAITING_BYTES: usize = 64 << 10;
const MOST_SHARDS: usize = 256;

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Heap + Send + Sync + 'static,
    V: Heap + Send + Sync + 'static,
{
    /// Makes a cache of at most `capacity` bytes, with the policy S3-FIFO. [`Cache::builder`] has all other settings.
    ///
    /// ```
    /// use archipelago_cache::Cache;
    ///
    /// let pages: Cache<String, String> = Cache::new(64 << 20);
    /// pages.insert("/".to_owned(), "<h1>Hello</h1>".to_owned());
    /// assert!(pages.contains("/"));
    /// ```
    pub fn new(capacity: usize) -> Self {
        Self::builder().bytes(capacity)
    }
}

impl<K, V> Cache<K, V> {
    /// Returns a builder of a cache.
    pub fn builder() -> Builder<K, V> {
        Builder::default()
    }
}

/// Makes a [`Cache`]: [`Cache::builder`].
///
/// ```
/// use archipelago_cache::{Cache, Sieve};
/// use std::time::Duration;
///
/// let sessions: Cache<u64, String, Sieve> = Cache::builder()
///     .policy::<Sieve>()
///     .time_to_idle(Duration::from_secs(600))
///     .entries(10_000);
/// sessions.insert(7, "Ada".to_owned());
/// assert_eq!(sessions.get(&7).as_deref(), Some("Ada"));
/// ```
#[must_use = "a builder makes no cache before `bytes`, `weigher` or `entries` is called"]
pub struct Builder<K, V, P = S3Fifo, S = foldhash::quality::RandomState> {
    listener: Option<Listener<K, V>>,
    live: Option<Duration>,
    idle: Option<Duration>,
    record_hits: bool,
    shards: Option<usize>,
    hasher: S,
    policy: PhantomData<P>,
}

impl<K, V, P, S> fmt::Debug for Builder<K, V, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("live", &self.live).field("idle", &self.idle).finish_non_exhaustive()
    }
}

impl<K, V> Default for Builder<K, V> {
    fn default() -> Self {
        Self {
            listener: None,
            live: None,
            idle: None,
            record_hits: false,
            shards: None,
            hasher: foldhash::quality::RandomState::default(),
            policy: PhantomData,
        }
    }
}

impl<K, V, P, S> Builder<K, V, P, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
    S: BuildHasher,
{
    /// Sets the eviction policy. The default is [`S3Fifo`].
    pub fn policy<Q: Policy>(self) -> Builder<K, V, Q, S> {
        self.with(PhantomData::<Q>, |hasher| hasher)
    }

    /// Hashes keys by `hasher`. The default has a new random seed for each cache, so that keys chosen by an adversary
    /// do not collide more often than others. It is not a cryptographic hash.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> Builder<K, V, P, T> {
        self.with(PhantomData::<P>, |_| hasher)
    }

    fn with<Q, T>(self, policy: PhantomData<Q>, hasher: impl FnOnce(S) -> T) -> Builder<K, V, Q, T> {
        let Self { listener, live, idle, record_hits, shards, hasher: old, policy: _ } = self;
        Builder { listener, live, idle, record_hits, shards, hasher: hasher(old), policy }
    }

    /// Sets the time between an entry's insertion and its expiry, with a resolution of a millisecond. If the time is
    /// zero, entries expire at once. [`Cache::insert_for`] sets the time of a single entry.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.live = Some(time);
        self
    }

    /// Sets the time between an entry's insertion or last hit and its expiry. The error is at most a 16th of the time.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Calls `listener` with each entry that leaves the cache or is refused, in the thread that causes this. No lock is
    /// held, so the listener may use the cache. Dropping the cache does not call the listener for the remaining
    /// entries. A listener that inserts an entry for each evicted one causes the next eviction, and so recurses without
    /// end. If the listener panics, the cache's method that called it panics, after the method has taken effect.
    pub fn on_leave(mut self, listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Counts hits and misses, each thread in its own counters. This costs some nanoseconds a look-up.
    pub fn record_hits(mut self) -> Self {
        self.record_hits = true;
        self
    }

    /// Sets the number of shards, each of which has a lock for its writers. The number is rounded up to a power of two,
    /// and is 256 at most. The default is four for each processor, and fewer in small caches. With more shards, more
    /// threads can insert at once. With fewer shards, the evicted entry is closer to the policy's best choice in the
    /// whole cache.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Makes a cache of at most `capacity` bytes: an entry weighs its own memory and the heap blocks of its key and
    /// value. Here and in the next two methods, the capacity is at most an eighth of `usize::MAX`.
    pub fn bytes(self, capacity: usize) -> Cache<K, V, P, S>
    where
        K: Heap,
        V: Heap,
    {
        let [own, long] = [false, true].map(|long| taken_by(Block::<K, V>::layout(long).0) + BESIDE);
        let weight = move |key: &K, value: &V| own.saturating_add(key.heap_bytes()).saturating_add(value.heap_bytes());
        self.build(capacity, LEAST_BYTES, WAITING_BYTES, Box::new(weight), long.saturating_sub(own))
    }

    /// Makes a cache of at most `capacity` entries.
    pub fn entries(self, capacity: usize) -> Cache<K, V, P, S> {
        self.build(capacity, LEAST_ENTRIES, WAITING_ENTRIES, Box::new(|_, _| 1), 0)
    }

    /// Makes a cache whose entries weigh at most `capacity`, by `weigher`; a weight of 0 counts as 1. `weigher` is
    /// called once for each entry, before its insertion.
    pub fn weigher(
        self,
        capacity: usize,
        weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Cache<K, V, P, S> {
        self.build(capacity, LEAST_BYTES, WAITING_BYTES, Box::new(move |key, value| weigher(key, value).max(1)), 0)
    }

    fn build(
        self,
        capacity: usize,
        least: usize,
        waiting: usize,
        weigher: Weigher<K, V>,
        extension: usize,
    ) -> Cache<K, V, P, S> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.shards.unwrap_or(4 * processors).min(capacity / least).clamp(1, MOST_SHARDS);
        let config = Config {
            capacity,
            waiting,
            weigher,
            extension,
            listener: self.listener,
            live: self.live,
            idle: self.idle.map(ticks),
            record_hits: self.record_hits,
        };
        Cache::of(Inner::new(config, wanted.next_power_of_two(), self.hasher))
    }
}
