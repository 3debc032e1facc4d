//! Operations as futures, with real wakers: a task that would wait leaves its waker in a slot, and the combiner that
//! answers it, or that leaves without having seen it, wakes the task.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Replicable;
use super::handle::Handle;
use crate::board::{Refused, Sleeper, SlotId};
use crate::poison::Poisoned;

/// Where a future waits.
#[derive(Debug)]
struct Place {
    slot: SlotId,
    slept: bool,
}

/// A changing operation under way: see [`Handle::write_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct WriteFuture<'h, T: Replicable> {
    handle: &'h mut Handle<T>,
    /// Until it is posted or carried out.
    operation: Option<T::Write>,
    /// While it is posted.
    place: Option<Place>,
}

// Nothing in it is pinned.
impl<T: Replicable> Unpin for WriteFuture<'_, T> {}

impl<'h, T: Replicable> WriteFuture<'h, T> {
    pub(super) fn new(handle: &'h mut Handle<T>, operation: T::Write) -> Self {
        Self { handle, operation: Some(operation), place: None }
    }

    /// Carries the operation out, or posts it. `None`: there is no free slot, try again.
    fn start(&mut self) -> Option<Option<Result<T::Response, Poisoned>>> {
        let shared = &*self.handle.shared;
        if let Err(poisoned) = shared.poison.check() {
            return Some(Some(Err(poisoned)));
        }
        if let Some(turn) = shared.try_turn(self.handle.replica) {
            let operation = self.operation.take().expect("a future is not polled after it was ready");
            return Some(Some(shared.write_in_turn(self.handle.replica, turn, operation)));
        }
        let slot = self.handle.board().claim(self.handle.slot)?;
        let operation = self.operation.take().expect("a future is not polled after it was ready");
        self.handle.board().post(slot, operation);
        self.place = Some(Place { slot, slept: false });
        Some(None)
    }

    /// The answer to the posted operation, if there is one.
    fn answer(&mut self) -> Option<Result<T::Response, Poisoned>> {
        let slot = self.place.as_ref()?.slot;
        let shared = &*self.handle.shared;
        let board = self.handle.board();
        let answer = match board.answer(slot) {
            Some(answer) => answer.map_err(|Refused| shared.poison.why()),
            None => Err(shared.poison.check().err().filter(|_| board.retract(slot).is_some())?),
        };
        self.leave_place();
        Some(answer)
    }

    fn leave_place(&mut self) {
        if self.place.take().is_some_and(|place| place.slept) {
            self.handle.board().wide_awake();
        }
    }
}

impl<T: Replicable> Future for WriteFuture<'_, T> {
    type Output = Result<T::Response, Poisoned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.place.is_none() {
            match this.start() {
                Some(Some(ready)) => return Poll::Ready(ready),
                Some(None) => {}
                None => {
                    // More tasks than slots: ask again when the others had their turn.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        loop {
            if let Some(answer) = this.answer() {
                return Poll::Ready(answer);
            }
            let place = this.place.as_mut().expect("posted");
            let board = &this.handle.shared.replicas[this.handle.replica].board;
            board.sleep(place.slot, Sleeper::Task(context.waker().clone()), !place.slept);
            place.slept = true;
            if let Some(answer) = this.answer() {
                return Poll::Ready(answer);
            }
            let Some(mut turn) = this.handle.shared.try_turn(this.handle.replica) else { return Poll::Pending };
            // An error reaches this task's request, too.
            let _ = this.handle.shared.combine(this.handle.replica, &mut turn, core::iter::empty(), |_| {});
        }
    }
}

impl<T: Replicable> Drop for WriteFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.handle.board().abandon(place.slot);
            self.leave_place();
        }
    }
}

/// A reading operation under way: see [`Handle::read_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct ReadFuture<'h, T: Replicable> {
    handle: &'h mut Handle<T>,
    operation: &'h T::Read,
    /// What was answered when it was first polled.
    until: Option<u64>,
    place: Option<Place>,
}

// Nothing in it is pinned.
impl<T: Replicable> Unpin for ReadFuture<'_, T> {}

impl<'h, T: Replicable> ReadFuture<'h, T> {
    pub(super) fn new(handle: &'h mut Handle<T>, operation: &'h T::Read) -> Self {
        Self { handle, operation, until: None, place: None }
    }

    /// Whether the replica is fresh; refreshes it if nobody else does.
    fn is_fresh(&mut self) -> Result<bool, Poisoned> {
        let shared = &*self.handle.shared;
        shared.poison.check()?;
        let until = *self.until.get_or_insert_with(|| shared.log.completed());
        let at = self.handle.replica;
        if shared.log.local_tail(at) < until
            && let Some(mut turn) = shared.try_turn(at)
        {
            shared.refresh(at, &mut turn)?;
        }
        Ok(shared.log.local_tail(at) >= until)
    }

    /// Leaves word with the combiner. Returns whether there was a slot to do so.
    fn sleep(&mut self, context: &Context<'_>) -> bool {
        let board = &self.handle.shared.replicas[self.handle.replica].board;
        if self.place.is_none() {
            let Some(slot) = board.claim(self.handle.slot) else { return false };
            board.idle(slot);
            self.place = Some(Place { slot, slept: false });
        }
        if let Some(place) = &mut self.place {
            board.sleep(place.slot, Sleeper::Task(context.waker().clone()), !place.slept);
            place.slept = true;
        }
        true
    }
}

impl<T: Replicable> Future for ReadFuture<'_, T> {
    type Output = Result<T::Response, Poisoned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.is_fresh()? {
            if !this.sleep(context) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Once more: the combiner may have left before it could know of this task.
            if !this.is_fresh()? {
                return Poll::Pending;
            }
        }
        Poll::Ready(this.handle.shared.look(this.handle.replica, |data| data.read(this.operation)))
    }
}

impl<T: Replicable> Drop for ReadFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.handle.board().free(place.slot);
            self.handle.board().wide_awake();
        }
    }
}
