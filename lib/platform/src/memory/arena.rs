//! Blocks of one size, near one node: what an index's nodes are made of.
//!
//! Blocks are cut from chunks. The first chunks hold a block or so and later ones half of what the arena has, up to 2
//! MiB, so that a small arena is small and a large one lives in huge pages on its node. Allocation takes from the
//! fullest chunk that has room, which lets the others drain; a drained chunk's memory goes back to the operating
//! system, but for one spare, which keeps an arena at a chunk's brink from mapping and unmapping all the time.
//!
//! One live block keeps a chunk from draining. An owner that can move its blocks gets out of that by
//! [`BlockArena::close_sparse`]: sparse chunks are closed, blocks are taken from the others and from new ones, and a closed
//! chunk's memory goes back, spare or not, as soon as its last block does. New chunks are sized as if closed ones held no
//! free blocks, so that an arena whose blocks were all moved is as small as one that never had more.
//!
//! One lock guards an arena. An index allocates once in tens of inserts, and the lock is held for some tens of
//! instructions: chunks are found by binary search over an array of addresses, lists are doubly linked, and no system
//! call is made under the lock. Growing has a lock of its own, so that threads which run out together map one chunk,
//! not one each, and so that others can give back blocks meanwhile.

use core::fmt;
use core::ptr::NonNull;
use std::alloc::Layout;

use super::chunk::{self, CLASSES, Chunk, ChunkRef};
use super::pages::{HUGE, Pages};
use crate::sync::{Mutex, MutexGuard};
use crate::topology::NodeId;

/// An allocator for blocks of one size and alignment, placed on one NUMA node where the machine has several.
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
    /// Held while a chunk is made. Taken before `state`, never after.
    growing: Mutex<()>,
}

/// All chunks, and which of them have room.
#[derive(Default)]
struct State {
    /// Every chunk, ascending by address.
    chunks: Vec<ChunkRef>,
    /// Chunks with some blocks live and some free, by how full they are.
    partial: [Option<ChunkRef>; CLASSES],
    /// A chunk with no block live.
    spare: Option<ChunkRef>,
    live: usize,
    /// Free blocks of open chunks: what can be taken before the arena must grow.
    free: usize,
    bytes: usize,
    /// Of `bytes`, those of closed chunks.
    closed: usize,
    /// Of the closed chunks, the bytes of live blocks.
    closed_live: usize,
}

/// Bytes beyond the measure of [`Sparse`] that an arena may hold before it counts as sparse.
const SLACK: usize = 8 << 10;

/// An arena may grow by this part of what it holds while blocks are moved (and to the next chunk).
const LITTLE: usize = 8;

/// When an arena counts as sparse, and which of its chunks then do.
///
/// Growing makes chunks of half of what an arena holds, so that blocks which were moved may take one and a half times their
/// bytes: a tighter measure would have them moved again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Half of the arena is free: it holds more than twice what its live blocks take. Chunks less than half full.
    Half,
    /// More than a third of the arena is free: it holds more than 1.6 times what its live blocks take. Chunks less than three
    /// quarters full.
    Third,
}

impl Sparse {
    /// Returns whether an arena of so many bytes is sparse, of which live blocks take `live`.
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
    /// An arena without any memory. Its chunks prefer `node`, a node of
    /// [`Topology::current`](crate::topology::Topology::current): nothing comes of the preference where the topology
    /// is synthetic or has one node.
    ///
    /// # Panics
    /// If `block`, padded to its alignment, is longer than 1 GiB.
    pub fn new(block: Layout, node: Option<NodeId>) -> Self {
        // A free block holds a pointer to the next one.
        let pointer = Layout::new::<*mut u8>();
        let align = block.align().max(pointer.align());
        let block = Layout::from_size_align(block.size().max(pointer.size()), align).map(|block| block.pad_to_align());
        let block = block.ok().filter(|block| block.size() <= 1 << 30).expect("blocks are at most 1 GiB long");
        BlockArena { block, node, state: Mutex::new(State::default()), growing: Mutex::new(()) }
    }

    /// A block of the arena's layout, uninitialised. It stays where it is until it is given back or the arena is
    /// dropped. Constant time, but for growing the arena.
    ///
    /// If there is no memory, this ends the process as a failing `Box::new` does.
    pub fn alloc(&self) -> NonNull<u8> {
        if let Some(block) = self.state().take() {
            return block;
        }
        self.grow()
    }

    /// Gives a block back. Logarithmic time in the number of chunks.
    ///
    /// # Safety
    /// `block` came from [`alloc`](Self::alloc) of this arena, was not given back since, and no thread uses its memory
    /// any more.
    pub unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: passed on.
        let released = unsafe { self.state().put(block.addr().get()) };
        // The memory goes back here, when the lock is free again.
        drop(released);
    }

    /// Closes the sparse chunks if the arena as a whole holds much more than its live blocks take; says how many live
    /// blocks lie in closed chunks. An owner that then moves the blocks that [are closed](Self::is_closed) (takes another
    /// for each and gives it back) gets the memory of those chunks back to the operating system.
    ///
    /// As long as blocks are live in closed chunks no more are closed: an owner that gives blocks back late would else
    /// move the same things again and again. And no more are closed at a time than the other chunks and an eighth of the arena have
    /// room for, or one: so moving adds little to what it holds, however late blocks are given back.
    ///
    /// Linear time in the number of chunks.
    pub fn close_sparse(&self, sparse: Sparse) -> usize {
        let (closed, released) = self.state().close_sparse(sparse, self.block.size());
        // The memory goes back here, when the lock is free again.
        drop(released);
        closed
    }

    /// Returns whether there is something to move, or [`close_sparse`](Self::close_sparse) would close something: the arena is sparse,
    /// or live blocks lie in closed chunks.
    pub fn is_sparse(&self, sparse: Sparse) -> bool {
        self.state().is_sparse(sparse, self.block.size())
    }

    /// Closes every chunk that has live blocks, for tests of owners that move blocks.
    #[doc(hidden)]
    pub fn close_all(&self) {
        let mut state = self.state();
        let mut chunks = state.chunks.clone();
        chunks.retain(|chunk| !chunk.is_empty() && !chunk.is_closed());
        state.close(chunks);
    }

    /// Whether a live block lies in a chunk of this arena that is closed. Logarithmic time in the number of chunks.
    pub fn is_closed(&self, block: NonNull<u8>) -> bool {
        self.state().chunk_of(block.addr().get()).is_some_and(|chunk| chunk.is_closed())
    }

    /// Whether a live block is one of this arena's. Logarithmic time in the number of chunks.
    pub fn owns(&self, block: NonNull<u8>) -> bool {
        self.state().chunk_of(block.addr().get()).is_some()
    }

    /// Memory that the arena holds, in bytes: its chunks, whether their blocks are live or free.
    pub fn bytes_held(&self) -> usize {
        self.state().bytes
    }

    /// Of these, the bytes of free blocks that are handed out before the arena takes more memory.
    pub fn bytes_spare(&self) -> usize {
        self.state().free * self.block.size()
    }

    /// How many blocks are handed out and not given back.
    pub fn blocks_live(&self) -> usize {
        self.state().live
    }

    #[cold]
    fn grow(&self) -> NonNull<u8> {
        // A panic under a lock can only come from a failed assertion, which no thread is meant to survive.
        let _growing = self.growing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let held = {
            let mut state = self.state();
            // Another thread may have grown the arena, or given back a block.
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
    /// A block of the fullest chunk that has one.
    fn take(&mut self) -> Option<NonNull<u8>> {
        if let Some(chunk) = self.partial.iter().rev().find_map(|head| *head) {
            return Some(self.take_from(chunk));
        }
        let spare = self.spare.take()?;
        Some(self.take_from(spare))
    }

    /// The chunk that holds the block at `addr`.
    fn chunk_of(&self, addr: usize) -> Option<ChunkRef> {
        let at = self.chunks.partition_point(|chunk| chunk.addr() <= addr);
        at.checked_sub(1).map(|at| self.chunks[at]).filter(|chunk| chunk.contains(addr))
    }

    /// A block of a chunk that is not full, and is listed unless it is empty.
    fn take_from(&mut self, chunk: ChunkRef) -> NonNull<u8> {
        let before = chunk.class();
        let block = chunk.take();
        self.live += 1;
        self.free -= 1;
        self.move_between(chunk, before);
        block
    }

    /// Adds a new chunk and takes a block of it.
    fn add(&mut self, chunk: ChunkRef) -> NonNull<u8> {
        let at = self.chunks.partition_point(|other| other.addr() < chunk.addr());
        self.chunks.insert(at, chunk);
        self.bytes += chunk.bytes();
        self.free += chunk.capacity();
        self.take_from(chunk)
    }

    /// Takes a block back; returns memory that is no longer needed.
    ///
    /// # Safety
    /// As for [`BlockArena::free`].
    unsafe fn put(&mut self, addr: usize) -> [Option<Pages>; 2] {
        let chunk = self.chunk_of(addr).expect("the block is not of this arena");
        let before = chunk.class();
        // SAFETY: the block lies in this chunk, so that it came from it; the rest is passed on.
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

    /// Keeps an empty chunk as the spare or gives up its memory: the larger of two stays, but none that is as large as
    /// all others together. (Growing makes chunks of half of that, so none of those is lost at the brink.)
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

    /// Forgets an empty chunk that is in no list and takes its memory out.
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

    /// See [`BlockArena::close_sparse`]. Returns memory that is no longer needed, too.
    fn close_sparse(&mut self, sparse: Sparse, block: usize) -> (usize, Option<Pages>) {
        if self.closed_live > 0 || !self.is_sparse(sparse, block) {
            return (self.closed_live / block, None);
        }
        let spare = self.spare.take().map(|spare| self.remove(spare));
        let mut chunks: Vec<ChunkRef> = self.chunks.clone();
        chunks.retain(|chunk| chunk.class().is_some() && sparse.is_chunk(chunk));
        // The emptiest first, and one at least, as long as the others have room for what is moved, or nearly: blocks may be
        // given back late, and stay till then beside those which took their place.
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

    /// Moves a chunk from the list of its class `before` to that of its class now, `None` being no list. A chunk that
    /// stays in its class keeps its place. Going to the front whenever a block comes back would send the next
    /// allocation there, and chunks of one class would never drift apart: arenas a sixteenth full stayed that.
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

    /// Fills a block with a word that depends on its address, so that an overlap shows.
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
        // SAFETY: every test gives back its own blocks, each once.
        unsafe { arena.free(block) };
    }

    /// Runs takes (`None`) and returns (which of the live ones) against a plain set of live blocks.
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

    /// Allocation prefers full chunks: after most blocks went at random, and others came and went, the live ones
    /// lie in fewer chunks than at first.
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

    /// One block in a hundred left, all over the arena; its owner moves them.
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

    /// What is spare is had without growth, and it is all that is: whether blocks come back, chunks are closed or drain.
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

    /// However many blocks are live, those which are moved find room among the others, or take little more.
    #[test]
    fn moving_adds_little() {
        for keep in [2, 3, 5, 9, 50] {
            let arena = arena(1024, 64);
            let count = if cfg!(miri) { 200 } else { 20_000 };
            let blocks: Vec<_> = (0..count).map(|_| arena.alloc()).collect();
            // Chunks are not all alike.
            let kept = |at: usize| (at / 97).is_multiple_of(keep) || at.is_multiple_of(53);
            blocks.iter().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, &block)| free(&arena, block));
            let mut live: Vec<_> = (0..count).filter(|&at| kept(at)).map(|at| blocks[at]).collect();
            let mut held = arena.bytes_held();
            while arena.close_sparse(Sparse::Third) > 0 {
                let closed: Vec<usize> = (0..live.len()).filter(|&at| arena.is_closed(live[at])).collect();
                let before = core::mem::replace(&mut held, arena.bytes_held());
                // All are moved before the first is given back.
                let old: Vec<_> =
                    closed.into_iter().map(|at| core::mem::replace(&mut live[at], arena.alloc())).collect();
                let most = arena.bytes_held();
                // A new chunk is half as large as what is in use.
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
        // Under Miri and the leak check, a chunk left behind is an error.
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
