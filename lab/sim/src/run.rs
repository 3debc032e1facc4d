//! Runs one simulation.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::arena;
use crate::config::Config;
use crate::engine::thread::{Key, Role};
use crate::engine::{Engine, Start, switch};
use crate::machine::Machine;
use crate::report::{Outcome, Report};
use crate::world;

/// The argument of a client thread's body.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The client's number, from 0.
    pub index: usize,
    /// The number of clients.
    pub threads: usize,
    /// The CPU on which the client starts.
    pub cpu: usize,
    /// The NUMA node on which the client starts.
    pub node: usize,
    until_ns: u64,
}

impl Client {
    /// Returns whether [`Config::until_ns`] is in the future; for loops that measure. Costs as much as [`world::now`],
    /// and always counts as progress ([`Config::stall_ns`]).
    pub fn running(&self) -> bool {
        self.time().is_some()
    }

    /// Returns the time, in virtual nanoseconds since the start of the run, while [`running`](Self::running) is true;
    /// then `None`.
    pub fn time(&self) -> Option<u64> {
        if let Some(engine) = switch::engine() {
            // SAFETY: the engine is that of the running coroutine; the reference ends here.
            let engine = unsafe { &mut *engine };
            engine.progress(engine.current);
        }
        Some(world::now()).filter(|now| *now < self.until_ns)
    }
}

/// Runs `threads` client threads on `machine` and returns the report. See [`run_with`].
pub fn run(machine: &Machine, config: &Config, threads: usize, body: impl Fn(Client)) -> Report {
    run_with(machine, config, threads, || (), |(), client| body(client), |()| ()).0
}

/// Runs `setup`, then `threads` client threads that share its result, then `teardown`.
///
/// Set-up and tear-down run in a simulated thread on client 0's CPU. No virtual time passes for this thread, except
/// while it sleeps or waits. Memory that it accesses first has its home on that CPU's node, and background threads that
/// it starts are simulated. The run ends after the tear-down; background threads that are still alive are then unwound.
/// If the outcome is not [`Outcome::Done`](crate::Outcome::Done), the rest of set-up and tear-down is not run, and all
/// unfinished threads are unwound; with [`Config::unwind`] off they are abandoned instead.
///
/// # Panics
/// If the machine is not valid ([`Machine::check`]), if `threads` is 0, or if the configuration contains CPUs that the
/// machine does not have, an invalid probability, or a stack that is too small.
pub fn run_with<S, T>(
    machine: &Machine,
    config: &Config,
    threads: usize,
    setup: impl FnOnce() -> S,
    body: impl Fn(&S, Client),
    teardown: impl FnOnce(S) -> T,
) -> (Report, Option<T>) {
    assert!(threads > 0, "a simulation needs a client thread");
    machine.check().expect("the machine is valid");
    config.check(machine);
    let wall = Instant::now();
    let mut engine = Box::new(Engine::new(Arc::new(machine.clone()), config.clone(), threads));
    let engine: *mut Engine = &mut *engine;
    let result = Cell::new(None);
    let main = || {
        // The value is boxed so that it is in the arena, on the program's cache lines, and can be watched.
        let shared = Box::new(setup());
        start_clients(config, threads, &|client| body(&shared, client));
        result.set(Some(teardown(*shared)));
    };
    // SAFETY: no coroutine runs yet. The main thread ends, or is abandoned on its stack for ever, before this function
    // returns. So the data that `main` borrows outlives it.
    let outcome = unsafe {
        let body = erase(Box::new(main));
        let cpu = (*engine).client_cpu(0);
        let id = (*engine).spawn(Start { role: Role::Main, cpu, clock: 0, body }, Some(threads));
        (&mut (*engine).threads)[id].untimed = true;
        switch::drive(engine)
    };
    let unwind = config.unwind || outcome == Outcome::Done;
    let abandoned = if unwind { switch::unwind_all(engine) } else { switch::abandon_all(engine) };
    // SAFETY: no coroutine runs any more.
    let engine = unsafe { &mut *engine };
    let report = Report {
        outcome,
        seed: config.seed,
        end_ns: engine.clients_end / 1000,
        stats: engine.memory.stats,
        hot_lines: engine.hot_lines(10),
        tx_sites: engine.tx_sites(),
        tx_lines: engine.tx_lines(10),
        trace: engine.trace.clone(),
        parts: engine.parts.clone(),
        hash: engine.hash,
        wall: wall.elapsed(),
        model_bytes: engine.model_bytes(),
        lines: engine.memory.lines.len(),
        abandoned,
        unannounced: engine.watch.as_mut().map(|watch| watch.report()).unwrap_or_default(),
        own_heap: engine.arena.is_some(),
    };
    (report, result.take())
}

/// Starts the clients and waits for their end. Called in the main thread.
fn start_clients(config: &Config, threads: usize, body: &dyn Fn(Client)) {
    let engine = switch::engine().expect("the main thread is simulated");
    // SAFETY: the engine is that of the running coroutine; the reference ends with the statement.
    arena::apart(|| unsafe { &mut *engine }.watch.iter_mut().for_each(|watch| watch.begin()));
    for index in 0..threads {
        let jitter = world::random() % 50_000;
        // SAFETY: the engine is that of the running coroutine; the reference ends with the block.
        let (cpu, node, clock) = unsafe {
            let engine = &mut *engine;
            let cpu = engine.client_cpu(index);
            (cpu, engine.machine.socket_of(cpu), engine.me().clock)
        };
        let client = Client { index, threads, cpu, node, until_ns: config.until_ns.unwrap_or(u64::MAX) };
        // SAFETY: the clients end before the main thread leaves this function. If the run fails, they are unwound, or
        // abandoned for ever, before the main thread is.
        let body = unsafe { erase(arena::apart(|| Box::new(move || body(client)))) };
        let start = Start { role: Role::Client, cpu, clock: clock + jitter, body };
        switch::spawn(engine, start, Some(index));
    }
    // SAFETY: as above.
    let left = || unsafe { (*engine).clients_left };
    while left() > 0 {
        // SAFETY: as above.
        arena::apart(|| unsafe { &mut *engine }.wait_for(Key::Clients, None));
        switch::wait(engine);
    }
}

/// Erases the lifetime of a body's borrows.
///
/// # Safety
/// The body is dropped or abandoned before the borrows end.
unsafe fn erase<'a>(body: Box<dyn FnOnce() + 'a>) -> Box<dyn FnOnce()> {
    // SAFETY: only the lifetime differs, which the caller respects.
    unsafe { std::mem::transmute(body) }
}
