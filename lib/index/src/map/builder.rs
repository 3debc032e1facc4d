//! Configuring a map. The defaults suit most uses.

use super::{Kind, Map};
use crate::Key;
use crate::backlog::{Limit, OnBacklog};
use crate::limits::LimitConfig;
use core::fmt;
use core::marker::PhantomData;

/// What a map was configured with.
pub(super) struct Settings<S: Kind> {
    pub(super) config: S::Config,
    pub(super) limits: LimitConfig,
}

impl<S: Kind> Clone for Settings<S> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), limits: self.limits }
    }
}

/// Configures a [`Map`]. Settings of a single structure are documented there.
#[must_use]
pub struct Builder<S: Kind, K, V> {
    pub(crate) config: S::Config,
    limits: LimitConfig,
    map: PhantomData<fn() -> (K, V)>,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Builder<S, K, V> {
    /// Sets a limit on the memory that waits for readers, in bytes as in [`Garbage::bytes`](crate::Garbage::bytes), and
    /// what operations that change the map do when it is reached. Default: none.
    ///
    /// The memory stays below the limit and, per thread that changes the map, one part in 32 of it and what one operation
    /// removes; and, with [`OnBacklog::Wait`], all that threads remove or replace while they read the map themselves, with a `Ref`
    /// or an `Entry` of their own: they cannot wait. With the `try_` operations it stays below the limit there, too. A limit of less
    /// than some 100 kB for each such thread costs speed. Look-ups never wait.
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

    /// Sets a limit on all memory of the map, in bytes as [`Map::bytes`] counts them. Default: none.
    ///
    /// At the limit `try_insert`, `try_replace` and `try_extend` refuse and return the value that was to be stored.
    /// Operations without `try_` ignore the limit, since they cannot refuse.
    ///
    /// With `try_` operations alone the map holds at most this and a block of pages (half of the limit, at most 2 MiB); per
    /// thread, an entry, a page, and what removals leave to readers; and where threads compete for the last room in pages, one part in 32 of
    /// the limit. While removals (or the merging below) have pages moved together, their twins can add about another block, until readers
    /// have left the pages that were replaced.
    ///
    /// Removing entries makes room once no reader can still use them. Pages that are free in a block are room. At the limit a
    /// key whose page has room is stored, and one whose page is full is refused, so the one may be refused and the next be
    /// stored. If pages have become thin, the operation that would be refused first merges neighbours and gives memory back, in
    /// O(pages), at most once for each eighth of the map that has changed. Of a full map's entries 99, 75 or 50 % removed all over it,
    /// at least 80, 70 or 60 % of as many fit again; but pages of words that were full, and have lost every other entry, are not merged:
    /// then there is room for keys that fall between those which are left, and none for keys beyond.
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

    /// Builds the map.
    pub fn build(self) -> Map<S, K, V> {
        Map::with(Some(Box::new(Settings { config: self.config, limits: self.limits })))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Configures a map.
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
        Self { config: S::Config::default(), limits: LimitConfig::default(), map: PhantomData }
    }
}

impl<S: Kind, K, V> Clone for Builder<S, K, V> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), limits: self.limits, map: PhantomData }
    }
}

impl<S: Kind, K, V> fmt::Debug for Builder<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builder").field(&self.config).field(&self.limits).finish()
    }
}
