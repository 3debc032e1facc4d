//! A map's statistics.

use super::{Kind, Map};
use crate::backlog::Garbage;
use crate::structure::{Held, Structure};
use crate::{Key, value};

/// Statistics of a [`Map`]; exact only while no other thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// See [`Map::len`].
    pub entries: usize,
    /// Pages (in an `Art`: inner nodes), and those taken out of use whose memory is not free yet.
    pub pages: usize,
    /// Entries that the pages have room for; 0 for structures without pages. `entries / room` is how full they are.
    pub room: usize,
    /// Bytes in search layers, where the structure has them.
    pub layers: usize,
    /// Bytes that boxes of values take, without what the values own elsewhere.
    pub values: usize,
    /// See [`Map::bytes`].
    pub bytes: usize,
    /// Memory that waits for readers: everything that is removed or replaced while a [`Ref`](super::Ref), an
    /// [`Entry`](super::Entry) or a reading closure lives. Retired pages count as objects, and in
    /// [`bytes`](Self::bytes), but not in [`Garbage::bytes`].
    pub garbage: Garbage,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Returns the map's statistics. O(threads), with a few locks, so use it for reports only.
    pub fn stats(&self) -> Stats {
        let (held, garbage) = match self.used() {
            Some(core) => (core.held(), Garbage::of(core.domain())),
            None => (Held::default(), Garbage::default()),
        };
        let (entries, Held { bytes, pages, room, layers }) = (self.len(), held);
        let values = entries * value::boxed_bytes::<V>();
        Stats { entries, pages, room, layers, values, bytes: bytes + values + garbage.bytes, garbage }
    }

    /// Bytes of memory held: for pages or nodes, search layers and boxed values, and what was removed or replaced and waits
    /// for readers. Objects in boxes of their own (an `Art`'s nodes and leaves, values that are no numbers, keys in
    /// Eunomia's maps, long ones and the bounds of pages in a `HydraList`) count with the memory that the global
    /// allocator uses for them, which is measured once for each size. The result is within 10 % of the resident memory
    /// that the operating system reports. It does not include memory that values own elsewhere, and a few words for
    /// each thread. O(threads).
    pub fn bytes(&self) -> usize {
        self.stats().bytes
    }
}
