//! [`Art`]: a concurrent adaptive radix tree.
//!
//! The tree is from "The Adaptive Radix Tree" (Leis, Kemper, Neumann; ICDE 2013) and "The ART of Practical
//! Synchronization" (Leis, Scheibner, Kemper, Neumann; DaMoN 2016). Both write synchronisations of the second paper are
//! implemented ([`WriteSync`]).
//!
//! What differs from the papers, and why:
//! - A node's prefix never changes; the parent's level determines which part of the prefix is used (`node.rs`). The
//!   authors shorten the prefix in place, which readers must detect. Here a look-up under ROWEX reads no level or
//!   prefix a second time.
//! - All byte strings are valid keys, also prefixes of other keys: a node has a *terminal* for the key that ends at
//!   it. The authors end strings with a zero byte.
//! - Prefixes are stored whole, so walks and inserts need no leaf to reconstruct a prefix. Look-ups skip prefixes and
//!   compare the whole key at the leaf.
//! - Lower bounds, predecessors and range walks are exact (`cursor.rs`). The tree of the HydraList authors' search
//!   layer may return a neighbour on either side instead, and does not validate versions.
//! - The root is a Node256 that is never replaced.
//! - Values can be updated in place, under the lock of the node that holds the leaf.
//!
//! Memory: for 10 million random `u64` keys about 45 bytes a key with an allocator whose size classes fit.

mod check;
mod cursor;
mod edge;
mod ends;
mod kind;
mod leaf;
mod matching;
mod node;
mod raw;
mod reclaim;
mod structure;
mod sync;
mod target;
mod write_olc;
mod write_rowex;

pub use sync::WriteSync;

use crate::Key;
use crate::map::{Map, Session};
use crate::structure::Structure as _;
pub(crate) use raw::RawArt;

/// Marks maps that are adaptive radix trees. See [`Art`].
#[derive(Debug)]
pub enum Radix {}

/// A concurrent ordered map: an adaptive radix tree. See the [module](self) for how it works, and [`Map`] for how to
/// use it.
///
/// Its operations are the methods of a [`Session`]: `map.pin().insert(key, value)`, `map.pin().get(&key)`.
///
/// Look-ups cost at most one step per byte of the key, independently of the number of entries; a path without
/// branches is one step. Readers take no lock.
///
/// ```
/// use archipelago::Art;
///
/// let map: Art<u64, u64> = Art::new();
/// let map = map.pin();
/// map.insert(7, 42);
/// map.insert(5, 40);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(..=6).next_back(), Some((5, 40)));
/// ```
pub type Art<K, V> = Map<Radix, K, V>;

/// A session on an [`Art`].
pub type ArtSession<'m, K, V> = Session<'m, Radix, K, V>;

/// An iterator over a range of an [`Art`].
pub type Range<'m, K, V> = crate::map::Range<'m, Radix, K, V>;

/// Configures an [`Art`].
pub type Builder<K, V> = crate::map::Builder<Radix, K, V>;

impl<K: Key, V: Send + Sync + 'static> Builder<K, V> {
    /// Sets how writers are synchronized. Default: [`WriteSync::Rowex`], the faster variant.
    ///
    /// ```
    /// use archipelago::index::art::{Art, WriteSync};
    ///
    /// let map = Art::<u64, u64>::builder().write_sync(WriteSync::OptimisticLockCoupling).build();
    /// assert_eq!(map.write_sync(), WriteSync::OptimisticLockCoupling);
    /// ```
    pub fn write_sync(mut self, sync: WriteSync) -> Self {
        self.config = sync;
        self
    }
}

impl<K: Key, V: Send + Sync + 'static> Art<K, V> {
    /// Makes an empty map with the given write synchronization.
    ///
    /// ```
    /// use archipelago::index::art::{Art, WriteSync};
    ///
    /// let map: Art<u64, &str> = Art::with_write_sync(WriteSync::OptimisticLockCoupling);
    /// assert_eq!(map.pin().insert(1, "one"), None);
    /// ```
    pub fn with_write_sync(sync: WriteSync) -> Self {
        Self::builder().write_sync(sync).build()
    }

    /// Returns the write synchronization with which the map was made.
    ///
    /// ```
    /// use archipelago::index::art::{Art, WriteSync};
    ///
    /// let map: Art<u64, &str> = Art::new();
    /// assert_eq!(map.write_sync(), WriteSync::Rowex); // the default
    /// ```
    pub fn write_sync(&self) -> WriteSync {
        *self.core().hooks()
    }
}
