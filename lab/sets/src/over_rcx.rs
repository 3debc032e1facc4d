//! Structures over RCX (two-level locks for the writers of RCU-protected data): an update locks the nodes that it
//! changes or retires.

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_sync::rcx::{Embedded, Locks, Rcx, Striped};

use crate::optimistic::Optimistic;
use crate::plan::{Commit, Plan};
use crate::room::{Aside, Kilobyte, Room, Snug};
use crate::scratch::Scratch;
use crate::shared::Shared;

/// Structures over [`rcx`](archipelago_sync::rcx), with the locks in the nodes. With [`Rcx::fine_grained`] there is one
/// lock per node.
pub type OverRcx = Optimistic<ByLocks<Embedded>>;

/// Structures over [`rcx`](archipelago_sync::rcx), with the locks in a table.
pub type OverRcxStriped = Optimistic<ByLocks<Striped>>;

/// The same as [`OverRcx`] with nodes of 1,024 bytes, as in the program with which RCX was measured.
pub type OverRcxKilobyte = Optimistic<ByLocks<Embedded, Kilobyte>>;

/// The same as [`OverRcx`] with the sets of locks of the published program: in a list, an insertion also locks the
/// successor of the new node, and a removal the successor of the removed node. So every update that changes a list
/// begins a transaction, unless it is at the list's end.
pub type OverRcxSuccessors = Optimistic<ByLocks<Embedded, Snug, true>>;

/// The same as [`OverRcxSuccessors`] with nodes of 1,024 bytes, as in the published program.
pub type OverRcxSuccessorsKilobyte = Optimistic<ByLocks<Embedded, Kilobyte, true>>;

impl<L: Locks + 'static, R: Room, const SUCCESSORS: bool> Optimistic<ByLocks<L, R, SUCCESSORS>> {
    /// Makes the mechanism with these locks.
    pub fn over(locks: Rcx<L>) -> Self {
        Self::with(ByLocks { locks, room: PhantomData })
    }

    /// Returns the locks.
    pub fn locks(&self) -> &Rcx<L> {
        &self.commit().locks
    }
}

#[doc(hidden)]
pub struct ByLocks<L: Locks, R = Snug, const SUCCESSORS: bool = false> {
    locks: Rcx<L>,
    room: PhantomData<R>,
}

impl<L: Locks, R, const SUCCESSORS: bool> Default for ByLocks<L, R, SUCCESSORS> {
    fn default() -> Self {
        Self { locks: Rcx::default(), room: PhantomData }
    }
}

/// The data of RCX in each node.
#[doc(hidden)]
pub struct Beside<O, R> {
    /// Changed under the node's lock.
    removed: AtomicBool,
    object: O,
    room: PhantomData<R>,
}

impl<O: Send + Sync + 'static, R: Room> Aside for Beside<O, R> {
    type Room = R;
}

impl<L: Locks + 'static, R: Room, const SUCCESSORS: bool> ByLocks<L, R, SUCCESSORS> {
    /// Returns whether the nodes are not removed, and the links on which the update was decided are as it saw them. The
    /// caller holds the locks, which order these accesses.
    fn holds<const LINKS: usize>(plan: &Plan<LINKS, Beside<L::Object, R>>) -> bool {
        plan.each_seen(|node, side, seen| {
            // SAFETY: the node was seen in the guard, which still lasts.
            let node = unsafe { &*node };
            !node.beside.removed.load(Ordering::Relaxed) && node.next[side].load() == seen
        })
    }
}

impl<L: Locks + 'static, R: Room, const SUCCESSORS: bool> Commit for ByLocks<L, R, SUCCESSORS> {
    const SUCCESSORS: bool = SUCCESSORS;

    type Beside = Beside<L::Object, R>;
    type Turn<'c> = ();

    fn beside(&self) -> Self::Beside {
        Beside { removed: AtomicBool::new(false), object: self.locks.object(), room: PhantomData }
    }

    fn gone(&self, beside: &Self::Beside) {
        self.locks.give_back(&beside.object);
    }

    fn turn(&self, _: &[usize], _: u64) {}

    fn commit<const LINKS: usize>(&self, plan: &Plan<LINKS, Self::Beside>, scratch: &mut Scratch, (): &()) -> bool {
        // SAFETY: the node was seen in the guard. Only this update can retire a locked node, after the update's end.
        let handle = |node: *mut Shared<LINKS, Self::Beside>| self.locks.handle(unsafe { &(*node).beside.object });
        let mut handles = scratch.take();
        handles.extend(plan.nodes().map(handle));
        let done = self.locks.try_lock(self.locks.order(&mut handles)).is_some_and(|_held| Self::happen(plan));
        scratch.keep(handles);
        done
    }
}

impl<L: Locks + 'static, R: Room, const SUCCESSORS: bool> ByLocks<L, R, SUCCESSORS> {
    /// Carries the plan out if it still holds. The caller holds the locks. Never waits.
    fn happen<const LINKS: usize>(plan: &Plan<LINKS, Beside<L::Object, R>>) -> bool {
        if !Self::holds(plan) {
            return false;
        }
        for retired in &plan.retired {
            // SAFETY: as in `commit`.
            unsafe { &*retired.node }.beside.removed.store(true, Ordering::Relaxed);
        }
        for write in &plan.writes {
            // SAFETY: as in `commit`. The new link leads to a node that is retired only after the last link to the node
            // is removed.
            unsafe { (&*write.node).next[write.side].publish(write.to) };
        }
        true
    }
}
