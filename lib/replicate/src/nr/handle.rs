//! A thread's handle on a replicated structure: posting, waiting, reading.

use core::fmt;
use core::iter;
use core::ops::ControlFlow;

use archipelago_platform::sync::Arc;
use archipelago_sync::backoff::Backoff;

use super::engine::Shared;
use super::{Owner, Replicable};
use crate::board::{Refused, SlotId};
use crate::poison::Poisoned;
use crate::reentry;
use crate::sequential::{ClosureWrite, Closures};
use crate::wait::{Served, slot_or, submit};

/// One thread's access to a [`Replicated`](super::Replicated) structure. The handle keeps the structure alive, and
/// frees its slot when it is dropped.
///
/// The first operation binds the handle to the replica of the node on which the calling thread runs (or, if the builder
/// has set the number of replicas, to the next replica in turn). So a handle may be made on any thread and sent to the
/// thread that will use it. A bound handle may be used by another thread, but keeps its replica, which may be slower. A
/// thread that uses a handle for long should make its own.
///
/// All operations are linearizable: each takes effect at one moment between call and return, for all handles of all
/// replicas.
///
/// # Errors
/// Every operation fails with [`Poisoned`] after a panic in `write`, in `prepare` or in the observer.
///
/// # Panics
/// Builds with debug assertions panic if an operation is called from inside another one on the same structure, for
/// example from a closure given to [`view`](Handle::view), from [`Sequential::write`](crate::Sequential::write), or
/// from the destructor of an operation. Inside a `write` or a destructor, this panic poisons the structure. Other
/// builds hang.
pub struct Handle<T: Replicable> {
    pub(super) shared: Arc<Shared<T>>,
    /// `None` before the first use, unless the handle was made for a certain replica.
    seat: Option<Seat>,
    /// Slots of futures in progress. If a future is leaked, its slot stays here until the handle's next future frees
    /// it, or the drop of the handle.
    pub(super) posted: Option<SlotId>,
    pub(super) waiting: Option<SlotId>,
    /// Declared after `shared`: the background threads end when the last owner is dropped.
    owner: Arc<Owner<T>>,
}

/// The replica and the slot of a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) replica: usize,
    /// The slot at which the handle posts if this slot is free.
    pub(super) slot: SlotId,
}

impl<T: Replicable> Handle<T> {
    pub(super) fn new(owner: &Arc<Owner<T>>, replica: Option<usize>) -> Self {
        let shared = owner.shared().clone();
        let mut handle = Self { shared, seat: None, posted: None, waiting: None, owner: owner.clone() };
        if let Some(replica) = replica {
            handle.bind(replica);
        }
        handle
    }

    /// Returns the handle's seat; binds the handle at its first use.
    #[inline]
    pub(super) fn seat(&mut self) -> Seat {
        match self.seat {
            Some(seat) => seat,
            None => self.bind_here(),
        }
    }

    #[cold]
    fn bind_here(&mut self) -> Seat {
        self.bind(self.owner.nearest_replica())
    }

    fn bind(&mut self, replica: usize) -> Seat {
        let seat = Seat { replica, slot: self.shared.replicas[replica].board.join() };
        self.seat = Some(seat);
        seat
    }

    /// Returns the index of the handle's replica. Returns `None` before the first use, unless the handle was made for a
    /// certain replica ([`handle_on`](super::Replicated::handle_on)).
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).build(|| Closures::new(7));
    /// let mut handle = number.handle();
    /// assert_eq!(handle.replica(), None);
    /// handle.view(|number| *number)?;
    /// assert_eq!(handle.replica(), Some(0));
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn replica(&self) -> Option<usize> {
        self.seat.map(|seat| seat.replica)
    }

    /// Carries out a reading operation on the local replica. It sees all changes that were answered before the call.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// let mut sum = sum.handle();
    /// assert_eq!(sum.read(&())?, 0);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[inline]
    pub fn read(&mut self, operation: &T::Read) -> Result<T::Response, Poisoned> {
        let at = self.seat().replica;
        self.shared.read(at, |data| data.read(operation))
    }

    /// Carries out a changing operation, on all replicas in the same order. When the call returns, the local replica
    /// has applied the change. Each other replica applies it before a later read there.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// let mut sum = sum.handle();
    /// assert_eq!(sum.write(40)?, 40);
    /// assert_eq!(sum.write(2)?, 42);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[inline]
    pub fn write(&mut self, operation: T::Write) -> Result<T::Response, Poisoned> {
        let Seat { replica, slot } = self.seat();
        reentry::check(reentry::identity(&*self.shared));
        self.shared.poison.check()?;
        if !self.shared.dedicated
            && let Some(turn) = self.shared.try_turn(replica)
        {
            return self.shared.write_in_turn(replica, turn, operation);
        }
        post(&self.shared, replica, slot, operation)
    }

    /// Carries out several changing operations as one batch, in order. No other operation takes effect in between,
    /// unless the batch is longer than the log can ever be ([`Builder::largest_log`](super::Builder::largest_log)).
    /// Then each part that fits into the log is one step. While a batch waits for most of the log to become free,
    /// changes on other replicas may have to wait, too.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// let mut sum = sum.handle();
    /// assert_eq!(sum.write_many(vec![1, 2, 3])?, [1, 3, 6]);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn write_many(&mut self, operations: Vec<T::Write>) -> Result<Vec<T::Response>, Poisoned> {
        let replica = self.seat().replica;
        let shared = &*self.shared;
        reentry::check(reentry::identity(shared));
        let mut responses = Vec::with_capacity(operations.len());
        let backoff = Backoff::new();
        loop {
            shared.poison.check()?;
            if let Some(turn) = shared.try_turn(replica) {
                shared.combine(replica, turn, operations.into_iter(), |response| responses.push(response))?;
                return Ok(responses);
            }
            backoff.wait();
        }
    }

    /// Carries out a change that often turns out to change nothing (paper §3.9, "fake updates"). First reads. Then
    /// `decide`, which gets the response, returns the final answer ([`ControlFlow::Break`]) or the change to carry out.
    /// The read and the change are two operations, and other operations may take effect in between. So the change must
    /// be correct without relying on the read.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    /// use std::collections::BTreeSet;
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// let has = |set: &BTreeSet<u64>, key: &u64| set.contains(key);
    /// let remove = |set: &mut BTreeSet<u64>, key: &u64| set.remove(key);
    /// let set = Replicated::new(|| FromFns::new(BTreeSet::from([1, 2]), has, remove));
    /// let mut set = set.handle();
    /// let mut remove = |key| {
    ///     set.try_read_then_write(&key, |there| if there { Continue(key) } else { Break(false) })
    /// };
    /// assert_eq!((remove(2)?, remove(7)?), (true, false));
    /// assert_eq!(set.shared_stats().writes, 1);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn try_read_then_write(
        &mut self,
        read: &T::Read,
        decide: impl FnOnce(T::Response) -> ControlFlow<T::Response, T::Write>,
    ) -> Result<T::Response, Poisoned> {
        match decide(self.read(read)?) {
            ControlFlow::Break(answer) => Ok(answer),
            ControlFlow::Continue(write) => self.write(write),
        }
    }

    /// Returns counts of the whole structure's work so far, as [`Replicated::stats`](super::Replicated::stats) does.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// # let get = |sum: &u64, (): &()| *sum;
    /// # let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, get, add));
    /// let mut sum = sum.handle();
    /// sum.write(42)?;
    /// assert_eq!(sum.shared_stats().writes, 1);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn shared_stats(&self) -> super::Stats {
        self.shared.stats()
    }

    /// Gives back the slots of futures that were dropped or leaked.
    pub(super) fn clear_slots(&mut self) {
        let Some(Seat { replica, .. }) = self.seat else { return };
        let board = &self.shared.replicas[replica].board;
        self.posted.take().into_iter().for_each(|slot| board.abandon(slot));
        self.waiting.take().into_iter().for_each(|slot| board.free(slot));
    }
}

impl<S: Send + Sync + 'static> Handle<Closures<S>> {
    /// Reads the state. A long read delays the handle's replica, as described at
    /// [`inspect`](super::Replicated::inspect).
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(vec![3, 1, 2]));
    /// assert_eq!(list.handle().view(|list| list.iter().max().copied())?, Some(3));
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn view<R>(&mut self, look: impl FnOnce(&S) -> R) -> Result<R, Poisoned> {
        let at = self.seat().replica;
        self.shared.read(at, |data| look(data.state()))
    }

    /// Changes the state. `change` is called once per replica, and must do the same each time.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(vec![3, 1, 2]));
    /// assert_eq!(list.handle().update(|list| list.pop())?, Some(2));
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn update<R: Send + 'static>(
        &mut self,
        change: impl Fn(&mut S) -> R + Send + Sync + 'static,
    ) -> Result<R, Poisoned> {
        let response = self.write(ClosureWrite::new(change))?;
        Ok(*response.downcast().expect("the response is what this very closure returned"))
    }
}

/// Posts the operation and waits until a combiner, possibly this thread, has carried it out.
#[cold]
fn post<T: Replicable>(
    shared: &Shared<T>,
    at: usize,
    preferred: SlotId,
    operation: T::Write,
) -> Result<T::Response, Poisoned> {
    let board = &shared.replicas[at].board;
    // If this thread may combine itself, it needs no slot.
    let turn = || shared.try_turn(at).map(Ok).or_else(|| shared.poison.check().err().map(Err));
    let slot = match slot_or(board, preferred, turn) {
        Ok(slot) => slot,
        Err(turn) => return shared.write_in_turn(at, turn?, operation),
    };
    let call = shared.dedicated.then_some(|| shared.replicas[at].rest.wake());
    let answer = submit(board, slot, operation, call, || match shared.try_turn(at) {
        Some(turn) => {
            // On an error, `combine` refuses this thread's request, too.
            let _ = shared.combine(at, turn, iter::empty(), |_| {});
            Served::Yes
        }
        None if shared.poison.check().is_err() => Served::Poisoned,
        None => Served::Busy,
    });
    answer.map_err(|Refused| shared.poison.why())
}

impl<T: Replicable> Drop for Handle<T> {
    fn drop(&mut self) {
        self.clear_slots();
        if let Some(Seat { replica, slot }) = self.seat {
            self.shared.replicas[replica].board.leave(slot);
        }
    }
}

impl<T: Replicable> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("replica", &self.replica()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use archipelago_platform::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Replicated;

    /// A panic, perhaps on another replica, may occur after a thread has checked for poison and got the right to
    /// combine.
    #[test]
    fn a_turn_that_was_taken_before_a_panic_changes_nothing() {
        let structure = Replicated::builder().replicas(1).build(|| Closures::new(0_u32));
        let shared = &structure.owner.shared;
        let turn = shared.try_turn(0).expect("no other thread combines");
        shared.poison.set(&"planted");
        let changes = Arc::new(AtomicU32::new(0));
        let counts = changes.clone();
        let change = ClosureWrite::new(move |_: &mut u32| _ = counts.fetch_add(1, Ordering::Relaxed));
        assert!(shared.combine(0, turn, iter::once(change), |_| ()).is_err());
        assert_eq!(changes.load(Ordering::Relaxed), 0, "changed after the panic");
    }

    #[test]
    fn a_dropped_handle_gives_back_its_slot() {
        let structure = Replicated::builder().replicas(1).slots(2).build(|| Closures::new(0_u32));
        let (mut first, mut second) = (structure.handle(), structure.handle());
        let board = &structure.owner.shared.replicas[0].board;
        assert_eq!(board.handles(), 0, "a handle that was not used takes no slot");
        let slot = first.seat().slot;
        assert!(slot != second.seat().slot && board.handles() == 2);
        drop(first);
        assert_eq!(board.handles(), 1);
        assert_eq!(structure.handle().seat().slot, slot);
    }
}
