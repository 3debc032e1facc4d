//! A map's statistics.

use super::{Kind, Map};
use crate::backlog::Garbage;
use crate::structure::{Held, Structure};
use crate::{Key, value};

/// Statistics of a [`Map`]. They are exact only while no other thread uses the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of entries, see [`Map::len`].
    pub entries: usize,
    /// The number of pages (in an `Art`: inner nodes), including pages that are no longer used but whose memory is not
    /// freed yet.
    pub pages: usize,
    /// The number of entries for which the pages have room; 0 for structures without pages. `entries / room` is the
    /// pages' fill factor. (A `HydraList`'s page of consecutive numbers takes 64 entries, but counts with the 47 of
    /// other pages; the room is never less than the entries.)
    pub room: usize,
    /// The bytes of search layers; 0 for structures without search layers.
    pub layers: usize,
    /// The bytes of boxed values, without memory that the values own elsewhere.
    pub values: usize,
    /// The bytes of the whole map, see [`Map::bytes`].
    pub bytes: usize,
    /// The memory that waits for readers: everything that is removed or replaced while a [`Ref`](super::Ref), an
    /// [`Entry`](super::Entry) or a reading closure lives. Retired pages count as objects, and in
    /// [`bytes`](Self::bytes), but not in [`Garbage::bytes`].
    pub garbage: Garbage,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Returns the map's statistics. It takes O(threads) and a few locks, so use it for reports only.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, [u64; 4]> = (0..1_000).map(|n| (n, [n; 4])).collect();
    /// let stats = map.stats();
    /// assert_eq!(stats.entries, 1_000);
    /// assert!(stats.room >= stats.entries); // the pages have room for all entries, and for some more
    /// assert!(stats.values >= 1_000 * 32); // with the allocator's overhead
    /// assert!(stats.bytes > stats.layers + stats.values);
    /// ```
    pub fn stats(&self) -> Stats {
        let (held, garbage) = match self.used() {
            Some(core) => (core.held(), Garbage::of(core.domain())),
            None => (Held::default(), Garbage::default()),
        };
        let (entries, Held { bytes, pages, room, layers }) = (self.len(), held);
        let values = entries * value::boxed_bytes::<V>();
        Stats { entries, pages, room, layers, values, bytes: bytes + values + garbage.bytes, garbage }
    }

    /// Returns the number of bytes of memory that the map holds: pages or nodes, search layers, boxed values, and
    /// removed or replaced memory that waits for readers. Some objects have boxes of their own: an `Art`'s nodes and
    /// leaves, values that are not numbers, keys in Eunomia's maps, and long keys and the bounds of pages in a
    /// `HydraList`. They count with the memory that the global allocator uses for them, which is measured once for each
    /// size. The result is within 10 % of the resident memory that the operating system reports. It includes neither
    /// memory that values own elsewhere, nor a few words for each thread. O(threads).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    /// assert!(map.bytes() > 10_000 * 16); // a key and a value of eight bytes each
    /// let map: HydraList<u64, Vec<u8>> = (0..10).map(|n| (n, vec![7; 100_000])).collect();
    /// assert!(map.bytes() < 10 * 100_000); // memory that the vectors own is not counted
    /// ```
    pub fn bytes(&self) -> usize {
        self.stats().bytes
    }
}
