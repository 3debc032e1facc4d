//! A leaf: a part of the map, with the ranges that begin at or above `low` and end at or below `high`.
//!
//! # States
//! | `owner` | `dead` | |
//! |---|---|---|
//! | 0 | false | in the directory; any thread may lock it |
//! | a thread | false | in the directory; the owner may store another block |
//! | any | true | replaced in the directory, or about to be; it does not return to the directory, and its block no longer changes |
//!
//! `owner` orders the accesses of updaters (the Acquire of a lock pairs with the Release of the previous unlock).
//! Look-ups do not read it: a block is complete before it is stored (Release), and is loaded with Acquire. Both accesses
//! are also sequentially consistent, see [`directory`](crate::directory).

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use archipelago_platform::thread;
use archipelago_platform::touch;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;

use crate::block::Block;
use crate::point::Point;
use crate::replaced::Replaced;

pub(crate) struct Leaf<K, V> {
    low: K,
    high: K,
    /// One more than the number of the thread that holds the lock, or 0 if the lock is free.
    owner: AtomicU32,
    /// Whether the leaf has been replaced, or will be before its lock is released. Only the owner changes this field.
    dead: AtomicBool,
    block: AtomicPtr<Block<K, V>>,
}

impl<K: Point, V: 'static> Leaf<K, V> {
    pub(crate) fn new(low: K, high: K, block: Box<Block<K, V>>) -> Self {
        let block = AtomicPtr::new(Box::into_raw(block));
        Self { low, high, owner: AtomicU32::new(0), dead: AtomicBool::new(false), block }
    }

    #[inline]
    pub(crate) fn low(&self) -> K {
        touch(&raw const self.low, size_of::<K>());
        self.low
    }

    #[inline]
    pub(crate) fn high(&self) -> K {
        touch(&raw const self.high, size_of::<K>());
        self.high
    }

    /// Returns the leaf's block. The guard must be of the map's RCU domain.
    #[inline]
    pub(crate) fn block<'g>(&self, _guard: &'g Guard<'_>) -> &'g Block<K, V> {
        // SAFETY: the block is never null, and a replaced block is retired, so it lives as long as the guard.
        unsafe { &*self.block.load(Ordering::SeqCst) }
    }

    /// Stores another block. The caller owns the leaf.
    pub(crate) fn store(&self, block: Box<Block<K, V>>) -> Replaced {
        debug_assert!(self.is_mine() && !self.is_dead());
        let old = self.block.swap(Box::into_raw(block), Ordering::SeqCst);
        // SAFETY: only the owner may unlink the block, and it has just done so; blocks are boxes.
        unsafe { Replaced::new(old) }
    }

    /// Waits until this thread owns the leaf.
    pub(crate) fn lock(&self) {
        let backoff = Backoff::new();
        while self.owner.compare_exchange(0, mine(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            debug_assert!(!self.is_mine(), "a thread waits for itself");
            backoff.wait();
        }
    }

    pub(crate) fn unlock(&self) {
        debug_assert!(self.is_mine());
        self.owner.store(0, Ordering::Release);
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == mine()
    }

    /// Returns whether the leaf has been replaced, or is about to be. `true` is final. `false` may be out of date when
    /// it is returned, unless the caller owns the leaf.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Marks the leaf as replaced, shortly before the directory replaces it. The caller owns the leaf, and keeps its
    /// lock until the directory has replaced the leaf.
    pub(crate) fn die(&self) {
        debug_assert!(self.is_mine());
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// Returns this thread's value of `owner`.
fn mine() -> u32 {
    thread::slot().index as u32 + 1
}

impl<K, V> Drop for Leaf<K, V> {
    fn drop(&mut self) {
        // SAFETY: a leaf is dropped when no guard can reach it; it owns its last block.
        drop(unsafe { Box::from_raw(self.block.load(Ordering::Relaxed)) });
    }
}
