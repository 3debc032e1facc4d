//! The processor's counter, read in such a way that the read is not reordered.

/// Returns whether the processor has a counter of constant rate that was started on all CPUs together.
#[cfg_attr(loom, allow(dead_code))]
pub(super) fn is_invariant() -> bool {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return crate::cpu::features().invariant_tsc;
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
    return true;
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    return false;
}

/// A full barrier. It also ensures that the counter is not read before earlier stores are visible to all CPUs.
///
/// A sequentially consistent fence does not ensure this: it orders memory accesses, and reading the counter is not one.
/// If the fence is compiled to a locked instruction, the counter may be read hundreds of ticks before an earlier store
/// has left the store buffer. (Observed on a Zen processor: 0.4 % of the loads by another CPU were affected, by up to
/// 780 ticks; none with `mfence`, which the manuals require here.)
#[inline]
pub(super) fn drain_stores() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim))))]
    // SAFETY: `mfence` is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom, archipelago_sim))))]
    // SAFETY: a barrier. The block must not be `nomem`, otherwise the compiler could move memory accesses across it.
    // `dmb`, the instruction of a fence, would order only memory accesses.
    unsafe {
        core::arch::asm!("dsb ish", options(nostack));
    }
    #[cfg(any(miri, loom, archipelago_sim, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}

/// Returns the counter's value, or 0 if there is no counter; then [`is_invariant`] is false.
#[inline]
pub(super) fn read() -> u64 {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return archipelago_sim::world::clock_ps();
    }
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    // SAFETY: `lfence` and `rdtsc` are part of x86-64. The first fence waits until all earlier instructions, including
    // loads, have executed. The second keeps all later instructions from starting before the counter was read. A store
    // after the call becomes visible after the read, since stores leave the processor in order, after all earlier
    // instructions. A store before the call may become visible after the read: see `drain_stores`.
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
        // SAFETY: reading the virtual counter is always permitted. The barriers have the effect of the fences on
        // x86-64. The block must not be `nomem`, otherwise the compiler could move memory accesses across it.
        unsafe {
            core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack));
        }
        ticks
    }
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    0
}
