//! Ordered clocks: time stamps that threads on different CPUs can compare without sharing a word.
//!
//! After ORDO, as HydraList uses it to order the per-thread logs of its asynchronous updates (thesis §4.3.4). Reading
//! the processor's cycle counter costs tens of nanoseconds whatever the number of threads, where a shared counter's
//! line would travel between them. The counters of different CPUs may differ by a constant, so a clock knows its
//! *uncertainty*, an upper bound on that difference measured on this machine, and stamps closer than it are not
//! ordered.
//!
//! # Guarantee
//! Let a call of [`OrderedClock::now`] that returned `a` happen before a call that returned `b`, on the same clock and
//! on any threads. Then `b > a - uncertainty`; with an uncertainty of 0, `b > a`. Put the other way round, which is how
//! it is used: if `b >= a + uncertainty` and the two differ, the call for `b` did not happen before the call for `a`
//! ([`OrderedClock::is_before`]); and a stamp from [`OrderedClock::new_after`]`(a)` is more than the uncertainty above
//! `a`, so that every thread that compares the two finds `a` before it.
//!
//! Reading the clock is ordered with memory accesses as a happens-before edge needs it: what precedes the call in
//! program order has been loaded before the counter is read, and nothing after the call starts earlier. *Stores* before
//! the call may still be on their way when the counter is read, and no fence of the language changes that: who needs them
//! seen by the thread that reads a later time calls [`drain_stores`] first.
//!
//! # Differences from the paper
//! ORDO measures every pair of CPUs. We measure one CPU against all others and add the two largest bounds, which bounds
//! every pair (`a` to hub plus hub to `b`), takes linear time, and gives a bound at most twice as wide. Where the
//! processor promises no constant counter, or a node cannot be measured to within 20 us in sixteen attempts, the clock is
//! *logical*: one shared counter, always right, slower with many threads. The bound holds for the CPUs that the process could use when
//! the topology was first read, not for others that it is let onto later. Counters that drift apart are not covered,
//! and neither is a virtual machine that moves to another host while the process runs: "invariant TSC" rules out the
//! first.

#[cfg(not(loom))]
mod calibrate;
mod counter;
mod ordered;

pub use ordered::{ClockKind, OrderedClock};

/// A full barrier (as a `SeqCst` fence) after which all this thread's earlier stores are seen by every thread whose clock
/// has reached what this thread's shows next, and the uncertainty past it. A fence alone does not promise that: the
/// processor may read its counter while stores ahead of the fence are still in its store buffer.
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

/// The virtual machine's stamp for an event of a recorded history: greater than all before in this run, and free of
/// virtual time and of turns. `None` natively and outside of a run.
#[inline]
pub fn event_stamp() -> Option<u64> {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return Some(archipelago_sim::world::stamp());
    }
    None
}
