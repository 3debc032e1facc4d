//! The distribution of the cache's capacity: each shard has a *lease* on a part of the capacity, and the rest is in a
//! *pool*.
//!
//! A shard that needs room takes a piece of the pool, and evicts entries of its own if the pool has too little. So in a
//! full cache no two shards write a common cache line, and the bound holds at every moment. If an entry needs more than
//! the shard's lease, the other shards give up a part of theirs. If a lease exceeds the shard's use by more than two
//! pieces, and an equal share of the capacity by more than one, the shard returns the excess, except for at most a
//! piece, to the pool. Otherwise the room of a large entry would be lost to the other shards when the entry has left.
//!
//! # Invariant
//! The pool and all leases add up to the capacity plus the *debt*: the room that resizes to smaller capacities have yet
//! to take back. (Room that a thread is moving between the pool and a lease, or from there to the debt, is counted in
//! no place.) A resize to a larger capacity pays debt before it fills the pool. Otherwise the pool would grow by room
//! that shards still have.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::{Mutex, MutexGuard};

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
    /// The debt. The capacity changes under this lock.
    debt: Mutex<usize>,
    /// The number of shards, a power of two.
    shards: usize,
}

// All accesses are relaxed, since the numbers publish no data; the shards' locks publish the entries.
impl Budget {
    pub fn new(capacity: usize, shards: usize) -> Self {
        debug_assert!(shards.is_power_of_two());
        Self { capacity: AtomicUsize::new(capacity), pool: AtomicUsize::new(capacity), debt: Mutex::new(0), shards }
    }

    pub fn capacity(&self) -> usize {
        self.capacity.load(Relaxed)
    }

    /// Returns the size of the pool.
    pub fn pool(&self) -> usize {
        self.pool.load(Relaxed)
    }

    /// Returns a shard's equal share of the capacity.
    pub fn share(&self) -> usize {
        // The number of shards is a power of two, and each insertion calls this: a shift is cheaper than a division.
        self.capacity() >> self.shards.ilog2()
    }

    /// Returns the size of a piece: a shard takes at least a piece if the pool has as much.
    pub fn piece(&self) -> usize {
        self.share() / PIECES
    }

    /// Takes at least `need` from the pool, or a whole piece if a piece is larger and the pool has it. Returns the
    /// amount taken: 0 if the pool has less than `need`.
    pub fn take(&self, need: usize) -> usize {
        let wanted = need.max(self.piece());
        let grant = |pool: usize| (pool >= need).then(|| wanted.min(pool));
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| grant(pool).map(|granted| pool - granted));
        before.ok().and_then(grant).unwrap_or(0)
    }

    pub fn give(&self, amount: usize) {
        self.pool.fetch_add(amount, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.debt.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the debt.
    pub fn debt(&self) -> usize {
        *self.lock()
    }

    /// Sets the capacity, and pays debt from the pool. The caller then takes the rest of the debt back from the leases.
    pub fn set_capacity(&self, capacity: usize) {
        let mut debt = self.lock();
        let before = self.capacity.swap(capacity, Relaxed);
        *debt += before.saturating_sub(capacity);
        let paid = capacity.saturating_sub(before).min(*debt);
        *debt -= paid;
        self.give(capacity.saturating_sub(before) - paid);
        drop(debt);
        self.pay_from_pool();
    }

    /// Pays the debt with an amount that was taken back. What exceeds the debt goes into the pool.
    pub fn pay(&self, amount: usize) {
        let mut debt = self.lock();
        let paid = amount.min(*debt);
        *debt -= paid;
        self.give(amount - paid);
    }

    /// Pays the debt with what the pool has.
    pub fn pay_from_pool(&self) {
        let mut debt = self.lock();
        let most = *debt;
        let before = self.pool.fetch_update(Relaxed, Relaxed, |pool| Some(pool - pool.min(most)));
        *debt -= before.map_or(0, |pool| pool.min(most));
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// A resize to a larger capacity reduces the debt first. What is taken back beyond the debt is in the pool again.
    #[test]
    fn growth_pays_debt() {
        let budget = Budget::new(100, 1);
        let mut lease = budget.take(90);
        assert_eq!((lease, budget.pool()), (90, 10));
        budget.set_capacity(20);
        assert_eq!((budget.debt(), budget.pool()), (70, 0));
        budget.set_capacity(60);
        assert_eq!((budget.debt(), budget.pool()), (30, 0));
        lease -= 40;
        budget.pay(40);
        assert_eq!((budget.debt(), budget.pool()), (0, 10));
        budget.set_capacity(100);
        assert_eq!((budget.debt(), budget.pool() + lease), (0, 100));
        budget.set_capacity(0);
        assert_eq!((budget.debt(), budget.pool()), (50, 0));
        budget.give(30);
        budget.pay_from_pool();
        assert_eq!((budget.debt(), budget.pool()), (20, 0));
    }
}
