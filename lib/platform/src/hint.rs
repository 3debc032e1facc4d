//! Hints to the processor (busy-wait and prefetch), and named points and parts of a program for simulations.

/// Tells the machine that the calling thread waits for another thread. Every wait loop of this library that spins calls
/// it. With debug assertions, panics in the body of a region ([`quiet`](fn@crate::htm::quiet)).
#[inline]
pub fn spin_loop() {
    crate::htm::refuse_in_regions("waiting");
    #[cfg(not(any(loom, archipelago_sim)))]
    core::hint::spin_loop();
    #[cfg(archipelago_sim)]
    archipelago_sim::world::spin_hint();
    #[cfg(loom)]
    loom::hint::spin_loop();
}

/// Waits for the time of `turns` turns of a wait loop, whatever other threads do in the meantime. This is for a
/// back-off of fixed length. In contrast, a simulated thread that calls [`spin_loop`] continues when a word that it has
/// read changes.
#[inline]
pub fn pause(turns: u32) {
    #[cfg(archipelago_sim)]
    {
        crate::htm::refuse_in_regions("waiting");
        archipelago_sim::world::pause(turns.into());
    }
    // For loom, one turn is enough: it lets other threads run.
    #[cfg(not(archipelago_sim))]
    (0..if cfg!(loom) { 1 } else { turns }).for_each(|_| spin_loop());
}

/// Names a point in the program at which a simulated thread can be stopped. Natively this does nothing.
#[inline(always)]
pub fn point(name: &'static str) {
    #[cfg(archipelago_sim)]
    archipelago_sim::world::point(name);
    let _ = name;
}

/// While this value exists, the calling thread is in a named part of the program ([`part`]).
#[derive(Debug)]
pub struct Part {
    #[cfg(archipelago_sim)]
    _inner: Option<archipelago_sim::world::Part>,
}

/// Enters a named part of the program. A simulation counts the remote accesses of each part separately. Natively this
/// does nothing.
#[inline(always)]
pub fn part(name: &'static str) -> Part {
    let _ = name;
    Part {
        #[cfg(archipelago_sim)]
        _inner: archipelago_sim::world::part(name),
    }
}

/// Starts to fetch the cache line at `line` for reading, without waiting. Any address is allowed, even a dangling one.
#[inline]
pub fn prefetch_read<T: ?Sized>(line: *const T) {
    #[cfg(archipelago_sim)]
    archipelago_sim::world::prefetch(line.cast());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and has no architectural effect, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: `prfm` never faults and has no architectural effect, whatever the address.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) line.cast::<u8>(), options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}
