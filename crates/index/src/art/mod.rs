//! [`Art`]: a concurrent adaptive radix tree.
//!
//! From "The Adaptive Radix Tree" (Leis, Kemper, Neumann; ICDE 2013) and "The ART of Practical Synchronization" (Leis,
//! Scheibner, Kemper, Neumann; DaMoN 2016), with both of the latter's write synchronisations ([`WriteSync`]).
//!
//! What differs from the papers, and why:
//! - A node's prefix never changes; how much of it counts follows from the parent (`node.rs`). The authors shorten it
//!   in place, and readers have to notice. So here a look-up under ROWEX reads nothing twice.
//! - Keys may be any byte strings, one a prefix of another too: a node has a *terminal* for the key that ends there.
//!   The authors end strings with a zero byte.
//! - Prefixes are kept whole, so that walks and inserts never have to find a leaf to learn one. Look-ups skip them and
//!   compare the whole key at the leaf.
//! - Lower bounds, predecessors and range walks are exact (`cursor.rs`). The search layer of the HydraList authors'
//!   tree takes a neighbour, on either side, and does not check versions.
//! - The root is a Node256 that is never replaced.
//! - Values can be updated in place, under the lock of the node that holds the leaf.
//!
//! Memory: for 10 million random `u64` keys about 45 bytes a key with an allocator whose size classes fit.

mod check;
mod count;
mod cursor;
mod edge;
mod form;
mod iter;
mod leaf;
mod matching;
mod node;
mod raw;
mod reclaim;
mod session;
mod stats;
mod sync;
mod write_olc;
mod write_rowex;

pub use iter::Range;
pub use session::ArtSession;
pub use stats::{Builder, Stats};
pub use sync::WriteSync;

use crate::backlog::Limit;
use crate::value::DropAll;
use crate::{Key, OrderedIndex};
use archipelago_platform::sync::{Arc, Weak};
use archipelago_sync::rcu::Domain;
use core::fmt::{self, Debug};
use core::marker::PhantomData;
pub(crate) use count::Counter;
#[allow(unused_imports, reason = "for HydraList's search layer")]
pub(crate) use raw::RawArt;

/// A concurrent ordered map: an adaptive radix tree.
///
/// Look-ups cost a step per byte of the key, at most, whatever the number of entries; paths without branches are one
/// step. Readers take no lock. Operations go through a session, see [`pin`](Self::pin).
///
/// ```
/// use archipelago_index::Art;
///
/// let map: Art<u64, u64> = Art::new();
/// let map = map.pin();
/// map.insert(&7, 42);
/// map.insert(&5, 40);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(..=6).next_back(), Some((5, 40)));
/// ```
pub struct Art<K: Key, V: Clone + Send + Sync + 'static> {
    tree: RawArt<K::Form>,
    count: Counter,
    backlog: Limit,
    _values: PhantomData<(K, V)>,
    // Last: it frees what was retired from the tree. Shared with the thread that looks after it when the map rests.
    domain: Arc<Domain>,
}

impl<K: Key, V: Clone + Send + Sync + 'static> Art<K, V> {
    /// An empty map, with the faster write synchronisation.
    pub fn new() -> Self {
        Self::with_write_sync(WriteSync::default())
    }

    /// An empty map with the given write synchronisation.
    pub fn with_write_sync(sync: WriteSync) -> Self {
        Self::with(sync, Limit::NONE)
    }

    /// Configures a map.
    ///
    /// ```
    /// use archipelago_index::{Art, OnBacklog};
    ///
    /// let map = Art::<u64, String>::builder().backlog_limit(64 << 20, OnBacklog::Wait).build();
    /// map.pin().insert(&1, "one".into());
    /// ```
    pub fn builder() -> Builder<K, V> {
        Builder::default()
    }

    fn with(sync: WriteSync, backlog: Limit) -> Self {
        // SAFETY: sessions pass guards of the map's own domain, and nobody else reaches the tree.
        let tree = unsafe { RawArt::new(sync) };
        let domain = Arc::new_cyclic(|this: &Weak<Domain>| backlog.domain().tended_by(this.clone()));
        Art { tree, count: Counter::default(), backlog, _values: PhantomData, domain }
    }

    /// This thread's session. Cheap; keeping it over many operations is cheaper.
    pub fn pin(&self) -> ArtSession<'_, K, V> {
        ArtSession::new(self)
    }

    /// The write synchronisation the map was made with.
    pub fn write_sync(&self) -> WriteSync {
        self.tree.write_sync()
    }

    /// The number of entries: exact while nobody inserts or removes, otherwise off by at most what is inserted or
    /// removed during the call. Constant time.
    pub fn len(&self) -> usize {
        self.count.sum()
    }

    /// Whether the map was empty at some moment of the call.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty(&self.domain.pin())
    }

    /// Removes all entries.
    ///
    /// # Panics
    /// With what a value's drop panicked with first; all are dropped by then.
    pub fn clear(&mut self) {
        let mut values = DropAll::new();
        // SAFETY: each word is shown once, and `&mut self` says that nobody reads it.
        self.tree.clear(|word| unsafe { values.drop_word::<V>(word) });
        self.count.reset();
    }

    /// Frees what was removed or replaced before the call, as far as no thread reads; it waits for none. It does not promise
    /// that memory is reclaimed at once: what a reader may still be using goes after that, and what other threads remove
    /// meanwhile when its turn comes. Never needed: what a map at rest leaves behind is freed some milliseconds later.
    pub fn sync(&self) {
        self.domain.collect();
    }

    /// Checks every invariant of the tree: kinds against counts, prefixes, order, reachability, the number of entries.
    /// For tests.
    ///
    /// # Panics
    /// If one is broken. Also if other threads write meanwhile: it reads the tree node by node.
    pub fn check_invariants(&self) {
        let entries = check::check(&self.tree, &self.domain.pin());
        assert_eq!(entries, self.len(), "the count is the number of entries");
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Drop for Art<K, V> {
    fn drop(&mut self) {
        self.domain.stop_tending();
        self.clear();
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Default for Art<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedIndex<K, V> for Art<K, V> {
    type Session<'a> = ArtSession<'a, K, V>;

    fn pin(&self) -> ArtSession<'_, K, V> {
        self.pin()
    }

    fn quiesce(&self) {
        self.sync();
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> Extend<(K, V)> for Art<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let session = self.pin();
        for (key, value) in entries {
            session.insert(&key, value);
        }
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> FromIterator<(K, V)> for Art<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static> IntoIterator for &'a Art<K, V> {
    type Item = (K, V);
    type IntoIter = Range<'a, K, V>;

    fn into_iter(self) -> Range<'a, K, V> {
        self.pin().iter()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, const N: usize> From<[(K, V); N]> for Art<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Key + Debug, V: Debug + Clone + Send + Sync + 'static> Debug for Art<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pin().iter()).finish()
    }
}
