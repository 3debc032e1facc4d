//! The home of memory, its presence in caches, and its name in reports.

use crate::engine::switch::engine;

use super::with;

/// Says that the memory from `addr` has its home on `node`, whichever thread touches it first. Whole pages of 4 KiB.
pub fn set_home(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| {
            let home = node % engine.machine.sockets;
            engine.memory.place(addr.addr(), len, Some(home));
        });
    }
}

/// Says that the memory goes back to the operating system: its next first touch decides about its home.
pub fn release(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.place(addr.addr(), len, None));
    }
}

/// Says that there is no memory behind these pages yet (4 KiB each; those that were touched have theirs): the thread that
/// touches one first gets it, but a transaction that does so aborts, and the page stays as it is.
pub fn unmapped(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.unmap(addr.addr(), len));
    }
}

/// Puts memory into the third-level cache of `node`, unchanged: what a long warm-up would do.
pub fn warm(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm(addr.addr(), len, node % engine.machine.sockets));
    }
}

/// As [`warm`], for everything that has been touched so far.
pub fn warm_all(node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_all(node % engine.machine.sockets));
    }
}

/// Puts everything that has been touched so far into the third-level cache of its home node, unchanged: what threads of these
/// nodes leave there that have just filled a structure.
pub fn warm_homes() {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_homes());
    }
}

/// Names memory: [`Report::hot_lines`](crate::Report::hot_lines) says the name of the last call that covers a line.
pub fn label(addr: *const (), len: usize, name: &'static str) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.labels.push((addr.addr(), addr.addr().saturating_add(len), name)));
    }
}

/// The node that the memory of `addr` has its home on, if it was touched or given one.
pub fn home_of(addr: *const ()) -> Option<usize> {
    engine().and_then(|engine| with(engine, |engine| engine.memory.home_of(addr.addr())))
}
