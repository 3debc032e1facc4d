//! Simulated threads: their CPUs, their start and end, their thread-locals.

use crate::engine::switch::{self, engine};
use crate::engine::thread::{Key, LocalSlot, Role, Status};
use crate::engine::{Engine, Start};

use super::{htm, wait_for, with};

/// The calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// The thread's number in this run, which is never reused.
    pub id: usize,
    /// The dense index: client `i` has `i`; any other thread has the smallest index that was free when the thread
    /// started.
    pub slot: usize,
    /// The CPU on which the thread runs.
    pub cpu: usize,
    /// The NUMA node on which the thread runs.
    pub node: usize,
    /// Whether the thread is a background thread.
    pub daemon: bool,
}

/// Returns the calling thread; `None` outside of a run.
#[inline]
pub fn current() -> Option<Current> {
    engine().map(|engine| {
        with(engine, |engine| {
            let id = engine.current;
            let thread = engine.me();
            Current { id, slot: thread.slot, cpu: thread.cpu, node: thread.socket, daemon: thread.role == Role::Daemon }
        })
    })
}

/// Moves the calling thread to a CPU. Returns false if the machine has no such CPU.
pub fn pin(cpu: usize) -> bool {
    let Some(engine) = engine() else { return false };
    with(engine, |engine| {
        let exists = cpu < engine.machine.cpus();
        if exists {
            engine.migrate(cpu);
        }
        exists
    })
}

/// Moves the calling thread to `node`, to the node's CPU with the fewest threads, unless the thread already runs on
/// this node. Returns false if there is no such node.
pub fn bind(node: usize) -> bool {
    let Some(engine) = engine() else { return false };
    with(engine, |engine| {
        let exists = node < engine.machine.sockets;
        if exists && engine.me().socket != node {
            let cpu = engine.idle_cpu(node);
            engine.migrate(cpu);
        }
        exists
    })
}

/// Starts a thread on `node` (the caller's node if `None`), on the node's CPU with the fewest threads. A `daemon` does
/// not keep the run from ending, and is unwound when the run ends. Returns the thread's [`Current::id`]. Returns the
/// body as an error outside of a run, and after a run has ended, while its threads are unwound. In a transaction the
/// call aborts the transaction, starts no thread, and returns an unused number.
pub fn spawn(node: Option<usize>, daemon: bool, body: Box<dyn FnOnce()>) -> Result<usize, Box<dyn FnOnce()>> {
    let Some(engine) = engine() else { return Err(body) };
    if with(engine, |engine| engine.unwinding) {
        return Err(body);
    }
    if with(engine, |engine| engine.tx_forbids()) {
        // The system call aborts the transaction, so no thread was started.
        htm::leave(engine);
        return Ok(usize::MAX);
    }
    let start = with(engine, |engine| {
        engine.advance(engine.costs.call);
        let node = node.unwrap_or(engine.me().socket) % engine.machine.sockets;
        let clock = engine.me().clock + engine.costs.call;
        let role = if daemon { Role::Daemon } else { Role::Client };
        engine.clients_left += usize::from(!daemon);
        Start { role, cpu: engine.idle_cpu(node), clock, body }
    });
    Ok(switch::spawn(engine, start, None))
}

/// Starts a background thread, as [`spawn`] of a daemon does.
pub fn spawn_background(node: Option<usize>, body: Box<dyn FnOnce()>) -> Result<usize, Box<dyn FnOnce()>> {
    spawn(node, true, body)
}

/// Returns whether the thread with this id has ended and its thread-locals were dropped.
pub fn is_finished(id: usize) -> bool {
    let finished = |engine: &mut Engine| engine.threads.get(id).is_none_or(|thread| thread.status == Status::Done);
    engine().is_none_or(|engine| with(engine, finished))
}

/// Waits until a thread ends.
pub fn join(id: usize) {
    wait_for(Key::End(id), None, || !is_finished(id));
}

/// Yields to other threads. Costs a system call. In probabilistic concurrency testing
/// ([`Schedule::Pct`](crate::Schedule::Pct)) it gives the thread the lowest priority.
pub fn yield_now() {
    let Some(engine) = engine() else { return std::thread::yield_now() };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    with(engine, |engine| {
        engine.advance(engine.costs.call);
        engine.yielded();
    });
    switch::wait(engine);
}

/// A simulated thread's value of a thread-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalValue {
    /// The value was never set in this thread.
    Unset,
    /// The value that [`local_set`] stored.
    Set(*mut u8),
    /// The value's destructor has begun.
    Destroyed,
}

/// Returns the calling thread's value for `key`; `None` outside of a run.
#[inline]
pub fn local_get(key: usize) -> Option<LocalValue> {
    engine().map(|engine| {
        with(engine, |engine| match engine.me().locals.iter().find(|local| local.key == key) {
            None => LocalValue::Unset,
            Some(local) if local.value.is_null() => LocalValue::Destroyed,
            Some(local) => LocalValue::Set(local.value),
        })
    })
}

/// Sets the calling thread's value for `key`, which has no value yet.
///
/// # Safety
/// `value` is not null. `drop(value)` may be called once, at the end of the thread, in the thread; values that were set
/// later are dropped first.
///
/// # Panics
/// If it is called outside of a run.
pub unsafe fn local_set(key: usize, value: *mut u8, drop: unsafe fn(*mut u8)) {
    let engine = engine().expect("thread-locals of simulated threads exist in a run only");
    with(engine, |engine| engine.me().locals.push(LocalSlot { key, value, drop }));
}
