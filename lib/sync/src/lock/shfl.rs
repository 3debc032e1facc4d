//! A compact mutex that shuffles its waiters by node and parks them, after ShflLock (Kashyap et al. 2019).
//!
//! The lock proper is one bit, taken by compare-and-exchange; behind it waits a queue, of which only the *first* waiter
//! tries for the bit. A thread that gets the lock leaves the queue at once, so the holder needs no queue node. A thread
//! that arrives while the bit is clear may take the lock ahead of the queue (*stealing*), so the lock is not idle while
//! the next waiter is preempted. Stealing and parking make the lock suitable for more threads than cores.
//!
//! | bits of `state` | meaning |
//! |---|---|
//! | 0 `LOCKED` | held |
//! | 1 `RESERVED` | no thread but the first waiter may take the lock: stealing is over |
//! | others | address of the first waiter if it sleeps, so that the unlock wakes it; otherwise null |
//!
//! What differs from the paper: only the first waiter shuffles, while it has nothing else to do, so that one thread at
//! most changes links; the first waiter's address goes into the lock word, so that a sleeper is woken by the unlock and
//! by nothing else, outside of the critical section; and stealing ends after a wake in vain rather than when a
//! queue forms.
//!
//! # How long a waiter waits
//! The first waiter spins, sleeps, and is woken by the next unlock. If it then finds the lock stolen, it reserves the
//! lock and becomes the next holder. So the first waiter waits at most for the holder that it found, for the threads
//! that steal while it is being woken, and for one more holder. The same bound applies to each waiter before it in the
//! queue.
//!
//! No waiter yields. Linux (measured with 6.18) treats a yield as the end of a time slice: a thread that yields sixteen
//! times before it sleeps is sixteen slices behind the others when it is woken, and all waiters behind it in the queue
//! wait for it. With 16 threads on two cores, yielding made the longest wait ten times as long (346 ms instead of 40).
//!
//! # Invariants
//! - A waiter's node is on its stack. The node stays valid from the waiter's `swap` of `tail` until the waiter has
//!   taken the lock. So a holder may dereference links to waiters, and the address in `state`, until it unlocks.
//! - One waiter at a time is first: it found `tail` null, or its predecessor made it first while holding the lock. Only
//!   the first waiter stores its address in `state`, or, while it sleeps, the holder stores the address for it.
//! - Links: a waiter's `next` is set once by the one that comes after it; from then on only the first waiter changes it.
//!
//! # No thread sleeps for ever
//! The first waiter sleeps only while its address is in `state`, and puts it there by a compare-and-exchange against
//! `LOCKED`: the unlock's exchange then fails or comes later, and sees the address. Any other waiter sleeps in state
//! `ASLEEP`; its predecessor, who makes it first, either finds it awake, or puts its address in `state` for it.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use archipelago_platform::thread::{self, Thread};
use lock_api::{GuardSend, RawMutex};

use super::nodes;
use super::wait::wait_until;
use crate::backoff::Backoff;
use crate::watch::Watch;

const LOCKED: usize = 1;
const RESERVED: usize = 2;
const FLAGS: usize = LOCKED | RESERVED;

/// How often the first waiter is woken in vain before it reserves the lock.
const WAKES_IN_VAIN: u32 = 1;
/// Waiters of one node in a row before the order of arrival counts again. The paper has 1024.
const MAX_PASSES: u32 = if cfg!(loom) { 1 } else { 256 };
/// Waiters that one shuffle looks at.
const MAX_LOOKS: u32 = 64;

// A waiter's `turn`.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const FIRST: u32 = 2;

/// Parking NUMA-aware mutex: 16 bytes, served by node with bounded bypassing, right with any number of threads. The
/// default choice.
///
/// ```
/// use archipelago::sync::lock::{Mutex, RawShfl};
///
/// static NAMES: Mutex<RawShfl, Vec<&str>> = Mutex::new(Vec::new());
/// NAMES.lock().push("islands");
/// assert_eq!(NAMES.lock().len(), 1);
/// ```
#[derive(Debug)]
pub struct RawShfl {
    state: AtomicPtr<Waiter>,
    tail: AtomicPtr<Waiter>,
}

constructors!(RawShfl = Self { state: AtomicPtr::new(ptr::null_mut()), tail: AtomicPtr::new(ptr::null_mut()) });

/// One waiting thread, on its stack.
#[derive(Debug)]
struct Waiter {
    next: AtomicPtr<Waiter>,
    turn: AtomicU32,
    /// How many waiters of this node were served in a row before this one.
    passes: AtomicU32,
    node: usize,
    thread: Thread,
    /// Of the two above.
    watch: Watch,
}

/// `state` of a held lock without sleeper or reservation.
const HELD: *mut Waiter = ptr::without_provenance_mut(LOCKED);

fn has(state: *mut Waiter, flag: usize) -> bool {
    state.addr() & flag != 0
}

/// The sleeping first waiter that `state` names.
fn sleeper(state: *mut Waiter) -> *mut Waiter {
    state.map_addr(|addr| addr & !FLAGS)
}

fn with(waiter: *mut Waiter, flags: usize) -> *mut Waiter {
    waiter.map_addr(|addr| addr | flags)
}

// SAFETY: `LOCKED` is set by compare-and-exchange from a state without it, by the thread that then holds the lock, and
// cleared by `unlock` only, which the holder calls once.
unsafe impl RawMutex for RawShfl {
    const INIT: Self = initial!();
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire pairs with the Release in `unlock` and `unlock_slowly`.
        self.state.compare_exchange(ptr::null_mut(), HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.state.compare_exchange(HELD, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slowly();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        has(self.state.load(Ordering::Relaxed), LOCKED)
    }
}

impl RawShfl {
    #[cold]
    fn lock_slowly(&self) {
        let backoff = Backoff::new();
        // While there is no queue, a short wait for the lock itself.
        while !backoff.is_yielding() && self.tail.load(Ordering::Relaxed).is_null() {
            backoff.wait();
            if self.state.load(Ordering::Relaxed).is_null() && self.try_lock() {
                return;
            }
        }
        let waiter = Waiter::new();
        let me = ptr::from_ref(&waiter).cast_mut();
        // Release publishes the node; Acquire pairs with that of the waiter before.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: a waiter stays until the thread that follows it in `tail` has linked itself in.
            unsafe { (*before).next.store(me, Ordering::Release) };
            waiter.wait_to_be_first();
        }
        self.take_as_first(&waiter);
        self.leave_queue(&waiter);
        waiter.watch.write();
    }

    /// Waits for the lock as the queue's first waiter, and takes it.
    fn take_as_first(&self, waiter: &Waiter) {
        let me = ptr::from_ref(waiter).cast_mut();
        let (backoff, mut wakes) = (Backoff::new(), 0);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if !has(state, LOCKED) {
                // No other thread may take a reserved lock, and a free one names no sleeper, so nothing is lost.
                // Acquire pairs with the Release in `unlock` and `unlock_slowly`.
                if self.state.compare_exchange(state, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
            } else if spin(&backoff) {
                self.regroup(waiter);
            } else if self.sleep(me, state, wakes >= WAKES_IN_VAIN) {
                wakes += 1;
                backoff.reset();
            }
        }
    }

    /// Sleeps until the holder, which `state` was read from, unlocks; `false` if `state` is out of date.
    fn sleep(&self, me: *mut Waiter, state: *mut Waiter, reserve: bool) -> bool {
        let flags = state.addr() & FLAGS | if reserve { RESERVED } else { 0 };
        let asleep = with(me, flags);
        // Release: the holder reads this waiter's node. It already names us if the waiter before found us asleep.
        if state != asleep && self.state.compare_exchange(state, asleep, Ordering::Release, Ordering::Relaxed).is_err()
        {
            return false;
        }
        while sleeper(self.state.load(Ordering::Relaxed)) == me {
            thread::park();
        }
        true
    }

    /// Leaves the queue, holding the lock, and makes the next waiter first.
    fn leave_queue(&self, waiter: &Waiter) {
        let me = ptr::from_ref(waiter).cast_mut();
        // Acquire (here and below) pairs with the Release in `lock_slowly`: the next waiter's node is seen as made.
        if waiter.next.load(Ordering::Acquire).is_null() {
            // Release, for the next to find the queue empty: nothing to publish but the end of our use of the node.
            if self.tail.compare_exchange(me, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            wait_until(|| !waiter.next.load(Ordering::Acquire).is_null());
        }
        let next = waiter.next.load(Ordering::Acquire);
        // SAFETY: it cannot go before it has taken the lock, which this thread holds.
        let heir = unsafe { &*next };
        heir.watch.read();
        let passes = if heir.node == waiter.node { waiter.passes.load(Ordering::Relaxed) + 1 } else { 0 };
        heir.passes.store(passes, Ordering::Relaxed);
        // Release pairs with the Acquire in `wait_to_be_first`: links changed by this thread are seen by the next first.
        if heir.turn.compare_exchange(AWAKE, FIRST, Ordering::Release, Ordering::Relaxed).is_err() {
            // Asleep. Let it sleep: the unlock will wake it. No other thread changes the state of a held lock while
            // there is no first waiter, and reservations ended when this thread took the lock.
            self.state.store(with(next, LOCKED), Ordering::Release);
            heir.turn.store(FIRST, Ordering::Release);
        }
    }

    /// Unlocks when there is a first waiter that sleeps, or that has reserved the lock.
    #[cold]
    fn unlock_slowly(&self) {
        // Acquire pairs with the Release in `sleep`: the sleeper's node is seen as made.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            debug_assert!(has(state, LOCKED), "unlock of a lock that no thread holds");
            let waiter = sleeper(state);
            // SAFETY: a sleeping first waiter cannot go before it has taken the lock, which this thread holds.
            let waiter = unsafe { waiter.as_ref() };
            waiter.inspect(|waiter| waiter.watch.read());
            // A copy of its thread's handle outlives it.
            let thread = waiter.map(|waiter| waiter.thread.clone());
            let free = ptr::without_provenance_mut(state.addr() & RESERVED);
            // Release pairs with the Acquire of the thread that takes the lock next.
            match self.state.compare_exchange(state, free, Ordering::Release, Ordering::Acquire) {
                Ok(_) => {
                    return if let Some(thread) = thread {
                        thread.unpark()
                    };
                }
                Err(now) => state = now,
            }
        }
    }

    /// Moves waiters of `first`'s own node up to right behind it, in their order.
    ///
    /// Called by the first waiter. It changes links of waiters that have one; the last waiter, whose link its successor
    /// may be about to set, stays where it is.
    fn regroup(&self, first: &Waiter) {
        if nodes::count() > 1 && first.passes.load(Ordering::Relaxed) < MAX_PASSES {
            first.gather_own_node();
        }
    }
}

impl Waiter {
    fn gather_own_node(&self) {
        let first = self;
        // Own waiters up to `group`; behind it, others up to `before`; then `at`.
        let mut group = first;
        let mut before = first;
        let mut looks = 0;
        // SAFETY: linked waiters stay until they have been first and have taken the lock; this thread is first.
        while let Some(at) = unsafe { before.next.load(Ordering::Acquire).as_ref() } {
            looks += 1;
            let after = at.next.load(Ordering::Acquire);
            if after.is_null() || looks > MAX_LOOKS {
                return;
            }
            if at.node != first.node {
                before = at;
            } else if ptr::eq(group, before) {
                // The group goes on without a gap.
                (group, before) = (at, at);
            } else {
                before.next.store(after, Ordering::Relaxed);
                at.next.store(group.next.load(Ordering::Relaxed), Ordering::Relaxed);
                group.next.store(ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
                group = at;
            }
        }
    }

    /// # Panics
    /// Where the operating system's thread has no handle any more: in the last moments of its life, on some systems.
    fn new() -> Self {
        let watch = Watch::new();
        watch.write();
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            turn: AtomicU32::new(AWAKE),
            passes: AtomicU32::new(0),
            node: nodes::here(),
            thread: thread::current(),
            watch,
        }
    }

    fn wait_to_be_first(&self) {
        let backoff = Backoff::new();
        // Acquire (here and below) pairs with the Release in `leave_queue`.
        while self.turn.load(Ordering::Acquire) != FIRST {
            if !spin(&backoff)
                && self.turn.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                while self.turn.load(Ordering::Acquire) == ASLEEP {
                    thread::park();
                }
            }
        }
    }
}

/// Spins for one step of a wait; `false`, at once, when it is time to sleep.
fn spin(backoff: &Backoff) -> bool {
    let spins = !backoff.is_yielding();
    if spins {
        backoff.wait();
    }
    spins
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_documented() {
        assert_eq!((size_of::<RawShfl>(), size_of::<Waiter>()), (16, 32));
    }

    /// A queue as it may stand: nodes in the order of arrival, and the order after a shuffle by the first.
    fn check_regrouped(arrived: &[usize], expected: &[usize]) {
        let waiters: Vec<Waiter> = arrived.iter().map(|&node| Waiter { node, ..Waiter::new() }).collect();
        for pair in waiters.windows(2) {
            pair[0].next.store(ptr::from_ref(&pair[1]).cast_mut(), Ordering::Relaxed);
        }
        waiters[0].gather_own_node();
        let mut order = Vec::new();
        let mut at = ptr::from_ref(&waiters[0]);
        // SAFETY: links lead to the waiters above, or end.
        while let Some(waiter) = unsafe { at.as_ref() } {
            order.push(waiters.iter().position(|other| ptr::eq(other, at)).unwrap());
            at = waiter.next.load(Ordering::Relaxed);
        }
        assert_eq!(order, expected, "{arrived:?}");
    }

    #[test]
    fn regroups_all_but_the_last() {
        check_regrouped(&[0], &[0]);
        check_regrouped(&[0, 0], &[0, 1]);
        check_regrouped(&[0, 1, 0], &[0, 1, 2]);
        check_regrouped(&[0, 1, 0, 1], &[0, 2, 1, 3]);
        check_regrouped(&[0, 0, 1, 2, 0, 1, 0, 0, 2], &[0, 1, 4, 6, 7, 2, 3, 5, 8]);
        check_regrouped(&[1, 0, 0, 0], &[0, 1, 2, 3]);
    }
}

/// The links under the weak memory model: the one case that takes more waiters than a model can have as threads.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use archipelago_platform::sync::Arc;

    /// The first waiter shuffles and hands its place on; the next one, which hears of it by its turn alone, finds all
    /// the waiters behind it, in the new order.
    #[test]
    fn the_next_first_waiter_sees_the_links_as_shuffled() {
        loom::model(|| {
            let waiters: Arc<Vec<Waiter>> =
                Arc::new([0, 1, 0, 1].into_iter().map(|node| Waiter { node, ..Waiter::new() }).collect());
            let lock = Arc::new(RawShfl::new());
            assert!(lock.try_lock());
            let at = |number: usize| ptr::from_ref(&waiters[number]).cast_mut();
            (0..3).for_each(|number| waiters[number].next.store(at(number + 1), Ordering::Relaxed));
            lock.tail.store(at(3), Ordering::Relaxed);
            // Behind the first are then 2, 1 and 3.
            let second = {
                let waiters = waiters.clone();
                archipelago_platform::thread::spawn(move || {
                    waiters[2].wait_to_be_first();
                    let next = |waiter: &Waiter| {
                        let next = waiter.next.load(Ordering::Acquire);
                        waiters.iter().position(|waiter| ptr::eq(waiter, next))
                    };
                    [next(&waiters[2]), next(&waiters[1])]
                })
            };
            waiters[0].gather_own_node();
            lock.leave_queue(&waiters[0]);
            // What the unlock would do, if it sleeps.
            let state = lock.state.load(Ordering::Relaxed);
            if !sleeper(state).is_null() {
                second.thread().unpark();
            }
            assert_eq!(second.join().unwrap(), [Some(1), Some(3)]);
        });
    }
}
