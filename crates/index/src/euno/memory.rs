//! Where chunks lie: in blocks of one size, on the NUMA node of the thread that makes them.
//!
//! So a large map lives in huge pages: a look-up whose address translation is not cached costs two misses instead of one. And
//! no allocator adds to a chunk.

use super::chunk::Chunk;
use archipelago_platform::memory::BlockArena;
use archipelago_platform::topology::{NodeId, Topology};
use core::alloc::Layout;
use core::ptr::NonNull;

/// The arenas of a map, one per node. Boxed, so that retired chunks can name theirs by address.
pub(super) struct Memory {
    topology: Topology,
    arenas: Box<[BlockArena]>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let topology = Topology::current().clone();
        let nodes = topology.nodes().len();
        let arena = |node| BlockArena::new(Layout::new::<Chunk>(), (nodes > 1).then_some(NodeId(node)));
        let arenas = (0..nodes).map(arena).collect();
        Self { topology, arenas }
    }

    /// Room for a chunk, and the number of the arena that it is from.
    pub(super) fn alloc(&self) -> (NonNull<Chunk>, usize) {
        let last = self.arenas.len() - 1;
        let home = if last == 0 { 0 } else { self.topology.node_of_current().min(last) };
        (self.arenas[home].alloc().cast(), home)
    }

    /// The arena that a chunk is from.
    pub(super) fn arena(&self, home: usize) -> &BlockArena {
        &self.arenas[home]
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.arenas.iter().map(BlockArena::bytes_held).sum()
    }

    /// Chunks, those included whose memory is not free yet.
    pub(super) fn chunks(&self) -> usize {
        self.arenas.iter().map(BlockArena::blocks_live).sum()
    }
}
