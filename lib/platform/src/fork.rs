//! Work that no `fork` of the process falls into.
//!
//! The child of a `fork` has the forking thread only. What a thread of the library's own held at that moment stays held in the
//! child: a lock for ever, a bag of objects that nothing frees. So such a thread does its work [`outside_forks`], and a fork
//! waits until all of them are done, but for a work that itself waits for the thread that forks: after [`PATIENCE`] it goes on. Where there
//! is no `fork`, or the model stands for the machine, nothing is waited for.
//!
//! # Invariants
//! - No work begins while [`FORKING`](imp::FORKING) is set; the thread that has set it clears it, in the parent and in the child.
//! - The rest of the state counts the works under way, without those that stand in a `fork` of their own.

use core::time::Duration;

/// How long a fork waits at most.
pub const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(all(unix, not(any(miri, loom, archipelago_sim))))]
mod imp {
    use super::PATIENCE;
    use core::cell::Cell;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread::yield_now;
    use std::time::Instant;

    /// A thread forks.
    pub(super) const FORKING: usize = 1 << (usize::BITS - 1);

    static STATE: AtomicUsize = AtomicUsize::new(0);

    /// The C library knows the handlers.
    pub(super) static REGISTERED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        /// This thread works: it may fork in it, and is in the child then.
        static WORKS: Cell<bool> = const { Cell::new(false) };
        /// This thread forks.
        static FORKS: Cell<bool> = const { Cell::new(false) };
    }

    /// Work under way, which ends when this is dropped.
    struct Working;

    impl Working {
        fn begin() -> Self {
            loop {
                let state = STATE.load(Ordering::Relaxed);
                // Acquire: pairs with the Release of the thread that has forked, which may have worked before.
                if state & FORKING == 0
                    && STATE.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    WORKS.set(true);
                    return Working;
                }
                yield_now();
            }
        }
    }

    impl Drop for Working {
        fn drop(&mut self) {
            WORKS.set(false);
            // Release: pairs with the Acquire in `before`, so that who forks copies what the work has left whole.
            STATE.fetch_sub(1, Ordering::Release);
        }
    }

    extern "C" fn before() {
        if FORKS.replace(true) {
            return;
        }
        if WORKS.get() {
            // Two works that both fork would wait for each other.
            STATE.fetch_sub(1, Ordering::Release);
        }
        // Acquire: pairs with the Release below of the thread that forked before.
        while STATE.fetch_or(FORKING, Ordering::Acquire) & FORKING != 0 {
            yield_now();
        }
        // Acquire: pairs with the Release of each work that ends.
        let begun = Instant::now();
        while STATE.load(Ordering::Acquire) != FORKING && begun.elapsed() < PATIENCE {
            yield_now();
        }
    }

    extern "C" fn after_in_parent() {
        if FORKS.replace(false) {
            STATE.fetch_add(usize::from(WORKS.get()), Ordering::Relaxed);
            STATE.fetch_and(!FORKING, Ordering::Release);
        }
    }

    extern "C" fn after_in_child() {
        if FORKS.replace(false) {
            // Other works that it has not waited for are not here.
            STATE.store(usize::from(WORKS.get()), Ordering::Release);
        }
    }

    /// Makes the C library call the handlers. No thread waits for another one here: a fork may fall into this, and its child would
    /// wait for ever. So some threads may register the same handlers, which is why those do nothing when called again.
    fn register() {
        // Acquire: pairs with the Release below. A fork that begins after that calls the handlers; the C library's own lock
        // lets none be under way without them when `pthread_atfork` returns.
        if !REGISTERED.load(Ordering::Acquire) {
            // A child has its parent's handlers. Without memory for them there are none, and forks wait for nothing.
            // SAFETY: the functions touch a static and thread-locals without destructors; they neither allocate nor unwind.
            _ = unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
    }

    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        register();
        let _working = (!WORKS.get()).then(Working::begin);
        work()
    }
}

#[cfg(not(all(unix, not(any(miri, loom, archipelago_sim)))))]
mod imp {
    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Does `work`, which is over, or has not begun, whenever another thread of the process forks: a fork waits for it, [`PATIENCE`] long.
/// (Longer, if the work waits for what the forking thread holds: such a fork falls into the work.) The work may fork itself, and
/// goes on in the child then.
pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
    imp::outside_forks(work)
}

#[cfg(all(test, unix, not(any(miri, loom, archipelago_sim))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// How a child ends: whether `child` was true.
    fn forked(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls what loads an atomic or takes the gate, and ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: a signal that ends a child that hangs.
            unsafe { libc::alarm(20) };
            let well = child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!well)) }
        }
        let mut status = 0;
        // SAFETY: `status` is ours to write.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status == 0
    }

    #[test]
    fn no_fork_falls_into_the_work_of_another_thread() {
        let (begun, over, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0_u32.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    // A fork falls into the registration too, and handlers are registered that are known.
                    if turn < 40 {
                        imp::REGISTERED.store(false, Ordering::Relaxed);
                    }
                    outside_forks(|| {
                        begun.fetch_add(1, Ordering::Relaxed);
                        let until = Instant::now() + Duration::from_micros(300);
                        while Instant::now() < until {}
                        over.fetch_add(1, Ordering::Relaxed);
                    });
                    std::thread::yield_now();
                }
            });
            let whole = || begun.load(Ordering::Relaxed) == over.load(Ordering::Relaxed);
            // The gate is open in the child, and in the parent.
            let all = (0..30).all(|_| forked(|| whole() && outside_forks(whole)));
            // Whatever was seen, so that the thread ends.
            ended.store(true, Ordering::Relaxed);
            assert!(all, "a fork fell into the work");
        });
        assert!(outside_forks(|| forked(|| outside_forks(|| true))), "the work itself may fork");
        assert!(forked(|| outside_forks(|| true)), "and has ended then");
    }

    /// They would wait for each other without end.
    #[test]
    fn a_fork_does_not_wait_for_ever() {
        let (begun, forks) = (AtomicBool::new(false), std::sync::Mutex::new(()));
        let wait_for_fork = || {
            outside_forks(|| {
                begun.store(true, Ordering::Release);
                drop(forks.lock());
            });
        };
        std::thread::scope(|scope| {
            let held = forks.lock().unwrap();
            scope.spawn(wait_for_fork);
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let open = forked(|| outside_forks(|| true));
            drop(held);
            assert!(open, "the child is not kept by what is not in it");
        });
        assert!(forked(|| outside_forks(|| true)));
    }
}
