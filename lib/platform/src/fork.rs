//! Work for whose end a `fork` of the process waits.
//!
//! The child of a `fork` contains only the forking thread. If another thread of this library holds a resource at that
//! moment, the resource stays held in the child: a lock for ever, or a list of objects that nothing frees. Therefore
//! such a thread does its work in [`outside_forks`]. A fork waits until all such work has ended. There is one
//! exception: work that itself waits for the forking thread would never end, so a fork continues after [`PATIENCE`]. On
//! platforms without `fork`, and under loom, Miri and the simulator, there is no waiting.
//!
//! # Invariants
//! - No work begins while [`FORKING`](imp::FORKING) is set. The thread that has set it clears it, in the parent and in
//!   the child.
//! - The other bits of the state count the work items in progress, not counting those whose threads are in a `fork` of
//!   their own.

use core::time::Duration;

/// The longest time for which a fork waits.
pub const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(all(unix, not(any(miri, loom, archipelago_sim))))]
mod imp {
    use super::PATIENCE;
    use core::cell::Cell;
    use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::thread::yield_now;
    use std::time::Instant;

    /// The bit that is set while a thread forks.
    pub(super) const FORKING: usize = 1 << (usize::BITS - 1);

    static STATE: AtomicUsize = AtomicUsize::new(0);

    /// The number of forks between the process in which the handlers were registered and this one.
    static GENERATION: AtomicU64 = AtomicU64::new(0);

    /// Whether the handlers are registered with the C library.
    pub(super) static REGISTERED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        /// Whether this thread is working. It may fork during its work, and is then in the child, too.
        static WORKS: Cell<bool> = const { Cell::new(false) };
        /// Whether this thread is forking.
        static FORKS: Cell<bool> = const { Cell::new(false) };
    }

    /// Work in progress. It ends when this is dropped.
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
            // Release: pairs with the Acquire in `before`, so a forking thread copies the complete effects of the work.
            STATE.fetch_sub(1, Ordering::Release);
        }
    }

    extern "C" fn before() {
        if FORKS.replace(true) {
            return;
        }
        if WORKS.get() {
            // Two threads that both fork during their work would wait for each other, so this work is not counted now.
            STATE.fetch_sub(1, Ordering::Release);
        }
        // Acquire: pairs with the Release below of the thread that forked before.
        while STATE.fetch_or(FORKING, Ordering::Acquire) & FORKING != 0 {
            yield_now();
        }
        // Acquire: pairs with the Release at the end of each work item.
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
            // Relaxed: the child has one thread.
            GENERATION.fetch_add(1, Ordering::Relaxed);
            // Other threads whose work this fork did not wait for do not exist in the child.
            STATE.store(usize::from(WORKS.get()), Ordering::Release);
        }
    }

    /// Registers the handlers with the C library. No thread waits for another one here: a fork may happen during the
    /// call, and its child would wait for ever. So several threads may register the same handlers. For this reason the
    /// handlers do nothing when they are called a second time.
    fn register() {
        // Acquire: pairs with the Release below. A fork that begins after the registration calls the handlers. When
        // `pthread_atfork` returns, no fork without the handlers is in progress, because of the C library's own lock.
        if !REGISTERED.load(Ordering::Acquire) {
            // A child inherits its parent's handlers. If there is no memory for them, none are registered, and forks do
            // not wait.
            // SAFETY: the functions access a static and thread-locals without destructors; they neither allocate nor
            // unwind.
            _ = unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
    }

    pub fn generation() -> u64 {
        register();
        // Relaxed: it changes only while the process has one thread.
        GENERATION.load(Ordering::Relaxed)
    }

    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        register();
        // A thread that is forking, and is called back by the C library, would wait for itself.
        let _working = (!WORKS.get() && !FORKS.get()).then(Working::begin);
        work()
    }
}

#[cfg(not(all(unix, not(any(miri, loom, archipelago_sim)))))]
mod imp {
    pub fn generation() -> u64 {
        0
    }

    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Returns the id of the process to which the threads belong that it starts. On the virtual machine (a simulator), a
/// process that continues a run has the run's threads, whichever process started them. So there all ids are equal.
pub fn process() -> u32 {
    if cfg!(archipelago_sim) { 1 } else { std::process::id() }
}

/// Returns a number that tells a process from the child processes that its forks make. So data that a thread has left
/// for others shows whether the thread is in this process. A load of two words.
#[inline]
pub fn generation() -> u64 {
    imp::generation()
}

/// Runs `work`. Whenever another thread of the process forks, `work` has ended or has not begun: the fork waits for it,
/// for at most [`PATIENCE`]. (If `work` takes longer, because it waits for a resource of the forking thread, the fork
/// happens during the work.) The work may itself fork, and then continues in the child, too.
pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
    imp::outside_forks(work)
}

#[cfg(all(test, unix, not(any(miri, loom, archipelago_sim))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// Forks. Returns whether `child` returned true in the child process.
    fn forked(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only calls `child`, which loads atomics or calls `outside_forks`, and then ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: sets a signal that ends a child that hangs.
            unsafe { libc::alarm(20) };
            let well = child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!well)) }
        }
        let mut status = 0;
        // SAFETY: `status` is writable and belongs to this function.
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
                    // The first turns repeat the registration, so forks also happen during it, and handlers are
                    // registered again.
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
            // Work can begin in the child, and afterwards in the parent.
            let all = (0..30).all(|_| forked(|| whole() && outside_forks(whole)));
            // Set in any case, so that the thread ends.
            ended.store(true, Ordering::Relaxed);
            assert!(all, "a fork fell into the work");
        });
        assert!(outside_forks(|| forked(|| outside_forks(|| true))), "the work itself may fork");
        assert!(forked(|| outside_forks(|| true)), "and has ended then");
    }

    #[test]
    fn a_child_is_of_another_generation() {
        let here = generation();
        assert!(forked(|| generation() != here));
        assert_eq!(generation(), here);
    }

    /// The work waits for a lock that the forking thread holds, and the fork waits for the work. Only the limit of the
    /// fork's wait ends this.
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
