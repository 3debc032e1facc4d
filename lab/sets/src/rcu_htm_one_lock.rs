//! RCU-HTM as in the kernel module with which RCX was measured: transactions, and one lock for a list or tree, or for
//! each bucket of a table.
//!
//! An update first walks the structure. Then one transaction checks that the lock is free and that the nodes which the
//! update changes or retires are as they were seen, and changes them. After ten aborts, whatever their cause, and from
//! the beginning on a machine without transactions, the thread takes the lock and walks the structure while it holds
//! the lock. This mechanism is a baseline for comparison. In contrast, [`RcuHtm`](crate::RcuHtm) has no word that all
//! of its transactions access, and locks only the nodes that it changes or retires.
//!
//! # Why it is right
//! A transaction that commits has read the lock as free in the instant of its writes, so no thread held the lock.
//! Threads that hold the lock exclude each other. So updates of the same nodes happen one at a time. Each update
//! checks, in that instant or under the lock, whether everything on which it was decided still holds (`plan.rs`).

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::htm::{HELD, Htm, Site};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{Mutex, MutexGuard, RawTicket};

use crate::optimistic::Optimistic;
use crate::plan::{Commit, Plan};
use crate::room::{Aside, Kilobyte, Room, Snug};
use crate::scratch::Scratch;

/// Structures over RCU whose updates are transactions, with one lock per scope: a list or tree has one scope, a hash
/// table has one per bucket.
pub type RcuHtmOneLock = Optimistic<BesideLock>;

/// The same as [`RcuHtmOneLock`] with nodes of 1,024 bytes, as in the kernel module.
pub type RcuHtmOneLockKilobyte = Optimistic<BesideLock<Kilobyte>>;

/// The number of aborts after which an update takes the locks of its scopes.
const TRIES: u64 = 10;

/// The abort code of a transaction that found a node changed since the update saw it.
const STALE: u8 = 0xfc;

/// Counts the transactions.
static UPDATES: Site = Site::new("RCU-HTM with one lock: update");

type Lock = Mutex<RawTicket, ()>;

#[doc(hidden)]
pub struct BesideLock<R = Snug> {
    htm: Option<Htm>,
    locks: Box<[CachePadded<Lock>]>,
    room: PhantomData<R>,
}

impl<R> Default for BesideLock<R> {
    fn default() -> Self {
        Self { htm: Htm::get(), locks: Box::default(), room: PhantomData }
    }
}

/// The locks of an update, and the guards of the held locks: of all locks, or of none.
#[doc(hidden)]
pub struct Turn<'c> {
    locks: &'c [CachePadded<Lock>],
    scopes: &'c [usize],
    held: Vec<MutexGuard<'c, RawTicket, ()>>,
}

impl Turn<'_> {
    fn is_free(&self) -> bool {
        self.scopes.iter().all(|scope| !self.locks[*scope].is_locked())
    }
}

/// The data in a node: whether the node was removed. This flag is changed in transactions and under the lock.
#[doc(hidden)]
pub struct Removed<R>(AtomicBool, PhantomData<R>);

impl<R: Room> Aside for Removed<R> {
    type Room = R;
}

impl<R: Room> BesideLock<R> {
    /// Returns whether the nodes are not removed, and the links on which the update was decided are as it saw them. The
    /// transaction, or the lock, orders these accesses.
    fn holds<const LINKS: usize>(plan: &Plan<LINKS, Removed<R>>) -> bool {
        plan.each_seen(|node, side, seen| {
            // SAFETY: the node was seen in the guard, which still lasts.
            let node = unsafe { &*node };
            !node.beside.0.load(Ordering::Relaxed) && node.next[side].load() == seen
        })
    }

    fn happen<const LINKS: usize>(plan: &Plan<LINKS, Removed<R>>) {
        for write in &plan.writes {
            // SAFETY: as in `holds`. The new link leads to a node that is retired only after the last link to the node
            // is removed.
            unsafe { (&*write.node).next[write.side].publish(write.to) };
        }
        for retired in &plan.retired {
            // SAFETY: as in `holds`.
            unsafe { &*retired.node }.beside.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<R: Room> Commit for BesideLock<R> {
    type Beside = Removed<R>;
    type Turn<'c> = Turn<'c>;

    fn for_scopes(self, scopes: usize) -> Self {
        let lock = |_| CachePadded::new(Lock::from_raw(RawTicket::default(), ()));
        Self { locks: (0..scopes).map(lock).collect(), ..self }
    }

    fn beside(&self) -> Removed<R> {
        Removed(AtomicBool::new(false), PhantomData)
    }

    fn gone(&self, _: &Removed<R>) {}

    /// The locks are taken in ascending order, so threads cannot deadlock.
    fn turn<'c>(&'c self, scopes: &'c [usize], failed: u64) -> Turn<'c> {
        debug_assert!(scopes.is_sorted_by(|a, b| a < b));
        let alone = self.htm.is_none() || failed >= TRIES;
        let held = if alone { scopes.iter().map(|scope| self.locks[*scope].lock()).collect() } else { Vec::new() };
        Turn { locks: &self.locks, scopes, held }
    }

    fn commit<const LINKS: usize>(&self, plan: &Plan<LINKS, Removed<R>>, _: &mut Scratch, turn: &Turn<'_>) -> bool {
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
