//! Reuse of the memory of removed entries.
//!
//! A full cache evicts an entry for each insertion. So a thread keeps the blocks of the entries that it frees, and writes the
//! next entry into the block that it kept last. This saves two calls of the allocator, and the thread can prefetch the next
//! block's lines. Most of these lines are in no processor's cache, and a write of a kilobyte to such lines takes half of the
//! time of an insertion.

use core::mem::needs_drop;
use core::ptr::null_mut;

use archipelago_platform::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

use crate::entry::{Block, Entry};

/// The number of bytes that a thread keeps if entries own memory in addition to their blocks. It is smaller than a bag, since
/// the thread's bag may be full of such memory.
const BESIDE: usize = 16 << 10;

/// The most lines of a block that are prefetched.
const LINES: usize = 32;
const LINE: usize = 64;

/// Kept blocks, by thread.
pub(crate) struct Blocks<K, V> {
    own: PerThread<CachePadded<Own<K, V>>>,
    /// The most blocks that a thread keeps.
    most: usize,
}

/// A thread's blocks: a linked list through the blocks, beginning with the block that was kept last. All accesses are Relaxed:
/// only the thread that has the slot makes them, and a thread that takes over a slot sees all accesses of the slot's previous
/// thread.
struct Own<K, V> {
    first: AtomicPtr<Entry<K, V>>,
    len: AtomicUsize,
}

impl<K, V> Own<K, V> {
    fn push(&self, block: Block<K, V>) {
        let block = Box::into_raw(block).cast::<Entry<K, V>>();
        // SAFETY: the block is this thread's. An entry begins with a header, which is larger than a pointer, and as much aligned.
        unsafe { block.cast::<*mut Entry<K, V>>().write(self.first.load(Relaxed)) };
        self.first.store(block, Relaxed);
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
    }

    fn pop(&self) -> Option<Block<K, V>> {
        let block = self.first.load(Relaxed);
        if block.is_null() {
            return None;
        }
        // SAFETY: written by `push`.
        self.first.store(unsafe { block.cast::<*mut Entry<K, V>>().read() }, Relaxed);
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        // SAFETY: a box before `push`.
        Some(unsafe { Box::from_raw(block.cast()) })
    }
}

impl<K, V> Default for Own<K, V> {
    fn default() -> Self {
        Self { first: AtomicPtr::new(null_mut()), len: AtomicUsize::new(0) }
    }
}

impl<K, V> Drop for Own<K, V> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<K, V> Blocks<K, V> {
    /// Returns an empty store of blocks for threads whose bags of retired entries have `bag` bytes.
    pub fn beside(bag: usize) -> Self {
        let bytes = if needs_drop::<Entry<K, V>>() { BESIDE } else { bag };
        // Miri detects a use of freed memory, but not a use of a kept block.
        let most = if cfg!(miri) { 0 } else { bytes / size_of::<Entry<K, V>>() };
        Self { own: PerThread::new(), most }
    }

    #[inline]
    fn own(&self) -> &Own<K, V> {
        self.own.get_or(thread::slot().index, CachePadded::default)
    }

    /// Returns a block for an entry.
    pub fn take(&self) -> Block<K, V> {
        self.own().pop().unwrap_or_else(Box::new_uninit)
    }

    /// Keeps a block, or frees it if this thread has enough of them.
    pub fn keep(&self, block: Block<K, V>) {
        let own = self.own();
        if own.len.load(Relaxed) < self.most {
            own.push(block);
        }
    }

    /// Frees `count` of this thread's blocks, or all if the thread has fewer.
    pub fn free(&self, count: usize) {
        let own = self.own();
        (0..count).map_while(|_| own.pop()).for_each(drop);
    }

    /// Prefetches the block that [`take`](Self::take) returns next.
    pub fn foresee(&self) {
        let next = self.own().first.load(Relaxed);
        // A prefetch of an address without a page costs a walk through the page tables each time.
        if next.is_null() {
            return;
        }
        let lines = size_of::<Entry<K, V>>().div_ceil(LINE).min(LINES);
        // The first line has the list's link, which was written a moment ago.
        (1..lines).for_each(|line| prefetch_read(next.wrapping_byte_add(line * LINE)));
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim, miri))))]
mod tests {
    use super::*;
    use crate::cause::Cause;
    use crate::config::Config;
    use crate::entry::Shared;
    use crate::inner::Inner;
    use crate::policy::S3Fifo;
    use foldhash::quality::FixedState;

    type Value = [u8; 1_000];
    type Small = Inner<u64, Value, S3Fifo, FixedState>;

    fn kept<K, V>(blocks: &Blocks<K, V>) -> usize {
        blocks.own().len.load(Relaxed)
    }

    #[test]
    fn the_last_block_is_taken_first_and_few_are_kept() {
        let blocks = Blocks::<u64, u64>::beside(3 * size_of::<Entry<u64, u64>>());
        let five: Vec<_> = (0..5).map(|_| blocks.take()).collect();
        let at: Vec<_> = five.iter().map(|block| block.as_ptr()).collect();
        five.into_iter().for_each(|block| blocks.keep(block));
        assert_eq!(kept(&blocks), 3);
        blocks.free(1);
        let taken = [blocks.take(), blocks.take()];
        assert_eq!(taken.each_ref().map(|block| block.as_ptr()), [at[1], at[0]]);
        blocks.free(7);
        assert_eq!(kept(&blocks), 0);
    }

    /// A thread's open bag and its kept blocks together never exceed a bag, and a full cache takes its blocks from the kept ones.
    #[test]
    fn what_waits_and_what_is_kept_are_a_bag() {
        let weigher = Box::new(|_: &u64, _: &Value| 1);
        let (listener, live, idle) = (None, None, None);
        let config = Config { capacity: 500, waiting: 512, weigher, listener, live, idle, record_hits: false };
        let inner = Small::new(config, 1, FixedState::default());
        let most = inner.blocks.most;
        let open = || inner.domain().stats().pending_bytes - inner.domain().sealed_bytes();
        let insert = |key: u64| {
            let (guard, has_room) = inner.begin();
            let entry = Entry::within(inner.blocks.take(), key, [0; 1_000], inner.hash(&key), 1, inner.times(None));
            assert!(inner.insert(&guard, has_room, entry));
        };
        let remove = |key: u64| {
            let (guard, _) = inner.begin();
            let found = inner.look_up(&guard, inner.hash(&key), |other| *other == key).map(Shared::from);
            found.is_some_and(|entry| inner.remove(&guard, entry, Cause::Removed))
        };
        for key in 0..2_000 {
            insert(key);
            assert!(open() + kept(&inner.blocks) <= most, "{} and {}", open(), kept(&inner.blocks));
            assert!(key < 1_000 || open() + kept(&inner.blocks) == most, "{} and {}", open(), kept(&inner.blocks));
        }
        let removed = (0..2_000).filter(|key| {
            let removed = remove(*key);
            assert!(open() + kept(&inner.blocks) <= most, "{} and {}", open(), kept(&inner.blocks));
            removed
        });
        assert_eq!(removed.count(), 500);
    }
}
