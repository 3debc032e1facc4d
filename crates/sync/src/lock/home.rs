//! Which of a lock's slots the calling thread uses, and that it leaves where it entered.
//!
//! `lock_api` hands nothing from taking a lock to releasing it, so a reader that enters by a slot must find the same
//! slot again when it leaves. Its [`ThreadSlot`](thread::ThreadSlot) may have changed by then, in the thread's last
//! destructors. So a thread-local remembers the choice, without a destructor, hence readable as long as the thread runs.

use core::cell::Cell;

use archipelago_platform::thread;

const UNKNOWN: usize = usize::MAX;

#[cfg(not(loom))]
thread::thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(UNKNOWN) };
}
#[cfg(loom)]
thread::thread_local! {
    static SHARD: Cell<usize> = Cell::new(UNKNOWN);
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
