//! Reuse of the memory of removed entries.
//!
//! A full cache evicts an entry for each insertion. So a thread keeps the blocks of the entries that it frees, and
//! writes the next entry into the block that it kept last. This saves two calls of the allocator, and the thread can
//! prefetch the next block's lines. Most of these lines are in no processor's cache. Without the prefetch, writing a
//! kilobyte to such lines takes half of the time of an insertion.

use core::mem::needs_drop;
use core::ptr::null_mut;

use archipelago_platform::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

use crate::entry::{Block, Entry, Shared};

/// The number of bytes that a thread keeps if entries own memory in addition to their blocks. The number is smaller
/// than the thread's bag (its list of retired entries), since the entries in the bag still own such memory.
const BESIDE: usize = 16 << 10;

/// The memory blocks of freed entries that threads keep for new entries.
pub(crate) struct Blocks<K, V> {
    own: PerThread<CachePadded<Own<K, V>>>,
    /// The most blocks that a thread keeps.
    most: usize,
    /// `true` if the blocks of long entries (those with an extension, see `entry.rs`) are kept. If not, the blocks of
    /// short entries are kept.
    long: bool,
}

/// A thread's blocks: a linked list through the blocks, beginning with the block that was kept last. All accesses are
/// Relaxed: only the thread that has the slot makes them, and a thread that takes over a slot sees all accesses of the
/// slot's previous thread.
struct Own<K, V> {
    first: AtomicPtr<Entry<K, V>>,
    len: AtomicUsize,
}

impl<K, V> Own<K, V> {
    fn push(&self, block: Block<K, V>) {
        let entry = block.into_entry();
        // SAFETY: the block belongs to this thread. An entry begins with a header, which is at least as large and as
        // aligned as a pointer.
        unsafe { entry.cast::<*mut Entry<K, V>>().write(self.first.load(Relaxed)) };
        self.first.store(entry.as_ptr(), Relaxed);
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
    }

    /// Removes and returns the block that was pushed last. `long` must be the kind of the pushed blocks.
    fn pop(&self, long: bool) -> Option<Block<K, V>> {
        let entry = Shared::new(self.first.load(Relaxed))?;
        // SAFETY: written by `push`.
        self.first.store(unsafe { entry.cast::<*mut Entry<K, V>>().read() }, Relaxed);
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        // SAFETY: the entry was made of a block by `push`.
        Some(unsafe { Block::of(entry, long) })
    }
}

impl<K, V> Default for Own<K, V> {
    fn default() -> Self {
        Self { first: AtomicPtr::new(null_mut()), len: AtomicUsize::new(0) }
    }
}

impl<K, V> Drop for Blocks<K, V> {
    fn drop(&mut self) {
        let long = self.long;
        self.own.iter().for_each(|own| while own.pop(long).is_some() {});
    }
}

impl<K, V> Blocks<K, V> {
    /// Returns an empty store of blocks, of long entries or of short ones, for threads whose bags of retired entries
    /// have `bag` bytes.
    pub fn beside(bag: usize, long: bool) -> Self {
        let bytes = if needs_drop::<Entry<K, V>>() { bag.min(BESIDE) } else { bag };
        Self { own: PerThread::new(), most: bytes / Block::<K, V>::layout(long).0.size(), long }
    }

    #[inline]
    fn own(&self) -> &Own<K, V> {
        self.own.get_or(thread::slot().index, CachePadded::default)
    }

    /// Returns a block for a long entry or a short one.
    pub fn take(&self, long: bool) -> Block<K, V> {
        let kept = (long == self.long).then(|| self.own().pop(long)).flatten();
        kept.unwrap_or_else(|| Block::new(long))
    }

    /// Keeps a block, or frees it if the block is of the other kind or this thread keeps enough blocks.
    pub fn keep(&self, block: Block<K, V>) {
        let own = self.own();
        if block.is_long() == self.long && own.len.load(Relaxed) < self.most {
            own.push(block);
        }
    }

    /// Frees `count` of this thread's blocks, or all if the thread has fewer.
    pub fn free(&self, count: usize) {
        let own = self.own();
        (0..count).map_while(|_| own.pop(self.long)).for_each(drop);
    }

    /// Prefetches the block that [`take`](Self::take) returns next.
    pub fn foresee(&self) {
        let next = self.own().first.load(Relaxed);
        // A prefetch of an address without a page costs a walk through the page tables each time.
        if next.is_null() {
            return;
        }
        // The first line holds the list's link, which this thread has written recently, so the line is in its cache.
        Entry::prefetch(next, 1..Entry::<K, V>::LINES);
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
impl<K, V> Blocks<K, V> {
    /// Returns the number of blocks that this thread keeps.
    fn kept(&self) -> usize {
        self.own().len.load(Relaxed)
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_taken_first_and_few_are_kept() {
        for long in [false, true] {
            let blocks = Blocks::<u64, u64>::beside(3 * Block::<u64, u64>::layout(long).0.size(), long);
            let five: Vec<_> = (0..5).map(|_| blocks.take(long)).collect();
            let at: Vec<_> = five.iter().map(Block::entry).collect();
            // A block of the other kind is not kept.
            blocks.keep(blocks.take(!long));
            five.into_iter().for_each(|block| blocks.keep(block));
            assert_eq!(blocks.kept(), 3);
            blocks.free(1);
            let taken = [blocks.take(long), blocks.take(long)];
            assert_eq!(taken.each_ref().map(Block::entry), [at[1], at[0]]);
            blocks.free(7);
            assert_eq!(blocks.kept(), 0);
        }
    }
}

/// Under Miri, caches keep no blocks.
#[cfg(all(test, not(any(loom, archipelago_sim, miri))))]
mod bags {
    use crate::config::Config;
    use crate::inner::Inner;
    use crate::policy::S3Fifo;
    use foldhash::quality::FixedState;

    type Value = [u8; 1_000];
    type Small = Inner<u64, Value, S3Fifo, FixedState>;

    /// A thread's open bag and its kept blocks together never exceed a bag, and a full cache takes its blocks from the
    /// kept ones.
    #[test]
    fn what_waits_and_what_is_kept_are_a_bag() {
        let weigher = Box::new(|_: &u64, _: &Value| 1);
        let (listener, live, idle) = (None, None, None);
        let config = Config {
            capacity: 500,
            waiting: 512,
            own_unit: false,
            weigher,
            extension: 0,
            listener,
            live,
            idle,
            record_hits: false,
        };
        let inner = Small::new(config, 1, FixedState::default());
        let most = inner.blocks.most;
        let open = || inner.domain().stats().pending_bytes - inner.domain().sealed_bytes();
        let insert = |key: u64| assert!(inner.insert(inner.prepare(key, [0; 1_000], None)));
        let remove = |key: u64| inner.remove(inner.hash(&key), |other| *other == key);
        for key in 0..2_000 {
            insert(key);
            assert!(open() + inner.blocks.kept() <= most, "{} and {}", open(), inner.blocks.kept());
            assert!(key < 1_000 || open() + inner.blocks.kept() == most, "{} and {}", open(), inner.blocks.kept());
        }
        let removed = (0..2_000).filter(|key| {
            let removed = remove(*key);
            assert!(open() + inner.blocks.kept() <= most, "{} and {}", open(), inner.blocks.kept());
            removed
        });
        assert_eq!(removed.count(), 500);
    }
}
