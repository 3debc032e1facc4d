//! The compact NUMA-aware lock (Dice and Kogan 2019): an MCS queue that serves its own node first.
//!
//! The thread that unlocks searches for the first waiter of its own node. It moves the waiters before this waiter to a
//! second queue, in their order. The second queue is put back at the front of the main queue in two cases: when the
//! main queue has no thread of this node left, and after `PASSES` hand-overs within the node. So the lock and the
//! data that it guards stay on a node for a while. The lock's size does not depend on the number of nodes.
//!
//! Differences from the paper: Queue nodes are on the waiters' stacks (see [`queue`](super::queue)), so the lock
//! contains the second queue's ends and the count. The preferred NUMA node is the one on which the holder runs when it
//! unlocks. The second queue is put back after a fixed number of passes instead of by a random draw.
//!
//! Invariants: only the holder touches the second queue and the count (relaxed accesses: the lock itself orders them).
//! `second_tail` is null exactly if `second_head` is, else `second_tail.next` is null. A waiter is in one queue.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use lock_api::{GuardSend, RawMutex};

use super::nodes;
use super::queue::{Queue, Waiter};

/// Hand-overs within a node before waiters of other nodes are served. This value keeps the longest wait of other nodes
/// in the tens of µs.
const MAX_PASSES: u32 = if cfg!(loom) { 1 } else { 256 };

/// CNA lock: 40 bytes whatever the machine, served by node, bounded bypassing. For heavy contention from several nodes,
/// each thread with a core of its own. Waiters of other nodes are served after at most 256 hand-overs within a node;
/// [`RawBoundedCna`] has other bounds.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawCna};
///
/// let count: Mutex<RawCna, u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (0..4).for_each(|_| _ = scope.spawn(|| *count.lock() += 1));
/// });
/// assert_eq!(count.into_inner(), 4);
/// ```
pub type RawCna = RawBoundedCna<MAX_PASSES>;

/// CNA lock (see [`RawCna`]) with another bound: waiters of other nodes are served after at most `PASSES` hand-overs
/// within a node. Greater bounds give more throughput under contention, and longer waits. The paper's long-run average
/// is 65,536, and the Linux kernel's patch has a bound of 10 ms.
#[derive(Debug)]
pub struct RawBoundedCna<const PASSES: u32> {
    queue: Queue,
    second_head: AtomicPtr<Waiter>,
    second_tail: AtomicPtr<Waiter>,
    /// The number of consecutive hand-overs within one node.
    passes: AtomicU32,
}

constructors!(
    RawBoundedCna<const PASSES: u32> = Self {
        queue: Queue::new(),
        second_head: AtomicPtr::new(ptr::null_mut()),
        second_tail: AtomicPtr::new(ptr::null_mut()),
        passes: AtomicU32::new(0),
    }
);

// SAFETY: `Queue` has one holder at a time, and `unlock` is called by it.
unsafe impl<const PASSES: u32> RawMutex for RawBoundedCna<PASSES> {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.queue.try_enter() {
            self.queue.enter(nodes::here());
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.queue.try_enter()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        let next = unsafe { self.next_holder(nodes::here) };
        if !next.is_null() {
            // SAFETY: it is first in the main queue, with all waiters there behind it.
            unsafe { self.queue.grant(next) };
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.queue.is_taken()
    }
}

impl<const PASSES: u32> RawBoundedCna<PASSES> {
    /// Returns the waiter to which a holder on node `here` hands the lock over; afterwards the main queue begins with
    /// this waiter. Returns null if no thread waited; then the lock is free.
    ///
    /// # Safety
    /// The caller holds the lock.
    #[inline]
    unsafe fn next_holder(&self, here: impl FnOnce() -> usize) -> *mut Waiter {
        let second_tail = self.second_tail.load(Ordering::Relaxed);
        // SAFETY: the caller holds the lock, and the second queue's last waiter has no next.
        let first = unsafe { self.queue.first_waiter_or(second_tail) };
        if !first.is_null() {
            // SAFETY: as above; `first` is the first waiter.
            unsafe { self.choose(first, here()) }
        } else if !second_tail.is_null() {
            // The second queue has just become the main one.
            self.take_second()
        } else {
            ptr::null_mut()
        }
    }

    /// Returns the next waiter, given the first one of the main queue. Afterwards the main queue begins with the next
    /// waiter.
    ///
    /// # Safety
    /// The caller holds the lock, and `first` is the first waiter.
    unsafe fn choose(&self, first: *mut Waiter, here: usize) -> *mut Waiter {
        let passes = self.passes.load(Ordering::Relaxed);
        if passes < PASSES {
            // SAFETY: the caller's promise.
            let (last_passed_over, near) = unsafe { first_of_node(first, here) };
            if !near.is_null() {
                self.passes.store(passes + 1, Ordering::Relaxed);
                if !last_passed_over.is_null() {
                    // SAFETY: the waiters from `first` to `last_passed_over` wait, and are no longer in the main queue.
                    unsafe { self.set_aside(first, last_passed_over) };
                }
                return near;
            }
        }
        self.passes.store(0, Ordering::Relaxed);
        let second_tail = self.second_tail.load(Ordering::Relaxed);
        if second_tail.is_null() {
            return first;
        }
        // SAFETY: it waits; only the holder touches the second queue.
        unsafe { (*second_tail).next.store(first, Ordering::Relaxed) };
        self.take_second()
    }

    /// Empties the second queue and returns its first waiter.
    fn take_second(&self) -> *mut Waiter {
        let head = self.second_head.load(Ordering::Relaxed);
        self.second_head.store(ptr::null_mut(), Ordering::Relaxed);
        self.second_tail.store(ptr::null_mut(), Ordering::Relaxed);
        head
    }

    /// Puts a chain of waiters at the end of the second queue.
    ///
    /// # Safety
    /// The caller holds the lock; the chain's waiters wait and are in no queue; none of them is the main queue's tail.
    unsafe fn set_aside(&self, from: *mut Waiter, to: *mut Waiter) {
        // SAFETY: not the tail, so no other thread sets its link.
        unsafe { (*to).next.store(ptr::null_mut(), Ordering::Relaxed) };
        let end = self.second_tail.load(Ordering::Relaxed);
        if end.is_null() {
            self.second_head.store(from, Ordering::Relaxed);
        } else {
            // SAFETY: it waits; only the holder touches the second queue.
            unsafe { (*end).next.store(from, Ordering::Relaxed) };
        }
        self.second_tail.store(to, Ordering::Relaxed);
    }
}

/// Returns the first waiter on `node` from `first` on, and the last waiter before it; null for a waiter that does not
/// exist.
///
/// # Safety
/// The caller holds the lock, and `first` is the first waiter.
unsafe fn first_of_node(first: *mut Waiter, node: usize) -> (*mut Waiter, *mut Waiter) {
    let (mut before, mut at) = (ptr::null_mut(), first);
    while !at.is_null() {
        // SAFETY: a linked waiter waits until it is granted the lock, which the caller holds.
        let waiter = unsafe { &*at };
        if waiter.node as usize == node {
            break;
        }
        // Acquire pairs with the Release in `enter`: this thread sees the next waiter's initialized node.
        (before, at) = (at, waiter.next.load(Ordering::Acquire));
    }
    (before, at)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the order in which waiters of these nodes are served. They arrived one after the other while a thread of
    /// node 0 held the lock.
    fn served(arrived: &[usize]) -> Vec<usize> {
        served_by(&RawCna::new(), arrived)
    }

    fn served_by<const PASSES: u32>(lock: &RawBoundedCna<PASSES>, arrived: &[usize]) -> Vec<usize> {
        let waiters = lock.queue.fill(arrived);
        let (mut order, mut node) = (Vec::new(), 0);
        loop {
            // SAFETY: this thread holds the lock for all of them in turn.
            let next = unsafe { lock.next_holder(|| node) };
            let Some(at) = waiters.iter().position(|waiter| ptr::eq(waiter, next)) else { break };
            order.push(at);
            node = waiters[at].node as usize;
            // SAFETY: as above; it is first, and never reads that it was granted the lock.
            unsafe { lock.queue.grant(next) };
            lock.queue.leave(&waiters[at]);
        }
        assert!(!lock.is_locked() && lock.second_head.load(Ordering::Relaxed).is_null());
        assert!(lock.try_lock());
        order
    }

    #[test]
    fn serves_by_node_and_forgets_nobody() {
        assert_eq!(served(&[]), []);
        assert_eq!(served(&[1]), [0]);
        assert_eq!(served(&[1, 0]), [1, 0]);
        // Waiters are moved to the second queue twice, first one and then two. They come back in their order.
        assert_eq!(served(&[1, 0, 1, 1, 0]), [1, 4, 0, 2, 3]);
        // No thread of the node is left while others wait in both queues: the second queue is served first.
        assert_eq!(served(&[1, 0, 2]), [1, 0, 2]);
        assert_eq!(served(&[1, 2, 0, 2, 1]), [2, 0, 4, 1, 3]);
    }

    #[test]
    fn other_nodes_have_their_turn() {
        fn after<const PASSES: u32>() {
            let mut arrived = vec![0; PASSES as usize + 10];
            arrived[3] = 1;
            let order = served_by(&RawBoundedCna::<PASSES>::new(), &arrived);
            assert_eq!(order.iter().position(|&at| at == 3), Some(PASSES as usize));
            assert_eq!(order.len(), arrived.len());
        }
        after::<MAX_PASSES>();
        after::<5>();
        after::<{ 2 * MAX_PASSES }>();
    }
}
