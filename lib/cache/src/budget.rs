//! The distribution of the cache's capacity: each shard has a *lease* on a part of the capacity, and the rest is in a
//! *pool*.
//!
//! A shard that needs room takes a piece of the pool, and evicts entries of its own if the pool has too little. So in a
//! full cache no two shards write a common cache line, and the bound holds at every moment.
//!
//! # Invariant
//! The sum of the pool and all leases is the capacity, except while a resize to a smaller capacity is still taking back
//! leases.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of pieces in a shard's equal share of the capacity. A shard takes a piece at a time: more if it needs
/// more, and less if the pool has less.
const PIECES: usize = 16;

/// The largest capacity: far above any memory, and low enough that sums of several capacities do not overflow.
const MOST: usize = usize::MAX / 8;

/// Returns the requested capacity, or [`MOST`] if the request is above it.
pub(crate) fn possible(capacity: usize) -> usize {
    capacity.min(MOST)
}

pub(crate) struct Budget {
    capacity: AtomicUsize,
    pool: AtomicUsize,
    shards: usize,
}

// All accesses are relaxed, since the numbers publish no data; the shards' locks publish the entries.
impl Budget {
    pub fn new(capacity: usize, shards: usize) -> Self {
        Self { capacity: AtomicUsize::new(capacity), pool: AtomicUsize::new(capacity), shards }
    }

    pub fn capacity(&self) -> usize {
        self.capacity.load(Relaxed)
    }

    /// Returns the size of the pool.
    pub fn pool(&self) -> usize {
        self.pool.load(Relaxed)
    }

    /// Takes at least `need` from the pool, or a whole piece if a piece is larger and the pool has it. Returns the
    /// amount taken: 0 if the pool has less than `need`.
    pub fn take(&self, need: usize) -> usize {
        let wanted = need.max(self.capacity() / (self.shards * PIECES));
        let grant = |pool: usize| (pool >= need).then(|| wanted.min(pool));
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| grant(pool).map(|granted| pool - granted));
        before.ok().and_then(grant).unwrap_or(0)
    }

    /// Takes at most `most` from the pool. Returns the amount taken.
    pub fn take_some(&self, most: usize) -> usize {
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| Some(pool - pool.min(most)));
        before.map_or(0, |pool| pool.min(most))
    }

    pub fn give(&self, amount: usize) {
        self.pool.fetch_add(amount, Relaxed);
    }

    /// Sets the capacity and returns the previous one. The caller adjusts the pool.
    pub fn set_capacity(&self, capacity: usize) -> usize {
        self.capacity.swap(capacity, Relaxed)
    }
}
