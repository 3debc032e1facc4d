//! The slot of a lock that the calling thread uses: the same at entry and at exit.
//!
//! `lock_api` passes no data from the call that takes a lock to the call that releases it. So a reader that enters by a
//! slot must find the same slot when it leaves. Its [`ThreadSlot`](thread::ThreadSlot) and its node may have changed by
//! then: the slot in the thread's last destructors, the node at any time, by the scheduler. So thread-local variables
//! keep two values. They have no destructors, hence they are readable as long as the thread runs. The values are:
//!
//! - the *shard*, chosen once from the thread's slot and never changed;
//! - the *node*, determined again only while the thread holds no lock by its node.
//!
//! A leaked guard fixes the thread's node for ever, which costs only time.

use core::cell::Cell;

use archipelago_platform::thread;

use super::nodes;

const UNKNOWN: usize = usize::MAX;

#[derive(Clone, Copy)]
struct Home {
    node: usize,
    /// The number of locks that the thread holds by `node`.
    entered: usize,
}

#[cfg(not(loom))]
thread::thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(UNKNOWN) };
    static HOME: Cell<Home> = const { Cell::new(Home { node: 0, entered: 0 }) };
}
#[cfg(loom)]
thread::thread_local! {
    static SHARD: Cell<usize> = Cell::new(UNKNOWN);
    static HOME: Cell<Home> = Cell::new(Home { node: 0, entered: 0 });
}

/// Returns a small number that never changes for the calling thread: the index of its thread slot at the first call.
/// Live threads may share a number, but only if one of them is in its last destructors.
#[inline]
pub(super) fn shard() -> usize {
    let shard = SHARD.with(Cell::get);
    if shard != UNKNOWN { shard } else { first_shard() }
}

#[cold]
fn first_shard() -> usize {
    let shard = thread::slot().index;
    SHARD.with(|cell| cell.set(shard));
    shard
}

/// Returns the node by which the calling thread enters. Each call is paired with a call of [`leave_node`].
pub(super) fn enter_node() -> usize {
    let Home { node, entered } = HOME.with(Cell::get);
    let node = if entered == 0 { nodes::here() } else { node };
    HOME.with(|home| home.set(Home { node, entered: entered + 1 }));
    node
}

/// Returns the node by which the calling thread entered.
pub(super) fn leave_node() -> usize {
    let Home { node, entered } = HOME.with(Cell::get);
    HOME.with(|home| home.set(Home { node, entered: entered - 1 }));
    node
}
