//! A lopsided pair of barriers: [`light`] costs nothing, [`heavy`] makes every other thread of the process pay.
//!
//! On Linux `heavy` is the system call `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`: between its call and its return
//! every running thread of the process executes a full memory barrier (an idle one executed it when it was switched
//! out). So, between two threads, a `light` and a `heavy` order their surroundings just as two `SeqCst` fences would:
//! either the thread with `light` sees everything before the other's `heavy`, or the thread with `heavy` sees
//! everything before the other's `light`. Two `light`s order nothing. The pair suits protocols with a frequent reader
//! and a rare writer.
//!
//! In the model world both are `SeqCst` fences, which is what the pair amounts to. The simulated machine is sequentially
//! consistent: there `light` is free and `heavy` takes a system call's time.

/// Whether the machine has the pair. The first call registers the process with the kernel and later ones are one load.
/// Where it answers `false`, [`heavy`] must not be called.
pub fn available() -> bool {
    imp::available()
}

/// The dear side: a full barrier in this thread, paired with a [`light`] in any other. Microseconds.
///
/// # Panics
/// Where [`available`] is `false`.
pub fn heavy() {
    imp::heavy();
}

/// The free side: keeps the compiler from moving memory accesses across; the processor is reined in by [`heavy`].
#[inline]
pub fn light() {
    #[cfg(not(any(loom, archipelago_sim)))]
    crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
    // Free in virtual time; outside of a run there are real threads, and no system call.
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
        // SAFETY: membarrier takes three integers and touches no memory of ours.
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
        // The kernel promises a full barrier in the caller too; the fences also keep the compiler from moving accesses
        // across the call, and say to race detectors what the call means.
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

    /// Store buffering with one free and one dear side: both threads missing the other's store is forbidden.
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
