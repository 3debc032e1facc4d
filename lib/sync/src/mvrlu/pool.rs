//! Memory for copies: free blocks by size, which the collecting thread keeps for reuse, and a count of all threads'
//! memory.
//!
//! A log in the paper is a ring of fixed size. It can overflow and block, and one version that is still needed pins the
//! whole ring. Here every copy is a block, so the log grows as far as the memory cap allows, and frees copies in any
//! order.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicIsize, AtomicUsize, Ordering};

use super::version::Copied;

/// Blocks of up to this many cache lines are kept for reuse; larger ones are allocated from and returned to the system.
const CLASSES: usize = 16;
const LINE: usize = 64;
/// Bytes of free blocks that one pool keeps: `KEEP_LOWS` low watermarks less the log's bytes, but at least
/// `KEEP_BESIDE_LONG_LOG`, and at most 1/`KEEP_PART` of the cap.
const KEEP_LOWS: usize = 3;
const KEEP_BESIDE_LONG_LOG: usize = 4 * 1024;
const KEEP_PART: usize = 64;
/// The most bytes of blocks that a pool allocates at once (if this is less: 1/`BATCH_PART` of the cap, but at least one
/// block). If blocks were allocated one by one, hundreds of threads without free blocks would contend for the budget's
/// word, and copies would be placed between masters.
const BATCH: usize = 4096;
const BATCH_PART: usize = 1024;

/// The most bytes of made and freed objects that a pool does not report to the budget.
const UNTOLD: isize = 4096;

/// The bytes of a domain's copies, free blocks, logs and objects, of all threads, and the cap on their sum.
pub(super) struct Budget {
    held: AtomicUsize,
    objects: AtomicIsize,
    cap: usize,
}

impl Budget {
    pub(super) fn new(cap: usize) -> Self {
        Self { held: AtomicUsize::new(0), objects: AtomicIsize::new(0), cap }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes of objects, without up to 4 KiB that each handle has not yet reported.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed).max(0) as usize
    }

    fn is_capped(&self) -> bool {
        self.cap != usize::MAX
    }

    fn keep(&self, wanted: usize) -> usize {
        wanted.min(self.cap / KEEP_PART)
    }

    fn batch(&self) -> usize {
        BATCH.min(self.cap / BATCH_PART)
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = !self.is_capped() || before.saturating_add(bytes).saturating_add(self.objects()) <= self.cap;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a change in the size of memory that the cap cannot refuse, such as a log's tables.
    pub(super) fn changed(&self, before: usize, now: usize) {
        if now > before {
            self.held.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            self.give(before - now);
        }
    }

    pub(super) fn objects_changed(&self, by: isize) {
        self.objects.fetch_add(by, Ordering::Relaxed);
    }
}

/// One thread's free blocks.
pub(super) struct Pool {
    free: [Vec<NonNull<Copied>>; CLASSES],
    kept: usize,
    /// The bytes of free blocks to keep, given the length of the log that was collected last.
    keep: usize,
    /// The bytes of objects made, less those freed, that are not yet reported to the budget.
    objects: isize,
}

// SAFETY: only the pool uses its free blocks.
unsafe impl Send for Pool {}

fn class_of(layout: Layout) -> Option<usize> {
    (layout.align() == LINE && layout.size() <= CLASSES * LINE).then(|| layout.size() / LINE - 1)
}

/// Allocates a block from the system.
fn fresh(layout: Layout) -> NonNull<Copied> {
    // SAFETY: a copy has a header, so the size is not 0.
    let block = unsafe { alloc(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { free: [const { Vec::new() }; CLASSES], kept: 0, keep: KEEP_BESIDE_LONG_LOG, objects: 0 }
    }

    /// Returns an uninitialized block, or `None` if the domain's budget does not allow it.
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

    /// Allocates a batch of blocks of a class, or only one if the budget allows no more. Returns whether it got one.
    #[cold]
    fn refill(&mut self, class: usize, layout: Layout, budget: &Budget) -> bool {
        let many = (budget.batch() / layout.size()).max(1);
        let Some(count) = [many, 1].into_iter().find(|count| budget.take(count * layout.size())) else { return false };
        self.free[class].extend((0..count).map(|_| fresh(layout)));
        self.kept += count * layout.size();
        true
    }

    /// Counts a new object. Returns whether the cap allows it.
    #[inline]
    pub(super) fn object_made(&mut self, bytes: usize, budget: &Budget) -> bool {
        self.objects += bytes as isize;
        if self.objects < UNTOLD && !budget.is_capped() {
            return true;
        }
        self.tell(budget);
        budget.held().saturating_add(budget.objects()) <= budget.cap
    }

    #[inline]
    pub(super) fn object_freed(&mut self, bytes: usize, budget: &Budget) {
        self.objects -= bytes as isize;
        if self.objects <= -UNTOLD || budget.is_capped() {
            self.tell(budget);
        }
    }

    /// Reports made and freed objects to the budget.
    pub(super) fn tell(&mut self, budget: &Budget) {
        if self.objects != 0 {
            budget.objects_changed(core::mem::take(&mut self.objects));
        }
    }

    /// Sets the length of the log whose blocks are freed next.
    pub(super) fn beside(&mut self, log_bytes: usize, low: usize) {
        self.keep = (KEEP_LOWS * low).saturating_sub(log_bytes).max(KEEP_BESIDE_LONG_LOG);
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from a pool of this domain with this layout, and no thread uses it any more.
    pub(super) unsafe fn put(&mut self, block: NonNull<Copied>, layout: Layout, budget: &Budget) {
        match class_of(layout) {
            Some(class) if self.kept + layout.size() <= budget.keep(self.keep) => {
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

    /// Returns all free blocks to the system.
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
        self.tell(budget);
    }
}
