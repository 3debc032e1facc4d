//! A shard: a table, which is read without a lock, and data that a lock protects. These are the policy's queues and the
//! shard's part of the cache's capacity (its *lease*).
//!
//! No users' code runs with the lock held. Keys are compared before the lock is taken, under the RCU guard. If the
//! entries of the same hash have changed by the time the lock is held, the lock is released, and the keys are compared
//! again. Values are dropped, and listeners called, after the lock is released.

use archipelago_platform::atomic::Ordering::{Relaxed, SeqCst};
use archipelago_platform::atomic::{AtomicU32, fence};
use archipelago_platform::plain::Plain;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_sync::rcu::Guard;

use crate::budget::Budget;
use crate::cause::Cause;
use crate::clock::Clock;
use crate::entry::{Entry, Resident, Shared};
use crate::few::Few;
use crate::policy::Policy;
use crate::stats::Counts;
use crate::table::Table;

/// The most entries of a shard: policies have 31 bits for an entry's position, and half of their queues may be blank.
const MOST_ENTRIES: usize = 1 << 29;

pub(crate) struct Shard<K, V, P> {
    table: Table<K, V>,
    /// Counts insertions (replacements included), for policies. Written with the lock held.
    clock: AtomicU32,
    state: Mutex<Plain<State<P>>>,
}

/// # Invariants
/// 1. The policy has exactly the entries of the table.
/// 2. `used` is the entries' weight, and at most `lease`.
pub(crate) struct State<P> {
    policy: P,
    len: usize,
    used: usize,
    lease: usize,
    counts: Counts,
}

/// Removed entries, to be retired after the lock is released.
pub(crate) type Gone<K, V> = Few<(Shared<K, V>, Cause)>;

/// The result of a look-up in the table without the lock.
pub(crate) struct Seen<K, V> {
    pub same_hash: Few<Shared<K, V>>,
    pub same_key: Option<Shared<K, V>>,
}

/// The result of an insertion.
pub(crate) enum Outcome {
    Kept,
    /// The shard has no entry left to evict, and still lacks this much room.
    Lacking(usize),
    /// Entries of the same hash were inserted or removed since the look-up.
    Changed,
}

impl<K, V, P: Policy> Shard<K, V, P> {
    pub fn new() -> Self {
        let state = State { policy: P::default(), len: 0, used: 0, lease: 0, counts: Counts::default() };
        Self { table: Table::new(), clock: AtomicU32::new(0), state: Mutex::new(Plain::new(state)) }
    }

    pub fn table(&self) -> &Table<K, V> {
        &self.table
    }

    /// Marks an entry as hit, for the policy.
    #[inline]
    pub fn hit(&self, entry: &Entry<K, V>) {
        P::hit(entry.header(), self.clock.load(Relaxed));
    }

    pub fn lock(&self) -> Locked<'_, K, V, P> {
        // Users' code does not run under the lock, so only a failed allocation can panic while it is held.
        Locked { shard: self, state: self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) }
    }
}

/// A shard whose lock is held.
pub(crate) struct Locked<'s, K, V, P> {
    shard: &'s Shard<K, V, P>,
    state: MutexGuard<'s, Plain<State<P>>>,
}

impl<K, V, P: Policy> Locked<'_, K, V, P> {
    /// If the entries of the same hash are still `seen`, inserts `entry`, in place of the entry with the same key.
    /// Evicted and replaced entries are added to `gone`, even if the insertion then fails for lack of room.
    pub fn insert(
        &mut self,
        guard: &Guard<'_>,
        budget: &Budget,
        time: &Clock,
        entry: Shared<K, V>,
        seen: &Seen<K, V>,
        gone: &mut Gone<K, V>,
    ) -> Outcome {
        // SAFETY: the caller's entry, and entries that were found under the caller's guard.
        let (new, mut old) = unsafe { (Resident::new(entry), seen.same_key.map(|old| Resident::new(old))) };
        let table = &self.shard.table;
        let (hash, weight) = (new.header().hash(), new.weight());
        self.state.policy.foresee(hash);
        if !table.has_only(guard, hash, seen.same_hash.iter()) {
            return Outcome::Changed;
        }
        loop {
            let replaced = old.map_or(0, |old| old.weight());
            let need = (self.state.used + weight).saturating_sub(self.state.lease + replaced);
            if need == 0 && self.state.len < MOST_ENTRIES {
                break;
            }
            if need > 0 {
                match budget.take(need) {
                    0 => {}
                    granted => {
                        self.state.lease += granted;
                        continue;
                    }
                }
            }
            let Some(victim) = self.evict(guard, time, gone) else { return Outcome::Lacking(need) };
            old = old.filter(|old| *old != victim);
        }
        let clock = self.tick();
        match old {
            Some(old) => {
                let at = table.place_of(guard, old.entry()).expect("seen, and not taken out since");
                table.replace(guard, at, entry);
                self.state.policy.replace(old, new, clock);
                self.count_out(time, old, Cause::Replaced, gone);
            }
            None => {
                table.insert(guard, entry, self.state.len);
                self.state.policy.admit(new, clock);
                self.state.len += 1;
            }
        }
        self.state.used += weight;
        self.state.counts.insertions += 1;
        self.return_surplus(budget);
        Outcome::Kept
    }

    fn tick(&self) -> u32 {
        let clock = self.shard.clock.load(Relaxed).wrapping_add(1);
        self.shard.clock.store(clock, Relaxed);
        clock
    }

    /// Evicts the entry that the policy chooses. Returns `None` if no entry is left.
    fn evict(&mut self, guard: &Guard<'_>, time: &Clock, gone: &mut Gone<K, V>) -> Option<Resident<'static>> {
        let (room, clock) = (self.state.lease, self.shard.clock.load(Relaxed));
        let victim = self.state.policy.evict(room, clock)?;
        self.take_out(guard, time, victim, Cause::Evicted, gone);
        if let Some(next) = self.state.policy.next() {
            self.shard.table.prefetch(guard, next.header().hash());
        }
        Some(victim)
    }

    /// Removes from the table an entry that the policy has already removed. Returns the cause to report.
    fn take_out(
        &mut self,
        guard: &Guard<'_>,
        time: &Clock,
        entry: Resident<'_>,
        cause: Cause,
        gone: &mut Gone<K, V>,
    ) -> Cause {
        self.shard.table.remove(guard, entry.entry());
        self.state.len -= 1;
        self.count_out(time, entry, cause, gone)
    }

    /// Adds to `gone` an entry that is no longer in the table, and counts it. Returns the cause to report: an entry
    /// that had expired leaves as an expired one, whatever removed it.
    fn count_out(&mut self, time: &Clock, entry: Resident<'_>, cause: Cause, gone: &mut Gone<K, V>) -> Cause {
        self.state.used -= entry.weight();
        let has_expired = entry.timed().is_some_and(|timed| timed.is_expired(time.now()));
        let cause = if has_expired { Cause::Expired } else { cause };
        match cause {
            Cause::Evicted => self.state.counts.evictions += 1,
            Cause::Expired => self.state.counts.expirations += 1,
            Cause::Replaced | Cause::Removed => {}
        }
        gone.push((entry.entry(), cause));
        cause
    }

    /// Removes an entry that was found under the guard, if the table still has it. Returns the cause to report, or
    /// `None` if the table did not have it.
    pub fn remove(
        &mut self,
        guard: &Guard<'_>,
        budget: &Budget,
        time: &Clock,
        entry: Shared<K, V>,
        cause: Cause,
        gone: &mut Gone<K, V>,
    ) -> Option<Cause> {
        self.shard.table.place_of(guard, entry)?;
        // SAFETY: found under the caller's guard.
        let resident = unsafe { Resident::new(entry) };
        self.state.policy.forget(resident);
        let cause = self.take_out(guard, time, resident, cause, gone);
        self.return_surplus(budget);
        Some(cause)
    }

    /// Gives the caller up to `most` of the lease, and the surplus. Evicts entries as needed. Returns the amount that
    /// was given.
    pub fn yield_room(
        &mut self,
        guard: &Guard<'_>,
        budget: &Budget,
        time: &Clock,
        most: usize,
        gone: &mut Gone<K, V>,
    ) -> usize {
        let left = self.state.lease - most.min(self.state.lease);
        while self.state.used > left && self.evict(guard, time, gone).is_some() {}
        let given = self.state.lease - left.max(self.state.used);
        self.state.lease -= given;
        given + self.surplus(budget)
    }

    /// Takes the surplus out of the lease, and returns it. The surplus is the room of entries that have left and that
    /// needed more than the shard's equal share. The shard keeps an equal share, or a piece more than it uses,
    /// whichever is larger. It also keeps a surplus of at most a piece. So a shard within its share never returns
    /// anything, and any other shard returns room at most once for each piece that has left. O(1).
    fn surplus(&mut self, budget: &Budget) -> usize {
        let (piece, share) = (budget.piece(), budget.share());
        let keeps = share.max(self.state.used + piece);
        if self.state.lease <= keeps + piece {
            return 0;
        }
        let surplus = self.state.lease - keeps;
        self.state.lease = keeps;
        surplus
    }

    fn return_surplus(&mut self, budget: &Budget) {
        match self.surplus(budget) {
            0 => {}
            surplus => budget.give(surplus),
        }
    }

    /// Returns all unused lease to the pool.
    pub fn return_unused(&mut self, budget: &Budget) {
        budget.give(self.state.lease - self.state.used);
        self.state.lease = self.state.used;
    }

    /// Shrinks the table if it has become much too large.
    pub fn shrink(&mut self, guard: &Guard<'_>) {
        self.shard.table.shrink(guard, self.state.len);
    }

    pub fn len(&self) -> usize {
        self.state.len
    }

    pub fn used(&self) -> usize {
        self.state.used
    }

    pub fn lease(&self) -> usize {
        self.state.lease
    }

    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Counts an insertion that was refused.
    pub fn count_refusal(&mut self) {
        self.state.counts.refusals += 1;
    }

    /// Returns the bytes of memory in addition to the entries.
    pub fn overhead(&self, guard: &Guard<'_>) -> usize {
        self.shard.table.bytes(guard) + self.state.policy.bytes()
    }

    /// Checks the invariants of the shard. No other thread may use the cache during the call. Returns the shard's
    /// lease.
    pub fn check(&self, guard: &Guard<'_>) -> usize {
        // SAFETY: under the guard.
        let weights = self.shard.table.entries(guard).map(|entry| unsafe { Resident::new(entry) }.weight());
        let (len, used) = weights.fold((0, 0), |(len, used), weight| (len + 1, used + weight));
        assert_eq!((len, used), (self.state.len, self.state.used), "the shard counts its entries");
        assert!(used <= self.state.lease, "a shard holds what it has on lease");
        self.state.lease
    }
}

impl<K, V, P> Drop for Locked<'_, K, V, P> {
    fn drop(&mut self) {
        // The change precedes the thread's later look-ups. Otherwise two threads that change keys of two shards could
        // each miss the other's change. (By the memory model, two further threads may see the two changes in different
        // orders. This does not happen on processors whose stores reach all others at one moment, such as x86-64 and
        // Armv8.)
        fence(SeqCst);
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;
    use crate::policy::S3Fifo;
    use archipelago_sync::rcu::Domain;

    /// A shard with `MOST_ENTRIES` entries evicts one for each new entry, even if its capacity has room.
    #[test]
    fn a_shard_has_no_more_entries_than_places() {
        let (domain, shard) = (Domain::new(), Shard::<u64, (), S3Fifo>::new());
        let (guard, budget, time) = (domain.pin(), Budget::new(1_000, 1), Clock::new());
        let mut gone = Gone::new();
        let mut insert = |key: u64| {
            let seen = Seen { same_hash: Few::new(), same_key: None };
            let entry = Entry::boxed(key, (), key, 1);
            assert!(matches!(shard.lock().insert(&guard, &budget, &time, entry, &seen, &mut gone), Outcome::Kept));
        };
        (0..3).for_each(&mut insert);
        shard.lock().state.len += MOST_ENTRIES - 3;
        insert(3);
        shard.lock().state.len -= MOST_ENTRIES - 3;
        assert_eq!(shard.lock().check(&guard), 1_000 / 16);
        let (evicted, _) = gone.pop().expect("one was evicted");
        assert!(gone.pop().is_none());
        // SAFETY: evicted, and found by no other thread.
        drop(unsafe { Entry::emptied(evicted) });
    }
}
