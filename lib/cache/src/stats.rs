//! Statistics.

/// The counts of a shard, protected by the shard's lock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub insertions: u64,
    pub evictions: u64,
    pub expirations: u64,
    pub refusals: u64,
}

/// Statistics of a cache: [`Cache::stats`](crate::Cache::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of entries, including expired ones that have not been removed yet.
    pub len: usize,
    /// The sum of the entries' weights.
    pub weight: usize,
    /// The bound on the sum of the entries' weights.
    pub capacity: usize,
    /// The weight of the entries that have left the cache and wait for readers before they are freed. Entries in the
    /// bags (lists of retired objects) that threads are still filling are not included. Entries that a listener has not
    /// been told of yet are not included either.
    pub waiting: usize,
    /// The bytes of tables and queues.
    pub overhead_bytes: usize,
    /// The number of look-ups that found their key; 0 unless [`Builder::record_hits`](crate::Builder::record_hits) was
    /// called. A request that waits for another request's maker, and gets the made value, counts here.
    pub hits: u64,
    /// The number of look-ups that did not find their key; 0 unless
    /// [`Builder::record_hits`](crate::Builder::record_hits) was called. A request that makes the value counts here,
    /// once.
    pub misses: u64,
    /// The number of insertions, including replacements.
    pub insertions: u64,
    /// The number of entries that were evicted before they expired.
    pub evictions: u64,
    /// The number of entries that had expired when they left, whatever removed them.
    pub expirations: u64,
    /// The number of insertions that were not kept.
    pub refusals: u64,
}

impl Stats {
    /// Returns the fraction of look-ups that found their key, or `None` without look-ups.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}
