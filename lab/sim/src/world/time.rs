//! Virtual time, the clocks that read it, and work that takes time.

use crate::engine::Engine;
use crate::engine::switch::{self, engine, suspend};

use super::with;

/// Makes the thread work for `ns` nanoseconds; longer while the core's other hardware thread works too.
pub fn work(ns: u64) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.pass(ns.saturating_mul(1000)));
    }
}

/// From now on the thread works for `ps` picoseconds after each of its accesses, for the instructions between accesses
/// that the machine does not see; longer while the core's other hardware thread works too. In a transaction, they
/// lengthen the transaction. 0, as at first, for no time.
pub fn pace(ps: u64) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.me().pace = ps);
    }
}

/// Returns virtual nanoseconds since the start of the run, on a clock without skew. Costs about a first-level hit, so
/// that a loop that only reads the time ends. Returns 0 outside of a run.
pub fn now() -> u64 {
    now_ps() / 1000
}

/// Returns the same as [`now`] in picoseconds.
pub fn now_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    read_clock(engine, with(engine, |engine| engine.costs.l1))
}

/// Returns the processor's clock as the thread's socket shows it: virtual picoseconds plus the socket's constant skew
/// ([`Config::clock_skew_ns`](crate::Config::clock_skew_ns)), but at least 0. Costs as much as reading the real clock.
pub fn clock_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    let now = read_clock(engine, with(engine, |engine| engine.costs.clock));
    with(engine, |engine| {
        let socket = engine.me().socket;
        let skew = engine.config.clock_skew_ns.get(socket).copied().unwrap_or(0);
        now.saturating_add_signed(skew.saturating_mul(1000))
    })
}

/// Returns by how much [`clock_ps`] may differ between two sockets at one instant, in picoseconds. Returns 0 outside of
/// a run.
pub fn clock_uncertainty_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    with(engine, |engine| {
        let skews =
            (0..engine.machine.sockets).map(|socket| engine.config.clock_skew_ns.get(socket).copied().unwrap_or(0));
        let (least, most) = skews.fold((i64::MAX, i64::MIN), |(least, most), skew| (least.min(skew), most.max(skew)));
        most.abs_diff(least).saturating_mul(1000)
    })
}

fn read_clock(engine: *mut Engine, cost: u64) -> u64 {
    with(engine, |engine| engine.advance(cost));
    if with(engine, |engine| engine.unwinding) {
        // Destructors that run while the threads unwind may wait for a deadline, so other threads get turns here, too.
        if with(engine, |engine| engine.lingers()) {
            suspend(engine);
        }
        return with(engine, |engine| engine.me().clock);
    }
    // The thread waits for its turn, so that a time stamp is between those of the accesses before and after it.
    while !with(engine, |engine| engine.step()) {
        switch::wait(engine);
    }
    with(engine, |engine| engine.me().clock)
}

/// Returns a number that is greater than every number drawn before in this run. It orders the events of a recorded
/// history at no virtual cost. Returns 0 outside of a run.
pub fn stamp() -> u64 {
    engine().map_or(0, |engine| {
        with(engine, |engine| {
            engine.stamp += 1;
            engine.stamp
        })
    })
}
