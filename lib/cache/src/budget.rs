//! How the bound is shared out: each shard may hold what it has on lease, and what no shard has lies in a pool.
//!
//! A shard that needs room takes a piece of the pool, and evicts entries of its own when the pool is empty. So in a full cache no
//! two shards write a common line, and the bound holds at every moment.
//!
//! # Invariant
//! The pool and all leases together are the capacity, but for what a resize has not taken back yet.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};

/// Into how many pieces a shard's fair share is divided: it takes one at a time, at least.
const PIECES: usize = 16;

/// The most that a cache may hold: far above any memory, and so that sums of some such numbers are numbers still.
const MOST: usize = usize::MAX / 8;

/// A capacity that was asked for, as far as it is possible.
pub(crate) fn possible(capacity: usize) -> usize {
    capacity.min(MOST)
}

pub(crate) struct Budget {
    capacity: AtomicUsize,
    pool: AtomicUsize,
    shards: usize,
}

// Relaxed, all of it: numbers; what is bought with them is published by the shards' locks.
impl Budget {
    pub fn new(capacity: usize, shards: usize) -> Self {
        Self { capacity: AtomicUsize::new(capacity), pool: AtomicUsize::new(capacity), shards }
    }

    pub fn capacity(&self) -> usize {
        self.capacity.load(Relaxed)
    }

    /// What no shard has.
    pub fn pool(&self) -> usize {
        self.pool.load(Relaxed)
    }

    /// Takes `need` from the pool, and a piece if there is more; 0 if there is less.
    pub fn take(&self, need: usize) -> usize {
        let wanted = need.max(self.capacity() / (self.shards * PIECES));
        let grant = |pool: usize| (pool >= need).then(|| wanted.min(pool));
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| grant(pool).map(|granted| pool - granted));
        before.ok().and_then(grant).unwrap_or(0)
    }

    /// Takes what there is of `most` from the pool.
    pub fn take_some(&self, most: usize) -> usize {
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| Some(pool - pool.min(most)));
        before.map_or(0, |pool| pool.min(most))
    }

    pub fn give(&self, amount: usize) {
        self.pool.fetch_add(amount, Relaxed);
    }

    /// Sets another capacity. Returns the one before. What the difference means for the pool is the caller's affair.
    pub fn set_capacity(&self, capacity: usize) -> usize {
        self.capacity.swap(capacity, Relaxed)
    }
}
