//! Hardware transactions, as the platform's door to them needs.
//!
//! [`transaction`] is the easy shape: the body leaves by unwinding when the transaction is doomed. [`begin`] and
//! [`end`] are for bodies that ask [`doomed`] themselves: after a doom, loads see what is there and writes leave no
//! trace, until [`end`] says why.

use core::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::engine::Engine;
use crate::engine::switch::engine;
pub use crate::engine::tx::Abort;
use crate::engine::tx::Cause;

use super::with;

/// The payload that leaves the body of a doomed transaction.
struct Doomed;

/// Whether the machine of this run has hardware transactions. False outside of a run.
pub fn available() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.machine.transactions.is_some()))
}

/// Runs `body` as one transaction: afterwards all of its writes have happened, in one instant, or none. Those to locals
/// of its callers are among them. The place of the call is the transaction's site in
/// [`Report::tx_sites`](crate::Report::tx_sites).
///
/// # Errors
/// Why it aborted. Without transactions ([`available`]) the body isn't run.
#[inline(always)]
#[track_caller]
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    attempt(body, Location::caller(), stack::pointer())
}

/// A frame of its own: what lies above `frame` is its callers', and as it was when this begins an abort leaves it.
#[inline(never)]
fn attempt<R>(body: impl FnOnce() -> R, place: &'static Location<'static>, frame: usize) -> Result<R, Abort> {
    start(true, place)?;
    stack::save(frame);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => end().map(|()| result).inspect_err(|_| stack::restore(frame)),
        Err(payload) if payload.is::<Doomed>() => match end() {
            Err(why) => {
                stack::restore(frame);
                Err(why)
            }
            // Nested: the outer body has to go too.
            Ok(()) => resume_unwind(payload),
        },
        Err(payload) => {
            // A real panic: as on real machines, what the transaction did is undone.
            doom(Cause::Forbidden);
            if end().is_err() {
                stack::restore(frame);
            }
            resume_unwind(payload)
        }
    }
}

/// The part of the caller's stack that an abort restores.
mod stack {
    use super::{engine, with};

    /// Where the frames of this function's callers end. 0: unknown.
    #[inline(always)]
    pub(super) fn pointer() -> usize {
        #[allow(unused_mut, reason = "not on every processor")]
        let mut pointer = 0;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads a register.
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

    /// Keeps what lies on the stack above `frame`, at the beginning of an outermost transaction.
    pub(super) fn save(frame: usize) {
        if let Some(engine) = engine().filter(|_| frame != 0) {
            with(engine, |engine| engine.tx_save_stack(frame));
        }
    }

    /// Puts it back after an abort.
    pub(super) fn restore(frame: usize) {
        if let Some(engine) = engine().filter(|_| frame != 0) {
            with(engine, |engine| engine.tx_restore_stack(frame));
        }
    }
}

/// Begins a transaction whose body asks [`doomed`]; [`end`] must follow. The place of the call is its site.
///
/// # Errors
/// Without transactions ([`available`]).
#[track_caller]
pub fn begin() -> Result<(), Abort> {
    start(false, Location::caller())
}

fn start(unwinds: bool, place: &'static Location<'static>) -> Result<(), Abort> {
    match engine().filter(|_| available()) {
        Some(engine) => {
            with(engine, |engine| engine.tx_begin(unwinds, place));
            Ok(())
        }
        None => Err(Abort(0)),
    }
}

/// Ends the innermost transaction; the outermost commits in this instant.
///
/// # Errors
/// Why the outermost transaction aborted.
///
/// # Panics
/// Outside of a transaction.
pub fn end() -> Result<(), Abort> {
    let engine = engine().expect("a transaction ends in the run in which it began");
    take_turn(engine);
    with(engine, |engine| {
        // Unwinding forgets transactions.
        if engine.me().tx_depth == 0 && engine.unwinding {
            return Err(Abort(0));
        }
        assert!(engine.me().tx_depth > 0, "no transaction to end");
        engine.tx_end()
    })
}

/// Whether the calling thread is in a transaction.
pub fn inside() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.me().tx_depth > 0))
}

/// Whether the calling thread's transaction can no longer commit.
pub fn doomed() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.me().tx.doomed.is_some()))
}

/// Aborts the calling thread's transaction with a reason of the program's own; nothing outside of one. In the body of
/// [`transaction`] it doesn't return.
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

/// A commit and an abort take their turn like an access, so that they stand in the order of virtual time.
fn take_turn(engine: *mut Engine) {
    while !with(engine, |engine| engine.step()) {
        crate::engine::switch::suspend(engine);
    }
}

/// Leaves the body of a doomed transaction, if it is one that unwinds and does not do so already.
pub(super) fn leave(engine: *mut Engine) {
    let unwinds = with(engine, |engine| {
        let thread = engine.me();
        thread.tx_depth > 0 && std::mem::take(&mut thread.tx.unwinds)
    });
    if unwinds {
        resume_unwind(Box::new(Doomed));
    }
}
