//! A leaf: the ranges that begin at or above `low` and end at or below `high`.
//!
//! # States
//! | `owner` | `dead` | |
//! |---|---|---|
//! | 0 | false | in the directory; any thread may lock it |
//! | a thread | false | in the directory; that thread may store another block |
//! | any | true | replaced in the directory for good: its block is what it held at that moment, and never changes |
//!
//! `owner` orders what updaters do (Acquire by the thread that locks pairs with Release by the one that unlocked). Look-ups
//! take no notice of it: a block is complete before it is stored (Release), and is loaded with Acquire.

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
    /// One more than the number of the thread that holds it; 0: free.
    owner: AtomicU32,
    /// Changed by the owner.
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

    /// What the leaf holds. `guard` is of the map's domain.
    #[inline]
    pub(crate) fn block<'g>(&self, _guard: &'g Guard<'_>) -> &'g Block<K, V> {
        // SAFETY: there always is a block, and what is replaced is retired: it stays as long as the guard.
        unsafe { &*self.block.load(Ordering::Acquire) }
    }

    /// Stores another block. The caller owns the leaf.
    pub(crate) fn store(&self, block: Box<Block<K, V>>) -> Replaced {
        debug_assert!(self.is_mine() && !self.is_dead());
        let old = self.block.swap(Box::into_raw(block), Ordering::AcqRel);
        // SAFETY: unlinked just now, by the only thread that may; blocks are made by `Box::new`.
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

    /// Returns whether it has been replaced. Certain for the owner.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Says that it is about to be replaced. The caller owns the leaf, and keeps it until it has been.
    pub(crate) fn die(&self) {
        debug_assert!(self.is_mine());
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// This thread, as an owner.
fn mine() -> u32 {
    thread::slot().index as u32 + 1
}

impl<K, V> Drop for Leaf<K, V> {
    fn drop(&mut self) {
        // SAFETY: a leaf is dropped when no guard can lead to it; its last block is its own.
        drop(unsafe { Box::from_raw(*self.block.get_mut()) });
    }
}
