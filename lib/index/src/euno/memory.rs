//! The memory of chunks: blocks of one size, on the NUMA node of the thread that makes the chunk. A chunk that is moved
//! stays on its node.
//!
//! In this way a large map is in huge pages, which saves misses of address translation in look-ups, and chunks have no
//! allocator overhead.

use archipelago_platform::memory::{BlockArena, Sparse};
use archipelago_platform::topology::{NodeId, Topology};
use core::alloc::Layout;
use core::ptr::NonNull;

/// The arenas of a map, one per node. They are boxed, since retired chunks have the address of their arena.
pub(super) struct Memory {
    topology: Topology,
    arenas: Box<[BlockArena]>,
}

impl Memory {
    /// Makes arenas for chunks of this layout.
    pub(super) fn new(chunk: Layout) -> Self {
        let topology = Topology::current().clone();
        let nodes = topology.nodes().len();
        let arena = |node| BlockArena::new(chunk, (nodes > 1).then_some(NodeId(node)));
        let arenas = (0..nodes).map(arena).collect();
        Self { topology, arenas }
    }

    /// Returns the number of the arena on the caller's node.
    pub(super) fn home(&self) -> usize {
        let last = self.arenas.len() - 1;
        if last == 0 { 0 } else { self.topology.node_of_current().min(last) }
    }

    /// Allocates room for a chunk from an arena.
    pub(super) fn alloc(&self, home: usize) -> NonNull<u8> {
        self.arenas[home].alloc()
    }

    /// Closes, for allocation, the mostly free memory regions (of up to 2 MiB) of sparse arenas. Returns how many
    /// chunks are in closed regions. See [`BlockArena::close_sparse`], which calls the regions chunks.
    pub(super) fn close_sparse(&self, sparse: Sparse) -> usize {
        self.arenas.iter().map(|arena| arena.close_sparse(sparse)).sum()
    }

    /// Returns whether any arena is sparse.
    pub(super) fn is_sparse(&self, sparse: Sparse) -> bool {
        self.arenas.iter().any(|arena| arena.is_sparse(sparse))
    }

    /// Closes all regions.
    pub(super) fn close_all(&self) {
        self.arenas.iter().for_each(BlockArena::close_all);
    }

    /// Returns whether a chunk of an arena is in a closed region.
    pub(super) fn is_closed(&self, home: usize, chunk: NonNull<u8>) -> bool {
        self.arenas[home].is_closed(chunk)
    }

    /// Returns how many bytes of the caller's node's arena are free for chunks.
    pub(super) fn spare(&self) -> usize {
        self.arenas[self.home()].bytes_spare()
    }

    /// Returns the arena of a chunk.
    pub(super) fn arena(&self, home: usize) -> &BlockArena {
        &self.arenas[home]
    }

    /// Returns the number of bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        self.arenas.iter().map(BlockArena::bytes_held).sum()
    }

    /// Returns the number of chunks, including those whose memory is not free yet.
    pub(super) fn chunks(&self) -> usize {
        self.arenas.iter().map(BlockArena::blocks_live).sum()
    }
}
