//! What a cache has done.

/// What shards count, behind their locks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub insertions: u64,
    pub evictions: u64,
    pub expirations: u64,
    pub refusals: u64,
}

/// What a cache holds and has done: [`Cache::stats`](crate::Cache::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Entries.
    pub len: usize,
    /// Their weight.
    pub weight: usize,
    /// The bound.
    pub capacity: usize,
    /// Weight of what has left the cache and waits for readers, but for what each thread has not handed over yet.
    pub waiting: usize,
    /// Bytes of tables and queues.
    pub overhead_bytes: usize,
    /// Look-ups that found their key; 0 unless [`Builder::record_hits`](crate::Builder::record_hits) was called.
    pub hits: u64,
    /// Look-ups that did not; 0 unless [`Builder::record_hits`](crate::Builder::record_hits) was called.
    pub misses: u64,
    /// Entries that came, replacements included.
    pub insertions: u64,
    /// Entries that have given way.
    pub evictions: u64,
    /// Entries that were taken out because their time was over.
    pub expirations: u64,
    /// Insertions that were not kept.
    pub refusals: u64,
}

impl Stats {
    /// The part of look-ups that found their key, if there were any.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}
