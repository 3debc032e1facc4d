//! How a cache is made.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;

use archipelago_platform::memory::taken_by;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use core::alloc::Layout;

use crate::cache::Cache;
use crate::cause::Cause;
use crate::clock::ticks;
use crate::config::{Config, Listener, Weigher};
use crate::entry::Entry;
use crate::heap::Heap;
use crate::inner::Inner;
use crate::policy::{Policy, S3Fifo};

/// What tables and queues take for each entry, about.
const BESIDE: usize = 48;
/// Shards have so much each, at least, in units of weight and in bytes.
const LEAST_ENTRIES: usize = 64;
const LEAST_BYTES: usize = 256 << 10;
/// What may wait for readers beside a hundredth of the capacity, in the same units: some bags of every thread, of few threads.
const WAITING_ENTRIES: usize = 512;
const WAITING_BYTES: usize = 64 << 10;
const MOST_SHARDS: usize = 256;

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Heap + Send + Sync + 'static,
    V: Heap + Send + Sync + 'static,
{
    /// A cache of at most `capacity` bytes, with S3-FIFO. [`Cache::builder`] has everything else.
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
    /// A builder of a cache.
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
    /// Which entry gives way to a new one: [`S3Fifo`] unless this is called.
    pub fn policy<Q: Policy>(self) -> Builder<K, V, Q, S> {
        self.with(PhantomData::<Q>, |hasher| hasher)
    }

    /// Hashes keys by `hasher`. The default is seeded anew for each cache, so that keys which an adversary chooses collide no
    /// more than others; it is no cryptographic hash.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> Builder<K, V, P, T> {
        self.with(PhantomData::<P>, |_| hasher)
    }

    fn with<Q, T>(self, policy: PhantomData<Q>, hasher: impl FnOnce(S) -> T) -> Builder<K, V, Q, T> {
        let Self { listener, live, idle, record_hits, shards, hasher: old, policy: _ } = self;
        Builder { listener, live, idle, record_hits, shards, hasher: hasher(old), policy }
    }

    /// An entry expires when this time has passed since it was inserted, to the millisecond; at once, if it is zero. See
    /// [`Cache::insert_for`] for a time of its own.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.live = Some(time);
        self
    }

    /// An entry expires when this time has passed since it was inserted or found, within a 16th of it.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Calls `listener` with each entry that leaves, in the thread that causes it, with no lock held: it may use the cache. It
    /// is not called for what the cache has when it is dropped. One that inserts for each entry that gives way calls itself for the
    /// next one that does, without end. If it panics, the call that caused it does, after its effect.
    pub fn on_leave(mut self, listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Counts hits and misses, by thread: some nanoseconds a look-up.
    pub fn record_hits(mut self) -> Self {
        self.record_hits = true;
        self
    }

    /// In how many parts, each with a lock for its writers, the cache is divided; rounded up to a power of two, 256 at most.
    /// Unless this is called, four a processor, and fewer in small caches. More let more threads insert at once; with fewer,
    /// what leaves is nearer to the best of all.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// A cache of at most `capacity` bytes: entries weigh what they take, keys' and values' own blocks included. Here and in the
    /// next two, a capacity above an eighth of `usize::MAX` counts as that.
    pub fn bytes(self, capacity: usize) -> Cache<K, V, P, S>
    where
        K: Heap,
        V: Heap,
    {
        let own = taken_by(Layout::new::<Entry<K, V>>()) + BESIDE;
        let weight = move |key: &K, value: &V| own.saturating_add(key.heap_bytes()).saturating_add(value.heap_bytes());
        self.build(capacity, LEAST_BYTES, WAITING_BYTES, Box::new(weight))
    }

    /// A cache of at most `capacity` entries.
    pub fn entries(self, capacity: usize) -> Cache<K, V, P, S> {
        self.build(capacity, LEAST_ENTRIES, WAITING_ENTRIES, Box::new(|_, _| 1))
    }

    /// A cache of at most `capacity` of what `weigher` says that an entry weighs; 0 counts as 1. It is called once for each
    /// entry, before the entry comes in.
    pub fn weigher(
        self,
        capacity: usize,
        weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Cache<K, V, P, S> {
        self.build(capacity, LEAST_BYTES, WAITING_BYTES, Box::new(move |key, value| weigher(key, value).max(1)))
    }

    fn build(self, capacity: usize, least: usize, waiting: usize, weigher: Weigher<K, V>) -> Cache<K, V, P, S> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.shards.unwrap_or(4 * processors).min(capacity / least).clamp(1, MOST_SHARDS);
        let config = Config {
            capacity,
            waiting,
            weigher,
            listener: self.listener,
            live: self.live,
            idle: self.idle.map(ticks),
            record_hits: self.record_hits,
        };
        Cache::of(Inner::new(config, wanted.next_power_of_two(), self.hasher))
    }
}
