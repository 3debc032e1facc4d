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
//! Two kinds of locks can be combined if any thread may unlock them, and if the holder of a node's lock sees its
//! waiters. This module combines three pairs:
//!
//! - [`RawCohort`], with ticket locks on both levels: C-TKT-TKT of the paper;
//! - [`RawHmcs`], with MCS queues on both levels: the hierarchical MCS lock (Chabbi, Fagan and Mellor-Crummey 2015), on
//!   a machine whose levels are nodes. Differences from that paper: there are two levels; the count of passes is stored
//!   beside the NUMA node's queue instead of in the queue nodes; waiters allocate no queue nodes (see
//!   [`queue`](super::queue));
//! - [`RawCboMcs`], with a test-and-test-and-set lock over MCS queues: C-BO-MCS of the first paper. It is as published,
//!   so every thread takes its node's lock first, also if the whole lock is free.
//!
//! Invariants: only the holder of a node's lock accesses the node's `inherited` and `passes`, and only the holder of
//! the whole lock accesses `holder` (relaxed accesses: the locks order them; an heir is ordered after the predecessor
//! that wrote `holder` by their node's lock). `inherited` is true only from when a holder leaves the global lock to a
//! waiter of its node until that waiter takes it.

use archipelago_platform::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;
use lock_api::{GuardSend, RawMutex};

use super::mcs::RawMcs;
use super::nodes;
use super::slots::Slots;
use super::ticket::RawTicket;
use super::ttas::RawTtas;
use super::wait::{locked_in_region, refuse_to_wait};

/// The value of `holder` if the lock was taken without a node's lock.
const DIRECT: usize = usize::MAX;

/// The number of hand-overs within a node before the global lock is given up. The papers use 64 to 100.
const MAX_PASSES: u32 = if cfg!(loom) { 1 } else { 64 };

/// A mutex that can be a node's lock in a cohort: any thread may unlock it, and the holder can see whether another
/// thread waits.
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

/// Cohort lock C-BO-MCS as published: an MCS queue for each node under one test-and-test-and-set lock with backoff; 32
/// bytes, and 128 more per node. A node may starve. For comparison; [`RawHmcs`] starves no thread, and costs less
/// without contention.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawCboMcs};
///
/// let count: Mutex<RawCboMcs, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
pub type RawCboMcs = Cohort<RawMcs, RawTtas, false>;

/// A cohort of node locks `L` under one lock `G`. A thread that finds the whole lock free bypasses its node's lock if
/// `BYPASS`. See [`RawCohort`], [`RawHmcs`] and [`RawCboMcs`].
#[derive(Debug)]
pub struct Cohort<L, G = L, const BYPASS: bool = true> {
    global: G,
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

impl<L: Part, G: RawMutex<GuardMarker = GuardSend> + Default, const BYPASS: bool> Cohort<L, G, BYPASS> {
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
        Self { global: G::INIT, locals: Slots::new(), holder: AtomicUsize::new(0) }
    }

    /// An unlocked lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { global: G::default(), locals: Slots::new(), holder: AtomicUsize::new(0) }
    }

    /// Takes the lock by the node's lock, after all threads of the node that already wait for it.
    #[cold]
    fn lock_by_node(&self) {
        refuse_to_wait();
        let node = nodes::here();
        let local = self.local(node);
        local.lock.lock();
        let inherited = local.take_inheritance();
        if !inherited {
            self.global.lock();
        }
        // An heir's predecessor came by the same node's lock, so `holder` is right already. Without bypassing, an heir
        // leaves the line to the threads of other nodes that read the global lock. With it, newcomers' tries take the
        // line from the heir in any case, and this write brings it back before `unlock` reads it.
        if BYPASS || !inherited {
            self.holder.store(node, Ordering::Relaxed);
        }
    }

    /// Takes the lock by the node's lock if both that and the global lock are free.
    fn try_lock_by_node(&self) -> bool {
        let node = nodes::here();
        let local = self.local(node);
        if !local.lock.try_lock() {
            return false;
        }
        let locked = local.take_inheritance() || self.global.try_lock();
        if locked {
            self.holder.store(node, Ordering::Relaxed);
        } else {
            // SAFETY: locked above. A thread that has queued meanwhile inherits nothing.
            unsafe { local.lock.unlock() };
        }
        locked
    }

    #[inline]
    fn local(&self, node: usize) -> &CachePadded<NodeLock<L>> {
        let locals = self.locals.get_or_make(nodes::count);
        &locals[node & (locals.len() - 1)]
    }
}

impl<L: Part, G: RawMutex<GuardMarker = GuardSend> + Default, const BYPASS: bool> Default for Cohort<L, G, BYPASS> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the holder holds `global`, itself or by inheritance. A thread that leaves `global` locked leaves it to
// exactly one waiter.
unsafe impl<L: Part, G: RawMutex<GuardMarker = GuardSend> + Default, const BYPASS: bool> RawMutex
    for Cohort<L, G, BYPASS>
{
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        let locked = if BYPASS { self.try_lock() } else { locked_in_region(|| self.try_lock()) };
        if !locked {
            self.lock_by_node();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        if !BYPASS {
            return self.try_lock_by_node();
        }
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

impl<L: Part, G: Part, const BYPASS: bool> Part for Cohort<L, G, BYPASS> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    #[cfg(debug_assertions)]
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn holds_a_lock_of_a_node<L: Part, G, const BYPASS: bool>(lock: &Cohort<L, G, BYPASS>) -> bool {
        lock.locals.get_or_make(nodes::count).iter().any(|local| local.lock.is_locked())
    }

    /// A thread that may not wait for the global lock does not keep its node's lock.
    #[test]
    #[cfg(debug_assertions)]
    fn a_waiter_that_is_refused_keeps_no_lock_of_a_node() {
        fn check<L: Part, G: RawMutex<GuardMarker = GuardSend> + Default, const BYPASS: bool>() {
            let lock = Cohort::<L, G, BYPASS>::new();
            lock.global.lock();
            let body = archipelago_platform::htm::quiet();
            assert!(catch_unwind(AssertUnwindSafe(|| lock.lock())).is_err());
            drop(body);
            assert!(!holds_a_lock_of_a_node(&lock));
        }
        check::<RawTicket, RawTicket, true>();
        check::<RawMcs, RawMcs, true>();
        check::<RawMcs, RawTtas, false>();
    }

    /// A try finds its node's lock free while another node holds the global one.
    #[test]
    fn a_try_that_fails_keeps_no_lock_of_a_node() {
        let lock = RawCboMcs::new();
        lock.global.lock();
        assert!(!lock.try_lock());
        assert!(!holds_a_lock_of_a_node(&lock));
    }
}
