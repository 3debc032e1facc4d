//! The present run.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::switch::{self, engine};
use crate::machine::Machine;
use crate::report::Stats;

use super::{sleep, with};

/// Returns the machine of this run; `None` outside of a run.
pub fn machine() -> Option<Arc<Machine>> {
    engine().map(|engine| with(engine, |engine| engine.machine.clone()))
}

/// From now on, steps cost what they cost on this machine. Nothing else changes. For runs on several machines that share
/// a set-up, which takes no virtual time. Does nothing outside of a run.
///
/// # Panics
/// If the machine differs from the run's machine in more than its times, [`Machine::overlap`], and the slowdown of
/// threads that share a core.
pub fn retime(machine: &Machine) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.retime(Arc::new(machine.clone())));
    }
}

/// Returns the machine's counters so far; `None` outside of a run.
pub fn stats() -> Option<Stats> {
    engine().map(|engine| with(engine, |engine| engine.memory.stats))
}

/// Returns the bytes of the heap that the program holds now: the sizes that were asked for, of all blocks that simulated
/// threads have allocated in this run (set-up included) and that are not freed. The engine's own memory, and what was
/// made [`outside`], do not count. Takes no virtual time. Returns `None` outside of a run, and in a run without a heap of
/// its own ([`Report::own_heap`](crate::Report::own_heap)).
pub fn held_bytes() -> Option<usize> {
    engine().and_then(|engine| with(engine, |engine| engine.arena.as_ref().map(|arena| arena.held())))
}

/// Abandons a value, in the tear-down of a process that ends with the run: to free millions of blocks may take longer
/// than the run. Without other threads nothing is dropped. If there are background threads, the value is dropped, since
/// it ends these threads, but what the caller then frees stays allocated. Outside of a run, drops the value.
pub fn abandon<T>(value: T) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.leaks = true);
        if with(engine, |engine| engine.is_last()) {
            return std::mem::forget(value);
        }
    }
    drop(value);
}

/// Returns whether the calling thread frees nothing ([`abandon`]).
#[inline]
pub(crate) fn leaks() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.leaks && engine.me().untimed))
}

/// Returns a number that no other run of this process has; `None` outside of a run.
pub fn run_number() -> Option<u64> {
    engine().map(|engine| with(engine, |engine| engine.number))
}

/// Returns whether the run is over and its unfinished threads are being unwound.
pub fn ending() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.unwinding))
}

/// Returns one more than the largest [`Current::slot`](super::Current::slot) of this run so far.
pub fn slots_high_water() -> usize {
    engine().map_or(0, |engine| with(engine, |engine| engine.slots_high_water))
}

/// Returns a random number of the thread's own stream, which the seed determines. Returns 0 outside of a run.
pub fn random() -> u64 {
    engine().map_or(0, |engine| with(engine, |engine| crate::rng::next(&mut engine.me().rng)))
}

/// Runs `f` without virtual time, for setting up a structure in a thread of its own. Memory that `f` accesses first has
/// its home on the caller's node. `f` must not wait for another thread.
pub fn untimed<R>(f: impl FnOnce() -> R) -> R {
    struct Back(Option<(*mut Engine, bool)>);
    impl Drop for Back {
        fn drop(&mut self) {
            if let Some((engine, before)) = self.0 {
                switch(engine, before);
            }
        }
    }
    fn switch(engine: *mut Engine, untimed: bool) -> bool {
        with(engine, |engine| {
            let before = std::mem::replace(&mut engine.me().untimed, untimed);
            engine.forget_repeated();
            switch::watched(engine, engine.current);
            before
        })
    }
    let _back = Back(engine().map(|engine| (engine, switch(engine, true))));
    f()
}

/// Runs `f` as if it were outside the run: without virtual time, and with the system's memory. For values that outlive
/// the run. `f` must not wait for another thread.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    let _back = switch::Outside::step();
    f()
}

/// While this value lives, the calling thread is in a part of the program.
#[derive(Debug)]
pub struct Part {
    engine: *mut Engine,
    before: u8,
}

/// Enters a named part of the program, whose accesses [`Stats::remote_in`] counts separately. An access in a nested
/// part counts for the nested part only. Returns `None` outside of a run.
///
/// # Panics
/// If there are more names than [`PARTS`](crate::PARTS) allows.
#[inline]
pub fn part(name: &'static str) -> Option<Part> {
    engine().map(|engine| Part { engine, before: with(engine, |engine| engine.enter_part(name)) })
}

impl Drop for Part {
    fn drop(&mut self) {
        with(self.engine, |engine| engine.me().part = self.before);
    }
}

/// Marks a named point at which a [`Fault::Stall`](crate::Fault::Stall) can stop the thread
/// ([`Point::Named`](crate::Point::Named)).
pub fn point(name: &'static str) {
    let Some(engine) = engine() else { return };
    if let Some(ns) = with(engine, |engine| engine.passed(name)) {
        sleep(ns);
    }
}
