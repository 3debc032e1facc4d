//! The processor's counter, read so that the reading cannot move.

/// Whether the processor has a counter of constant rate that all CPUs were started together with.
#[cfg_attr(loom, allow(dead_code))]
pub(super) fn is_invariant() -> bool {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return crate::cpu::features().invariant_tsc;
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
    return true;
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    return false;
}

/// A full barrier that also keeps a later reading of the counter from coming before earlier stores are seen by all.
///
/// A sequentially consistent fence does not: it orders memory accesses, and reading the counter is none. Compiled to a
/// locked instruction it lets the counter be read hundreds of ticks before the store ahead of it has left the store
/// buffer (seen on a Zen processor: 0.4 % of loads by another CPU, up to 780 ticks; none with `mfence`, which the
/// manuals ask for here).
#[inline]
pub(super) fn drain_stores() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim))))]
    // SAFETY: part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom, archipelago_sim))))]
    // SAFETY: a barrier; the block may not be `nomem`, or the compiler could move memory accesses across it. `dmb`, which
    // a fence is, would order memory accesses only.
    unsafe {
        core::arch::asm!("dsb ish", options(nostack));
    }
    #[cfg(any(miri, loom, archipelago_sim, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}

/// The counter's value. 0 where there is none; [`is_invariant`] is false there.
#[inline]
pub(super) fn read() -> u64 {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return archipelago_sim::world::clock_ps();
    }
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    // SAFETY: `lfence` and `rdtsc` are part of x86-64. The first fence waits until everything before has executed,
    // loads included; the second keeps everything after from starting before the counter was read. A store after the
    // call becomes visible after it, since stores leave the processor in order, after all earlier instructions. One before
    // the call may become visible after it: see `drain_stores`.
    unsafe {
        use core::arch::x86_64::{_mm_lfence, _rdtsc};
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
    {
        let ticks: u64;
        // SAFETY: reading the virtual counter is allowed everywhere. The barriers do what the fences on x86-64 do. The
        // block may not be `nomem`, or the compiler could move memory accesses across it.
        unsafe {
            core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack));
        }
        ticks
    }
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    0
}
