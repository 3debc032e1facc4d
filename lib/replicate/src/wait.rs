//! Waiting of threads: for a free slot of the board, and for the answer to a request that was posted in a slot. A
//! waiting thread combines itself if no thread combines. It first spins, then yields the processor, and finally parks
//! until it is woken.

use archipelago_platform::htm::refuse_in_regions;
use archipelago_platform::thread;
use archipelago_sync::backoff::Backoff;

use crate::board::{Board, Refused, Sleeper, SlotId};

/// How often a waiting thread yields the processor before it parks. The first number is for boards with more threads
/// than processors, where threads that can make progress should get a processor soon. The second is for other boards,
/// where waking a parked thread takes longer than waiting.
const YIELDS_IN_A_CROWD: u32 = 16;
const YIELDS: u32 = 512;

/// Claims a free slot, `preferred` if possible, and returns it; or returns the error case with the result of
/// `otherwise`, whichever is available first. If neither is available, the thread sleeps. Sleeping threads are served
/// in the order of their arrival.
///
/// `otherwise` returns `Some` if no combiner is active (this thread then has the right to combine) or the structure is
/// poisoned.
///
/// # Panics
/// In the body of a region, in debug builds: the caller is going to wait, here or in [`submit`].
#[cold]
pub(crate) fn slot_or<Q, A, T>(
    board: &Board<Q, A>,
    preferred: SlotId,
    otherwise: impl Fn() -> Option<T>,
) -> Result<SlotId, T> {
    // Before anything is claimed or posted: a thread that panicked later, in `submit`, would leave a request that
    // refers to its stack.
    refuse_in_regions("waiting");
    // Threads that wait in line are served first.
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

/// The result of a waiting thread's attempt to combine.
pub(crate) enum Served {
    /// This thread has combined.
    Yes,
    /// Another thread combines.
    Busy,
    /// Another thread combines, but this thread need not wait for it: the structure is poisoned.
    Poisoned,
}

/// Posts `request` in the claimed slot and waits until a combiner has carried it out.
///
/// `serve` combines if no other thread does. `call` is given if the structure has a dedicated combiner, and wakes this
/// combiner. In this case the thread does not call `serve` as long as it spins.
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
        // Checks once more, since from now on a combiner that leaves wakes this thread.
        if !board.answer_is_there(slot) && matches!(serve(), Served::Busy) {
            thread::park();
        }
    }
}
