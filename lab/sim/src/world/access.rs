//! The accesses of a simulated program, and its waits between them.

use crate::arena;
use crate::engine::switch::{self, engine, suspend, unwind};
use crate::engine::tx::Old;
use crate::engine::{Engine, Step};
use crate::memory::{AccessKind, NONE};

use super::{htm, with};

/// Waits for the turn of an access. Returns the access's line, or `None` if the access must leave no trace.
#[inline]
fn begin(engine: *mut Engine, addr: usize, size: usize, kind: AccessKind) -> Option<u32> {
    // SAFETY: as in `with`, which also directs what the engine allocates: here it allocates nothing.
    if let Some(line) = unsafe { &*engine }.repeats(addr) {
        return Some(line);
    }
    loop {
        match with(engine, |engine| engine.access(addr, size, kind)) {
            Step::Go(line) => {
                with(engine, |engine| engine.announce(addr, kind));
                return Some(line);
            }
            Step::Suspend => suspend(engine),
            Step::Doomed => {
                htm::leave(engine);
                return None;
            }
            Step::Unwind => unwind(),
        }
    }
}

/// Loads the `size` bytes at `addr` by calling `op`.
#[inline]
pub fn load<R>(addr: *const (), size: usize, op: impl FnOnce() -> R) -> R {
    if let Some(engine) = engine() {
        begin(engine, addr.addr(), size, AccessKind::Load);
    }
    op()
}

/// Returns the address at which an `op` makes its access, which is already charged. Under
/// [`Config::watch`](crate::Config::watch) this is a second address of the memory at `at`, at which the watch does not
/// notice accesses.
#[inline]
pub fn charged<T>(at: *const T) -> *const T {
    arena::open(at)
}

/// Stores to the `size` bytes at `addr` by calling `op`, without waiting for the store. `op` returns whether the bytes
/// changed.
#[inline]
pub fn store(addr: *const (), size: usize, op: impl FnOnce() -> bool) {
    write(addr, size, AccessKind::Store, || ((), op()));
}

/// Reads and writes the `size` bytes at `addr` in one step by calling `op`. `op` returns what it found, and whether the
/// bytes changed. Failing compare-and-exchanges and sequentially consistent stores are updates, too.
#[inline]
pub fn update<R>(addr: *const (), size: usize, op: impl FnOnce() -> (R, bool)) -> R {
    write(addr, size, AccessKind::Rmw, op)
}

#[inline]
fn write<R>(addr: *const (), size: usize, kind: AccessKind, op: impl FnOnce() -> (R, bool)) -> R {
    let Some(engine) = engine() else { return op().0 };
    match begin(engine, addr.addr(), size, kind) {
        Some(line) => {
            let (result, changed) = op();
            match kind {
                _ if line == NONE => {}
                _ if changed => with(engine, |engine| engine.changed(line)),
                AccessKind::Rmw => with(engine, |engine| engine.memory.stats.unchanged += 1),
                _ => {}
            }
            result
        }
        None => {
            // SAFETY: the caller is about to write these bytes, and all simulated threads share this OS thread.
            let old = unsafe { Old::save(addr.addr(), size) };
            let (result, _) = op();
            // SAFETY: as above; `op` has just written these bytes.
            unsafe { old.restore() };
            result
        }
    }
}

/// Executes a fence. Only a sequentially consistent fence costs time: it waits for the store buffer.
pub fn fence(sequentially_consistent: bool) {
    let Some(engine) = engine().filter(|_| sequentially_consistent) else { return };
    with(engine, |engine| {
        engine.drain_stores();
        engine.advance(engine.costs.fence);
    });
}

/// Makes one turn of a wait loop. If the turn only loaded, from at most eight lines, the thread waits until one of
/// these lines changes. The wait lasts at most 20 virtual microseconds. This limit is doubled (up to 5 milliseconds)
/// each time that no line has changed. So loops that count turns or read a clock continue. Otherwise the thread yields.
pub fn spin_hint() {
    let Some(engine) = engine() else { return core::hint::spin_loop() };
    match with(engine, |engine| engine.spin()) {
        Step::Doomed => {
            htm::leave(engine);
            // The body of a doomed transaction would notice the doom only after this loop, but the loop waits for other
            // threads. So the other threads are allowed to run.
            if !std::thread::panicking() {
                with(engine, |engine| {
                    engine.advance(engine.costs.pause);
                    engine.yielded();
                });
                switch::wait(engine);
            }
        }
        Step::Unwind => unwind(),
        Step::Suspend | Step::Go(_) => switch::wait(engine),
    }
}

/// Makes `turns` turns of a loop that only lets time pass, as a back-off does.
pub fn pause(turns: u64) {
    if let Some(engine) = engine() {
        with(engine, |engine| {
            engine.tx_forbids();
            engine.pass(turns.saturating_mul(engine.costs.pause));
        });
    }
}

/// Announces plain reads of the `len` bytes at `addr`, which no thread changes meanwhile. Costs one load per line, one
/// after the other. The third and later misses of neighbouring lines overlap
/// ([`Machine::overlap`](crate::Machine::overlap)).
pub fn touch(addr: *const (), len: usize) {
    each_line(addr, len, AccessKind::Load);
}

/// Announces plain writes of the `len` bytes at `addr`, which no other thread accesses meanwhile. Costs one store per
/// line.
pub fn touch_mut(addr: *const (), len: usize) {
    each_line(addr, len, AccessKind::Store);
}

/// Charges the allocator's writes to a block that it allocates or frees, if virtual time is measured.
///
/// This function does not unwind, as no allocator may, since its callers could not clean up. A thread whose run ends
/// meanwhile is unwound at its next step.
pub(crate) fn allocated(addr: *const (), len: usize) {
    let Some(engine) = engine() else { return };
    if addr.is_null() {
        return;
    }
    let end = addr.addr() + len;
    let mut at = addr.addr();
    while at < end {
        let next = ((at | 63) + 1).min(end);
        if !charge_allocation(engine, at, next - at) {
            return;
        }
        at = next;
    }
    with(engine, |engine| engine.progress(engine.current));
}

/// Charges one write of the allocator. Returns false if this write and the following ones are not charged.
fn charge_allocation(engine: *mut Engine, addr: usize, size: usize) -> bool {
    while with(engine, |engine| engine.charges_allocation()) {
        match with(engine, |engine| engine.access(addr, size, AccessKind::Store)) {
            Step::Suspend => suspend(engine),
            Step::Go(_) => {
                with(engine, |engine| engine.announce(addr, AccessKind::Store));
                return true;
            }
            Step::Doomed | Step::Unwind => unreachable!("outside of transactions, in a run that goes on"),
        }
    }
    if with(engine, |engine| engine.lingers()) {
        suspend(engine);
    }
    false
}

fn each_line(addr: *const (), len: usize, kind: AccessKind) {
    let Some(engine) = engine() else { return };
    let (first, end) = (addr.addr(), addr.addr() + len.max(1));
    let (mut at, mut doomed) = (first, false);
    while at < end {
        let next = ((at | 63) + 1).min(end);
        doomed |= begin(engine, at, next - at, kind).is_none();
        at = next;
    }
    if kind == AccessKind::Store {
        // A thread that fills memory is not stalled, however long it takes.
        with(engine, |engine| engine.progress(engine.current));
    }
    if doomed && kind == AccessKind::Store {
        with(engine, |engine| engine.tx_stray(first, end - first));
    }
}

/// Starts fetching the line of `addr` for reading, without waiting.
pub fn prefetch(addr: *const ()) {
    let Some(engine) = engine() else { return };
    while matches!(with(engine, |engine| engine.prefetch(addr.addr())), Step::Suspend) {
        switch::wait(engine);
    }
}
