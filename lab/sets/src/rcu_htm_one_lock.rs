//! RCU-HTM as it is in the kernel module with which RCX was measured: transactions beside one lock for a list or tree, or for a
//! bucket.
//!
//! An update walks; then one transaction looks whether the lock is free and whether what the update changes or retires still is
//! as it was seen, and changes it. After ten aborts, whatever their cause, the thread takes the lock and walks once more, with it
//! held. A rival: [`RcuHtm`](crate::RcuHtm) has no word in all of its transactions, and locks what it changes only.
//!
//! # Why it is right
//! A transaction that commits has read the lock as free in the instant of its writes, so no thread held it; threads that hold
//! it exclude each other. So updates that look at the same nodes happen one at a time, and each looks, in that instant
//! or under the lock, whether what it was decided on still holds (`plan.rs`).

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::htm::{HELD, Htm, Site};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{Mutex, MutexGuard, RawTicket};

use crate::optimistic::Optimistic;
use crate::plan::{Commit, Plan};
use crate::scratch::Scratch;

/// Structures over RCU with updates in transactions beside one lock per scope: a list or tree has one, a hash table one per bucket.
pub type RcuHtmOneLock = Optimistic<BesideLock>;

/// Aborts before an update takes the lock.
const TRIES: u64 = 10;

/// The code of a transaction that found something else than the update had seen.
const STALE: u8 = 0xfc;

/// Where its transactions are counted.
static UPDATES: Site = Site::new("RCU-HTM with one lock: update");

type Lock = Mutex<RawTicket, ()>;

#[doc(hidden)]
pub struct BesideLock {
    htm: Option<Htm>,
    locks: Box<[CachePadded<Lock>]>,
}

impl Default for BesideLock {
    fn default() -> Self {
        Self { htm: Htm::get(), locks: Box::default() }
    }
}

/// The locks of an update, and the guards of those that it holds: all or none.
#[doc(hidden)]
pub struct Turn<'c> {
    over: &'c BesideLock,
    scopes: &'c [usize],
    held: Vec<MutexGuard<'c, RawTicket, ()>>,
}

impl Turn<'_> {
    fn is_free(&self) -> bool {
        self.scopes.iter().all(|scope| !self.over.locks[*scope].is_locked())
    }
}

/// Beside a node: whether it was removed. Changed in transactions and under the lock.
#[doc(hidden)]
pub struct Removed(AtomicBool);

impl BesideLock {
    /// Whether everything still is as it was seen. The transaction, or the lock, orders these accesses.
    fn holds<const LINKS: usize>(plan: &Plan<LINKS, Removed>) -> bool {
        plan.each_seen(|node, side, seen| {
            // SAFETY: seen in the guard, which still lasts.
            let node = unsafe { &*node };
            !node.beside.0.load(Ordering::Relaxed) && node.next[side].load() == seen
        })
    }

    fn happen<const LINKS: usize>(plan: &Plan<LINKS, Removed>) {
        for write in &plan.writes {
            // SAFETY: as in `holds`; and what is linked is a node of the structure, which is retired, if ever, once its
            // last link is gone.
            unsafe { (&*write.node).next[write.side].publish(write.to) };
        }
        for retired in &plan.retired {
            // SAFETY: as in `holds`.
            unsafe { &*retired.node }.beside.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Commit for BesideLock {
    type Beside = Removed;
    type Turn<'c> = Turn<'c>;

    fn for_scopes(self, scopes: usize) -> Self {
        let lock = |_| CachePadded::new(Lock::from_raw(RawTicket::default(), ()));
        Self { locks: (0..scopes).map(lock).collect(), ..self }
    }

    fn beside(&self) -> Removed {
        Removed(AtomicBool::new(false))
    }

    fn gone(&self, _: &Removed) {}

    /// The locks are taken in rising order, so threads do not wait in a circle.
    fn turn<'c>(&'c self, scopes: &'c [usize], failed: u64) -> Turn<'c> {
        debug_assert!(scopes.is_sorted_by(|a, b| a < b));
        let alone = self.htm.is_none() || failed >= TRIES;
        let held = if alone { scopes.iter().map(|scope| self.locks[*scope].lock()).collect() } else { Vec::new() };
        Turn { over: self, scopes, held }
    }

    fn commit<const LINKS: usize>(&self, plan: &Plan<LINKS, Removed>, _: &mut Scratch, turn: &Turn<'_>) -> bool {
        let Some(htm) = self.htm.filter(|_| turn.held.is_empty()) else {
            let holds = Self::holds(plan);
            if holds {
                Self::happen(plan);
            }
            return holds;
        };
        let backoff = Backoff::new();
        while !turn.is_free() {
            backoff.wait();
        }
        let done = htm.transaction(|inside| {
            if !turn.is_free() {
                inside.abort::<HELD>();
            }
            if !Self::holds(plan) {
                inside.abort::<STALE>();
            }
            Self::happen(plan);
        });
        done.inspect_err(|why| UPDATES.note_abort(*why)).is_ok()
    }
}
