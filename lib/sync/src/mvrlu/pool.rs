//! Memory for copies: free blocks by size, which the collecting thread keeps for reuse, and a count of all threads'
//! memory. Also memory of retired objects, which the thread uses for the next objects that it makes.
//!
//! A log in the paper is a ring of fixed size. It can overflow and block, and one version that is still needed pins the
//! whole ring. Here every copy is a block, so the log grows as far as the memory cap allows, and frees copies in any
//! order.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicIsize, AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;

use super::version::{Copied, Head, Memory};

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

/// The most bytes that a pool may use without the budget, because it has freed as many: see [`Pool::spare`]. Beside a
/// long log the pool frees nearly every block. If each were given back by itself, hundreds of threads would contend for
/// the budget's word.
const SPARE: usize = 2 * BATCH;

/// The most bytes of retired objects that a pool keeps for new objects, unless the domain has a cap. A collection frees
/// dozens of objects at once. The system's allocator then needs four times as long for each block as if a few were
/// freed. Reused memory hides faulty accesses from Miri and from loom's watches.
const OBJECTS_KEPT: usize = if cfg!(any(loom, miri)) { 0 } else { 4096 };

/// The bytes of a domain's copies, free blocks, logs and objects, of all threads, and the cap on their sum.
pub(super) struct Budget {
    counts: CachePadded<Counts>,
    /// In another cache line than the counts, since each freed block loads it.
    cap: usize,
}

struct Counts {
    held: AtomicUsize,
    objects: AtomicIsize,
}

impl Budget {
    pub(super) fn new(cap: usize) -> Self {
        Self { counts: CachePadded::new(Counts { held: AtomicUsize::new(0), objects: AtomicIsize::new(0) }), cap }
    }

    pub(super) fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes of objects, without up to 4 KiB that each handle has not yet reported.
    pub(super) fn objects(&self) -> usize {
        self.counts.objects.load(Ordering::Relaxed).max(0) as usize
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
        let before = self.counts.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = !self.is_capped() || before.saturating_add(bytes).saturating_add(self.objects()) <= self.cap;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    fn give(&self, bytes: usize) {
        self.counts.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a change in the size of memory that the cap cannot refuse, such as a log's tables.
    pub(super) fn changed(&self, before: usize, now: usize) {
        if now > before {
            self.counts.held.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            self.give(before - now);
        }
    }

    pub(super) fn objects_changed(&self, by: isize) {
        self.counts.objects.fetch_add(by, Ordering::Relaxed);
    }
}

/// One thread's free blocks.
pub(super) struct Pool {
    free: [Vec<NonNull<Copied>>; CLASSES],
    kept: usize,
    /// The bytes of free blocks to keep, given the length of the log that was collected last.
    keep: usize,
    /// The bytes that the budget counts for this pool, and for which it has no block. None if there is a cap, since the
    /// cap could then refuse other threads memory that is free.
    spare: usize,
    /// The bytes of objects made, less those freed, that are not yet reported to the budget.
    objects: isize,
    /// Memory of objects, by size, and its bytes.
    of_objects: [Vec<NonNull<u8>>; CLASSES],
    kept_of_objects: usize,
}

// SAFETY: only the pool uses its free blocks.
unsafe impl Send for Pool {}

fn class_of(layout: Layout) -> Option<usize> {
    (layout.align() == LINE && layout.size() <= CLASSES * LINE).then(|| layout.size() / LINE - 1)
}

/// Returns the class of an object's memory, if such memory is kept. All memory of a class has the same layout.
#[inline]
fn object_class_of(layout: Layout) -> Option<usize> {
    let class = layout.size() / align_of::<Head>() - 1;
    (layout.align() == align_of::<Head>() && class < CLASSES).then_some(class)
}

fn object_layout(class: usize) -> Layout {
    let align = align_of::<Head>();
    Layout::from_size_align((class + 1) * align, align).expect("a few words")
}

/// Allocates memory from the system. Copies have a header and objects have a head, so the size is not 0.
fn fresh(layout: Layout) -> NonNull<u8> {
    debug_assert!(layout.size() > 0);
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Allocates memory for an object.
pub(super) fn fresh_object(layout: Layout) -> NonNull<u8> {
    fresh(layout)
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            kept: 0,
            keep: KEEP_BESIDE_LONG_LOG,
            spare: 0,
            objects: 0,
            of_objects: [const { Vec::new() }; CLASSES],
            kept_of_objects: 0,
        }
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
            None => self.take(layout.size(), budget).then(|| fresh(layout).cast()),
        }
    }

    /// Makes the budget count this many bytes more, those that are spare first. Returns whether the cap allows it.
    fn take(&mut self, bytes: usize, budget: &Budget) -> bool {
        let missing = bytes.saturating_sub(self.spare);
        let fits = missing == 0 || budget.take(missing);
        if fits {
            self.spare -= bytes - missing;
        }
        fits
    }

    /// Takes note of freed bytes, which the budget counts.
    fn give(&mut self, bytes: usize, budget: &Budget) {
        self.spare += bytes;
        if self.spare > SPARE || budget.is_capped() {
            self.give_spare(budget);
        }
    }

    fn give_spare(&mut self, budget: &Budget) {
        if self.spare != 0 {
            budget.give(core::mem::take(&mut self.spare));
        }
    }

    /// Allocates a batch of blocks of a class, or only one if the budget allows no more. Returns whether it got one.
    #[cold]
    fn refill(&mut self, class: usize, layout: Layout, budget: &Budget) -> bool {
        let many = (budget.batch() / layout.size()).max(1);
        let Some(count) = [many, 1].into_iter().find(|count| self.take(count * layout.size(), budget)) else {
            return false;
        };
        self.free[class].extend((0..count).map(|_| fresh(layout).cast()));
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

    /// Returns memory for an object, uninitialized.
    #[inline]
    pub(super) fn object_memory(&mut self, layout: Layout) -> NonNull<u8> {
        if let Some(memory) = object_class_of(layout).and_then(|class| self.of_objects[class].pop()) {
            self.kept_of_objects -= layout.size();
            return memory;
        }
        fresh(layout)
    }

    /// Counts an object that was dropped, and keeps or frees its memory.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline]
    pub(super) unsafe fn object_freed(&mut self, Memory { at, layout }: Memory, budget: &Budget) {
        match object_class_of(layout) {
            Some(class) if self.kept_of_objects + layout.size() <= OBJECTS_KEPT && !budget.is_capped() => {
                self.of_objects[class].push(at);
                self.kept_of_objects += layout.size();
            }
            // SAFETY: memory of objects is allocated with their layouts; the caller's promise.
            _ => unsafe { dealloc(at.as_ptr(), layout) },
        }
        self.objects -= layout.size() as isize;
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
                self.give(layout.size(), budget);
            }
        }
    }

    /// Returns all free blocks, and the memory of objects, to the system.
    pub(super) fn empty(&mut self, budget: &Budget) {
        for (class, blocks) in self.free.iter_mut().enumerate() {
            let layout = Layout::from_size_align((class + 1) * LINE, LINE).expect("a few lines");
            self.spare += blocks.len() * layout.size();
            for block in blocks.drain(..) {
                // SAFETY: as in `put`.
                unsafe { dealloc(block.as_ptr().cast(), layout) };
            }
        }
        for (class, memory) in self.of_objects.iter_mut().enumerate() {
            for at in memory.drain(..) {
                // SAFETY: all memory of a class has this layout.
                unsafe { dealloc(at.as_ptr(), object_layout(class)) };
            }
        }
        (self.kept, self.kept_of_objects) = (0, 0);
        self.give_spare(budget);
        self.tell(budget);
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// A pool keeps the memory of a bounded number of objects for new ones, of the same size, and none beside a cap.
    #[test]
    fn memory_of_few_objects_is_kept() {
        const SIZES: [usize; 3] = [16, 32, 256];
        for (cap, kept) in [(usize::MAX, OBJECTS_KEPT), (1 << 20, 0)] {
            let (budget, mut pool) = (Budget::new(cap), Pool::new());
            for size in SIZES {
                let layout = Layout::from_size_align(size, align_of::<Head>()).unwrap();
                let made: Vec<_> = (0..1000).map(|_| pool.object_memory(layout)).collect();
                for at in made {
                    // SAFETY: not used any more.
                    unsafe { pool.object_freed(Memory { at, layout }, &budget) };
                }
            }
            let of_class =
                pool.of_objects.iter().enumerate().map(|(class, memory)| memory.len() * object_layout(class).size());
            assert_eq!((pool.kept_of_objects, of_class.sum::<usize>()), (kept, kept));
            pool.empty(&budget);
            assert_eq!((pool.kept_of_objects, budget.held()), (0, 0));
        }
    }

    /// The budget counts all blocks that a pool has, and at most `SPARE` bytes more, or none beside a cap.
    #[test]
    fn few_freed_bytes_are_kept_from_the_budget() {
        for (cap, most) in [(usize::MAX, SPARE), (1 << 30, 0)] {
            let (budget, mut pool) = (Budget::new(cap), Pool::new());
            let mut spare = 0;
            // The last layout has no class.
            for lines in [1, 3, CLASSES, CLASSES + 1] {
                let layout = Layout::from_size_align(lines * LINE, LINE).unwrap();
                let mut count = |pool: &Pool, used: usize| {
                    spare = spare.max(pool.spare);
                    assert_eq!(budget.held(), used * layout.size() + pool.kept + pool.spare);
                };
                for many in [300, 10, 300] {
                    let blocks: Vec<_> = (0..many).map(|_| pool.get(layout, &budget).unwrap()).collect();
                    for (freed, block) in blocks.into_iter().enumerate() {
                        count(&pool, many - freed);
                        // SAFETY: not used any more.
                        unsafe { pool.put(block, layout, &budget) };
                    }
                    count(&pool, 0);
                }
            }
            assert!(spare <= most && (spare > 0) == (most > 0), "{spare} bytes");
            pool.empty(&budget);
            assert_eq!(budget.held(), 0);
        }
    }
}
