//! Memory for copies: blocks by size, kept for reuse by the thread that collects, and a count of what all threads hold.
//!
//! A log in the paper is a ring of fixed size, which overflows, blocks, and is pinned as a whole by one version that is
//! still needed. Here every copy is a block, so the log grows as long as memory is allowed, and frees copies in any order.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicUsize, Ordering};

use super::version::Copied;

/// Blocks of up to this many lines are kept; larger ones come from and go to the system.
const CLASSES: usize = 16;
const LINE: usize = 64;
/// Bytes of free blocks that one pool keeps, at most; and at most this part of the domain's cap. What a thread writes while
/// another is preempted in a section: with 256 KiB, four threads on two cores spent a third of their time in page faults.
/// A log that has grown counts, so that under a stuck reader the blocks are in the log or the pool, and not in both.
const KEEP: usize = 1024 * 1024;
const KEEP_BESIDE_LONG_LOG: usize = 128 * 1024;
const KEEP_PART: usize = 16;
/// Bytes of blocks that a pool gets at once, at most; and at most this part of the cap. One by one, hundreds of threads
/// that have nothing to reuse yet wait for each other at the budget's word, and copies come to lie between masters.
const BATCH: usize = 4096;
const BATCH_PART: usize = 1024;

/// Bytes in copies, free blocks included, of all threads of a domain; and the most there may be.
pub(super) struct Budget {
    held: AtomicUsize,
    cap: usize,
}

impl Budget {
    pub(super) fn new(cap: usize) -> Self {
        Self { held: AtomicUsize::new(0), cap }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn keep(&self, log_bytes: usize) -> usize {
        KEEP.saturating_sub(log_bytes).max(KEEP_BESIDE_LONG_LOG).min(self.cap / KEEP_PART)
    }

    fn batch(&self) -> usize {
        BATCH.min(self.cap / BATCH_PART)
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.cap;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One thread's free blocks.
pub(super) struct Pool {
    free: [Vec<NonNull<Copied>>; CLASSES],
    kept: usize,
    /// Bytes in the log that was collected last.
    log_bytes: usize,
}

// SAFETY: free blocks belong to the pool alone.
unsafe impl Send for Pool {}

fn class_of(layout: Layout) -> Option<usize> {
    (layout.align() == LINE && layout.size() <= CLASSES * LINE).then(|| layout.size() / LINE - 1)
}

/// A block of the system's.
fn fresh(layout: Layout) -> NonNull<Copied> {
    // SAFETY: a copy has a header, so the size is not 0.
    let block = unsafe { alloc(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { free: [const { Vec::new() }; CLASSES], kept: 0, log_bytes: 0 }
    }

    /// A block, uninitialised; `None` if the domain's budget does not allow it.
    #[inline]
    pub(super) fn get(&mut self, layout: Layout, budget: &Budget) -> Option<NonNull<Copied>> {
        match class_of(layout) {
            Some(class) if !self.free[class].is_empty() || self.refill(class, layout, budget) => {
                self.kept -= layout.size();
                self.free[class].pop()
            }
            Some(_) => None,
            None => budget.take(layout.size()).then(|| fresh(layout)),
        }
    }

    /// Gets some blocks of a class; one if the budget has not more; whether there is one.
    #[cold]
    fn refill(&mut self, class: usize, layout: Layout, budget: &Budget) -> bool {
        let many = (budget.batch() / layout.size()).max(1);
        let Some(count) = [many, 1].into_iter().find(|count| budget.take(count * layout.size())) else { return false };
        self.free[class].extend((0..count).map(|_| fresh(layout)));
        self.kept += count * layout.size();
        true
    }

    /// Says how long the log is whose blocks come next.
    pub(super) fn beside(&mut self, log_bytes: usize) {
        self.log_bytes = log_bytes;
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from a pool of this domain with this layout, and nobody uses it any more.
    pub(super) unsafe fn put(&mut self, block: NonNull<Copied>, layout: Layout, budget: &Budget) {
        match class_of(layout) {
            Some(class) if self.kept + layout.size() <= budget.keep(self.log_bytes) => {
                self.free[class].push(block);
                self.kept += layout.size();
            }
            _ => {
                // SAFETY: allocated in `fresh` with this layout; the caller's promise.
                unsafe { dealloc(block.as_ptr().cast(), layout) };
                budget.give(layout.size());
            }
        }
    }

    /// Gives all free blocks back to the system.
    pub(super) fn empty(&mut self, budget: &Budget) {
        for (class, blocks) in self.free.iter_mut().enumerate() {
            let layout = Layout::from_size_align((class + 1) * LINE, LINE).expect("a few lines");
            budget.give(blocks.len() * layout.size());
            for block in blocks.drain(..) {
                // SAFETY: as in `put`.
                unsafe { dealloc(block.as_ptr().cast(), layout) };
            }
        }
        self.kept = 0;
    }
}
