//! The map users hold.

use super::config::{Config, Maintainers, SearchLayerKind};
use super::core::Core;
use super::iter::Iter;
use super::maintain::MaintenanceStats;
use super::page::{Page, PageForm};
use super::session::{FormOf, Session};
use crate::backlog::{Limit, OnBacklog};
use crate::value::{self, DropAll};
use crate::{Key, OrderedIndex};
use ::core::fmt;
use ::core::marker::PhantomData;
use archipelago_platform::sync::Arc;
use archipelago_platform::topology::Topology;
use archipelago_sync::version_lock::Look;

/// A concurrent ordered map: **HydraList**. See the [module](super) for how it works.
///
/// ```
/// use archipelago_index::HydraList;
///
/// let map: HydraList<u64, u64> = HydraList::new();
/// let map = map.pin(); // this thread's session
/// map.insert(7, 42);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(5..100).collect::<Vec<_>>(), [(7, 42)]);
/// ```
///
/// Keys are any [`Key`]; integers are stored inline, byte strings with their page's common prefix cut off. Values that
/// are primitive numbers are stored inline; others are boxed, and read by reference under a guard.
///
/// Two maps share nothing. Dropping a map ends its background threads and drops every entry; dropping entries that
/// were removed or replaced earlier may happen any time after no thread can still be reading them, in any thread that
/// uses the map: a panic of such a drop is reported by the panic hook and goes no further.
pub struct HydraList<K: Key, V: Send + Sync + 'static> {
    core: Arc<Core<FormOf<K>>>,
    // Owns V; Send and Sync as if it held entries behind a lock that hands out shared references from any thread.
    entries: PhantomData<(K, V)>,
}

impl<K: Key, V: Send + Sync + 'static> HydraList<K, V> {
    /// An empty map with the default configuration: it takes less than 4 kB and starts no thread of its own while it is small.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a map.
    ///
    /// ```
    /// use archipelago_index::HydraList;
    /// use archipelago_index::hydra::Maintainers;
    ///
    /// let map = HydraList::<u64, String>::builder().maintainers(Maintainers::Clients).build();
    /// map.pin().insert(1, "one".into());
    /// ```
    pub fn builder() -> Builder<K, V> {
        Builder::default()
    }

    pub(super) fn core(&self) -> &Core<FormOf<K>> {
        &self.core
    }

    /// This thread's session.
    #[inline]
    pub fn pin(&self) -> Session<'_, K, V> {
        Session::new(self)
    }

    /// The number of entries: the sum of per-thread counts, O(threads). Exact when no thread is changing the map;
    /// otherwise it may miss or include changes under way.
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether there are no entries, with [`len`](Self::len)'s consistency.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held: for pages, search layers and boxed values, and what was removed or replaced and waits for
    /// readers. A value counts as `size_of` its type, without what it owns elsewhere. Not counted: keys too long for a
    /// page (over about 100 bytes) that are in the map, and what the allocator adds. O(threads).
    pub fn bytes(&self) -> usize {
        self.core.bytes() + self.len() * value::boxed_bytes::<V>()
    }

    /// Waits until every search layer knows of everything done to the map before the call, and frees what was removed or
    /// replaced as far as no thread reads. It does not promise that memory is reclaimed at once: what a reader may still be
    /// using, or a background thread is about to free, goes after that.
    pub fn sync(&self) {
        self.pin().sync();
    }

    /// Builds a map from entries in ascending key order, in O(n): pages are filled one after the other, to the brim.
    /// Entries out of order are inserted all the same, more slowly; of equal keys the last one stays.
    pub fn from_sorted(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let map = Self::new();
        map.pin().extend(entries);
        map.sync();
        map
    }

    /// Removes all entries and gives all memory back. (To empty a map that others use, see [`Session::retain`].)
    ///
    /// # Panics
    /// With what a value's drop panicked with first; all are dropped by then.
    pub fn clear(&mut self) {
        *self = Builder { config: self.core.config.clone(), map: PhantomData }.build();
    }

    /// Checks every internal invariant. For tests: call it when no other thread uses the map.
    ///
    /// # Panics
    /// If one does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.core.check_invariants();
    }

    /// For tests: what background work has been done.
    #[doc(hidden)]
    pub fn maintenance_stats(&self) -> MaintenanceStats {
        self.core.maintenance_stats()
    }

    /// For tests: moves every page but the first to another place, as is done when a map has shrunk.
    #[doc(hidden)]
    pub fn move_pages(&self) {
        self.core.move_pages(0);
    }

    /// For tests: stops the search layers from being brought up to date until called with `false`.
    #[doc(hidden)]
    pub fn pause_maintenance(&self, paused: bool) {
        self.core.pause_rounds(paused);
    }
}

impl<K: Key, V: Send + Sync + 'static> Drop for HydraList<K, V> {
    fn drop(&mut self) {
        let panicked = self.core.stop_background();
        self.core.domain.stop_tending();
        let mut values = DropAll::new();
        let mut skip = false;
        self.core.for_each_page(|page| {
            // Locked by a thread that this process has not got, being a child: it may have been moving entries from the
            // next page to this one. They leak.
            let locked = matches!(page.lock().look(), Look::Locked);
            if ::core::mem::replace(&mut skip, locked) || locked {
                return;
            }
            for slot in (0..page.len()).rev() {
                let removed = page.remove(slot);
                // SAFETY: nobody else uses the map (sessions borrow it), so the entry is ours.
                unsafe {
                    values.drop_word::<V>(removed.value);
                    if !removed.key.is_null() {
                        <FormOf<K> as PageForm>::Page::reclaim_key(removed.key);
                    }
                }
            }
        });
        // A bug of ours, which the panic hook has reported already. During another panic it must not end the process.
        if let Some(payload) = panicked.filter(|_| !archipelago_platform::thread::panicking()) {
            std::panic::resume_unwind(payload);
        }
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedIndex<K, V> for HydraList<K, V> {
    type Session<'a> = Session<'a, K, V>;

    fn pin(&self) -> Session<'_, K, V> {
        self.pin()
    }

    fn quiesce(&self) {
        self.sync();
    }
}

impl<K: Key, V: Send + Sync + 'static> Default for HydraList<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Send + Sync + 'static> FromIterator<(K, V)> for HydraList<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Key, V: Send + Sync + 'static, const N: usize> From<[(K, V); N]> for HydraList<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Key, V: Send + Sync + 'static> Extend<(K, V)> for HydraList<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<K: Key, V: Send + Sync + 'static> Extend<(K, V)> for &HydraList<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.pin().extend(entries);
    }
}

impl<'m, K: Key, V: Clone + Send + Sync + 'static> IntoIterator for &'m HydraList<K, V> {
    type Item = (K, V);
    type IntoIter = Iter<'m, K, V>;

    fn into_iter(self) -> Iter<'m, K, V> {
        self.pin().iter()
    }
}

impl<K: Key + fmt::Debug, V: Clone + Send + Sync + fmt::Debug + 'static> fmt::Debug for HydraList<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(feature = "serde")]
impl<K: Key + serde::Serialize, V: Clone + Send + Sync + serde::Serialize + 'static> serde::Serialize
    for HydraList<K, V>
{
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

#[cfg(feature = "serde")]
impl<'de, K: Key + serde::Deserialize<'de>, V: Send + Sync + serde::Deserialize<'de> + 'static> serde::Deserialize<'de>
    for HydraList<K, V>
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K, V> serde::de::Visitor<'de> for Entries<K, V>
        where
            K: Key + serde::Deserialize<'de>,
            V: Send + Sync + serde::Deserialize<'de> + 'static,
        {
            type Value = HydraList<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let map = HydraList::new();
                let session = map.pin();
                while let Some((key, value)) = access.next_entry::<K, V>()? {
                    session.upsert(&key, value);
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Configures a [`HydraList`]; every setting has a default that needs no thought.
#[must_use]
pub struct Builder<K, V> {
    config: Config,
    map: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Send + Sync + 'static> Builder<K, V> {
    /// The machine to lay the map out for: one search-layer replica per NUMA node. Default: the machine this runs on.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.config.topology = topology;
        self
    }

    /// Which structure maps keys to jump nodes.
    pub fn search_layer(mut self, kind: SearchLayerKind) -> Self {
        self.config.search_layer = kind;
        self
    }

    /// Who brings the search layer up to date.
    pub fn maintainers(mut self, maintainers: Maintainers) -> Self {
        self.config.maintainers = maintainers;
        self
    }

    /// A limit to the memory that waits for readers, in bytes as in [`Garbage::bytes`](crate::Garbage::bytes), and what
    /// operations that change the map do when it is reached. Default: none.
    ///
    /// The memory stays below the limit and, per thread that changes the map, one part in 32 of it and what one operation
    /// removes. A limit of less than some 100 kB for each such thread costs speed. Look-ups never wait.
    ///
    /// ```
    /// use archipelago_index::{Backlogged, HydraList, OnBacklog};
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().backlog_limit(1 << 20, OnBacklog::Proceed).build();
    /// let map = map.pin();
    /// map.insert(1, [0; 1000]);
    /// let refused = map.get_with(&1, |_| {
    ///     // Nothing that is replaced now is freed before this closure returns.
    ///     (0..5_000).find_map(|_| map.try_insert(1, [1; 1000]).err())
    /// });
    /// assert!(matches!(refused, Some(Some(Backlogged((1, _))))));
    /// assert!(map.try_insert(1, [1; 1000]).is_ok());
    /// ```
    pub fn backlog_limit(mut self, bytes: usize, then: OnBacklog) -> Self {
        self.config.backlog = Limit::new(bytes, then);
        self
    }

    /// Builds the map.
    pub fn build(self) -> HydraList<K, V> {
        HydraList { core: Arc::new_cyclic(|this| Core::new(self.config, this.clone())), entries: PhantomData }
    }
}

impl<K, V> Default for Builder<K, V> {
    fn default() -> Self {
        Self { config: Config::default(), map: PhantomData }
    }
}

impl<K, V> Clone for Builder<K, V> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), map: PhantomData }
    }
}

impl<K, V> fmt::Debug for Builder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builder").field(&self.config).finish()
    }
}
