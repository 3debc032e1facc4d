//! The distributed reader-writer lock of the node-replication paper, section 3.8.
//!
//! The lock has one padded count per reader slot, and one flag for the writer. A reader checks the flag, increments
//! its slot's count, and checks the flag again; the writer sets the flag and waits until all counts are zero, without
//! writing to them. So each side enters with one atomic write, on different cache lines, and readers on different
//! slots do not contend. (In Vyukov's lock, from which this one derives, the writer takes every slot's lock.)
//!
//! Differences from the paper: a slot contains a count instead of a bit, so several threads can share a slot if there
//! are more threads than slots. Readers and writers that wait yield the processor. The writer prefetches all slots'
//! lines at once. In [`RawDistributedRwLock`], writers that find the flag set wait in a queue (a
//! [`RawShfl`](super::RawShfl)), in a different cache line from the flag, which the readers read. In
//! [`RawUnqueuedRwLock`], as in the paper, all waiting writers read the flag, and each tries to set it as soon as it is
//! clear. The queue passes the flag on within a node, so the data under the lock stay in this node's caches.
//!
//! Fairness: writers are preferred. New readers wait as soon as a writer has set the flag, so a writer waits only for
//! the readers inside. Readers may starve if writers keep arriving. A writer that finds the flag clear overtakes the
//! writers in the queue; without the queue, each writer may starve.
//!
//! An *upgradable* lock belongs to a writer that has set the flag and not yet waited for the readers. Its holder may
//! read beside the readers that were inside before, and no thread enters any more.
use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::topology::Topology;
use lock_api::{GuardNoSend, RawMutex, RawRwLock, RawRwLockDowngrade, RawRwLockUpgrade};

use super::home::shard;
use super::readers::Readers;
use super::shfl::RawShfl;
use super::wait::{locked_in_region, refuse_to_wait, wait_until};

/// Distributed reader-writer lock: very cheap reads that scale, expensive writes, 256 bytes and 128 per slot.
///
/// Reading: one atomic addition on the slot's line, one subtraction to leave. Writing: O(slots). Slots are chosen by
/// [`ThreadSlot`](archipelago_platform::thread::ThreadSlot) index modulo their number, and allocated by the first use.
///
/// A thread that holds a read lock and takes the same lock for reading again may deadlock, if a writer arrives in
/// between. Unlike with `parking_lot`, an *upgradable* lock lets no reader enter; its holder reads beside the readers
/// that were inside before. So a thread that has an upgradable lock must neither take a read lock nor wait for another
/// thread that takes one. `is_locked_exclusive` is true for an upgradable lock, too. If a reader and a writer try a
/// free lock at the same moment, both may fail.
///
/// ```
/// use archipelago::sync::lock::{DistributedRwLock, RawDistributedRwLock};
///
/// // As many slots as there will be reading threads: here those of one node.
/// let lock = DistributedRwLock::from_raw(RawDistributedRwLock::with_slots(28), [0; 4]);
/// lock.write()[2] = 7;
/// assert_eq!(lock.read()[2], 7);
/// ```
pub type RawDistributedRwLock = DistributedRw<true>;

/// The paper's lock: [`RawDistributedRwLock`] without the writers' queue. For comparison; with more than a few writers
/// at a time, `RawDistributedRwLock` is better. Memory, order and limits are the same.
///
/// ```
/// use archipelago::sync::lock::{RawUnqueuedRwLock, RwLock};
///
/// let words: RwLock<RawUnqueuedRwLock, Vec<&str>> = RwLock::new(vec!["read"]);
/// words.write().push("written");
/// assert_eq!(words.read().len(), 2);
/// ```
pub type RawUnqueuedRwLock = DistributedRw<false>;

/// A distributed reader-writer lock, whose writers wait in a queue if `QUEUED`. See [`RawDistributedRwLock`] and
/// [`RawUnqueuedRwLock`].
#[derive(Debug)]
pub struct DistributedRw<const QUEUED: bool> {
    shared: CachePadded<Shared>,
    /// If `QUEUED`: held by the writer that waits for the flag. Other writers wait for this lock, in a different cache
    /// line from the flag, which readers read. Otherwise not used.
    queue: RawShfl,
}

/// The data that readers and writers share. Only the flag changes.
#[derive(Debug)]
struct Shared {
    writer: AtomicBool,
    readers: Readers,
    /// The number of slots to make; 0 means one for every CPU.
    slots: usize,
}

impl<const QUEUED: bool> Default for DistributedRw<QUEUED> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const QUEUED: bool> DistributedRw<QUEUED> {
    /// An unlocked lock with a slot for every CPU of the process.
    ///
    /// ```
    /// use archipelago::sync::lock::{RawDistributedRwLock, RwLock};
    ///
    /// static LOCK: RwLock<RawDistributedRwLock, u64> = RwLock::from_raw(RawDistributedRwLock::new(), 7);
    /// assert_eq!(*LOCK.read(), 7);
    /// ```
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            shared: CachePadded::new(Shared { writer: AtomicBool::new(false), readers: Readers::new(), slots: 0 }),
            queue: RawShfl::new(),
        }
    }

    /// An unlocked lock with a slot for every CPU of the process.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self::with_slots(0)
    }

    /// An unlocked lock with `slots` reader slots, rounded up to a power of two; 0 means one for every CPU of the
    /// process, as [`new`](Self::new) does.
    ///
    /// ```
    /// use archipelago::sync::lock::{RawDistributedRwLock, RwLock};
    ///
    /// let lock = RwLock::from_raw(RawDistributedRwLock::with_slots(4), 7);
    /// assert_eq!(*lock.read(), 7);
    /// ```
    pub fn with_slots(slots: usize) -> Self {
        Self {
            shared: CachePadded::new(Shared { writer: AtomicBool::new(false), readers: Readers::new(), slots }),
            queue: RawShfl::new(),
        }
    }

    #[inline]
    fn slots(&self) -> impl FnOnce() -> usize {
        let slots = self.shared.slots;
        // Under loom there are two slots, as few as possible.
        let default = || if cfg!(loom) { 2 } else { Topology::current().cpus().len() };
        move || if slots > 0 { slots } else { default() }
    }

    #[inline]
    fn writer_is_here(&self) -> bool {
        // `SeqCst` for the argument at `readers`. As an Acquire it pairs with the store in `lower_flag`.
        self.shared.writer.load(Ordering::SeqCst)
    }

    #[cold]
    fn lock_shared_slowly(&self) {
        loop {
            wait_until(|| !self.writer_is_here());
            if self.try_lock_shared() {
                return;
            }
        }
    }

    fn try_raise_flag(&self) -> bool {
        // `SeqCst` for the argument at `readers`. As an Acquire it pairs with the store in `lower_flag`.
        !self.shared.writer.load(Ordering::Relaxed)
            && self.shared.writer.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Waits for the flag, then sets it.
    #[cold]
    fn raise_flag_slowly(&self) {
        if QUEUED {
            self.raise_flag_in_turn();
        } else {
            refuse_to_wait();
            wait_until(|| self.try_raise_flag());
        }
    }

    /// Waits behind the other writers, then sets the flag.
    fn raise_flag_in_turn(&self) {
        refuse_to_wait();
        self.queue.lock();
        wait_until(|| self.try_raise_flag());
        // SAFETY: locked above.
        unsafe { self.queue.unlock() };
    }

    fn lower_flag(&self) {
        // `SeqCst` for the argument at `readers`. As a Release it pairs with `writer_is_here` and `try_raise_flag`.
        self.shared.writer.store(false, Ordering::SeqCst);
    }

    #[inline]
    fn depart(&self) {
        self.shared.readers.depart(shard(), self.slots());
    }
}

// SAFETY: a writer holds the flag, which one thread at a time can set, and has waited for every reader that did not
// see the flag; see `readers`. A reader decrements the count that it incremented, since guards stay on their thread
// and a thread's shard never changes.
unsafe impl<const QUEUED: bool> RawRwLock for DistributedRw<QUEUED> {
    const INIT: Self = initial!();
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.try_lock_shared() {
            self.lock_shared_slowly();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        if self.shared.writer.load(Ordering::Relaxed) {
            return false;
        }
        self.shared.readers.arrive(shard(), self.slots());
        let entered = !self.writer_is_here();
        if !entered {
            self.depart();
        }
        entered
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.depart();
    }

    fn lock_exclusive(&self) {
        if locked_in_region(|| self.try_lock_exclusive()) {
            return;
        }
        self.lock_upgradable();
        // SAFETY: locked above.
        unsafe { self.upgrade() };
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.try_lock_upgradable() {
            return false;
        }
        // SAFETY: locked above.
        let alone = unsafe { self.try_upgrade() };
        if !alone {
            self.lower_flag();
        }
        alone
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.lower_flag();
    }

    fn is_locked(&self) -> bool {
        self.is_locked_exclusive() || !self.shared.readers.are_gone(self.slots())
    }

    fn is_locked_exclusive(&self) -> bool {
        self.shared.writer.load(Ordering::Relaxed)
    }
}

// SAFETY: the writer counts itself as a reader before it clears the flag, so no other writer enters in between.
unsafe impl<const QUEUED: bool> RawRwLockDowngrade for DistributedRw<QUEUED> {
    unsafe fn downgrade(&self) {
        self.shared.readers.arrive(shard(), self.slots());
        self.lower_flag();
    }
}

// SAFETY: an upgradable lock is the writer's flag alone, which one thread at a time can set. Readers that entered
// before share the lock with its holder; no other thread enters. The upgrade waits for these readers, as every writer
// does.
unsafe impl<const QUEUED: bool> RawRwLockUpgrade for DistributedRw<QUEUED> {
    #[inline]
    fn lock_upgradable(&self) {
        if !self.try_raise_flag() {
            self.raise_flag_slowly();
        }
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.try_raise_flag()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        self.lower_flag();
    }

    unsafe fn upgrade(&self) {
        self.shared.readers.wait_gone(self.slots());
    }

    unsafe fn try_upgrade(&self) -> bool {
        self.shared.readers.are_gone(self.slots())
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A writer that may not wait for the flag does not keep the place in the queue that it would wait with.
    #[test]
    fn a_writer_that_is_refused_keeps_no_place() {
        refused::<true>();
        refused::<false>();
    }

    fn refused<const QUEUED: bool>() {
        let lock = DistributedRw::<QUEUED>::new();
        lock.lock_upgradable();
        let body = archipelago_platform::htm::quiet();
        assert!(catch_unwind(AssertUnwindSafe(|| lock.lock_upgradable())).is_err());
        drop(body);
        assert!(!lock.queue.is_locked());
    }
}
