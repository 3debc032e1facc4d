//! How a thread waits for a slot, and for the answer to what it posts there: it serves itself when no combiner is there,
//! spins, yields, and in the end parks until it is woken.

use archipelago_platform::thread;
use archipelago_sync::backoff::Backoff;

use crate::board::{Board, Refused, Sleeper, SlotId};

/// How often a waiting thread yields the processor before it parks: where there are more threads than processors, so
/// that those that could do something get one soon; and elsewhere, where being woken takes longer than waiting.
const YIELDS_IN_A_CROWD: u32 = 16;
const YIELDS: u32 = 512;

/// A free slot, `preferred` if possible, or what `otherwise` finds first. Who finds neither sleeps, and all that do so are
/// served in the order in which they came.
///
/// `otherwise` finds something if no combiner is there.
#[cold]
pub(crate) fn slot_or<Q, A, T>(
    board: &Board<Q, A>,
    preferred: SlotId,
    otherwise: impl Fn() -> Option<T>,
) -> Result<SlotId, T> {
    // Those in line come first.
    if !board.has_line()
        && let Some(slot) = board.claim(preferred)
    {
        return Ok(slot);
    }
    let place = board.line_up(Sleeper::Thread(thread::current()));
    loop {
        if board.is_first(place) {
            let found = board.claim(preferred).map(Ok).or_else(|| otherwise().map(Err));
            if let Some(found) = found {
                board.leave_line();
                return found;
            }
        }
        thread::park();
    }
}

/// What came of a waiting thread's attempt to combine.
pub(crate) enum Served {
    /// It did.
    Yes,
    /// Another thread does.
    Busy,
    /// Another thread does, and no thread need wait for it: the structure is poisoned.
    Poisoned,
}

/// Posts `request` at the claimed slot and waits until some combiner has carried it out.
///
/// `serve` combines if no thread does. That is left to a thread of its own as long as this one spins, where there is
/// one: `call` wakes it.
///
/// # Errors
/// If the structure is poisoned.
#[cold]
pub(crate) fn submit<Q, A>(
    board: &Board<Q, A>,
    slot: SlotId,
    request: Q,
    call: Option<impl FnOnce()>,
    serve: impl Fn() -> Served,
) -> Result<A, Refused> {
    board.post(slot, request);
    let patience = call.is_some();
    call.into_iter().for_each(|call| call());
    let backoff = Backoff::new();
    let mut yields = 0;
    loop {
        if let Some(answer) = board.answer(slot) {
            return answer;
        }
        if !patience || backoff.is_yielding() {
            match serve() {
                Served::Yes => continue,
                Served::Busy => {}
                Served::Poisoned => {
                    board.abandon(slot);
                    return Err(Refused);
                }
            }
        }
        if yields < if board.is_crowded() { YIELDS_IN_A_CROWD } else { YIELDS } {
            yields += u32::from(backoff.is_yielding());
            backoff.wait();
            continue;
        }
        board.sleep(slot, Sleeper::Thread(thread::current()));
        // Once more, now that a combiner that leaves would wake this thread.
        if !board.answer_is_there(slot) && matches!(serve(), Served::Busy) {
            thread::park();
        }
    }
}
