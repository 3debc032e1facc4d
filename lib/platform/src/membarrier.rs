//! An asymmetric pair of barriers: [`light`] costs nothing, and [`heavy`] interrupts every other thread of the process.
//!
//! On Linux, `heavy` is the system call `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`. Between its call and its
//! return, every running thread of the process executes a full memory barrier (a thread that does not run executed one
//! when it was switched out). So a `light` in one thread and a `heavy` in another order the accesses around them as two
//! `SeqCst` fences would. Either the thread with `light` sees everything before the other's `heavy`, or the thread with
//! `heavy` sees everything before the other's `light`. Two `light`s order nothing. The pair suits protocols with
//! frequent readers and rare writers.
//!
//! Under loom both are `SeqCst` fences, to which the pair is equivalent. The simulated machine is sequentially
//! consistent: there, `light` is free and `heavy` takes the time of a system call.

/// Returns whether the machine has the pair. The first call registers the process with the kernel; later calls are one
/// load. If it returns `false`, [`heavy`] must not be called.
pub fn available() -> bool {
    imp::available()
}

/// The expensive side: a full barrier in this thread, paired with a [`light`] in any other thread. It takes
/// microseconds.
///
/// # Panics
/// If [`available`] returns `false`.
pub fn heavy() {
    imp::heavy();
}

/// The free side: keeps the compiler from moving memory accesses across it. The processor's reordering is prevented by
/// [`heavy`].
#[inline]
pub fn light() {
    #[cfg(not(any(loom, archipelago_sim)))]
    crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
    // This takes no virtual time. It is a fence, because outside a run there are real threads and no system call.
    #[cfg(archipelago_sim)]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}

#[cfg(all(target_os = "linux", not(any(miri, loom, archipelago_sim))))]
mod imp {
    use crate::atomic::{Ordering, fence};
    use crate::sync::OnceLock;

    fn call(command: libc::c_int) -> libc::c_long {
        let (flags, cpu): (libc::c_uint, libc::c_int) = (0, 0);
        // SAFETY: `membarrier` takes three integers and accesses no memory of the process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) }
    }

    pub fn available() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let offered = call(libc::MEMBARRIER_CMD_QUERY as libc::c_int);
            let wanted = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED | libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
            offered >= 0
                && offered & libc::c_long::from(wanted) == libc::c_long::from(wanted)
                && call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as libc::c_int) == 0
        })
    }

    pub fn heavy() {
        // The kernel guarantees a full barrier in the caller, too. The fences also keep the compiler from moving
        // accesses across the call, and describe the call's effect to race detectors.
        fence(Ordering::SeqCst);
        let rc = call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED as libc::c_int);
        assert_eq!(rc, 0, "membarrier failed: call membarrier::available() first, and use a fence where it says no");
        fence(Ordering::SeqCst);
    }
}

#[cfg(archipelago_sim)]
mod imp {
    pub fn available() -> bool {
        true
    }

    pub fn heavy() {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        archipelago_sim::world::yield_now();
    }
}

#[cfg(loom)]
mod imp {
    pub fn available() -> bool {
        true
    }

    pub fn heavy() {
        crate::atomic::fence(crate::atomic::Ordering::SeqCst);
    }
}

#[cfg(all(any(not(target_os = "linux"), miri), not(any(loom, archipelago_sim))))]
mod imp {
    pub fn available() -> bool {
        false
    }

    pub fn heavy() {
        panic!("this machine has no membarrier: ask membarrier::available() first");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::atomic::{AtomicUsize, Ordering};
    use crate::sync::Barrier;
    use crate::thread;

    /// Store buffering with one light and one heavy barrier: it is impossible that both threads miss the other's store.
    #[test]
    fn orders_store_before_load() {
        if !available() {
            return;
        }
        let rounds = 2_000;
        let (x, y) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (seen_x, seen_y) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    start.wait();
                    x.store(round, Ordering::Relaxed);
                    light();
                    seen_y.store(y.load(Ordering::Relaxed), Ordering::Relaxed);
                    start.wait();
                }
            });
            for round in 1..=rounds {
                start.wait();
                y.store(round, Ordering::Relaxed);
                heavy();
                seen_x.store(x.load(Ordering::Relaxed), Ordering::Relaxed);
                start.wait();
                let seen = (seen_x.load(Ordering::Relaxed), seen_y.load(Ordering::Relaxed));
                assert!(seen.0 == round || seen.1 == round, "round {round}: {seen:?}");
            }
        });
    }
}
