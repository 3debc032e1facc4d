//! Memory for copies: blocks by size, kept for reuse by the thread that collects, and a count of what all threads hold.
//!
//! A log in the paper is a ring of fixed size, which overflows, blocks, and is pinned as a whole by one version that is
//! still needed. Here every copy is a block, so the log grows as long as memory is allowed, and frees copies in any order.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicIsize, AtomicUsize, Ordering};

use super::version::Copied;

/// Blocks of up to this many lines are kept; larger ones come from and go to the system.
const CLASSES: usize = 16;
const LINE: usize = 64;
/// Bytes of free blocks that one pool keeps: this many low watermarks, less what is in the log; beside a long log no
/// less than this; and at most this part of the cap.
const KEEP_LOWS: usize = 3;
const KEEP_BESIDE_LONG_LOG: usize = 4 * 1024;
const KEEP_PART: usize = 64;
/// Bytes of blocks that a pool gets at once, at most; and at most this part of the cap. One by one, hundreds of threads
/// that have nothing to reuse yet wait for each other at the budget's word, and copies come to lie between masters.
const BATCH: usize = 4096;
const BATCH_PART: usize = 1024;

/// Bytes of objects that a pool has seen made or freed, and not told the budget.
const UNTOLD: isize = 4096;

/// Bytes in copies, free blocks and logs, of all threads of a domain, and in objects; and the most there may be of all.
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

    /// Bytes in objects, but for up to 4 KiB that each handle has not told of.
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

    /// Something that cannot be refused has this many bytes now.
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
    /// Bytes of free blocks to keep, beside the log that was collected last.
    keep: usize,
    /// Bytes of objects made, less those freed, that the budget does not know of.
    objects: isize,
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
        Self { free: [const { Vec::new() }; CLASSES], kept: 0, keep: KEEP_BESIDE_LONG_LOG, objects: 0 }
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

    /// Notes a new object; whether the cap allows it.
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

    /// Tells the budget of objects made and freed.
    pub(super) fn tell(&mut self, budget: &Budget) {
        if self.objects != 0 {
            budget.objects_changed(core::mem::take(&mut self.objects));
        }
    }

    /// Says how long the log is whose blocks come next.
    pub(super) fn beside(&mut self, log_bytes: usize, low: usize) {
        self.keep = (KEEP_LOWS * low).saturating_sub(log_bytes).max(KEEP_BESIDE_LONG_LOG);
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from a pool of this domain with this layout, and no thread uses it any more.
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
        self.tell(budget);
    }
}
