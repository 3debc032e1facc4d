//! The queue of waiters that MCS and CNA share, in the shape known as K42 (Auslander et al. 2003).
//!
//! In the original MCS lock each thread provides a queue node, which it needs until it unlocks; with `lock_api`, no
//! variable could contain this node. Here a node is needed only while its thread *waits*, so it is on the waiter's
//! stack. So there is no pool, no allocation and no thread-local, and a guard may be sent to another thread. The thread
//! that gets the lock copies the node's link to its successor into the lock.
//!
//! # Invariants
//! - `first` is null when the lock is free, and when a waiter is granted the lock. It is written by the waiter that
//!   found `HELD` in `tail`, and by the holder.
//! - A waiter's node is referred to by `tail` and by one link (`first`, or its predecessor's). When the waiter leaves
//!   [`enter`](Queue::enter), neither refers to it any more. The thread that granted the lock has read the link, and
//!   `tail` was changed either by the waiter itself or by its successor. In the second case the waiter waits until the
//!   successor has linked itself.
//! - Granting is the last access to a waiter's node by the thread that grants.

use core::ptr;

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::wait::{refuse_to_wait, wait_until, wait_until_linked};

/// One waiting thread, on its stack. It is aligned to its size, so that it never crosses a line.
#[derive(Debug)]
#[repr(align(16))]
pub(super) struct Waiter {
    pub(super) next: AtomicPtr<Waiter>,
    granted: AtomicBool,
    /// The node that the thread was on when it began to wait.
    pub(super) node: u32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Waiter>() <= 16);

impl Waiter {
    fn new(node: usize) -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), granted: AtomicBool::new(false), node: node as u32 }
    }
}

/// The queue. See the module's text.
#[derive(Debug)]
pub(super) struct Queue {
    /// | value | meaning |
    /// |---|---|
    /// | null | free |
    /// | [`HELD`] | held, no thread waits |
    /// | a waiter | held (or about to be), and this is the last waiter |
    tail: AtomicPtr<Waiter>,
    /// The holder's link to the first waiter. It is null if there is no waiter, or if the first waiter has not linked
    /// itself yet.
    first: AtomicPtr<Waiter>,
}

/// The mark in `tail` for a lock that is held with no thread waiting. Never followed.
const HELD: *mut Waiter = ptr::without_provenance_mut(1);

constructors!(Queue = Self { tail: AtomicPtr::new(ptr::null_mut()), first: AtomicPtr::new(ptr::null_mut()) });

impl Queue {
    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        // Acquire pairs with the Release in `first_waiter_or`. The exchange need not be a Release for the waiter that
        // will read `HELD`: it continues the release sequence of the exchange that freed the lock.
        self.tail.compare_exchange(ptr::null_mut(), HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits behind all threads that already wait, and takes the lock. `node` is the caller's NUMA node, which the
    /// thread that grants the lock reads.
    #[cold]
    pub(super) fn enter(&self, node: usize) {
        refuse_to_wait();
        let waiter = Waiter::new(node);
        let me = ptr::from_ref(&waiter).cast_mut();
        // Release publishes the node; Acquire pairs with the Release of the thread that put `before` there.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if !before.is_null() {
            let link = if before == HELD {
                &self.first
            } else {
                // SAFETY: a waiter stays until its successor in `tail` has linked itself, which this thread does below.
                unsafe { &(*before).next }
            };
            link.store(me, Ordering::Release);
            // Acquire pairs with the Release in `grant`.
            wait_until(|| waiter.granted.load(Ordering::Acquire));
        }
        self.leave(&waiter);
    }

    /// Moves the link of a waiter that was granted the lock into the lock, and removes its node from `tail`.
    pub(super) fn leave(&self, waiter: &Waiter) {
        let me = ptr::from_ref(waiter).cast_mut();
        let next = waiter.next.load(Ordering::Acquire);
        if next.is_null() {
            // Release: the waiter that reads `HELD` and sets `first` must see that `first` is null.
            if self.tail.compare_exchange(me, HELD, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            wait_until(|| !waiter.next.load(Ordering::Acquire).is_null());
        }
        // Relaxed: now only the holder accesses `first`, and a happens-before edge leads from each holder to the next.
        self.first.store(waiter.next.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Returns the first waiter. If there is none, returns null and sets `tail` to `instead`: null frees the lock, and
    /// a waiter makes the queue consist of the waiters that end with it.
    ///
    /// # Safety
    /// The caller holds the lock. If `instead` is a waiter, its `next` is null.
    #[inline]
    pub(super) unsafe fn first_waiter_or(&self, instead: *mut Waiter) -> *mut Waiter {
        // SAFETY: a waiter waits as long as it is in a queue.
        let last = unsafe { instead.as_ref() };
        debug_assert!(last.is_none_or(|last| last.next.load(Ordering::Relaxed).is_null()), "a queue that runs on");
        // Acquire (here and below) pairs with the Release in `enter`: this thread sees the waiter's initialized node.
        let first = self.first.load(Ordering::Acquire);
        if !first.is_null() {
            return first;
        }
        // Release pairs with the Acquire in `try_enter` and in `enter`.
        if self.tail.compare_exchange(HELD, instead, Ordering::Release, Ordering::Relaxed).is_ok() {
            return ptr::null_mut();
        }
        wait_until_linked(|| !self.first.load(Ordering::Acquire).is_null());
        self.first.load(Ordering::Acquire)
    }

    /// Hands the lock to `waiter`.
    ///
    /// # Safety
    /// The caller holds the lock. `waiter` waits in [`enter`](Self::enter), and all other waiters of the queue follow
    /// it.
    #[inline]
    pub(super) unsafe fn grant(&self, waiter: *mut Waiter) {
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the waiter waits for this store, so its node still exists. Release pairs with the Acquire in `enter`.
        unsafe { (*waiter).granted.store(true, Ordering::Release) };
    }

    /// Returns whether a thread holds the lock.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        !self.tail.load(Ordering::Relaxed).is_null()
    }

    /// Returns whether a thread waits. Only the holder may call it; `true` is reliable.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        !self.first.load(Ordering::Relaxed).is_null()
    }
}

/// For tests: `fill` takes the lock, adds waiters of these nodes to the queue one after the other, and returns the
/// waiters.
#[cfg(all(test, not(loom)))]
impl Queue {
    pub(super) fn fill(&self, nodes: &[usize]) -> Vec<Waiter> {
        assert!(self.try_enter());
        let waiters: Vec<Waiter> = nodes.iter().map(|&node| Waiter::new(node)).collect();
        let mut link = &self.first;
        for waiter in &waiters {
            link.store(ptr::from_ref(waiter).cast_mut(), Ordering::Relaxed);
            self.tail.store(ptr::from_ref(waiter).cast_mut(), Ordering::Relaxed);
            link = &waiter.next;
        }
        waiters
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use archipelago_platform::htm::quiet;
    use archipelago_platform::thread;
    use archipelago_platform::time::Duration;

    use super::*;

    /// A thread unlocks in the body of a region while the first waiter has not linked itself yet: it waits for the
    /// link, since a panic would leave the lock held.
    #[test]
    fn unlocking_in_a_region_waits_for_the_link() {
        let (queue, waiter) = (Queue::new(), Waiter::new(0));
        assert!(queue.try_enter());
        queue.tail.store(ptr::from_ref(&waiter).cast_mut(), Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                queue.first.store(ptr::from_ref(&waiter).cast_mut(), Ordering::Release);
            });
            let _body = quiet();
            // SAFETY: this thread holds the lock, and names no waiter.
            let first = unsafe { queue.first_waiter_or(ptr::null_mut()) };
            assert!(ptr::eq(first, &waiter));
        });
    }

    #[test]
    fn sizes_are_as_documented() {
        assert_eq!((size_of::<Queue>(), size_of::<Waiter>()), (16, 16));
    }
}
