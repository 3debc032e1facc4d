//! Structures over RCX (two-level locks for the writers of RCU-protected data): an update locks the nodes that it
//! changes or retires.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_sync::rcx::{Embedded, Locks, Rcx, Striped};

use crate::optimistic::Optimistic;
use crate::plan::{Commit, Plan};
use crate::scratch::Scratch;
use crate::shared::Shared;

/// Structures over [`rcx`](archipelago_sync::rcx), with the locks in the nodes. With [`Rcx::fine_grained`] there is one
/// lock per node.
pub type OverRcx = Optimistic<ByLocks<Embedded>>;

/// Structures over [`rcx`](archipelago_sync::rcx), with the locks in a table.
pub type OverRcxStriped = Optimistic<ByLocks<Striped>>;

impl<L: Locks + 'static> Optimistic<ByLocks<L>> {
    /// Makes the mechanism with these locks.
    pub fn over(locks: Rcx<L>) -> Self {
        Self::with(ByLocks(locks))
    }

    /// Returns the locks.
    pub fn locks(&self) -> &Rcx<L> {
        &self.commit().0
    }
}

#[doc(hidden)]
pub struct ByLocks<L: Locks>(Rcx<L>);

impl<L: Locks> Default for ByLocks<L> {
    fn default() -> Self {
        Self(Rcx::default())
    }
}

/// The data of RCX in each node.
#[doc(hidden)]
pub struct Beside<O> {
    /// Changed under the node's lock.
    removed: AtomicBool,
    object: O,
}

impl<L: Locks + 'static> ByLocks<L> {
    /// Returns whether the nodes are not removed, and the links on which the update was decided are as it saw them. The
    /// caller holds the locks, which order these accesses.
    fn holds<const LINKS: usize>(plan: &Plan<LINKS, Beside<L::Object>>) -> bool {
        plan.each_seen(|node, side, seen| {
            // SAFETY: the node was seen in the guard, which still lasts.
            let node = unsafe { &*node };
            !node.beside.removed.load(Ordering::Relaxed) && node.next[side].load() == seen
        })
    }
}

impl<L: Locks + 'static> Commit for ByLocks<L> {
    type Beside = Beside<L::Object>;
    type Turn<'c> = ();

    fn beside(&self) -> Self::Beside {
        Beside { removed: AtomicBool::new(false), object: self.0.object() }
    }

    fn gone(&self, beside: &Self::Beside) {
        self.0.give_back(&beside.object);
    }

    fn turn(&self, _: &[usize], _: u64) {}

    fn commit<const LINKS: usize>(&self, plan: &Plan<LINKS, Self::Beside>, scratch: &mut Scratch, (): &()) -> bool {
        // SAFETY: the node was seen in the guard. Only this update can retire a locked node, after the update's end.
        let handle = |node: *mut Shared<LINKS, Self::Beside>| self.0.handle(unsafe { &(*node).beside.object });
        let mut handles = scratch.take();
        handles.extend(plan.nodes().map(handle));
        let done = self.0.try_lock(self.0.order(&mut handles)).is_some_and(|_held| Self::happen(plan));
        scratch.keep(handles);
        done
    }
}

impl<L: Locks + 'static> ByLocks<L> {
    /// Carries the plan out if it still holds. The caller holds the locks. Never waits.
    fn happen<const LINKS: usize>(plan: &Plan<LINKS, Beside<L::Object>>) -> bool {
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
