//! How a thread waits for the answer to what it posts: it serves itself when no combiner is there, spins, yields, and
//! in the end parks until it is woken.

use archipelago_platform::thread;
use archipelago_sync::backoff::Backoff;

use crate::board::{Board, Refused, Sleeper, SlotId};
use crate::poison::{Poison, Poisoned};

/// How often a waiting thread yields the processor before it parks.
const YIELDS: u32 = 64;

/// Posts `request` at the claimed slot and waits until some combiner has carried it out.
///
/// `serve` combines if nobody does, and says whether it did. With `patience` it is left to others as long as this
/// thread spins.
///
/// # Errors
/// If the structure is poisoned.
#[cold]
pub(crate) fn submit<Q, A>(
    board: &Board<Q, A>,
    poison: &Poison,
    slot: SlotId,
    request: Q,
    patience: bool,
    serve: impl Fn() -> bool,
) -> Result<A, Poisoned> {
    board.post(slot, request);
    let mut waiter = Waiter { board, slot, slept: false };
    let backoff = Backoff::new();
    let mut yields = 0;
    loop {
        if let Some(answer) = board.answer(slot) {
            return answer.map_err(|Refused| poison.why());
        }
        if let Err(poisoned) = poison.check()
            && board.retract(slot).is_some()
        {
            return Err(poisoned);
        }
        if (!patience || backoff.is_yielding()) && serve() {
            continue;
        }
        if yields < YIELDS {
            yields += u32::from(backoff.is_yielding());
            backoff.wait();
            continue;
        }
        waiter.leave_word();
        // Once more, now that a combiner that comes by would wake this thread.
        if !board.answer_is_there(slot) && poison.check().is_ok() && !serve() {
            thread::park();
        }
    }
}

/// A thread that waits at a slot, and may have left word there how to wake it.
struct Waiter<'b, Q, A> {
    board: &'b Board<Q, A>,
    slot: SlotId,
    slept: bool,
}

impl<Q, A> Waiter<'_, Q, A> {
    fn leave_word(&mut self) {
        self.board.sleep(self.slot, Sleeper::Thread(thread::current()), !self.slept);
        self.slept = true;
    }
}

impl<Q, A> Drop for Waiter<'_, Q, A> {
    fn drop(&mut self) {
        if self.slept {
            self.board.wide_awake();
        }
    }
}
