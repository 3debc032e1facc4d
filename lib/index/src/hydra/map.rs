//! The settings of HydraLists, and hooks for tests.

use super::config::{Experiment, Maintainers, SearchLayerKind};
use super::stats::MaintenanceStats;
use crate::Key;
use crate::map::{Map, Session as AnySession};
use crate::structure::Structure as _;
use archipelago_platform::topology::Topology;

/// Marks maps that are HydraLists. See [`HydraList`].
#[derive(Debug)]
pub enum Hydra {}

/// A concurrent ordered map: **HydraList**. See the [module](super) for how it works, and [`Map`] for how to use it.
///
/// Its operations are the methods of a [`Session`](crate::Session): `map.pin().insert(key, value)`,
/// `map.pin().get(&key)`.
///
/// ```
/// use archipelago::HydraList;
///
/// let map: HydraList<u64, u64> = HydraList::new();
/// let map = map.pin(); // this thread's session
/// map.insert(7, 42);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(5..100).collect::<Vec<_>>(), [(7, 42)]);
/// ```
pub type HydraList<K, V> = Map<Hydra, K, V>;

/// A session on a [`HydraList`].
pub type Session<'m, K, V> = AnySession<'m, Hydra, K, V>;

/// An iterator over a range of a [`HydraList`].
pub type Range<'m, K, V> = crate::map::Range<'m, Hydra, K, V>;

/// An iterator over all entries of a [`HydraList`].
pub type Iter<'m, K, V> = Range<'m, K, V>;

/// An owning iterator over a [`HydraList`].
pub type IntoIter<K, V> = crate::map::IntoIter<Hydra, K, V>;

/// Configures a [`HydraList`].
pub type Builder<K, V> = crate::map::Builder<Hydra, K, V>;

impl<K: Key, V: Send + Sync + 'static> Builder<K, V> {
    /// Sets the machine for which the map is laid out: the map gets one search-layer replica per NUMA node. Default:
    /// the machine on which the program runs.
    ///
    /// ```
    /// use archipelago::{HydraList, platform::topology::Topology};
    ///
    /// let layers = |nodes| {
    ///     let machine = Topology::synthetic(nodes, nodes); // a machine of tests, with one CPU per node
    ///     let map = HydraList::<u64, u64>::builder().topology(machine).build();
    ///     map.pin().extend((0..1_000).map(|n| (n, n)));
    ///     map.sync();
    ///     map.stats().layers
    /// };
    /// assert!(layers(4) > layers(1)); // the bytes of all replicas
    /// ```
    pub fn topology(mut self, topology: Topology) -> Self {
        self.config.topology = topology;
        self
    }

    /// Sets the structure that maps keys to jump nodes (pages at or left of the key).
    ///
    /// ```
    /// use archipelago::index::hydra::{HydraList, SearchLayerKind};
    ///
    /// let map = HydraList::<u64, &str>::builder().search_layer(SearchLayerKind::Art).build();
    /// map.pin().insert(1, "one");
    /// assert_eq!(map.pin().get(&1), Some("one")); // the results are the same, the costs differ
    /// ```
    pub fn search_layer(mut self, kind: SearchLayerKind) -> Self {
        self.config.search_layer = kind;
        self
    }

    /// Sets the threads that update the search layer.
    ///
    /// ```
    /// use archipelago::index::hydra::{HydraList, Maintainers};
    ///
    /// // For a program that must have no thread of the map's own, whatever the map's size.
    /// let map = HydraList::<u64, u64>::builder().maintainers(Maintainers::Clients).build();
    /// assert_eq!(map.pin().insert_many((0..1_000).map(|n| (n, n))), 1_000);
    /// ```
    pub fn maintainers(mut self, maintainers: Maintainers) -> Self {
        self.config.maintainers = maintainers;
        self
    }

    /// For experiments: switches a part of the design off.
    #[doc(hidden)]
    pub fn experiment(mut self, experiment: Experiment) -> Self {
        self.config.choose(experiment);
        self
    }
}

impl<K: Key, V: Send + Sync + 'static> HydraList<K, V> {
    /// For tests: returns how much background work has been done.
    #[doc(hidden)]
    pub fn maintenance_stats(&self) -> MaintenanceStats {
        self.core().hooks().maintenance_stats()
    }

    /// For tests: moves every page except the first, as compaction does.
    #[doc(hidden)]
    pub fn move_pages(&self) {
        self.core().hooks().move_pages();
    }

    /// For tests: after a call with `true`, only `sync` updates the search layers, until a call with `false`.
    #[doc(hidden)]
    pub fn pause_maintenance(&self, paused: bool) {
        self.core().hooks().pause_rounds(paused);
    }

    /// For tests: makes the next rounds of maintenance the clients' turns, as if the map's thread had waited for a
    /// processor.
    #[doc(hidden)]
    pub fn give_turns(&self) {
        self.core().hooks().give_turns();
    }
}
