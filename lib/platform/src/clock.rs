//! Ordered clocks: time stamps that threads on different CPUs can compare without sharing a word.
//!
//! The method is ORDO, by which HydraList orders the per-thread logs of its asynchronous updates (thesis §4.3.4).
//! Reading the processor's cycle counter costs tens of nanoseconds whatever the number of threads, whereas the cache
//! line of a shared counter would move between them. The counters of different CPUs may differ by a constant. So a
//! clock has an *uncertainty*, an upper bound of this difference that was measured on this machine. Stamps that differ
//! by less are not ordered.
//!
//! # Guarantee
//! Let a call of [`OrderedClock::now`] that returned `a` happen before a call that returned `b`, on the same clock and
//! on any threads. Then `b > a - uncertainty`; with an uncertainty of 0, `b > a`. Users apply the converse: if `b >= a
//! + uncertainty` and the two differ, the call for `b` did not happen before the call for `a`
//! ([`OrderedClock::is_before`]). A stamp from [`OrderedClock::new_after`]`(a)` exceeds `a` by more than the
//! uncertainty, so every thread that compares the two finds that `a` is before it.
//!
//! Reading the clock is ordered with memory accesses as a happens-before edge requires. The loads before the call in
//! program order are complete before the counter is read, and no access after the call starts earlier. *Stores* before
//! the call may not yet be visible to other CPUs when the counter is read, and no fence of the language changes this. A
//! thread whose stores must be visible to every thread that reads a later time calls [`drain_stores`] first.
//!
//! # Differences from the paper
//! ORDO measures every pair of CPUs. This implementation measures one CPU, the hub, against one hardware thread of each
//! core, and adds the two largest bounds. The sum bounds every pair (`a` to hub plus hub to `b`). The measurement takes
//! linear time, and the sum is at most twice as large as the largest bound of a pair.
//!
//! The clock is *logical* (one shared counter, always correct, slower with many threads) in four cases. The processor
//! does not promise a constant counter. The threads that measure cannot be started or pinned. In sixteen attempts, some
//! node could not be measured, or the bound stayed above 20 µs. Or the process may use one CPU of several: then there
//! is nothing to measure, and a program that has pinned its first thread gives other CPUs to later threads.
//!
//! The bound holds for the CPUs that the process could use when the topology was first read, but not for CPUs that are
//! allowed later. Two problems are not covered: counters that drift apart, which "invariant TSC" excludes, and a
//! virtual machine that moves to another host while the process runs.

#[cfg(not(loom))]
mod calibrate;
mod counter;
mod ordered;

pub use ordered::{ClockKind, OrderedClock};

/// A full barrier (like a `SeqCst` fence) that also completes this thread's earlier stores. Let `t` be the next reading
/// of this thread's clock. Every thread whose clock has reached `t` plus the uncertainty sees these stores. A fence
/// alone does not guarantee this: the processor may read its counter while stores before the fence are still in its
/// store buffer.
///
/// ```
/// use archipelago::platform::atomic::{AtomicBool, Ordering};
/// use archipelago::platform::clock::{OrderedClock, drain_stores};
/// let (clock, linked) = (OrderedClock::shared(), AtomicBool::new(false));
/// linked.store(true, Ordering::Release);
/// drain_stores();
/// // A thread that draws a later stamp than this, anywhere, sees the link.
/// let stamp = clock.now() + clock.uncertainty();
/// # let _ = stamp;
/// ```
#[inline]
pub fn drain_stores() {
    counter::drain_stores();
}

/// Returns the simulator's stamp for an event of a recorded history. It is greater than all earlier stamps of this run,
/// and costs neither virtual time nor a scheduling step. Returns `None` natively and outside a run.
#[inline]
pub fn event_stamp() -> Option<u64> {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return Some(archipelago_sim::world::stamp());
    }
    None
}
