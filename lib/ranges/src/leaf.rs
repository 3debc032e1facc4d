//! A leaf: a part of the map, with the ranges that begin at or above `low` and end at or below `high`.
//!
//! # States
//! | `lock` | `dead` | |
//! |---|---|---|
//! | free | false | in the directory; any thread may lock it |
//! | held | false | in the directory; the owner, which is the thread that holds the lock, may store another block |
//! | any | true | replaced in the directory, or about to be; it does not return to the directory, and its block no longer changes |
//!
//! `lock` orders the accesses of updaters (the Acquire of a lock pairs with the Release of the previous unlock).
//! Look-ups do not read it: a block is complete before it is stored (Release), and is loaded with Acquire. Both
//! accesses are also sequentially consistent, see [`directory`](crate::directory).
//!
//! # Why no thread is passed without bound
//! A look-up of a window that takes locks holds all leaves of the window until it has visited the last one, and the
//! next such look-up follows close behind. So a leaf in the middle is free only for moments. A waiting change that only
//! tried now and then would seldom meet such a moment, above all if it yielded the processor between its tries: if
//! threads outnumber processors, a yield can cost a time slice of each other thread. In [`RawShfl`] the first waiter
//! sleeps, is woken by the unlock, and after one wake-up in vain is the next holder. The other waiters follow in their
//! order. A sleeping waiter takes no processor time, however long users' code in a change keeps the leaf.

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, Ordering};
use archipelago_platform::touch;
use archipelago_sync::lock::{Mutex, RawShfl};
use archipelago_sync::rcu::Guard;

use crate::block::Block;
use crate::point::Point;
use crate::replaced::Replaced;

pub(crate) struct Leaf<K, V> {
    low: K,
    high: K,
    lock: Mutex<RawShfl, ()>,
    /// Whether the leaf has been replaced, or will be before its lock is released. Only the owner changes this field.
    dead: AtomicBool,
    block: AtomicPtr<Block<K, V>>,
}

impl<K: Point, V: 'static> Leaf<K, V> {
    pub(crate) fn new(low: K, high: K, block: Box<Block<K, V>>) -> Self {
        let block = AtomicPtr::new(Box::into_raw(block));
        let lock = Mutex::from_raw(RawShfl::new(), ());
        Self { low, high, lock, dead: AtomicBool::new(false), block }
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
        debug_assert!(self.lock.is_locked() && !self.is_dead());
        let old = self.block.swap(Box::into_raw(block), Ordering::SeqCst);
        // SAFETY: only the owner may unlink the block, and it has just done so; blocks are boxes.
        unsafe { Replaced::new(old) }
    }

    /// Waits until this thread owns the leaf. The thread must not own it already.
    pub(crate) fn lock(&self) {
        core::mem::forget(self.lock.lock());
    }

    /// # Safety
    /// This thread must own the leaf, by [`lock`](Self::lock).
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: the caller guarantees that this thread has locked the leaf, and `lock` forgot the guard.
        unsafe { self.lock.force_unlock() };
    }

    /// Returns whether the leaf has been replaced, or is about to be. `true` is final. `false` may be out of date when
    /// it is returned, unless the caller owns the leaf.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Marks the leaf as replaced, shortly before the directory replaces it. The caller owns the leaf, and keeps its
    /// lock until the directory has replaced the leaf.
    pub(crate) fn die(&self) {
        debug_assert!(self.lock.is_locked());
        self.dead.store(true, Ordering::Relaxed);
    }
}

impl<K, V> Drop for Leaf<K, V> {
    fn drop(&mut self) {
        // SAFETY: a leaf is dropped when no guard can reach it; it owns its last block.
        drop(unsafe { Box::from_raw(self.block.load(Ordering::Relaxed)) });
    }
}
