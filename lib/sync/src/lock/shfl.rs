//! A compact mutex that shuffles its waiters by node and parks them, after ShflLock (Kashyap et al. 2019).
//!
//! The lock proper is one bit, taken by compare-and-exchange; behind it waits a queue, of which only the *first* waiter
//! tries for the bit. A thread that gets the lock leaves the queue at once, so the holder needs no queue node. A thread
//! that arrives while the bit is clear may take the lock ahead of the queue (*stealing*), so the lock is not idle while
//! the next waiter is preempted. Stealing and parking make the lock suitable for more threads than cores.
//!
//! Differences from the paper: only the first waiter shuffles, while it has nothing else to do, so at most one thread
//! changes links. The first waiter's address is stored in the lock word, so a sleeper is woken only by the unlock,
//! outside the critical section. Stealing ends after the first waiter was woken in vain, not when a queue forms.
//!
//! # How long a waiter waits
//! The first waiter spins, sleeps, and is woken by the next unlock. If it then finds the lock stolen, it reserves the
//! lock and becomes the next holder. So the first waiter waits at most for the holder that it found, for the threads
//! that steal while it is being woken, and for one more holder. The same bound applies to each waiter before it in the
//! queue.
//!
//! No waiter yields. Linux (measured with 6.18) treats a yield as the end of a time slice. So a thread that yields
//! sixteen times before it sleeps is sixteen slices behind the others when it is woken. All waiters behind it in the
//! queue wait for it. With 16 threads on two cores, yielding made the longest wait ten times as long (346 ms instead of
//! 40).
//!
//! # Invariants
//! - A waiter's node is on its stack. The node stays valid from the waiter's `swap` of `tail` until the waiter has
//!   taken the lock. So a holder may dereference links to waiters, and the address in `state`, until it unlocks.
//! - One waiter at a time is first: it found `tail` null, or its predecessor made it first while holding the lock. Only
//!   the first waiter stores its address in `state`, or, while it sleeps, the holder stores the address for it.
//! - Links: a waiter's `next` is set once, by its successor. From then on only the first waiter changes it.
//!
//! # No thread sleeps for ever
//! The first waiter sleeps only while its address is in `state`. It stores the address by a compare-and-exchange
//! against `LOCKED`. So the unlock's exchange fails or comes later, and sees the address. Any other waiter sleeps in
//! the state `ASLEEP`. The waiter's predecessor, which makes the waiter first, either finds it awake or stores the
//! waiter's address in `state`.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use archipelago_platform::thread::{self, Thread};
use lock_api::{GuardSend, RawMutex};

use super::nodes;
use super::wait::{refuse_to_wait, wait_until};
use crate::backoff::Backoff;
use crate::watch::Watch;

const LOCKED: usize = 1;
const RESERVED: usize = 2;
const FLAGS: usize = LOCKED | RESERVED;

/// How many times the first waiter is woken in vain before it reserves the lock.
const WAKES_IN_VAIN: u32 = 1;
/// How many waiters of one node are served in a row before the order of arrival counts again. The paper has 1024.
const MAX_PASSES: u32 = if cfg!(loom) { 1 } else { 256 };
/// How many waiters one shuffle examines.
const MAX_LOOKS: u32 = 64;

// Values of a waiter's `turn`.
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
    /// | bits | meaning |
    /// |---|---|
    /// | 0, `LOCKED` | held |
    /// | 1, `RESERVED` | no thread but the first waiter may take the lock: stealing is over |
    /// | others | address of the first waiter if it sleeps, so that the unlock wakes it; otherwise null |
    state: AtomicPtr<Waiter>,
    /// The last waiter, or null.
    tail: AtomicPtr<Waiter>,
}

constructors!(RawShfl = Self { state: AtomicPtr::new(ptr::null_mut()), tail: AtomicPtr::new(ptr::null_mut()) });

/// One waiting thread, on its stack.
#[derive(Debug)]
struct Waiter {
    next: AtomicPtr<Waiter>,
    turn: AtomicU32,
    /// The number of waiters of this node that were served in a row before this one.
    passes: AtomicU32,
    node: usize,
    thread: Thread,
    /// Watches `node` and `thread`.
    watch: Watch,
}

/// The value of `state` for a held lock without a sleeper or a reservation.
const HELD: *mut Waiter = ptr::without_provenance_mut(LOCKED);

fn has(state: *mut Waiter, flag: usize) -> bool {
    state.addr() & flag != 0
}

/// Returns the sleeping first waiter whose address is in `state`.
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
        refuse_to_wait();
        let backoff = Backoff::new();
        // While there is no queue, wait a short time for the lock itself.
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
                // No other thread may take a reserved lock. The state of a free lock contains no sleeper's address, so
                // the exchange overwrites none. Acquire pairs with the Release in `unlock` and `unlock_slowly`.
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

    /// Sleeps until the holder unlocks. `state` is the value that was read. If the value is out of date, returns
    /// `false` without sleeping.
    fn sleep(&self, me: *mut Waiter, state: *mut Waiter, reserve: bool) -> bool {
        let flags = state.addr() & FLAGS | if reserve { RESERVED } else { 0 };
        let asleep = with(me, flags);
        // Release: the holder reads this waiter's node. `state` contains this waiter's address already if its
        // predecessor found it asleep.
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
        // Acquire (here and below): pairs with the Release in `lock_slowly`, so the next waiter's node is visible as
        // initialized.
        if waiter.next.load(Ordering::Acquire).is_null() {
            // Release: pairs with the thread that finds the queue empty. This thread's use of its node ends before
            // that.
            if self.tail.compare_exchange(me, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            wait_until(|| !waiter.next.load(Ordering::Acquire).is_null());
        }
        let next = waiter.next.load(Ordering::Acquire);
        // SAFETY: the next waiter's node is valid until this waiter has taken the lock, which this thread holds.
        let heir = unsafe { &*next };
        heir.watch.read();
        let passes = if heir.node == waiter.node { waiter.passes.load(Ordering::Relaxed) + 1 } else { 0 };
        heir.passes.store(passes, Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait_to_be_first`, so the next first waiter sees the links as this thread
        // changed them.
        if heir.turn.compare_exchange(AWAKE, FIRST, Ordering::Release, Ordering::Relaxed).is_err() {
            // The next waiter is asleep. It is not woken here, since the unlock will wake it. While there is no first
            // waiter, no other thread changes the state of a held lock, and a reservation ended when this thread took
            // the lock.
            self.state.store(with(next, LOCKED), Ordering::Release);
            heir.turn.store(FIRST, Ordering::Release);
        }
    }

    /// Unlocks if a first waiter sleeps or has reserved the lock.
    #[cold]
    fn unlock_slowly(&self) {
        // Acquire: pairs with the Release in `sleep`, so the sleeper's node is visible as initialized.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            debug_assert!(has(state, LOCKED), "unlock of a lock that no thread holds");
            let waiter = sleeper(state);
            // SAFETY: the node of a sleeping first waiter is valid until this waiter has taken the lock, which this
            // thread holds.
            let waiter = unsafe { waiter.as_ref() };
            waiter.inspect(|waiter| waiter.watch.read());
            // The handle of the sleeper's thread is copied, because the waiter's node may not exist any more when the
            // handle is used.
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

    /// Moves the waiters of `first`'s own node to the positions directly after `first`, in their order.
    ///
    /// Called by the first waiter. It changes the links only of waiters that have a successor. The last waiter is not
    /// moved, because its successor may be about to set its link.
    fn regroup(&self, first: &Waiter) {
        if nodes::count() > 1 && first.passes.load(Ordering::Relaxed) < MAX_PASSES {
            first.gather_own_node();
        }
    }
}

impl Waiter {
    fn gather_own_node(&self) {
        let first = self;
        // The list consists of own waiters up to `group`, then other waiters up to `before`, then `at`.
        let mut group = first;
        let mut before = first;
        let mut looks = 0;
        // SAFETY: linked waiters stay until they have been first and have taken the lock, and this thread is the first
        // waiter.
        while let Some(at) = unsafe { before.next.load(Ordering::Acquire).as_ref() } {
            looks += 1;
            let after = at.next.load(Ordering::Acquire);
            if after.is_null() || looks > MAX_LOOKS {
                return;
            }
            if at.node != first.node {
                before = at;
            } else if ptr::eq(group, before) {
                // The group continues without a gap.
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
    /// If the operating system's thread has no handle any more: at the very end of a thread, on some systems.
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

/// Spins for one step of a wait. Returns `false` at once when it is time to sleep.
fn spin(backoff: &Backoff) -> bool {
    let spins = !backoff.is_yielding();
    if spins {
        backoff.wait();
    }
    spins
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[cfg(debug_assertions)]
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A thread that may not wait does not join the queue: its node would be gone when the waiter before it is served.
    #[test]
    #[cfg(debug_assertions)]
    fn a_waiter_that_is_refused_joins_no_queue() {
        let lock: &RawShfl = Box::leak(Box::new(RawShfl::new()));
        assert!(lock.try_lock());
        let other = thread::spawn(|| {
            lock.lock();
            // SAFETY: locked above.
            unsafe { lock.unlock() };
        });
        while lock.tail.load(Ordering::Relaxed).is_null() {
            thread::yield_now();
        }
        let last = lock.tail.load(Ordering::Relaxed);
        let body = archipelago_platform::htm::quiet();
        assert!(catch_unwind(AssertUnwindSafe(|| lock.lock())).is_err());
        drop(body);
        assert_eq!(lock.tail.load(Ordering::Relaxed), last);
        // SAFETY: locked above.
        unsafe { lock.unlock() };
        other.join().unwrap();
        assert!(lock.try_lock());
    }

    #[test]
    fn sizes_are_as_documented() {
        assert_eq!((size_of::<RawShfl>(), size_of::<Waiter>()), (16, 32));
    }

    /// Checks a shuffle by the first waiter: `arrived` are the nodes in the order of arrival, `expected` is the order
    /// afterwards.
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

/// A test of the links under the weak memory model, for the one case that needs more waiters than a model can have
/// threads.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use archipelago_platform::sync::Arc;

    /// The first waiter shuffles and makes the next one first. The next one synchronizes with it only by its `turn`,
    /// and finds all the waiters after it, in the new order.
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
            // After the first waiter, the order is then 2, 1, 3.
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
            // Does what the unlock would do if the waiter sleeps.
            let state = lock.state.load(Ordering::Relaxed);
            if !sleeper(state).is_null() {
                second.thread().unpark();
            }
            assert_eq!(second.join().unwrap(), [Some(1), Some(3)]);
        });
    }
}
