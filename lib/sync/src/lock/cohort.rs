//! Lock cohorting (Dice, Marathe and Shavit 2012): a lock per node, and one lock over them, that stays on a node.
//!
//! To hold the lock, a thread holds its node's lock, and its node holds the global one. A thread that unlocks while
//! another thread of its node waits releases only the node's lock, so that the waiter inherits the global lock. After
//! [`MAX_PASSES`] such hand-overs, or without such a waiter, it releases the global lock first. So the lock, and the
//! data that it guards, seldom move between nodes, and at most one thread of each node waits for the global lock.
//!
//! A thread that finds the whole lock free takes the global lock and does not use its node's lock (after Chabbi and
//! Mellor-Crummey's adaptive HMCS, 2016). So without contention the lock costs as much as one of its parts. Such a
//! thread bypasses a waiting thread only if the waiting thread has not requested the global lock yet. This can happen
//! between a holder's release and the request by the next thread of the holder's node.
//!
//! Any two kinds of locks can be combined if any thread may unlock them and if the holder can see whether another
//! thread waits. There are two pairs:
//!
//! - [`RawCohort`], with ticket locks on both levels: C-TKT-TKT of the paper;
//! - [`RawHmcs`], with MCS queues on both levels: the hierarchical MCS lock (Chabbi, Fagan and Mellor-Crummey 2015), on
//!   a machine whose levels are nodes. Differences from that paper: there are two levels; the count of passes is stored
//!   beside the NUMA node's queue instead of in the queue nodes; waiters allocate no queue nodes (see
//!   [`queue`](super::queue)).
//!
//! Invariants: only the holder of a node's lock accesses the node's `inherited` and `passes`, and only the holder of
//! the whole lock accesses `holder` (relaxed accesses: the locks order them). `inherited` is true only from when a
//! holder leaves the global lock to a waiter of its node until that waiter takes it.

use archipelago_platform::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use lock_api::{GuardSend, RawMutex};

use super::mcs::RawMcs;
use super::nodes;
use super::slots::Slots;
use super::ticket::RawTicket;
use super::wait::refuse_to_wait;

/// The value of `holder` if the lock was taken without a node's lock.
const DIRECT: usize = usize::MAX;

/// The number of hand-overs within a node before the global lock is given up. The papers use 64 to 100.
const MAX_PASSES: u32 = if cfg!(loom) { 1 } else { 64 };

/// A mutex that cohorts are built from: any thread may unlock it, and the holder can see whether another thread waits.
///
/// A mutex that only the locking thread may unlock cannot be a part, since a cohort's guards may be sent to other
/// threads:
///
/// ```compile_fail,E0271
/// use archipelago::sync::lock::Part;
/// use lock_api::{GuardNoSend, RawMutex};
///
/// #[derive(Default)]
/// struct Native;
///
/// unsafe impl RawMutex for Native {
///     const INIT: Self = Native;
///     type GuardMarker = GuardNoSend;
///     # fn lock(&self) {}
///     # fn try_lock(&self) -> bool { true }
///     # unsafe fn unlock(&self) {}
///     // ...
/// }
///
/// impl Part for Native {
///     fn has_waiters(&self) -> bool {
///         false
///     }
/// }
/// ```
pub trait Part: RawMutex<GuardMarker = GuardSend> + Default {
    /// Returns whether a thread waits in `lock`. Only the holder may call it. `true` is reliable; `false` may be out of
    /// date.
    fn has_waiters(&self) -> bool;
}

/// Cohort lock of ticket locks, C-TKT-TKT: served by node, in order within a node, bounded bypassing; 32 bytes, and 128
/// more per node once it was contended. For heavy contention from several nodes.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawCohort};
///
/// let count: Mutex<RawCohort, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
pub type RawCohort = Cohort<RawTicket>;

/// Hierarchical MCS lock of two levels: as [`RawCohort`], but every waiter waits on a word of its own, which is
/// worthwhile with many waiters per node.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawHmcs};
///
/// let count: Mutex<RawHmcs, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
pub type RawHmcs = Cohort<RawMcs>;

/// A cohort of locks of one kind. See [`RawCohort`] and [`RawHmcs`].
#[derive(Debug)]
pub struct Cohort<L> {
    global: L,
    locals: Slots<NodeLock<L>>,
    /// Index of the node whose lock the holder holds, or `DIRECT`.
    holder: AtomicUsize,
}

#[derive(Debug, Default)]
struct NodeLock<L> {
    lock: L,
    /// Whether the node's next holder inherits the global lock.
    inherited: AtomicBool,
    passes: AtomicU32,
}

impl<L: Part> Cohort<L> {
    /// An unlocked lock.
    ///
    /// ```
    /// use archipelago::sync::lock::{Mutex, RawCohort};
    ///
    /// static LOCK: Mutex<RawCohort, u64> = Mutex::from_raw(RawCohort::new(), 7);
    /// assert_eq!(*LOCK.lock(), 7);
    /// ```
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { global: L::INIT, locals: Slots::new(), holder: AtomicUsize::new(0) }
    }

    /// An unlocked lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { global: L::default(), locals: Slots::new(), holder: AtomicUsize::new(0) }
    }

    /// Takes the lock by the node's lock, after all threads of the node that already wait for it.
    #[cold]
    fn lock_by_node(&self) {
        refuse_to_wait();
        let node = nodes::here();
        let local = self.local(node);
        local.lock.lock();
        if !local.take_inheritance() {
            self.global.lock();
        }
        self.holder.store(node, Ordering::Relaxed);
    }

    #[inline]
    fn local(&self, node: usize) -> &CachePadded<NodeLock<L>> {
        let locals = self.locals.get_or_make(nodes::count);
        &locals[node & (locals.len() - 1)]
    }
}

impl<L: Part> Default for Cohort<L> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the holder holds `global`, itself or by inheritance. A thread that leaves `global` locked leaves it to
// exactly one waiter.
unsafe impl<L: Part> RawMutex for Cohort<L> {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_by_node();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let locked = self.global.try_lock();
        if locked {
            self.holder.store(DIRECT, Ordering::Relaxed);
        }
        locked
    }

    unsafe fn unlock(&self) {
        let holder = self.holder.load(Ordering::Relaxed);
        if holder == DIRECT {
            // SAFETY: the caller holds the whole lock, hence the global one.
            return unsafe { self.global.unlock() };
        }
        let local = self.local(holder);
        if !local.bequeath() {
            // Released before the node's lock, so that the node's next holder does not queue for the global lock behind
            // its own node.
            // SAFETY: as above.
            unsafe { self.global.unlock() };
        }
        // SAFETY: the caller holds the whole lock by its node's lock.
        unsafe { local.lock.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.global.is_locked()
    }
}

impl<L: Part> Part for Cohort<L> {
    fn has_waiters(&self) -> bool {
        let holder = self.holder.load(Ordering::Relaxed);
        // If the holder is direct, a node's first waiter waits for the global lock.
        self.global.has_waiters() || holder != DIRECT && self.local(holder).lock.has_waiters()
    }
}

impl<L: Part> NodeLock<L> {
    /// Returns whether the thread that has just locked the node's lock inherited the global lock.
    fn take_inheritance(&self) -> bool {
        let inherited = self.inherited.load(Ordering::Relaxed);
        if inherited {
            self.inherited.store(false, Ordering::Relaxed);
        }
        inherited
    }

    /// Leaves the global lock to a waiter of this node if a thread of this node waits, and [`MAX_PASSES`] is not
    /// reached. Returns whether it did.
    fn bequeath(&self) -> bool {
        let passes = self.passes.load(Ordering::Relaxed);
        let heir = passes < MAX_PASSES && self.lock.has_waiters();
        self.passes.store(if heir { passes + 1 } else { 0 }, Ordering::Relaxed);
        self.inherited.store(heir, Ordering::Relaxed);
        heir
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A thread that may not wait for the global lock does not keep its node's lock.
    #[test]
    fn a_waiter_that_is_refused_keeps_no_lock_of_a_node() {
        fn check<L: Part>() {
            let lock = Cohort::<L>::new();
            lock.lock();
            let body = archipelago_platform::htm::quiet();
            assert!(catch_unwind(AssertUnwindSafe(|| lock.lock())).is_err());
            drop(body);
            assert!(lock.locals.get_or_make(nodes::count).iter().all(|local| !local.lock.is_locked()));
        }
        check::<RawTicket>();
        check::<RawMcs>();
    }
}
