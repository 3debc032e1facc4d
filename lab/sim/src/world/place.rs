//! The home of memory, its presence in caches, and its name in reports.

use crate::engine::switch::engine;

use super::with;

/// Makes `node` the home of the `len` bytes at `addr`, whichever thread accesses them first. Applies to whole pages of
/// 4 KiB.
pub fn set_home(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| {
            let home = node % engine.machine.sockets;
            engine.memory.place(addr.addr(), len, Some(home));
        });
    }
}

/// Records that the memory is returned to the operating system, so that its pages have no home. A page gets a home
/// again when one of its lines is accessed that was never accessed before. Lines that were accessed before keep their
/// home.
pub fn release(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.place(addr.addr(), len, None));
    }
}

/// Records that these pages of 4 KiB have no memory yet; pages that were accessed keep their memory. The first access
/// to a page outside of a transaction gives it memory. A transaction that accesses the page aborts, and the page still
/// has no memory.
pub fn unmapped(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.unmap(addr.addr(), len));
    }
}

/// Puts memory into the third-level cache of `node`, as clean lines, as after a long warm-up.
pub fn warm(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm(addr.addr(), len, node % engine.machine.sockets));
    }
}

/// Does the same as [`warm`] for all memory that has been accessed so far.
pub fn warm_all(node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_all(node % engine.machine.sockets));
    }
}

/// Puts all memory that has been accessed so far into the third-level cache of its home node, as clean lines. This is
/// the state after threads of these nodes have filled a structure.
pub fn warm_homes() {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_homes());
    }
}

/// Names memory. [`Report::hot_lines`](crate::Report::hot_lines) contains the name from the last call that covers a
/// line.
pub fn label(addr: *const (), len: usize, name: &'static str) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.labels.push((addr.addr(), addr.addr().saturating_add(len), name)));
    }
}

/// Returns the home node of the memory at `addr`, if the memory was accessed or has a home set.
pub fn home_of(addr: *const ()) -> Option<usize> {
    engine().and_then(|engine| with(engine, |engine| engine.memory.home_of(addr.addr())))
}
