//! A chunk: one piece of memory that is cut into blocks of one size, with its own free list and links for the arena's
//! lists.
//!
//! The header is at the start of the memory, followed by the blocks. Blocks are first allocated in the order of their
//! addresses. After this first pass, they are allocated from a list whose links are stored in the free blocks
//! themselves.
//!
//! A [`ChunkRef`] is a plain copy of an address. The arena's lock protects every chunk. The arena removes all
//! references to a chunk before it takes the chunk's memory with [`ChunkRef::release`]. All `unsafe` code here relies
//! on this invariant.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::Layout;

use super::pages::{HUGE, Pages};
use crate::topology::NodeId;
use crate::touch;

/// The number of classes of fullness.
pub(super) const CLASSES: usize = 8;

/// The header of a chunk. Written only under the arena's lock.
pub(super) struct Chunk {
    pages: Pages,
    blocks: Blocks,
    /// The number of blocks that were allocated in the first pass. The blocks after them have never been used.
    fresh: Cell<usize>,
    /// Head of the list of free blocks, which are linked through their first words.
    free: Cell<Option<NonNull<u8>>>,
    live: Cell<usize>,
    /// Whether the chunk is closed: no block is allocated from it any more, so that it drains.
    closed: Cell<bool>,
    pub(super) prev: Cell<Option<ChunkRef>>,
    pub(super) next: Cell<Option<ChunkRef>>,
}

/// The positions of the blocks in a chunk.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// Offset of the first block, after the header.
    first: usize,
    /// Distance from one block to the next.
    stride: usize,
    capacity: usize,
}

/// Returns the layout of a chunk of about `bytes` bytes with at least one block. `block` is padded to its alignment and
/// has room for a pointer.
pub(super) fn layout(block: Layout, bytes: usize) -> (Layout, Blocks) {
    let first = size_of::<Chunk>().next_multiple_of(block.align());
    let capacity = ((bytes.saturating_sub(first)) / block.size()).max(1);
    let align = block.align().max(align_of::<Chunk>());
    // A chunk of the size of a huge page is one, also if no further block fits in it.
    let size = (first + capacity * block.size()).max(if bytes == HUGE { HUGE } else { 0 });
    let chunk = Layout::from_size_align(size, align).expect("a chunk is far smaller than the address space");
    // Rounding up to whole pages may make room for further blocks.
    let chunk = Pages::round_up(chunk);
    (chunk, Blocks { first, stride: block.size(), capacity: (chunk.size() - first) / block.size() })
}

/// The address of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRef(NonNull<Chunk>);

// SAFETY: chunks are used only under the arena's lock, by the thread that holds it.
unsafe impl Send for ChunkRef {}

impl Deref for ChunkRef {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        // SAFETY: the chunk is alive, because the arena removes every reference before it releases a chunk. Only the
        // thread that holds the arena's lock uses one.
        unsafe { self.0.as_ref() }
    }
}

impl ChunkRef {
    /// Allocates a chunk with all blocks free.
    pub(super) fn allocate((layout, blocks): (Layout, Blocks), node: Option<NodeId>) -> Self {
        let pages = Pages::allocate(layout, node);
        let at = pages.start().cast::<Chunk>();
        let chunk = Chunk {
            pages,
            blocks,
            fresh: Cell::new(0),
            free: Cell::new(None),
            live: Cell::new(0),
            closed: Cell::new(false),
            prev: Cell::new(None),
            next: Cell::new(None),
        };
        // SAFETY: `layout` is aligned for a `Chunk` and has room for one before the first block.
        unsafe { at.write(chunk) };
        ChunkRef(at)
    }

    /// Takes the chunk's memory; dropping it frees it. The caller keeps no reference to the chunk.
    pub(super) fn release(self) -> Pages {
        // SAFETY: `allocate` wrote the header, and this is the last use of it.
        unsafe { self.0.read() }.pages
    }

    /// The address by which chunks are sorted.
    pub(super) fn addr(self) -> usize {
        self.0.addr().get()
    }
}

impl Chunk {
    pub(super) fn bytes(&self) -> usize {
        self.pages.size()
    }

    pub(super) fn is_full(&self) -> bool {
        self.live.get() == self.blocks.capacity
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.get() == 0
    }

    /// Returns the distance from one block to the next.
    pub(super) fn stride(&self) -> usize {
        self.blocks.stride
    }

    /// Returns the bytes of live blocks.
    pub(super) fn live_bytes(&self) -> usize {
        self.live.get() * self.blocks.stride
    }

    /// Returns the number of allocated blocks.
    pub(super) fn live(&self) -> usize {
        self.live.get()
    }

    /// Returns the number of blocks.
    pub(super) fn capacity(&self) -> usize {
        self.blocks.capacity
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Closes the chunk: from now on no block is allocated from it. The chunk is in no list.
    pub(super) fn close(&self) {
        self.closed.set(true);
    }

    /// Returns the chunk's class of fullness, from 0 to `CLASSES - 1`. Returns `None` if the chunk is completely full,
    /// completely empty, or closed.
    pub(super) fn class(&self) -> Option<usize> {
        touch(&raw const self.live, size_of::<usize>());
        let listed = !self.is_full() && !self.is_empty() && !self.is_closed();
        listed.then(|| self.live.get() * CLASSES / self.blocks.capacity)
    }

    /// Allocates a block. The chunk is not full.
    pub(super) fn take(&self) -> NonNull<u8> {
        debug_assert!(!self.is_full() && !self.is_closed());
        self.live.set(self.live.get() + 1);
        if let Some(block) = self.free.get() {
            // SAFETY: `put` wrote this word, and no thread has owned the block since.
            self.free.set(unsafe { block.cast::<Option<NonNull<u8>>>().read() });
            return block;
        }
        let at = self.fresh.get();
        self.fresh.set(at + 1);
        self.block(at)
    }

    /// Frees the block at `addr`.
    ///
    /// # Safety
    /// The block was allocated from this chunk, and is not used any more.
    pub(super) unsafe fn put(&self, addr: usize) {
        let offset = addr - self.pages.start().addr().get() - self.blocks.first;
        debug_assert_eq!(offset % self.blocks.stride, 0, "not a block of this arena");
        let block = self.block(offset / self.blocks.stride);
        self.live.set(self.live.get() - 1);
        if self.is_empty() {
            // Starts again with the first pass, so that blocks are allocated in the order of their addresses.
            self.fresh.set(0);
            self.free.set(None);
            return;
        }
        // SAFETY: the block is free by this function's contract, has room for a pointer and is aligned for it.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(self.free.get()) };
        self.free.set(Some(block));
    }

    /// Returns whether `addr`, which is not below the chunk's start, is inside the chunk.
    pub(super) fn contains(&self, addr: usize) -> bool {
        addr - self.pages.start().addr().get() < self.bytes()
    }

    fn block(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at < self.blocks.capacity);
        // SAFETY: block `at` is in the chunk's memory.
        unsafe { self.pages.start().add(self.blocks.first + at * self.blocks.stride) }
    }
}
