//! One piece of memory cut into blocks of one size, with its own free list and its place in the arena's lists.
//!
//! The header lies at the start of the memory, the blocks behind it. Blocks are handed out in address order until the
//! first pass is through, then from a list that is threaded through the free blocks themselves.
//!
//! A [`ChunkRef`] is a plain copy of an address. The arena's lock guards every chunk, and the arena forgets all of a
//! chunk's references before it takes the memory out with [`ChunkRef::release`]; that is the invariant behind every
//! `unsafe` here.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::Layout;

use super::pages::Pages;
use crate::topology::NodeId;
use crate::touch;

/// How many fullness classes an arena tells apart.
pub(super) const CLASSES: usize = 8;

/// What a chunk knows of itself. Written under the arena's lock only.
pub(super) struct Chunk {
    pages: Pages,
    blocks: Blocks,
    /// Blocks handed out in the first pass; those behind have never been used.
    fresh: Cell<usize>,
    /// Head of the list of blocks given back, linked through their first words.
    free: Cell<Option<NonNull<u8>>>,
    live: Cell<usize>,
    /// No block is taken from it again: it is to drain.
    closed: Cell<bool>,
    pub(super) prev: Cell<Option<ChunkRef>>,
    pub(super) next: Cell<Option<ChunkRef>>,
}

/// Where the blocks of a chunk lie.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// Offset of the first one, behind the header.
    first: usize,
    /// Distance from one to the next.
    stride: usize,
    capacity: usize,
}

/// The layout of a chunk of about `bytes` with at least one block. `block` is padded to its alignment and holds a
/// pointer.
pub(super) fn layout(block: Layout, bytes: usize) -> (Layout, Blocks) {
    let first = size_of::<Chunk>().next_multiple_of(block.align());
    let capacity = ((bytes.saturating_sub(first)) / block.size()).max(1);
    let align = block.align().max(align_of::<Chunk>());
    let chunk = Layout::from_size_align(first + capacity * block.size(), align)
        .expect("a chunk is far smaller than the address space");
    // Rounding up to whole pages may make room for another block.
    let chunk = Pages::round_up(chunk);
    (chunk, Blocks { first, stride: block.size(), capacity: (chunk.size() - first) / block.size() })
}

/// The address of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRef(NonNull<Chunk>);

// SAFETY: chunks are used under the arena's lock only, by whichever thread holds it.
unsafe impl Send for ChunkRef {}

impl Deref for ChunkRef {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        // SAFETY: the chunk is alive, since the arena forgets every reference before it releases a chunk; and only the
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

    /// Takes the memory out; dropping it gives it back. The caller keeps no reference to the chunk.
    pub(super) fn release(self) -> Pages {
        // SAFETY: `allocate` wrote the header, and this is the last use of it.
        unsafe { self.0.read() }.pages
    }

    /// The address that orders chunks.
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

    /// Distance from one block to the next.
    pub(super) fn stride(&self) -> usize {
        self.blocks.stride
    }

    /// Bytes of live blocks.
    pub(super) fn live_bytes(&self) -> usize {
        self.live.get() * self.blocks.stride
    }

    /// How many blocks are handed out.
    pub(super) fn live(&self) -> usize {
        self.live.get()
    }

    /// How many blocks there are.
    pub(super) fn capacity(&self) -> usize {
        self.blocks.capacity
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// From now on no block is taken from the chunk, which is in no list.
    pub(super) fn close(&self) {
        self.closed.set(true);
    }

    /// How full the chunk is, from 0 to `CLASSES - 1`; `None` if it is quite full, quite empty or closed.
    pub(super) fn class(&self) -> Option<usize> {
        touch(&raw const self.live, size_of::<usize>());
        let listed = !self.is_full() && !self.is_empty() && !self.is_closed();
        listed.then(|| self.live.get() * CLASSES / self.blocks.capacity)
    }

    /// Hands out a block. The chunk is not full.
    pub(super) fn take(&self) -> NonNull<u8> {
        debug_assert!(!self.is_full() && !self.is_closed());
        self.live.set(self.live.get() + 1);
        if let Some(block) = self.free.get() {
            // SAFETY: `put` wrote this word, and no thread owns the block meanwhile.
            self.free.set(unsafe { block.cast::<Option<NonNull<u8>>>().read() });
            return block;
        }
        let at = self.fresh.get();
        self.fresh.set(at + 1);
        self.block(at)
    }

    /// Takes back the block at `addr`.
    ///
    /// # Safety
    /// The block was handed out by this chunk, and is not used any more.
    pub(super) unsafe fn put(&self, addr: usize) {
        let offset = addr - self.pages.start().addr().get() - self.blocks.first;
        debug_assert_eq!(offset % self.blocks.stride, 0, "not a block of this arena");
        let block = self.block(offset / self.blocks.stride);
        self.live.set(self.live.get() - 1);
        if self.is_empty() {
            // Start over, so that the blocks are handed out in address order again.
            self.fresh.set(0);
            self.free.set(None);
            return;
        }
        // SAFETY: the block is free by this function's contract, and blocks hold a pointer and are aligned for it.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(self.free.get()) };
        self.free.set(Some(block));
    }

    /// Whether a block could start at `addr`, which is not below the chunk.
    pub(super) fn contains(&self, addr: usize) -> bool {
        addr - self.pages.start().addr().get() < self.bytes()
    }

    fn block(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at < self.blocks.capacity);
        // SAFETY: block `at` lies in the chunk's memory.
        unsafe { self.pages.start().add(self.blocks.first + at * self.blocks.stride) }
    }
}
