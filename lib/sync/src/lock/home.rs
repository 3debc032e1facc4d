//! Which of a lock's slots the calling thread uses, and that it leaves where it entered.
//!
//! `lock_api` hands nothing from taking a lock to releasing it, so a reader that enters by a slot must find the same
//! slot again when it leaves. Its [`ThreadSlot`](thread::ThreadSlot) and its node may have changed by then: the first in
//! the thread's last destructors, the second whenever the scheduler likes. So a thread-local remembers both, without a
//! destructor, hence readable as long as the thread runs:
//!
//! - the *shard*, chosen once from the thread's slot and never changed;
//! - the *node*, asked for anew only while the thread has nowhere entered by its node.
//!
//! A guard that is leaked keeps the node as it is for ever, which costs time only.

use core::cell::Cell;

use archipelago_platform::thread;

use super::nodes;

const UNKNOWN: usize = usize::MAX;

#[derive(Clone, Copy)]
struct Home {
    node: usize,
    /// How often the thread has entered by `node` and not left.
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

/// A small number that the calling thread keeps for ever: the index of its thread slot when first asked. Live threads
/// may share one, but only if one of them is in its last destructors.
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

/// The node by which the calling thread enters. Each call is paired with one of [`leave_node`].
pub(super) fn enter_node() -> usize {
    let Home { node, entered } = HOME.with(Cell::get);
    let node = if entered == 0 { nodes::here() } else { node };
    HOME.with(|home| home.set(Home { node, entered: entered + 1 }));
    node
}

/// The node by which the calling thread entered.
pub(super) fn leave_node() -> usize {
    let Home { node, entered } = HOME.with(Cell::get);
    HOME.with(|home| home.set(Home { node, entered: entered - 1 }));
    node
}
