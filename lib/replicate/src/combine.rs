//! Flat combining (Hendler, Incze, Shavit, Tzafrir), and a variant with reads under a reader-writer lock.
//!
//! Threads post requests. The thread that gets the combiner's lock carries out all requests, one after the other, on
//! the only copy of the structure. With a plain lock, the structure's cache lines would be transferred to another core
//! at each change of the lock's holder. With combining, only requests and answers are transferred while many threads
//! wait.
//!
//! In [plain flat combining](Combined::flat), reads are requests, too. In the variant that the node-replication paper
//! calls FC+ ([`Combined::new`]), readers take a distributed reader-writer lock and read in parallel. The combiner
//! takes this lock for writing while it carries out a batch.

use core::fmt;
use core::mem;
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use std::panic::catch_unwind;

use archipelago_platform::hint;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Arc;
use archipelago_platform::topology::Topology;
use archipelago_sync::lock::DistributedRwLock;

use crate::board::{Batch, Board, Refused, SlotId};
use crate::nr::Replicable;
use crate::poison::{Poison, Poisoned};
use crate::reentry;
use crate::sequential::{Sequential, lock_for_change};
use crate::turn::{self, CombinerLock};
use crate::wait::{Served, slot_or, submit};
use archipelago_platform::panics::drop_quietly;

/// The largest number of passes of a combiner before it leaves new requests to another thread. During this time the
/// structure stays in the combiner's cache.
const PASSES: usize = 8;

/// A sequential structure made concurrent by flat combining.
///
/// Any number of threads use it through [`handles`](Self::handle). Operations are linearizable and blocking. There is
/// one copy of the structure.
///
/// ```
/// use archipelago::replicate::{Combined, FromFns};
///
/// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
/// let stack = Combined::new(FromFns::new(Vec::new(), |stack: &Vec<u64>, _: &()| stack.len(), push));
/// let mut handle = stack.handle();
/// assert_eq!(handle.write(7)?, 1);
/// assert_eq!(handle.read(&())?, 1);
/// # Ok::<(), archipelago::replicate::Poisoned>(())
/// ```
pub struct Combined<T: Replicable> {
    shared: Arc<Shared<T>>,
}

/// A posted request.
enum Request<T: Replicable> {
    /// The operation stays with its thread, which waits for the answer.
    Read(NonNull<T::Read>),
    Write(T::Write),
}

// SAFETY: a change may be sent to the combiner. A reading operation is lent to the combiner, so it must be `Sync`;
// `CombinedHandle::read` requires this.
unsafe impl<T: Replicable> Send for Request<T> {}

struct Shared<T: Replicable> {
    /// The combiner's lock, which protects the requests that the combiner has taken.
    combiner: CombinerLock<Batch>,
    /// In cache lines of its own: the lock changes often, and each operation reads the neighbouring fields.
    data: CachePadded<DistributedRwLock<T>>,
    board: Board<Request<T>, T::Response>,
    poison: Poison,
    /// Whether reads are posted like changes. If so, no thread takes the reader-writer lock.
    flat: bool,
}

/// The held combiner's lock.
type Turn<'s, T> = turn::Turn<'s, Batch, Request<T>, <T as Sequential>::Response>;

impl<T: Replicable> Combined<T> {
    /// Makes a structure with combining for changes and a distributed reader-writer lock for reads (FC+).
    ///
    /// ```
    /// use archipelago::replicate::{Combined, FromFns};
    ///
    /// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
    /// let stack = Combined::new(FromFns::new(Vec::new(), |stack: &Vec<u64>, (): &()| stack.len(), push));
    /// assert_eq!(stack.handle().read(&()), Ok(0));
    /// ```
    pub fn new(data: T) -> Self {
        Self::build(data, false)
    }

    /// Makes a structure with plain flat combining (FC): reads are combined, too.
    ///
    /// ```
    /// use archipelago::replicate::{Combined, FromFns};
    ///
    /// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
    /// let stack = Combined::flat(FromFns::new(Vec::new(), |stack: &Vec<u64>, (): &()| stack.len(), push));
    /// assert_eq!(stack.handle().read(&()), Ok(0));
    /// ```
    pub fn flat(data: T) -> Self {
        Self::build(data, true)
    }

    fn build(data: T, flat: bool) -> Self {
        let cpus = Topology::current().cpus().len();
        let shared = Shared {
            combiner: CachePadded::default(),
            data: CachePadded::new(DistributedRwLock::new(data)),
            board: Board::new((2 * cpus).max(8), cpus),
            poison: Poison::default(),
            flat,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a handle for a thread. The number of handles is not limited, and handles may be made and dropped at any
    /// time.
    ///
    /// ```
    /// use archipelago::replicate::{Combined, FromFns};
    ///
    /// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
    /// let stack = Combined::new(FromFns::new(Vec::new(), |stack: &Vec<u64>, (): &()| stack.len(), push));
    /// std::thread::scope(|scope| {
    ///     for value in 0..3 {
    ///         let mut stack = stack.handle();
    ///         scope.spawn(move || stack.write(value).unwrap());
    ///     }
    /// });
    /// assert_eq!(stack.handle().read(&()), Ok(3));
    /// ```
    pub fn handle(&self) -> CombinedHandle<T> {
        CombinedHandle { shared: self.shared.clone(), slot: self.shared.board.join() }
    }
}

impl<T: Replicable> Shared<T> {
    #[inline]
    fn try_turn(&self) -> Option<Turn<'_, T>> {
        Turn::try_take(&self.combiner, &self.board, reentry::identity(self))
    }

    /// Carries out `own` and then all posted requests, in several passes if more arrive. A panic poisons the structure.
    /// Then `own` may be unanswered, and the other requests are refused.
    fn combine(&self, batch: &mut Batch, own: Option<&Request<T>>) -> Result<Option<T::Response>, Poisoned> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.poison.check()?;
            let response = self.pass(own, batch);
            let mut passes = 1;
            // Continues while at least half of the handles wait for a combiner. If fewer wait, other threads may be
            // waiting to read, and need the readers' lock.
            while passes < PASSES && batch.len() > 0 && 2 * batch.len() >= self.board.handles() {
                self.pass(None, batch);
                passes += 1;
            }
            Ok(response)
        }));
        let outcome = outcome.unwrap_or_else(|panic| {
            self.poison.set(&*panic);
            drop_quietly(panic);
            Err(self.poison.why())
        });
        if outcome.is_err() {
            self.board.refuse(batch);
        }
        outcome
    }

    fn pass(&self, own: Option<&Request<T>>, batch: &mut Batch) -> Option<T::Response> {
        batch.clear();
        self.board.collect(batch);
        if own.is_none() && batch.len() == 0 {
            return None;
        }
        hint::point("a combiner has collected");
        let mut guard = (!self.flat).then(|| {
            lock_for_change(&self.data, |data| {
                if let Some(Request::Write(operation)) = own.or_else(|| self.board.next_request(batch)) {
                    data.prepare(operation);
                }
            })
        });
        // Declared after the guard, so that it is dropped before the guard.
        let alarm = self.poison.alarm();
        let data = match &mut guard {
            Some(guard) => &mut **guard,
            // SAFETY: in flat mode only the combiner accesses the structure, and this thread holds its lock.
            None => unsafe { &mut *self.data.data_ptr() },
        };
        let mut execute = |request: &Request<T>| match request {
            // SAFETY: the poster waits for the answer, or is this thread, so the operation that it lent is alive.
            Request::Read(operation) => data.read(unsafe { operation.as_ref() }),
            Request::Write(operation) => data.write(operation),
        };
        let response = own.map(&mut execute);
        for _ in 0..batch.len() {
            let request = self.board.request(batch);
            self.board.reply(batch, execute(&request));
        }
        mem::forget(alarm);
        response
    }

    /// Carries the request out as the combiner, or posts it and waits.
    fn execute(&self, preferred: SlotId, request: Request<T>) -> Result<T::Response, Poisoned> {
        reentry::check(reentry::identity(self));
        let in_turn = |mut turn: Turn<'_, T>| {
            let response = self.combine(&mut turn, Some(&request))?;
            Ok(response.expect("one's own request is carried out"))
        };
        if let Some(turn) = self.try_turn() {
            return in_turn(turn);
        }
        let turn = || self.try_turn().map(Ok).or_else(|| self.poison.check().err().map(Err));
        let slot = match slot_or(&self.board, preferred, turn) {
            Ok(slot) => slot,
            Err(turn) => return in_turn(turn?),
        };
        let answer = submit(&self.board, slot, request, None::<fn()>, || {
            // The thread waits whether or not the structure is poisoned: the combiner may be reading an operation that
            // this thread has lent.
            let Some(mut turn) = self.try_turn() else { return Served::Busy };
            // On an error, `combine` refuses this thread's request, too.
            let _ = self.combine(&mut turn, None);
            Served::Yes
        });
        answer.map_err(|Refused| self.poison.why())
    }
}

/// One thread's access to a [`Combined`] structure. The handle keeps the structure alive.
///
/// # Errors
/// Every operation fails with [`Poisoned`] after an operation has panicked while it was combined.
///
/// # Panics
/// Builds with debug assertions panic if an operation is called from inside another one on the same structure (for
/// example from `Sequential::write`); other builds hang.
pub struct CombinedHandle<T: Replicable> {
    shared: Arc<Shared<T>>,
    slot: SlotId,
}

impl<T: Replicable> CombinedHandle<T> {
    /// Carries out a changing operation.
    ///
    /// ```
    /// use archipelago::replicate::{Combined, FromFns};
    ///
    /// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
    /// let stack = Combined::new(FromFns::new(Vec::new(), |stack: &Vec<u64>, (): &()| stack.len(), push));
    /// assert_eq!(stack.handle().write(7), Ok(1));
    /// ```
    #[inline]
    pub fn write(&mut self, operation: T::Write) -> Result<T::Response, Poisoned> {
        self.shared.execute(self.slot, Request::Write(operation))
    }

    /// Carries out a reading operation.
    ///
    /// ```
    /// use archipelago::replicate::{Combined, FromFns};
    ///
    /// let push = |stack: &mut Vec<u64>, value: &u64| { stack.push(*value); stack.len() };
    /// let stack = Combined::new(FromFns::new(vec![1, 2], |stack: &Vec<u64>, at: &usize| stack[*at] as usize, push));
    /// assert_eq!(stack.handle().read(&1), Ok(2));
    /// ```
    #[inline]
    pub fn read(&mut self, operation: &T::Read) -> Result<T::Response, Poisoned>
    where
        T::Read: Sync,
    {
        if self.shared.flat {
            return self.shared.execute(self.slot, Request::Read(NonNull::from_ref(operation)));
        }
        let structure = reentry::identity(&*self.shared);
        reentry::check(structure);
        let data = self.shared.data.read();
        let _inside = reentry::enter(structure);
        // Checked under the lock: after a panic, the flag is raised before the writer unlocks.
        self.shared.poison.check()?;
        Ok(data.read(operation))
    }
}

impl<T: Replicable> Drop for CombinedHandle<T> {
    fn drop(&mut self) {
        self.shared.board.leave(self.slot);
    }
}

impl<T: Replicable> fmt::Debug for Combined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined").field("flat", &self.shared.flat).finish_non_exhaustive()
    }
}

impl<T: Replicable> fmt::Debug for CombinedHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedHandle").finish_non_exhaustive()
    }
}
