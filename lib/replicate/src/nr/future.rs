//! Operations as futures, with real wakers. A task that must wait stores its waker in a slot. The task is woken by the
//! combiner that answers its request, or by a combiner that leaves without having seen the request. If all slots are in
//! use, the task wakes itself, so that it is polled again soon.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Replicable;
use super::handle::{Handle, Seat};
use crate::board::{Refused, Sleeper, SlotId};
use crate::poison::Poisoned;
use crate::reentry;

impl<T: Replicable> Handle<T> {
    /// As [`write`](Self::write), for asynchronous tasks. Where a thread would wait for a combiner, the task is
    /// suspended, and the combiner wakes it. If no combiner is active, the task combines while it is polled. Works with
    /// any executor.
    ///
    /// If the future is dropped before it is ready, the operation may or may not be carried out.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let (mut future, waker) = (std::pin::pin!(future), std::task::Waker::noop());
    /// #     loop {
    /// #         let polled = future.as_mut().poll(&mut std::task::Context::from_waker(waker));
    /// #         if let std::task::Poll::Ready(output) = polled { return output }
    /// #     }
    /// # }
    /// let mut sum = sum.handle();
    /// assert_eq!(block_on(async { sum.write_async(42).await })?, 42);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn write_async(&mut self, operation: T::Write) -> WriteFuture<'_, T> {
        WriteFuture::new(self, operation)
    }

    /// As [`read`](Self::read), for asynchronous tasks: see [`write_async`](Self::write_async).
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let (mut future, waker) = (std::pin::pin!(future), std::task::Waker::noop());
    /// #     loop {
    /// #         let polled = future.as_mut().poll(&mut std::task::Context::from_waker(waker));
    /// #         if let std::task::Poll::Ready(output) = polled { return output }
    /// #     }
    /// # }
    /// let mut sum = sum.handle();
    /// assert_eq!(block_on(async { sum.read_async(&()).await })?, 0);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn read_async<'h>(&'h mut self, operation: &'h T::Read) -> ReadFuture<'h, T> {
        ReadFuture::new(self, operation)
    }
}

/// A changing operation in progress: see [`Handle::write_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct WriteFuture<'h, T: Replicable> {
    handle: &'h mut Handle<T>,
    /// `Some` until the operation is posted or carried out.
    operation: Option<T::Write>,
}

// No field is pinned structurally.
impl<T: Replicable> Unpin for WriteFuture<'_, T> {}

impl<'h, T: Replicable> WriteFuture<'h, T> {
    pub(super) fn new(handle: &'h mut Handle<T>, operation: T::Write) -> Self {
        handle.clear_slots();
        Self { handle, operation: Some(operation) }
    }

    /// Carries the operation out, or posts it if there is a free slot.
    fn start(&mut self) -> Option<Result<T::Response, Poisoned>> {
        let Seat { replica, slot } = self.handle.seat();
        let shared = &*self.handle.shared;
        if let Err(poisoned) = shared.poison.check() {
            return Some(Err(poisoned));
        }
        if let Some(turn) = shared.try_turn(replica) {
            let operation = self.operation.take().expect("a future is not polled after it was ready");
            return Some(shared.write_in_turn(replica, turn, operation));
        }
        let board = &shared.replicas[replica].board;
        let slot = board.claim(slot)?;
        let operation = self.operation.take().expect("a future is not polled after it was ready");
        board.post(slot, operation);
        self.handle.posted = Some(slot);
        None
    }

    /// Returns the answer to the operation posted at `slot`, if there is one.
    fn answer(&mut self, slot: SlotId) -> Option<Result<T::Response, Poisoned>> {
        let at = self.handle.seat().replica;
        let answer = self.handle.shared.replicas[at].board.answer(slot)?;
        self.handle.posted = None;
        Some(answer.map_err(|Refused| self.handle.shared.poison.why()))
    }
}

impl<T: Replicable> Future for WriteFuture<'_, T> {
    type Output = Result<T::Response, Poisoned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        reentry::check(reentry::identity(&*this.handle.shared));
        if this.handle.posted.is_none()
            && let Some(ready) = this.start()
        {
            return Poll::Ready(ready);
        }
        let Some(slot) = this.handle.posted else {
            // All slots are in use: the task is polled again after other tasks have run.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        loop {
            if let Some(answer) = this.answer(slot) {
                return Poll::Ready(answer);
            }
            let at = this.handle.seat().replica;
            let shared = &this.handle.shared;
            shared.replicas[at].board.sleep(slot, Sleeper::Task(context.waker().clone()));
            if let Some(answer) = this.answer(slot) {
                return Poll::Ready(answer);
            }
            let at = this.handle.seat().replica;
            let shared = &this.handle.shared;
            let Some(turn) = shared.try_turn(at) else {
                shared.poison.check()?;
                return Poll::Pending;
            };
            // On an error, `combine` refuses this task's request, too.
            let _ = shared.combine(at, turn, core::iter::empty(), |_| {});
        }
    }
}

impl<T: Replicable> Drop for WriteFuture<'_, T> {
    fn drop(&mut self) {
        self.handle.clear_slots();
    }
}

/// A reading operation in progress: see [`Handle::read_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct ReadFuture<'h, T: Replicable> {
    handle: &'h mut Handle<T>,
    operation: &'h T::Read,
    /// The completed tail when the future was first polled: all operations below it must be visible to this read.
    until: Option<u64>,
}

// No field is pinned structurally.
impl<T: Replicable> Unpin for ReadFuture<'_, T> {}

impl<'h, T: Replicable> ReadFuture<'h, T> {
    pub(super) fn new(handle: &'h mut Handle<T>, operation: &'h T::Read) -> Self {
        handle.clear_slots();
        Self { handle, operation, until: None }
    }

    /// Returns whether the replica is fresh. Refreshes it if no other thread does.
    fn is_fresh(&mut self) -> Result<bool, Poisoned> {
        let at = self.handle.seat().replica;
        let shared = &*self.handle.shared;
        reentry::check(reentry::identity(shared));
        shared.poison.check()?;
        let until = *self.until.get_or_insert_with(|| shared.log.completed());
        if shared.log.local_tail(at) < until
            && let Some(mut turn) = shared.try_turn(at)
        {
            shared.refresh(at, &mut turn)?;
        }
        Ok(shared.log.local_tail(at) >= until)
    }

    /// Stores the task's waker in a slot. Returns whether a slot was free.
    fn sleep(&mut self, context: &Context<'_>) -> bool {
        let Seat { replica, slot } = self.handle.seat();
        let board = &self.handle.shared.replicas[replica].board;
        let claimed = self.handle.waiting.or_else(|| board.claim(slot).inspect(|&slot| board.idle(slot)));
        self.handle.waiting = claimed;
        claimed.into_iter().for_each(|slot| board.sleep(slot, Sleeper::Task(context.waker().clone())));
        claimed.is_some()
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
            // Checked once more: the combiner may have left before the waker was stored.
            if !this.is_fresh()? {
                return Poll::Pending;
            }
        }
        let at = this.handle.seat().replica;
        Poll::Ready(this.handle.shared.look(at, |data| data.read(this.operation)))
    }
}

impl<T: Replicable> Drop for ReadFuture<'_, T> {
    fn drop(&mut self) {
        self.handle.clear_slots();
    }
}
