//! Configuring a map. The defaults suit most uses.

use super::{Kind, Map};
use crate::Key;
use crate::ahead::Step;
use crate::backlog::{Limit, OnBacklog};
use crate::limits::LimitConfig;
use core::fmt;
use core::marker::PhantomData;

/// The configuration of a map.
pub(super) struct Settings<S: Kind> {
    pub(super) config: S::Config,
    pub(super) limits: LimitConfig,
    pub(super) reach: Vec<Step>,
}

impl<S: Kind> Clone for Settings<S> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), limits: self.limits, reach: self.reach.clone() }
    }
}

/// Configures a [`Map`]. Methods that only one structure has are documented with that structure.
#[must_use]
pub struct Builder<S: Kind, K, V> {
    pub(crate) config: S::Config,
    limits: LimitConfig,
    reach: Vec<Step>,
    map: PhantomData<fn() -> (K, V)>,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Builder<S, K, V> {
    /// Sets a limit on the memory that waits for readers. `then` is what operations that change the map do at the
    /// limit. The limit is in bytes, counted as in [`Garbage::bytes`](crate::Garbage::bytes). Default: no limit.
    ///
    /// The memory may exceed the limit by a bounded amount. For each thread that changes the map, the amount is at most
    /// one part in 32 of the limit, plus what one operation removes. With [`OnBacklog::Wait`], a thread that holds a
    /// `Ref`, or an `Entry` that it has made, cannot wait. All memory that it removes or replaces meanwhile may exceed
    /// the limit, too, but its `try_` operations refuse. A limit of less than about 100 kB for each thread that changes
    /// the map costs speed. Look-ups never wait.
    ///
    /// ```
    /// use archipelago::index::{HydraList, OnBacklog, Refused};
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().backlog_limit(1 << 20, OnBacklog::Proceed).build();
    /// let map = map.pin();
    /// map.insert(1, [0; 1000]);
    /// let refused = map.get_with(&1, |_| {
    ///     // Nothing that is replaced now is freed before this closure returns.
    ///     (0..5_000).find_map(|_| map.try_insert(1, [1; 1000]).err())
    /// });
    /// assert!(matches!(refused, Some(Some(Refused::Backlogged((1, _))))));
    /// assert!(map.try_insert(1, [1; 1000]).is_ok());
    /// ```
    pub fn backlog_limit(mut self, bytes: usize, then: OnBacklog) -> Self {
        self.limits.backlog = Limit::new(bytes, then);
        self
    }

    /// Sets a limit on all memory of the map, in bytes as [`Map::bytes`] counts them. Default: no limit.
    ///
    /// At the limit `try_insert`, `try_upsert`, `try_extend` and `try_replace` refuse, and return what was to be
    /// stored. Operations without `try_` ignore the limit, since they cannot refuse.
    ///
    /// If only `try_` operations are used, the map's memory exceeds the limit by at most:
    /// - a block of pages (half of the limit, at most 2 MiB);
    /// - for each thread, an entry, a page, and removed memory that waits for readers;
    /// - if threads compete for the last room in pages, one part in 32 of the limit;
    /// - while pages are moved together after removals, or by the merging below, about another block: the pages' copies
    ///   exist until readers of the replaced pages have ended.
    ///
    /// Removing entries makes room once no reader can still use them. Free pages in a block count as room. At the limit
    /// a key is stored if its page has room, and refused if its page is full. So one key may be refused and the next
    /// one stored.
    ///
    /// If many pages are nearly empty, an operation merges neighbouring pages and frees memory before it refuses. This
    /// takes O(pages), and happens at most once for each eighth of the map that has changed. If 99, 75 or 50 % of a
    /// full map's entries are removed all over the map, then at least 80, 70 or 60 % (in this order) of the removed
    /// number fit again. One case is not merged: pages of words that were full and have lost every other entry. Then
    /// there is room for keys between the remaining ones, but not for keys beyond them.
    ///
    /// ```
    /// use archipelago::index::{HydraList, Refused};
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().memory_limit(1 << 20).build();
    /// let map = map.pin();
    /// let refused = (0..2_000).find_map(|n| map.try_insert(n, [7; 1000]).err());
    /// let Some(Refused::Full((key, value))) = refused else { panic!("2 MB don't fit") };
    /// assert_eq!((key, value), (map.len() as u64, [7; 1000]));
    /// ```
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// Tells scans and iterators what readers of a value access after the value itself. `address` returns an address in
    /// the memory to which a value leads; any address is allowed. Each further call adds the step that follows. Default:
    /// no step.
    ///
    /// A map prefetches boxed values of several entries at a time. With these steps it also prefetches the memory to
    /// which the values lead, step by step for these entries, so that the reader's cache misses overlap. This is worth
    /// its cost if most readers access this memory, and if the map is larger than the processor's cache: iterating over
    /// a million values with 100 bytes elsewhere took 0.6 of the time. [`Art`](crate::Art) ignores the steps, and so do
    /// maps of values that are not boxed.
    ///
    /// `address` is called with values that are in the map, or were during the scan, whether the reader then reads them
    /// or not. It may be called by any thread that reads, and runs outside any lock. If it panics, the scan or iterator
    /// panics, as if the reader had panicked.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::sync::Arc;
    ///
    /// let map = HydraList::<u64, Arc<String>>::builder()
    ///     .fetch_ahead(|text| Arc::as_ptr(text)) // first the string and its count,
    ///     .fetch_ahead(|text| text.as_ptr()) // then the text
    ///     .build();
    /// let map = map.pin();
    /// map.extend((0..100).map(|n| (n, Arc::new(n.to_string()))));
    /// assert_eq!(map.values().map(|text| text.len()).sum::<usize>(), 190);
    /// ```
    pub fn fetch_ahead<T: 'static>(mut self, address: impl Fn(&V) -> *const T + Clone + Send + Sync + 'static) -> Self {
        self.reach.push(Step::new(address));
        self
    }

    /// Builds a map with these settings.
    ///
    /// ```
    /// use archipelago::BLinkTree;
    ///
    /// let settings = BLinkTree::<u64, &str>::builder().memory_limit(1 << 20);
    /// let (first, second) = (settings.clone().build(), settings.build()); // each map has a limit of its own
    /// first.pin().insert(1, "one");
    /// assert!(second.is_empty());
    /// ```
    pub fn build(self) -> Map<S, K, V> {
        Map::with(Some(Box::new(Settings { config: self.config, limits: self.limits, reach: self.reach })))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Returns a builder, which configures a map.
    ///
    /// ```
    /// use archipelago::index::hydra::Maintainers;
    /// use archipelago::index::{Art, HydraList, OnBacklog};
    ///
    /// let map = HydraList::<u64, String>::builder().maintainers(Maintainers::Clients).build();
    /// map.pin().insert(1, "one".into());
    /// let map = Art::<u64, String>::builder().backlog_limit(64 << 20, OnBacklog::Wait).build();
    /// map.pin().insert(1, "one".into());
    /// ```
    pub fn builder() -> Builder<S, K, V> {
        Builder::default()
    }
}

impl<S: Kind, K, V> Default for Builder<S, K, V> {
    fn default() -> Self {
        Self { config: S::Config::default(), limits: LimitConfig::default(), reach: Vec::new(), map: PhantomData }
    }
}

impl<S: Kind, K, V> Clone for Builder<S, K, V> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), limits: self.limits, reach: self.reach.clone(), map: PhantomData }
    }
}

impl<S: Kind, K, V> fmt::Debug for Builder<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builder").field(&self.config).field(&self.limits).finish()
    }
}
