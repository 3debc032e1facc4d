//! Arenas: allocators of blocks of one size on one NUMA node. Indexes allocate their nodes from them.
//!
//! Blocks are cut from *chunks*, pieces of memory of their own. The first chunks contain about one block. Later chunks
//! have half of the arena's size, up to 2 MiB (but at least one block). So a small arena uses little memory, and a
//! large one uses huge pages on its node. Allocation uses the fullest chunk with a free block, so the other chunks
//! drain. The memory of a drained chunk is freed (from 64 KiB on, Linux gets it back at once), except for one spare
//! chunk. Without the spare, an arena whose size changes around a chunk's boundary would map and unmap memory all the
//! time.
//!
//! One live block keeps a chunk from draining. An owner that can move its blocks solves this with
//! [`BlockArena::close_sparse`], which closes sparse chunks. Blocks are then allocated from the other chunks and from
//! new ones. The memory of a closed chunk is returned as soon as its last block is freed; it is never kept as the
//! spare. The size of new chunks is computed as if closed chunks contained no free blocks. So an arena whose blocks
//! were all moved is as small as one that never had more blocks.
//!
//! One lock protects an arena. An index allocates once in tens of inserts, and the lock is held for some tens of
//! instructions. Chunks are found by binary search in an array of addresses, lists are doubly linked, and no chunk is
//! mapped or unmapped under the lock. Growing has a second lock. So threads that run out of blocks at the same time map
//! one chunk and not one each, and other threads can free blocks in the meantime.

use core::fmt;
use core::ptr::NonNull;
use std::alloc::Layout;

use super::chunk::{self, CLASSES, Chunk, ChunkRef};
use super::pages::{HUGE, Pages};
use crate::sync::{Mutex, MutexGuard};
use crate::topology::NodeId;

/// An allocator for blocks of one size and alignment, placed on one NUMA node if the machine has several.
///
/// ```
/// use archipelago::platform::memory::BlockArena;
/// use std::alloc::Layout;
///
/// let arena = BlockArena::new(Layout::from_size_align(1024, 64).unwrap(), None);
/// let block = arena.alloc();
/// assert_eq!(block.addr().get() % 64, 0);
/// assert_eq!(arena.blocks_live(), 1);
/// // SAFETY: the block came from this arena and is not used any more.
/// unsafe { arena.free(block) };
/// assert_eq!(arena.bytes_held(), 0);
/// ```
pub struct BlockArena {
    /// Size (a multiple of the alignment) and alignment of a block.
    block: Layout,
    node: Option<NodeId>,
    state: Mutex<State>,
    /// Held while a chunk is made. Locked before `state`, never after it.
    growing: Mutex<()>,
}

/// All chunks, and lists of the chunks with free blocks.
#[derive(Default)]
struct State {
    /// Every chunk, ascending by address.
    chunks: Vec<ChunkRef>,
    /// Lists of the chunks with live and free blocks, one list for each class of fullness.
    partial: [Option<ChunkRef>; CLASSES],
    /// A chunk without live blocks.
    spare: Option<ChunkRef>,
    live: usize,
    /// Number of free blocks in open chunks: they can be allocated before the arena must grow.
    free: usize,
    bytes: usize,
    /// The part of `bytes` that belongs to closed chunks.
    closed: usize,
    /// The bytes of live blocks in closed chunks.
    closed_live: usize,
}

/// The number of bytes by which an arena may exceed the limit that [`Sparse`] states before it counts as sparse.
const SLACK: usize = 8 << 10;

/// While blocks are moved, an arena may grow by its size divided by this number (and to the next chunk).
const LITTLE: usize = 8;

/// The limit at which an arena counts as sparse, and the limit at which one of its chunks does.
///
/// Growing adds chunks of half of the arena's size. So blocks that were moved may occupy one and a half times their
/// bytes. With a tighter limit, they would be moved again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// An arena is sparse if more than half of it is free: its size exceeds twice that of its live blocks. A chunk is
    /// sparse if it is less than half full.
    Half,
    /// An arena is sparse if more than three eighths of it are free: its size exceeds 1.6 times that of its live
    /// blocks. A chunk is sparse if it is less than three quarters full.
    Third,
}

impl Sparse {
    /// Returns whether an arena of `bytes` bytes, of which live blocks occupy `live`, is sparse.
    fn is_arena(self, bytes: usize, live: usize) -> bool {
        match self {
            Sparse::Half => bytes > 2 * live + SLACK,
            Sparse::Third => 5 * bytes > 8 * live + 5 * SLACK,
        }
    }

    fn is_chunk(self, chunk: &Chunk) -> bool {
        match self {
            Sparse::Half => chunk.live() * 2 < chunk.capacity(),
            Sparse::Third => chunk.live() * 4 < chunk.capacity() * 3,
        }
    }
}

impl BlockArena {
    /// Makes an arena without memory. Its chunks prefer `node`, a node of
    /// [`Topology::current`](crate::topology::Topology::current). The preference has no effect if the topology is
    /// synthetic or has one node.
    ///
    /// # Panics
    /// If `block`, padded to its alignment, is longer than 1 GiB.
    pub fn new(block: Layout, node: Option<NodeId>) -> Self {
        // A free block contains a pointer to the next one.
        let pointer = Layout::new::<*mut u8>();
        let align = block.align().max(pointer.align());
        let block = Layout::from_size_align(block.size().max(pointer.size()), align).map(|block| block.pad_to_align());
        let block = block.ok().filter(|block| block.size() <= 1 << 30).expect("blocks are at most 1 GiB long");
        BlockArena { block, node, state: Mutex::new(State::default()), growing: Mutex::new(()) }
    }

    /// Allocates an uninitialized block of the arena's layout. The block is not moved until it is freed or the arena is
    /// dropped. Constant time, except when the arena grows.
    ///
    /// If there is no memory, this ends the process, as a failing `Box::new` does.
    pub fn alloc(&self) -> NonNull<u8> {
        if let Some(block) = self.state().take() {
            return block;
        }
        self.grow()
    }

    /// Frees a block. Logarithmic time in the number of chunks; linear time if the memory of a chunk is returned.
    ///
    /// # Safety
    /// `block` came from [`alloc`](Self::alloc) of this arena, was not freed since, and no thread uses its memory any
    /// more.
    pub unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise is the same.
        let released = unsafe { self.state().put(block.addr().get()) };
        // The memory is returned to the system here, after the lock was released.
        drop(released);
    }

    /// Closes the sparse chunks if the arena as a whole is sparse. Returns the number of live blocks in closed chunks.
    /// The owner then moves the blocks that [are closed](Self::is_closed): for each, it allocates another block and
    /// frees the old one. This returns the memory of the closed chunks to the operating system.
    ///
    /// While blocks are live in closed chunks, no further chunks are closed. Otherwise an owner that frees its old
    /// blocks late would move the same data again and again. One call closes only as many chunks as there is room for:
    /// their live blocks must fit in the free blocks of the other chunks plus an eighth of the arena. But it closes at
    /// least one. So moving adds little to the arena's size, however late the old blocks are freed.
    ///
    /// Time O(n log n) in the number of chunks; constant time if no chunk is closed.
    pub fn close_sparse(&self, sparse: Sparse) -> usize {
        let (closed, released) = self.state().close_sparse(sparse, self.block.size());
        // The memory is returned to the system here, after the lock was released.
        drop(released);
        closed
    }

    /// Returns whether live blocks are in closed chunks, or whether the arena is sparse, so that
    /// [`close_sparse`](Self::close_sparse) would close chunks.
    pub fn is_sparse(&self, sparse: Sparse) -> bool {
        self.state().is_sparse(sparse, self.block.size())
    }

    /// Closes every chunk that has live blocks. This is for tests of owners that move blocks.
    #[doc(hidden)]
    pub fn close_all(&self) {
        let mut state = self.state();
        let mut chunks = state.chunks.clone();
        chunks.retain(|chunk| !chunk.is_empty() && !chunk.is_closed());
        state.close(chunks);
    }

    /// Returns whether a live block is in a closed chunk of this arena. Logarithmic time in the number of chunks.
    pub fn is_closed(&self, block: NonNull<u8>) -> bool {
        self.state().chunk_of(block.addr().get()).is_some_and(|chunk| chunk.is_closed())
    }

    /// Returns whether a live block belongs to this arena. Logarithmic time in the number of chunks.
    pub fn owns(&self, block: NonNull<u8>) -> bool {
        self.state().chunk_of(block.addr().get()).is_some()
    }

    /// Returns the size of the arena in bytes: its chunks, whether their blocks are live or free.
    pub fn bytes_held(&self) -> usize {
        self.state().bytes
    }

    /// Returns the part of [`bytes_held`](Self::bytes_held) that consists of free blocks in open chunks. These blocks
    /// are allocated before the arena takes more memory.
    pub fn bytes_spare(&self) -> usize {
        self.state().free * self.block.size()
    }

    /// Returns the number of blocks that are allocated and not freed.
    pub fn blocks_live(&self) -> usize {
        self.state().live
    }

    #[cold]
    fn grow(&self) -> NonNull<u8> {
        // The lock is poisoned only by a failed assertion, which is a bug in this module, so poisoning is ignored.
        let _growing = self.growing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let held = {
            let mut state = self.state();
            // Another thread may have grown the arena, or freed a block.
            if let Some(block) = state.take() {
                return block;
            }
            state.bytes - state.closed + state.closed_live
        };
        let chunk = ChunkRef::allocate(chunk::layout(self.block, (held / 2).min(HUGE)), self.node);
        self.state().add(chunk)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for BlockArena {
    fn drop(&mut self) {
        for chunk in self.state().chunks.drain(..) {
            drop(chunk.release());
        }
    }
}

impl fmt::Debug for BlockArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, bytes) = (self.blocks_live(), self.bytes_held());
        let block = self.block.size();
        f.debug_struct("BlockArena").field("block", &block).field("live", &live).field("bytes", &bytes).finish()
    }
}

impl State {
    /// Takes a block from the fullest chunk that has a free one.
    fn take(&mut self) -> Option<NonNull<u8>> {
        if let Some(chunk) = self.partial.iter().rev().find_map(|head| *head) {
            return Some(self.take_from(chunk));
        }
        let spare = self.spare.take()?;
        Some(self.take_from(spare))
    }

    /// Returns the chunk that contains the block at `addr`.
    fn chunk_of(&self, addr: usize) -> Option<ChunkRef> {
        let at = self.chunks.partition_point(|chunk| chunk.addr() <= addr);
        at.checked_sub(1).map(|at| self.chunks[at]).filter(|chunk| chunk.contains(addr))
    }

    /// Takes a block from a chunk that is not full. The chunk is in a list unless it is empty.
    fn take_from(&mut self, chunk: ChunkRef) -> NonNull<u8> {
        let before = chunk.class();
        let block = chunk.take();
        self.live += 1;
        self.free -= 1;
        self.move_between(chunk, before);
        block
    }

    /// Adds a new chunk and takes a block from it.
    fn add(&mut self, chunk: ChunkRef) -> NonNull<u8> {
        let at = self.chunks.partition_point(|other| other.addr() < chunk.addr());
        self.chunks.insert(at, chunk);
        self.bytes += chunk.bytes();
        self.free += chunk.capacity();
        self.take_from(chunk)
    }

    /// Takes a block back. Returns memory that is no longer needed.
    ///
    /// # Safety
    /// As for [`BlockArena::free`].
    unsafe fn put(&mut self, addr: usize) -> [Option<Pages>; 2] {
        let chunk = self.chunk_of(addr).expect("the block is not of this arena");
        let before = chunk.class();
        // SAFETY: the block is in this chunk, so it was allocated from it; the rest is the caller's promise.
        unsafe { chunk.put(addr) };
        self.live -= 1;
        if chunk.is_closed() {
            self.closed_live -= chunk.stride();
        } else {
            self.free += 1;
        }
        self.move_between(chunk, before);
        if chunk.is_empty() { self.retire(chunk) } else { [None, None] }
    }

    /// Keeps an empty chunk as the spare or returns its memory. Of two spares, the larger is kept, but not if it is as
    /// large as all other chunks together. (Growing adds chunks of half of that size, so no such chunk is freed and
    /// mapped again at once.)
    fn retire(&mut self, chunk: ChunkRef) -> [Option<Pages>; 2] {
        if chunk.is_closed() {
            return [Some(self.remove(chunk)), None];
        }
        let (kept, surplus) = match self.spare.take() {
            Some(spare) if spare.bytes() > chunk.bytes() => (spare, Some(chunk)),
            other => (chunk, other),
        };
        let surplus = surplus.map(|surplus| self.remove(surplus));
        if self.bytes - self.closed - kept.bytes() > kept.bytes() {
            self.spare = Some(kept);
            return [surplus, None];
        }
        [surplus, Some(self.remove(kept))]
    }

    /// Removes an empty chunk that is in no list, and returns its memory.
    fn remove(&mut self, chunk: ChunkRef) -> Pages {
        let at = self.chunks.partition_point(|other| other.addr() < chunk.addr());
        let removed = self.chunks.remove(at);
        debug_assert!(removed == chunk);
        self.bytes -= chunk.bytes();
        if chunk.is_closed() {
            self.closed -= chunk.bytes();
        } else {
            self.free -= chunk.capacity();
        }
        if self.chunks.is_empty() {
            self.chunks = Vec::new();
        }
        chunk.release()
    }

    /// See [`BlockArena::close_sparse`]. Also returns memory that is no longer needed.
    fn close_sparse(&mut self, sparse: Sparse, block: usize) -> (usize, Option<Pages>) {
        if self.closed_live > 0 || !self.is_sparse(sparse, block) {
            return (self.closed_live / block, None);
        }
        let spare = self.spare.take().map(|spare| self.remove(spare));
        let mut chunks: Vec<ChunkRef> = self.chunks.clone();
        chunks.retain(|chunk| chunk.class().is_some() && sparse.is_chunk(chunk));
        // The emptiest chunks are closed first, and at least one. More are closed as long as the other chunks have
        // room, or nearly, for the blocks to be moved. Old blocks may be freed late, and then exist beside the blocks
        // that replace them.
        chunks.sort_unstable_by_key(|chunk| (chunk.live() << 16) / chunk.capacity());
        let (mut moved, mut free, mut is_first) = (0, self.free + self.bytes / LITTLE / block, true);
        chunks.retain(|chunk| {
            moved += chunk.live();
            free = free.saturating_sub(chunk.capacity() - chunk.live());
            core::mem::take(&mut is_first) || moved <= free
        });
        self.close(chunks);
        (self.closed_live / block, spare)
    }

    /// See [`BlockArena::is_sparse`].
    fn is_sparse(&self, sparse: Sparse, block: usize) -> bool {
        self.closed_live > 0 || sparse.is_arena(self.bytes, self.live * block)
    }

    /// Closes some chunks.
    fn close(&mut self, chunks: Vec<ChunkRef>) {
        for chunk in chunks {
            if let Some(class) = chunk.class() {
                self.unlist(chunk, class);
            }
            chunk.close();
            self.closed += chunk.bytes();
            self.closed_live += chunk.live_bytes();
            self.free -= chunk.capacity() - chunk.live();
        }
    }

    /// Moves a chunk from the list of its class `before` to that of its present class; `None` means no list. A chunk
    /// whose class does not change keeps its position in the list. If it moved to the front whenever a block is freed,
    /// the next allocation would use this chunk, and chunks of one class would never differ in fullness. Arenas that
    /// were a sixteenth full stayed so.
    fn move_between(&mut self, chunk: ChunkRef, before: Option<usize>) {
        let now = chunk.class();
        if now == before {
            return;
        }
        if let Some(class) = before {
            self.unlist(chunk, class);
        }
        if let Some(class) = now {
            self.list(chunk, class);
        }
    }

    fn list(&mut self, chunk: ChunkRef, class: usize) {
        let head = &mut self.partial[class];
        chunk.prev.set(None);
        chunk.next.set(*head);
        if let Some(next) = *head {
            next.prev.set(Some(chunk));
        }
        *head = Some(chunk);
    }

    fn unlist(&mut self, chunk: ChunkRef, class: usize) {
        let (prev, next) = (chunk.prev.take(), chunk.next.take());
        match prev {
            Some(prev) => prev.next.set(next),
            None => self.partial[class] = next,
        }
        if let Some(next) = next {
            next.prev.set(prev);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn arena(size: usize, align: usize) -> BlockArena {
        BlockArena::new(Layout::from_size_align(size, align).unwrap(), None)
    }

    /// Fills a block with a byte that depends on its address, so that an overlap is detected.
    fn mark(block: NonNull<u8>, size: usize) {
        // SAFETY: the test owns the block.
        unsafe { block.write_bytes(block.addr().get().trailing_zeros() as u8 ^ (block.addr().get() >> 6) as u8, size) };
    }

    fn is_marked(block: NonNull<u8>, size: usize) -> bool {
        let byte = block.addr().get().trailing_zeros() as u8 ^ (block.addr().get() >> 6) as u8;
        // SAFETY: the test owns the block, and `mark` wrote all of it.
        unsafe { core::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|&b| b == byte)
    }

    fn free(arena: &BlockArena, block: NonNull<u8>) {
        // SAFETY: every test frees its own blocks, each once.
        unsafe { arena.free(block) };
    }

    /// Runs allocations (`None`) and frees (the index of a live block) and compares with a plain set of live blocks.
    fn run_against_model(size: usize, align: usize, steps: &[Option<usize>]) {
        let arena = arena(size, align);
        let mut live: Vec<NonNull<u8>> = Vec::new();
        let mut seen = HashMap::new();
        for step in steps {
            match step {
                Some(which) if !live.is_empty() => {
                    let block = live.swap_remove(which % live.len());
                    assert!(is_marked(block, size), "a live block was written to by another");
                    seen.remove(&block);
                    free(&arena, block);
                }
                _ => {
                    let block = arena.alloc();
                    assert_eq!(block.addr().get() % align, 0);
                    assert!(seen.insert(block, ()).is_none(), "handed out twice");
                    mark(block, size);
                    live.push(block);
                }
            }
            assert_eq!(arena.blocks_live(), live.len());
            assert!(arena.bytes_held() >= live.len() * size + arena.bytes_spare());
        }
        for block in live {
            assert!(is_marked(block, size));
            free(&arena, block);
        }
        assert_eq!((arena.blocks_live(), arena.bytes_held()), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 100 },
            ..ProptestConfig::default() })]

        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec(prop::option::weighted(0.48, any::<usize>()),
            1..if cfg!(miri) { 60 } else { 2000 }), shape in 0usize..5) {
            let (size, align) = [(1, 1), (24, 8), (1024, 64), (4096, 4096), (70_000, 64)][shape];
            run_against_model(size, align, &steps);
        }
    }

    #[test]
    fn an_empty_arena_is_small() {
        assert!(size_of::<BlockArena>() < 200, "{}", size_of::<BlockArena>());
        assert_eq!(arena(1024, 64).bytes_held(), 0);
    }

    #[test]
    fn a_small_arena_holds_little_more_than_its_blocks() {
        let arena = arena(1024, 64);
        for count in 1..=if cfg!(miri) { 20 } else { 5000 } {
            arena.alloc();
            let blocks = count * 1024;
            assert!(arena.bytes_held() <= blocks + (blocks / 2 + (128 << 10)).min(2 * HUGE), "{count}");
            assert!(count > 8 || arena.bytes_held() <= 2 * blocks + 1024, "{count}: {}", arena.bytes_held());
        }
    }

    #[test]
    fn memory_goes_back_as_chunks_drain() {
        let arena = arena(4096, 64);
        let count = if cfg!(miri) { 40 } else { 8 << 10 };
        let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
        let full = arena.bytes_held();
        let (kept, rest) = blocks.split_at(count / 8);
        rest.iter().for_each(|&block| free(&arena, block));
        assert!(arena.bytes_held() <= full / 4 + 2 * HUGE, "{} of {full}", arena.bytes_held());
        kept.iter().for_each(|&block| free(&arena, block));
        assert_eq!(arena.bytes_held(), 0);
    }

    /// Allocation prefers full chunks. After most blocks were freed at random, and others were allocated and freed, the
    /// live blocks are in fewer chunks than at first.
    #[test]
    #[cfg(not(miri))]
    fn memory_drains_under_churn() {
        let arena = arena(4096, 64);
        let mut blocks: Vec<_> = (0..16 << 10).map(|_| arena.alloc()).collect();
        let full = arena.bytes_held();
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..15 << 10 {
            free(&arena, blocks.swap_remove(random(blocks.len())));
        }
        for _ in 0..200_000 {
            free(&arena, blocks.swap_remove(random(blocks.len())));
            blocks.push(arena.alloc());
        }
        assert!(arena.bytes_held() < full / 2, "{} of {full} with a sixteenth live", arena.bytes_held());
    }

    /// One block in a hundred is left, all over the arena, and its owner moves these blocks.
    #[test]
    fn closed_chunks_drain() {
        let arena = arena(1024, 64);
        let (count, step) = if cfg!(miri) { (400, 40) } else { (40_000, 100) };
        let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
        let full = arena.bytes_held();
        let (kept, gone): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % step == 1);
        gone.into_iter().for_each(|(_, block)| free(&arena, block));
        assert!(arena.bytes_held() > full / 2, "one block keeps a chunk: {} of {full}", arena.bytes_held());
        assert!(arena.is_sparse(Sparse::Half) && arena.is_sparse(Sparse::Third));
        let closed = arena.close_sparse(Sparse::Half);
        assert!(closed * 2 > kept.len(), "{closed} of {}", kept.len());
        assert_eq!(arena.close_sparse(Sparse::Half), closed, "what is closed is closed");
        let mut moved = 0;
        for (_, block) in kept.iter().filter(|(_, block)| arena.is_closed(*block)) {
            let other = arena.alloc();
            assert!(!arena.is_closed(other), "blocks are taken from open chunks only");
            free(&arena, *block);
            moved += 1;
        }
        assert_eq!((moved, arena.blocks_live()), (closed, kept.len()));
        assert!(arena.bytes_held() <= 3 * kept.len() * 1024 + SLACK, "{} of {full}", arena.bytes_held());
        assert_eq!(arena.close_sparse(Sparse::Half), 0, "blocks that were moved lie densely");
        assert_eq!(arena.close_sparse(Sparse::Third), 0, "as densely as blocks can");
    }

    /// Spare blocks are allocated without growth, and there are exactly as many as reported: after blocks are freed,
    /// and after chunks are closed or drained.
    #[test]
    fn spare_blocks_are_taken_before_the_arena_grows() {
        for close in [false, true] {
            let arena = arena(1024, 64);
            let (count, step) = if cfg!(miri) { (200, 20) } else { (10_000, 100) };
            let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
            blocks.iter().enumerate().filter(|(at, _)| at % step != 1).for_each(|(_, &block)| free(&arena, block));
            assert!(!close || arena.close_sparse(Sparse::Third) > 0);
            let (spare, held) = (arena.bytes_spare() / 1024, arena.bytes_held());
            (0..spare).for_each(|_| _ = arena.alloc());
            assert_eq!((arena.bytes_held(), arena.bytes_spare()), (held, 0), "{spare} blocks were spare");
            arena.alloc();
            assert!(arena.bytes_held() > held, "none was left");
        }
    }

    /// However many blocks are live, the blocks that are moved find room in the other chunks, or need little more.
    #[test]
    fn moving_adds_little() {
        for keep in [2, 3, 5, 9, 50] {
            let arena = arena(1024, 64);
            let count = if cfg!(miri) { 200 } else { 20_000 };
            let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
            // The pattern makes chunks that differ in fullness.
            let kept = |at: usize| (at / 97).is_multiple_of(keep) || at.is_multiple_of(53);
            blocks.iter().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, &block)| free(&arena, block));
            let mut live: Vec<_> = (0..count).filter(|&at| kept(at)).map(|at| blocks[at]).collect();
            let mut held = arena.bytes_held();
            while arena.close_sparse(Sparse::Third) > 0 {
                let closed: Vec<usize> = (0..live.len()).filter(|&at| arena.is_closed(live[at])).collect();
                let before = core::mem::replace(&mut held, arena.bytes_held());
                // All blocks are moved before the first old one is freed.
                let old: Vec<_> =
                    closed.into_iter().map(|at| core::mem::replace(&mut live[at], arena.alloc())).collect();
                let most = arena.bytes_held();
                // A new chunk is half as large as the memory in use.
                assert!(most <= before + before / 2, "{most} bytes while blocks are moved, {before} before");
                old.into_iter().for_each(|block| free(&arena, block));
            }
            let (held, live) = (arena.bytes_held(), live.len() * 1024);
            assert!(5 * held <= 8 * live + 5 * SLACK, "{held} bytes, and {live} live");
        }
    }

    #[test]
    fn a_dense_arena_closes_nothing() {
        let arena = arena(1024, 64);
        let count = if cfg!(miri) { 100 } else { 10_000 };
        let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
        blocks.iter().step_by(4).for_each(|&block| free(&arena, block));
        assert_eq!(arena.close_sparse(Sparse::Half), 0);
        assert!(!arena.is_closed(blocks[1]));
    }

    #[test]
    fn dropping_frees_blocks_that_were_never_given_back() {
        // A chunk that is left behind is an error under Miri and the leak check.
        let arena = arena(512, 64);
        (0..100).for_each(|_| mark(arena.alloc(), 512));
    }

    #[test]
    #[should_panic(expected = "not of this arena")]
    fn refuses_strangers() {
        let (mine, other) = (arena(64, 64), arena(64, 64));
        mine.alloc();
        free(&mine, other.alloc());
    }

    #[test]
    fn threads_share_an_arena() {
        let arena = arena(256, 64);
        let (threads, rounds) = if cfg!(miri) { (2, 20) } else { (8, 20_000) };
        let (to_other, from_other) = std::sync::mpsc::channel::<usize>();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let to_other = to_other.clone();
                scope.spawn({
                    let arena = &arena;
                    move || {
                        let mut mine = Vec::new();
                        for round in 0..rounds {
                            let block = arena.alloc();
                            mark(block, 256);
                            if round % 3 == 0 {
                                to_other.send(block.as_ptr().expose_provenance()).unwrap();
                            } else {
                                mine.push(block);
                            }
                            if round % 5 == 0
                                && let Some(block) = mine.pop()
                            {
                                assert!(is_marked(block, 256));
                                free(arena, block);
                            }
                        }
                        mine.into_iter().for_each(|block| free(arena, block));
                    }
                });
            }
            drop(to_other);
            for address in from_other {
                let block = NonNull::new(core::ptr::with_exposed_provenance_mut::<u8>(address)).unwrap();
                assert!(is_marked(block, 256));
                free(&arena, block);
            }
        });
        assert_eq!((arena.blocks_live(), arena.bytes_held()), (0, 0));
    }
}
