//! Hardware transactions, for the platform crate.
//!
//! A transaction is *doomed* when it can only abort. [`transaction`] is the simpler interface: its body leaves by
//! unwinding when the transaction is doomed. [`begin`] and [`end`] are for bodies that check [`doomed`] themselves:
//! after a doom, loads see present memory and writes have no effect, until [`end`] returns the reason.

use core::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::engine::Engine;
use crate::engine::switch::engine;
pub use crate::engine::tx::Abort;
use crate::engine::tx::Cause;

use super::with;

/// The payload of the panic that leaves the body of a doomed transaction.
struct Doomed;

/// Returns whether the machine of this run has hardware transactions. Returns false outside of a run.
pub fn available() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.machine.transactions.is_some()))
}

/// Runs `body` as one transaction: afterwards either all of its writes have happened, in one instant, or none. On
/// x86-64 and AArch64 this includes writes to locals of its callers. The place of the call is the transaction's site in
/// [`Report::tx_sites`](crate::Report::tx_sites).
///
/// # Errors
/// Why the transaction aborted. On a machine without transactions ([`available`]) the body is not run.
#[inline(always)]
#[track_caller]
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    let result = attempt(body, Location::caller(), stack::pointer());
    stack::stays();
    result
}

/// Attempts a transaction. The function has its own frame: the stack above `frame` belongs to its callers, and an abort
/// restores it to its state at this function's begin.
#[inline(never)]
fn attempt<R>(body: impl FnOnce() -> R, place: &'static Location<'static>, frame: usize) -> Result<R, Abort> {
    debug_assert!(frame == 0 || (&raw const place).addr() < frame, "the caller's frame is gone");
    let in_hand = start(true, place)?;
    stack::save(frame);
    let left = catch_unwind(AssertUnwindSafe(|| {
        leave_if_doomed();
        body()
    }));
    // On a real machine a doomed body would not have reached its panic.
    let panics = left.as_ref().is_err_and(|payload| !payload.is::<Doomed>()) && !(inside() && doomed());
    if panics {
        // As on real machines, the transaction's writes are undone.
        doom(Cause::Forbidden);
    }
    if in_hand {
        unwinds_no_more();
    }
    match (end(), left) {
        (Ok(()), Ok(result)) => Ok(result),
        (Ok(()), Err(_)) if in_hand && !panics => Err(why_doomed()),
        // Nested: the outer body has to leave as well.
        (Ok(()), Err(payload)) => resume_unwind(payload),
        (Err(why), left) => {
            stack::restore(frame);
            match left {
                Err(payload) if panics => resume_unwind(payload),
                _ => Err(why),
            }
        }
    }
}

/// The part of the caller's stack that an abort restores.
mod stack {
    use super::{engine, with};

    /// Returns the address at which the frames of this function's callers end; 0 if it is unknown.
    #[inline(always)]
    pub(super) fn pointer() -> usize {
        #[allow(unused_mut, reason = "not on every processor")]
        let mut pointer = 0;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction only reads a register.
        unsafe {
            core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
        }
        pointer
    }

    /// Called after the last use of the result of [`pointer`]. Prevents tail calls before this call: in a tail call,
    /// the callee's frame would replace the caller's frame.
    #[inline(always)]
    pub(super) fn stays() {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: the empty instruction does nothing.
        unsafe {
            core::arch::asm!("", options(nomem, nostack, preserves_flags));
        }
    }

    /// Copies the stack above `frame`, at the beginning of an outermost transaction.
    pub(super) fn save(frame: usize) {
        if let Some(engine) = engine().filter(|_| frame != 0) {
            with(engine, |engine| engine.tx_save_stack(frame));
        }
    }

    /// Restores the copied stack after an abort.
    pub(super) fn restore(frame: usize) {
        if let Some(engine) = engine().filter(|_| frame != 0) {
            with(engine, |engine| engine.tx_restore_stack(frame));
        }
    }
}

/// Begins a transaction whose body checks [`doomed`]; [`end`] must follow. The place of the call is its site.
///
/// # Errors
/// If the machine has no transactions ([`available`]).
#[track_caller]
pub fn begin() -> Result<(), Abort> {
    start(false, Location::caller()).map(|_| ())
}

/// Begins or nests a transaction. Returns true if its body unwinds and the enclosing body does not.
fn start(unwinds: bool, place: &'static Location<'static>) -> Result<bool, Abort> {
    let Some(engine) = engine().filter(|_| available()) else { return Err(Abort(0)) };
    with(engine, |engine| match (engine.me().tx_depth, engine.me().tx.doomed) {
        (0, _) => {
            engine.tx_begin(unwinds, place);
            Ok(false)
        }
        // The enclosing transaction is doomed, and its own body does not leave by unwinding. A nested body that unwinds
        // cannot unwind through the enclosing body. So the nested body is not run.
        (_, Some(why)) if unwinds && engine.me().tx.by_hand && !engine.me().tx.unwinds => Err(why),
        _ => Ok(engine.tx_nest(unwinds)),
    })
}

fn unwinds_no_more() {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.me().tx.unwinds = false);
    }
}

/// Returns why the running thread's transaction is doomed.
fn why_doomed() -> Abort {
    engine().and_then(|engine| with(engine, |engine| engine.me().tx.doomed)).unwrap_or(Abort(0))
}

/// Ends the innermost transaction. If it is also the outermost, it commits in this instant.
///
/// # Errors
/// Why the outermost transaction aborted.
///
/// # Panics
/// If it is called outside of a transaction.
pub fn end() -> Result<(), Abort> {
    let engine = engine().expect("a transaction ends in the run in which it began");
    with(engine, |engine| engine.tx_drain());
    take_turn(engine);
    with(engine, |engine| {
        // When a run's threads unwind, their transactions are removed.
        if engine.me().tx_depth == 0 && engine.unwinding {
            return Err(Abort(0));
        }
        assert!(engine.me().tx_depth > 0, "no transaction to end");
        engine.tx_end()
    })
}

/// Returns whether the calling thread is in a transaction.
pub fn inside() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.me().tx_depth > 0))
}

/// Returns whether the calling thread's transaction cannot commit any more.
pub fn doomed() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.me().tx.doomed.is_some()))
}

/// Aborts the calling thread's transaction with a reason of the program's own. Does nothing outside of a transaction.
/// In the body of [`transaction`] it does not return, except to a destructor that a panic of the body runs.
pub fn abort(code: u8) {
    doom(Cause::Explicit(code));
    if let Some(engine) = engine() {
        leave(engine);
    }
}

fn doom(why: Cause) {
    if let Some(engine) = engine().filter(|_| inside()) {
        take_turn(engine);
        with(engine, |engine| engine.tx_doom(engine.current, why));
    }
}

fn leave_if_doomed() {
    if let Some(engine) = engine().filter(|_| doomed()) {
        leave(engine);
    }
}

/// Waits for the thread's turn. A commit and an abort take their turn like an access, so that they are in the order of
/// virtual time.
fn take_turn(engine: *mut Engine) {
    while !with(engine, |engine| engine.step()) {
        crate::engine::switch::suspend(engine);
    }
}

/// Leaves the body of a doomed transaction, if the body leaves by unwinding and does not unwind already.
pub(super) fn leave(engine: *mut Engine) {
    let unwinds = with(engine, |engine| {
        let thread = engine.me();
        // A second panic, in a destructor that a panic runs, would end the process.
        let may = thread.tx.panicking || !std::thread::panicking();
        thread.tx_depth > 0 && may && std::mem::take(&mut thread.tx.unwinds)
    });
    if unwinds {
        resume_unwind(Box::new(Doomed));
    }
}
