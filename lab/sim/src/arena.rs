//! A heap whose layout depends on the program alone.
//!
//! Which words share a cache line is part of a simulation's result. An ordinary heap decides this by everything that
//! the process did before. In a binary that installs [`SimAlloc`] as its global allocator, simulated threads allocate
//! from an arena of the run. Each thread cuts blocks from chunks of whole pages, so that the first access to a page
//! determines its NUMA node. If a thread of the run frees such a block, the block is added to a list of the freeing
//! thread. Blocks of more than 16 KiB, and blocks that are aligned to more than 128 bytes, have pages of their own. All
//! other allocations use the system's allocator. If `SimAlloc` is not installed, all allocations use the system's
//! allocator, and runs are not exactly repeatable.
//!
//! A program writes to the memory that it allocates, and a freed block contains the address of the next free one. The
//! model sees plain accesses only if they are announced. The allocator announces both kinds of write itself, so that
//! they cost time in every structure. (It does not announce that a program fills a block of more than 16 KiB:
//! `FILLED`.)
//!
//! Memory that outlives its run (a result, or a static made inside the run) stays valid: an arena is returned to the
//! operating system when the run has ended and the arena's last block is freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::world;

/// The allocator to install: `#[global_allocator] static ALLOC: SimAlloc = SimAlloc;`
pub struct SimAlloc;

/// The bytes of address space of one arena.
const SPAN: usize = 1 << 36;
/// The address of the first arena. Arenas are high in the lower half of the address space. All of them are below
/// 0x5555_5555_0000, above which Linux places position-independent programs and their heaps.
const LOW: usize = 0x5000_0000_0000;
const ARENAS: usize = 80;
/// The distance in bytes from an arena down to its second mapping. The second mappings are below all arenas, where
/// Linux places nothing by itself.
const BELOW: usize = ARENAS * SPAN;
/// The size of a chunk that a thread takes.
const CHUNK: usize = 64 << 10;
const PAGE: usize = 4096;
/// The size of the largest block whose bytes are charged at its allocation, as writes by the program. Every block of a
/// size class is charged. Larger blocks are not charged, since programs write them piece by piece, or never completely.
const FILLED: usize = CHUNK / 4;
/// The number of size classes, and (`ALIGNED`) the first class for blocks that are aligned to more than 16 bytes.
const CLASSES: usize = 60;
const ALIGNED: usize = 36;

/// The number of live blocks in each arena, plus one while its run lasts.
static ALIVE: [AtomicUsize; ARENAS] = [const { AtomicUsize::new(0) }; ARENAS];

/// The bytes of the live blocks of each arena, as the program asked for them.
static HELD: [AtomicUsize; ARENAS] = [const { AtomicUsize::new(0) }; ARENAS];

/// Tells for each arena whether it has a second mapping.
static TWICE: [AtomicBool; ARENAS] = [const { AtomicBool::new(false) }; ARENAS];

/// The free lists and the chunk of one simulated thread.
pub(crate) struct Cache {
    /// The arena of the blocks; null before the thread has run, and in a run without an arena.
    arena: *const Arena,
    free: [usize; CLASSES],
    chunk: usize,
    chunk_end: usize,
}

impl Cache {
    pub(crate) const fn new() -> Self {
        Cache { arena: null(), free: [0; CLASSES], chunk: 0, chunk_end: 0 }
    }
}

/// Address space from the operating system.
#[cfg(target_os = "linux")]
mod os {
    use super::SPAN;

    /// Maps an arena at `base`, in huge pages if it `fills`. Returns false if the addresses are in use.
    pub(super) fn map(base: usize, fills: bool) -> bool {
        let mapped = place(base, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        if mapped && fills {
            // SAFETY: the range is the mapping just made; the call is only advice.
            unsafe { libc::madvise(base as *mut libc::c_void, SPAN, libc::MADV_HUGEPAGE) };
        }
        mapped
    }

    /// Maps the memory of one arena twice, at `base` and at `second`. Returns false if addresses are in use, or if the
    /// system has no such memory.
    pub(super) fn map_twice(base: usize, second: usize) -> bool {
        // SAFETY: a file without a name, which the mappings keep alive.
        let file = unsafe { libc::memfd_create(c"arena".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the file just made; its size takes no memory.
        let sized = file >= 0 && unsafe { libc::ftruncate(file, SPAN as libc::off_t) } == 0;
        let first = sized && place(base, libc::MAP_SHARED, file);
        let both = first && place(second, libc::MAP_SHARED, file);
        if first && !both {
            unmap(base);
        }
        // SAFETY: as above; nothing else closes it.
        unsafe { libc::close(file) };
        both
    }

    /// Maps a span of memory at `base`. Returns false if the addresses are in use.
    fn place(base: usize, kind: i32, file: i32) -> bool {
        let flags = kind | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping doesn't replace another one; memory is only taken when touched.
        let at = unsafe { libc::mmap(base as *mut libc::c_void, SPAN, access, flags, file, 0) } as usize;
        if at != base && at != libc::MAP_FAILED as usize {
            // An old kernel took `base` for a hint; nothing knows of this mapping.
            unmap(at);
        }
        at == base
    }

    /// Returns an arena without live blocks, or one of its mappings, to the system.
    pub(super) fn unmap(base: usize) {
        // SAFETY: the range is a mapping that this module made. Nothing uses it: it was never used, or its run is over
        // and its last block is freed.
        unsafe { libc::munmap(base as *mut libc::c_void, SPAN) };
    }

    /// Returns the memory of a freed block with pages of its own to the system. `shared` tells whether the arena has
    /// two mappings.
    pub(super) fn discard(block: usize, bytes: usize, shared: bool) {
        let advice = if shared { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: the block has all of its pages for itself, and it is free.
        unsafe { libc::madvise(block as *mut libc::c_void, bytes, advice) };
    }
}

/// Other systems have no arenas.
#[cfg(not(target_os = "linux"))]
mod os {
    pub(super) fn map(_base: usize, _fills: bool) -> bool {
        false
    }

    pub(super) fn map_twice(_base: usize, _second: usize) -> bool {
        false
    }

    pub(super) fn unmap(_base: usize) {}

    pub(super) fn discard(_block: usize, _bytes: usize, _shared: bool) {}
}

/// The arena of a run.
pub(crate) struct Arena {
    number: usize,
    /// Whether the same memory is also mapped [`BELOW`].
    twice: bool,
    next: Cell<usize>,
    /// The ranges of freed blocks with pages of their own. They are reused only if no other memory is left, since a
    /// program's figures depend on whether memory is new to it.
    freed: RefCell<Vec<(usize, usize)>>,
}

thread_local! {
    /// The allocation cache (`Cache`) of the simulated thread that runs on this OS thread. It is one word, since every
    /// access of the program exchanges it ([`apart`]).
    static CURRENT: Cell<*mut Cache> = const { Cell::new(null_mut()) };
}

/// The previous destination of allocations.
#[must_use]
pub(crate) struct Route(*mut Cache);

/// Directs the allocations of this OS thread to an arena, or to the system if there is no arena. In either case the
/// allocations are charged to the simulated thread to which the cache belongs.
///
/// # Safety
/// The arena and the cache stay valid, and nothing else uses the cache, until [`Route::back`] is called.
pub(crate) unsafe fn route(arena: Option<&Arena>, cache: *mut Cache) -> Route {
    // SAFETY: the caller's promise.
    unsafe { (*cache).arena = arena.map_or(null(), |arena| arena) };
    Route(CURRENT.replace(cache))
}

/// Directs the allocations of this OS thread to the system.
#[inline]
pub(crate) fn aside() -> Route {
    Route(CURRENT.replace(null_mut()))
}

impl Route {
    #[inline]
    pub(crate) fn back(&self) {
        // `LocalKey::set` is not used, since it passes an `Option` through the stack and waits for it.
        CURRENT.with(|current| current.set(self.0));
    }
}

/// Returns whether the program runs now, not the engine or this allocator. If so, allocations use the run's arena, if
/// the run has an arena.
pub(crate) fn routed() -> bool {
    !CURRENT.get().is_null()
}

/// Returns the address at which the object at `at` can be accessed even while the arena of this OS thread's run is
/// closed. (A closed arena is inaccessible to the program, so that each plain access faults and is recorded; see
/// `watch/fault.rs`.)
#[inline]
pub(crate) fn open<T>(at: *const T) -> *const T {
    let cache = CURRENT.get();
    // SAFETY: `route` was given pointers that stay valid until they are taken back.
    match unsafe { cache.as_ref().and_then(|cache| cache.arena.as_ref()) } {
        Some(arena) if arena.twice => core::ptr::with_exposed_provenance(arena.open(at.expose_provenance())),
        _ => at,
    }
}

/// Runs `f` while allocations go to the system.
#[inline]
pub(crate) fn apart<R>(f: impl FnOnce() -> R) -> R {
    /// Restores the route, even if `f` panics.
    struct Back(Route);
    impl Drop for Back {
        #[inline]
        fn drop(&mut self) {
            self.0.back();
        }
    }
    let _back = Back(aside());
    f()
}

impl Arena {
    /// Returns the arena's range of addresses.
    pub(crate) fn span(&self) -> core::ops::Range<usize> {
        let base = LOW + self.number * SPAN;
        base..base + SPAN
    }

    /// Returns the address at which the memory at `addr` can be accessed while the arena is closed.
    #[inline]
    fn open(&self, addr: usize) -> usize {
        if self.twice && self.span().contains(&addr) { addr - BELOW } else { addr }
    }

    /// Returns the bytes of the live blocks, as the program asked for them: without rounding, lists of free blocks and
    /// the unused ends of chunks.
    pub(crate) fn held(&self) -> usize {
        HELD[self.number].load(Ordering::Relaxed)
    }

    /// Reserves address space for a run. The arena will be closed to the program if it `closes`. The arena has huge pages
    /// if it `fills`: the system clears a huge page when it is touched, which takes longer than a short run. Returns
    /// `None` if there is no address space; allocations then come from the system.
    pub(crate) fn new(closes: bool, fills: bool) -> Option<Arena> {
        // The lowest free arena is taken, so that successive runs get the same addresses; a program's behaviour may
        // depend on addresses.
        for (number, alive) in ALIVE.iter().enumerate() {
            if alive.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // A new arena holds nothing.
            HELD[number].store(0, Ordering::Relaxed);
            let base = LOW + number * SPAN;
            let twice = closes && os::map_twice(base, base - BELOW);
            if twice || os::map(base, fills) {
                TWICE[number].store(twice, Ordering::Relaxed);
                return Some(Arena { number, twice, next: Cell::new(base + PAGE), freed: RefCell::default() });
            }
            alive.store(0, Ordering::Release);
        }
        None
    }

    fn take(&self, bytes: usize, align: usize) -> usize {
        let (bytes, align) = (bytes.next_multiple_of(PAGE), align.max(PAGE));
        let start = self.next.get().next_multiple_of(align);
        if start + bytes > self.span().end {
            return self.take_freed(bytes, align);
        }
        self.next.set(start + bytes);
        start
    }

    /// Takes the first freed range that is large enough; the rest of the range stays free.
    fn take_freed(&self, bytes: usize, align: usize) -> usize {
        let mut freed = self.freed.borrow_mut();
        let place = |&(from, _): &(usize, usize)| from.next_multiple_of(align);
        let Some(at) = freed.iter().position(|room| place(room) + bytes <= room.1) else { return 0 };
        let (from, to) = freed.swap_remove(at);
        let start = place(&(from, to));
        freed.extend([(from, start), (start + bytes, to)].into_iter().filter(|(from, to)| from < to));
        start
    }

    /// Frees a block with pages of its own.
    fn give(&self, block: usize, bytes: usize) {
        os::discard(self.open(block), bytes, self.twice);
        self.freed.borrow_mut().push((block, block + bytes.next_multiple_of(PAGE)));
    }

    fn alloc(&self, cache: &mut Cache, layout: Layout) -> *mut u8 {
        let Some((class, size)) = class_of(layout) else {
            return self.counted(self.take(layout.size(), layout.align()), layout);
        };
        let block = cache.free[class];
        if block != 0 {
            // SAFETY: a block in a free list contains the address of the next one; nothing else uses the block.
            cache.free[class] = unsafe { *(self.open(block) as *const usize) };
            return self.counted(block, layout);
        }
        let align = if layout.align() <= 16 { 16 } else { 128 };
        if cache.chunk.next_multiple_of(align) + size > cache.chunk_end {
            cache.chunk = self.take(CHUNK, PAGE);
            if cache.chunk == 0 {
                return null_mut();
            }
            cache.chunk_end = cache.chunk + CHUNK;
        }
        let block = cache.chunk.next_multiple_of(align);
        cache.chunk = block + size;
        self.counted(block, layout)
    }

    /// Counts a new block. Nothing is counted if the block is null, since no memory was left.
    fn counted(&self, block: usize, layout: Layout) -> *mut u8 {
        if block != 0 {
            ALIVE[self.number].fetch_add(1, Ordering::Relaxed);
            // Relaxed: a count, which carries no data.
            HELD[self.number].fetch_add(layout.size(), Ordering::Relaxed);
        }
        block as *mut u8
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        forget(self.number);
    }
}

/// Returns the arena of a live block, or `None` if the system's allocator made the block.
fn arena_of(block: usize) -> Option<usize> {
    let number = block.checked_sub(LOW)? / SPAN;
    // Relaxed: an arena stays while it has blocks, and the block exists until its owner frees it.
    (number < ARENAS && ALIVE[number].load(Ordering::Relaxed) > 0).then_some(number)
}

/// Removes a block or a run from the arena's count. Returns whether the arena was returned to the system.
fn forget(number: usize) -> bool {
    if ALIVE[number].fetch_sub(1, Ordering::AcqRel) != 1 {
        return false;
    }
    let base = LOW + number * SPAN;
    // Relaxed: set before the arena's first block was made.
    if TWICE[number].load(Ordering::Relaxed) {
        os::unmap(base - BELOW);
    }
    os::unmap(base);
    true
}

/// Returns the size class of a block and the class's size; `None` for blocks that get pages of their own.
///
/// There are two families of classes: multiples of 16 bytes, and multiples of 128 bytes for blocks that are aligned to
/// more than 16 bytes. A block is reused only for a block of the same class, so the alignments must not be mixed. Each
/// family has eight steps of its unit, then four steps per doubling.
fn class_of(layout: Layout) -> Option<(usize, usize)> {
    let (unit, first) = if layout.align() <= 16 { (16, 0) } else { (128, ALIGNED) };
    if layout.size() > CHUNK / 4 || layout.align() > 128 {
        return None;
    }
    let size = layout.size().max(1).next_multiple_of(unit);
    if size <= 8 * unit {
        return Some((first + size / unit - 1, size));
    }
    let bits = (size - 1).ilog2();
    let size = size.next_multiple_of(1 << (bits - 2));
    let steps = (size - (1 << bits)) >> (bits - 2);
    Some((first + 7 + (bits - (8 * unit).ilog2()) as usize * 4 + steps, size))
}

// SAFETY: blocks are cut from memory that this arena's mapping owns, and each is used once until it is freed. Foreign
// addresses are passed to the system's allocator, which made them.
unsafe impl GlobalAlloc for SimAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let cache = CURRENT.get();
        if cache.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: `route` got pointers that stay valid until it is undone, and one OS thread uses them.
        let arena = unsafe { (*cache).arena.as_ref() };
        let block = apart(|| match arena {
            // SAFETY: as above.
            Some(arena) => unsafe { arena.alloc(&mut *cache, layout) },
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        });
        if layout.size() <= FILLED {
            world::allocated(block.cast(), layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !routed() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        // A block that has its pages for itself needs no writes: its pages are new from the operating system, hence
        // zero.
        if !block.is_null() && (class_of(layout).is_some() || arena_of(block as usize).is_none()) {
            let block = open(block.cast_const()).cast_mut();
            // SAFETY: a fresh block of this size.
            apart(|| unsafe { block.write_bytes(0, layout.size()) });
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let at = block as usize;
        let cache = CURRENT.get();
        if !cache.is_null() && world::leaks() {
            return;
        }
        // SAFETY: as in `alloc`.
        let arena = if cache.is_null() { None } else { unsafe { (*cache).arena.as_ref() } };
        let Some(number) = arena_of(at) else {
            if !cache.is_null() && arena.is_none() {
                world::allocated(block.cast(), size_of::<usize>());
            }
            // SAFETY: the caller's promise.
            return unsafe { System.dealloc(block, layout) };
        };
        // Before `forget`, after which another run can have the arena.
        HELD[number].fetch_sub(layout.size(), Ordering::Relaxed);
        if let Some(arena) = arena.filter(|arena| arena.number == number) {
            world::allocated(block.cast(), size_of::<usize>());
            match class_of(layout) {
                Some((class, _)) => {
                    // SAFETY: the block is free now and large enough for an address.
                    apart(|| unsafe {
                        *(arena.open(at) as *mut usize) = (*cache).free[class];
                        (*cache).free[class] = at;
                    });
                }
                None => apart(|| arena.give(at, layout.size())),
            }
        }
        forget(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_blocks() {
        let mut sizes = [0; CLASSES];
        for size in (1..CHUNK / 4).step_by(3) {
            for align in [1, 8, 16, 64, 128] {
                let (class, rounded) = class_of(Layout::from_size_align(size, align).unwrap()).unwrap();
                let unit = if align <= 16 { 16 } else { 128 };
                assert!(rounded >= size && rounded % unit == 0 && rounded < 2 * size + unit, "{size} {align}");
                assert!(sizes[class] == 0 || sizes[class] == rounded, "{size} {align}: class {class} has two sizes");
                sizes[class] = rounded;
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_heap_of_the_process_is_no_arena() {
        // The beginning and the present end of the system's heap.
        static DATA: u8 = 1;
        // SAFETY: the call only reads the break.
        let end = unsafe { libc::sbrk(0) };
        for at in [(&raw const DATA).addr(), end.addr()] {
            assert_eq!(arena_of(at), None, "{at:x}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_arena_that_closes_is_there_twice() {
        let arena = Arena::new(true, true).unwrap();
        let layout = Layout::from_size_align(CHUNK, PAGE).unwrap();
        let block = arena.alloc(&mut Cache::new(), layout) as usize;
        let (first, second) = (block as *mut u64, arena.open(block) as *mut u64);
        assert_ne!(first, second);
        // SAFETY: a live block of this arena, under both of its addresses.
        unsafe {
            first.write_volatile(7);
            assert_eq!(second.read_volatile(), 7);
            arena.give(block, CHUNK);
            assert_eq!((first.read_volatile(), second.read_volatile()), (0, 0), "its memory has gone");
        }
        forget(arena.number);
    }

    #[test]
    fn blocks_do_not_overlap_and_are_reused() {
        let arena = Arena::new(false, true).unwrap();
        let mut cache = Cache::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        let blocks: Vec<usize> = (0..1000).map(|_| arena.alloc(&mut cache, layout) as usize).collect();
        assert!(blocks.windows(2).all(|pair| pair[1] >= pair[0] + 100));
        let to = &raw mut cache;
        // SAFETY: both live until the route is undone; the cache is used only through `to`.
        let route = unsafe { route(Some(&arena), to) };
        // SAFETY: a live block of this arena.
        unsafe { SimAlloc.dealloc(blocks[7] as *mut u8, layout) };
        // SAFETY: as above.
        assert_eq!(arena.alloc(unsafe { &mut *to }, layout) as usize, blocks[7]);
        for block in blocks {
            // SAFETY: live blocks of this arena.
            unsafe { SimAlloc.dealloc(block as *mut u8, layout) };
        }
        route.back();
        let number = arena.number;
        drop(arena);
        assert_eq!(ALIVE[number].load(Ordering::Relaxed), 0);
    }
}
