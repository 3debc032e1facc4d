//! The builder of caches.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;

use archipelago_platform::memory::taken_by;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use crate::cache::Cache;
use crate::cause::Cause;
use crate::clock::Idle;
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
/// The weight of removed entries that may wait for readers, in addition to a hundredth of the capacity: enough for some
/// bags (lists of retired entries) of each of a few threads. If a cache has a weigher, `WAITING_BYTES` is in the
/// weigher's unit, and counts only up to a part of the capacity (see [`Config::most_waiting`]).
const WAITING_ENTRIES: usize = 512;
const WAITING_BYTES: usize = 64 << 10;
const MOST_SHARDS: usize = 256;

/// The limits of a cache, in its unit of weight. `waiting` and `own_unit` are those of [`Config`].
struct Limits {
    capacity: usize,
    /// The least capacity of a shard.
    least: usize,
    waiting: usize,
    own_unit: bool,
}

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
    ///
    /// All 64 bits should depend on the key. The cache combines each of the bits 0 to 47 with the bit 16 places above
    /// it (by exclusive or), and uses 48 bits of the result: the lower ones choose the bucket, the bits 32 to 39 tell
    /// entries of a bucket apart, and the bits 40 to 47 choose the shard. So with a hasher that returns small numbers
    /// unchanged, all keys below 2^40 are in one shard: the results are correct, but writers wait for each other, and
    /// look-ups compare more keys.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> Builder<K, V, P, T> {
        self.with(PhantomData::<P>, |_| hasher)
    }

    fn with<Q, T>(self, policy: PhantomData<Q>, hasher: impl FnOnce(S) -> T) -> Builder<K, V, Q, T> {
        let Self { listener, live, idle, record_hits, shards, hasher: old, policy: _ } = self;
        Builder { listener, live, idle, record_hits, shards, hasher: hasher(old), policy }
    }

    /// Sets the time between an entry's insertion and its expiry. No entry lives for more than a millisecond longer,
    /// and none expires earlier except by the time to idle. If the time is zero, entries expire at once.
    /// [`Cache::insert_for`] sets the time of a single entry.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.live = Some(time);
        self
    }

    /// Sets the time between an entry's insertion or last hit and its expiry. No entry expires earlier, except by its
    /// time to live. An entry may live longer by a 16th of the time and two milliseconds, so that most hits need not
    /// write. If the time is zero, entries expire at once.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Calls `listener` once with each entry that leaves the cache or is refused. The calls are made in the thread that
    /// causes the change, at the end of its method (of `clear`, `invalidate_if`, `sync` and `resize`: after each
    /// shard), in the order in which the entries left. No lock is held, and the thread is in no section. So the
    /// listener may use the cache, and may take its time: other threads' insertions are not refused meanwhile. (An
    /// entry is freed after the listener returns. If a method removes many entries, all but the first count as waiting
    /// for a reader until the listener has been called with the last one. So if a listener inserts many of them again,
    /// insertions may be refused.) Dropping the cache does not call the listener for the remaining entries. A listener
    /// that inserts an entry for each evicted one causes the next eviction, and so recurses without end. If the
    /// listener panics, it is called with the other entries nevertheless, and then the cache's method panics, after it
    /// has taken effect.
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
    /// and is 256 at most. Small caches have fewer shards. The default is four for each processor. With more shards,
    /// more threads can insert at once. With fewer shards, the evicted entry is closer to the policy's best choice in
    /// the whole cache.
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
        let limits = Limits { capacity, least: LEAST_BYTES, waiting: WAITING_BYTES, own_unit: false };
        self.build(limits, Box::new(weight), long.saturating_sub(own))
    }

    /// Makes a cache of at most `capacity` entries.
    pub fn entries(self, capacity: usize) -> Cache<K, V, P, S> {
        let limits = Limits { capacity, least: LEAST_ENTRIES, waiting: WAITING_ENTRIES, own_unit: false };
        self.build(limits, Box::new(|_, _| 1), 0)
    }

    /// Makes a cache whose entries weigh at most `capacity`, by `weigher`; a weight of 0 counts as 1. `weigher` is
    /// called once for each entry, before its insertion. Removed entries that wait for readers may weigh a quarter of
    /// the capacity, but at most 65,536 units, in addition to a hundredth of the capacity.
    pub fn weigher(
        self,
        capacity: usize,
        weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Cache<K, V, P, S> {
        let limits = Limits { capacity, least: LEAST_BYTES, waiting: WAITING_BYTES, own_unit: true };
        self.build(limits, Box::new(move |key, value| weigher(key, value).max(1)), 0)
    }

    fn build(self, limits: Limits, weigher: Weigher<K, V>, extension: usize) -> Cache<K, V, P, S> {
        let Limits { capacity, least, waiting, own_unit } = limits;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.shards.unwrap_or(4 * processors).min(capacity / least).clamp(1, MOST_SHARDS);
        let config = Config {
            capacity,
            waiting,
            own_unit,
            weigher,
            extension,
            listener: self.listener,
            live: self.live,
            idle: self.idle.map(Idle::new),
            record_hits: self.record_hits,
        };
        Cache::of(Inner::new(config, wanted.next_power_of_two(), self.hasher))
    }
}
