//! Work that no `fork` of the process falls into.
//!
//! The child of a `fork` has the forking thread only. What a thread of the library's own held at that moment stays held in the
//! child: a lock for ever, a bag of objects that nothing frees. So such a thread does its work [`outside_forks`], and a fork
//! waits until it is done. Where there is no `fork`, or the model stands for the machine, nothing is waited for.

#[cfg(all(unix, not(any(miri, loom, archipelago_sim))))]
mod imp {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicBool, Ordering};

    /// Taken by the work, or by a thread that forks.
    static TAKEN: AtomicBool = AtomicBool::new(false);

    /// The C library knows the handlers.
    pub(super) static REGISTERED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        /// This thread does the work: it may fork in it, and is in the child then.
        static WORKS: Cell<bool> = const { Cell::new(false) };
        /// This thread forks, and has taken what is to be taken.
        static FORKS: Cell<bool> = const { Cell::new(false) };
    }

    fn take() {
        // Acquire: pairs with the Release in `give`, so that who forks copies what the work has left whole.
        while TAKEN.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn give() {
        TAKEN.store(false, Ordering::Release);
    }

    extern "C" fn before() {
        if !WORKS.get() && !FORKS.replace(true) {
            take();
        }
    }

    /// In the parent, and in the child: the forking thread is in both.
    extern "C" fn after() {
        if FORKS.replace(false) {
            give();
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
            _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
            REGISTERED.store(true, Ordering::Release);
        }
    }

    struct Working;

    impl Drop for Working {
        fn drop(&mut self) {
            WORKS.set(false);
            give();
        }
    }

    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        register();
        take();
        WORKS.set(true);
        let _working = Working;
        work()
    }
}

#[cfg(not(all(unix, not(any(miri, loom, archipelago_sim)))))]
mod imp {
    pub fn outside_forks<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Does `work`, which is over, or has not begun, whenever another thread of the process forks. One thread at a time works; a
/// fork waits for it, and must not be what the work waits for. The work may fork itself, and goes on in the child then, but
/// must not call this again.
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
        assert!(outside_forks(|| forked(|| true)), "the work itself may fork");
    }
}
