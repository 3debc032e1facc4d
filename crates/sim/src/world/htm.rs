//! Hardware transactions, as the platform's door to them needs.
//!
//! [`transaction`] is the easy shape: the body leaves by unwinding when the transaction is doomed. [`begin`] and
//! [`end`] are for bodies that ask [`doomed`] themselves: after a doom, loads see what is there and writes leave no
//! trace, until [`end`] says why.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::engine::Engine;
use crate::engine::switch::engine;
pub use crate::engine::tx::Abort;

use super::with;

/// The payload that leaves the body of a doomed transaction.
struct Doomed;

/// Whether the machine of this run has hardware transactions. False outside of a run.
pub fn available() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.machine.transactions.is_some()))
}

/// Runs `body` as one transaction: afterwards all of its writes have happened, in one instant, or none.
///
/// # Errors
/// Why it aborted. Without transactions ([`available`]) the body isn't run.
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    start(true)?;
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => end().map(|()| result),
        Err(payload) if payload.is::<Doomed>() => match end() {
            Err(why) => Err(why),
            // Nested: the outer body has to go too.
            Ok(()) => resume_unwind(payload),
        },
        Err(payload) => {
            // A real panic: as on real machines, what the transaction did is undone.
            abort_quietly();
            let _ = end();
            resume_unwind(payload)
        }
    }
}

/// Begins a transaction whose body asks [`doomed`]; [`end`] must follow.
///
/// # Errors
/// Without transactions ([`available`]).
pub fn begin() -> Result<(), Abort> {
    start(false)
}

fn start(unwinds: bool) -> Result<(), Abort> {
    match engine().filter(|_| available()) {
        Some(engine) => {
            with(engine, |engine| engine.tx_begin(unwinds));
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
    // The commit takes its turn like an access, so that it stands in the order of virtual time.
    while !with(engine, |engine| engine.step()) {
        super::switch::suspend(engine);
    }
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
    let Some(engine) = engine() else { return };
    with(engine, |engine| engine.tx_doom(engine.current, Abort::explicit(code)));
    leave(engine);
}

fn abort_quietly() {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.tx_doom(engine.current, Abort(0)));
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
