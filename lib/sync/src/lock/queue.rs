//! The queue of waiters that MCS and CNA share, in the shape known as K42 (Auslander et al. 2003).
//!
//! In the MCS lock each thread brings a queue node, which it needs until it unlocks; `lock_api` has no place to keep it.
//! Here a node is needed only while its thread *waits*, so it lies on the waiter's stack: no pool, no allocation, no
//! thread-local, and a guard that may travel to another thread. The thread that gets the lock moves what the node knows, its
//! successor, into the lock itself.
//!
//! | `tail` | meaning |
//! |---|---|
//! | null | free |
//! | `HELD` | held, no thread waits |
//! | a waiter | held (or about to be), and this is the last waiter |
//!
//! `first` is the holder's link to the first waiter: null if there is none, or if it has not linked itself in yet.
//!
//! # Invariants
//! - `first` is null when the lock is free, and when a waiter is granted the lock. It is written by the waiter that
//!   found `HELD` in `tail`, and by the holder.
//! - A waiter's node is referred to by `tail` and by one link (`first`, or its predecessor's). When the waiter leaves
//!   [`enter`](Queue::enter), neither refers to it any more: the link was read by the thread that granted it the lock, and
//!   `tail` it has changed itself, or another thread has and is then waited for until it has linked itself in.
//! - Granting is the last access to a waiter's node from outside.

use core::ptr;

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::wait::wait_until;

/// One waiting thread, on its stack. Aligned to its size: it never lies across two lines, wherever the compiler puts it.
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

/// See the module's text.
#[derive(Debug)]
pub(super) struct Queue {
    tail: AtomicPtr<Waiter>,
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

    /// Takes the lock, behind all who wait already. `node` is the caller's NUMA node, for who grants the lock.
    #[cold]
    pub(super) fn enter(&self, node: usize) {
        let waiter = Waiter::new(node);
        let me = ptr::from_ref(&waiter).cast_mut();
        // Release publishes the node; Acquire pairs with the Release of the thread that put `before` there.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if !before.is_null() {
            let link = if before == HELD {
                &self.first
            } else {
                // SAFETY: a waiter stays until the one that follows it in `tail` has linked itself in, which is done below.
                unsafe { &(*before).next }
            };
            link.store(me, Ordering::Release);
            // Acquire pairs with the Release in `grant`.
            wait_until(|| waiter.granted.load(Ordering::Acquire));
        }
        self.leave(&waiter);
    }

    /// For a waiter that has been granted the lock: moves its link to the next waiter into the lock, and gets its node out
    /// of `tail`.
    pub(super) fn leave(&self, waiter: &Waiter) {
        let me = ptr::from_ref(waiter).cast_mut();
        let next = waiter.next.load(Ordering::Acquire);
        if next.is_null() {
            // Release: `first` is null, and must be seen so by the waiter that reads `HELD` and sets it.
            if self.tail.compare_exchange(me, HELD, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            wait_until(|| !waiter.next.load(Ordering::Acquire).is_null());
        }
        // Relaxed: for the holder alone, who may become another thread only with a happens-before.
        self.first.store(waiter.next.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// The first waiter; or null if there is none, and then `tail` has become `instead`: null frees the lock, a waiter
    /// makes the waiters that end with it the queue.
    ///
    /// # Safety
    /// The caller holds the lock. If `instead` is a waiter, its `next` is null.
    #[inline]
    pub(super) unsafe fn first_waiter_or(&self, instead: *mut Waiter) -> *mut Waiter {
        // SAFETY: a waiter waits as long as it is in a queue.
        let last = unsafe { instead.as_ref() };
        debug_assert!(last.is_none_or(|last| last.next.load(Ordering::Relaxed).is_null()), "a queue that runs on");
        // Acquire (here and below) pairs with the Release in `enter`: the waiter's node is seen as made.
        let first = self.first.load(Ordering::Acquire);
        if !first.is_null() {
            return first;
        }
        // Release pairs with the Acquire in `try_enter` and in `enter`.
        if self.tail.compare_exchange(HELD, instead, Ordering::Release, Ordering::Relaxed).is_ok() {
            return ptr::null_mut();
        }
        wait_until(|| !self.first.load(Ordering::Acquire).is_null());
        self.first.load(Ordering::Acquire)
    }

    /// Hands the lock to `waiter`.
    ///
    /// # Safety
    /// The caller holds the lock, and `waiter` waits in [`enter`](Self::enter) and is in the queue with all who wait
    /// following it.
    #[inline]
    pub(super) unsafe fn grant(&self, waiter: *mut Waiter) {
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the waiter waits for just this, so its node is there. Release pairs with the Acquire in `enter`.
        unsafe { (*waiter).granted.store(true, Ordering::Release) };
    }

    /// Whether a thread holds the lock.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        !self.tail.load(Ordering::Relaxed).is_null()
    }

    /// Whether a thread waits: for the holder to ask, which may rely on a yes.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        !self.first.load(Ordering::Relaxed).is_null()
    }
}

/// A queue as threads of these nodes left it that came one after the other while the lock was held.
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
    use super::*;

    #[test]
    fn sizes_are_as_documented() {
        assert_eq!((size_of::<Queue>(), size_of::<Waiter>()), (16, 16));
    }
}
