//! Configuration of a map. The defaults suit most uses.

use archipelago_platform::topology::Topology;

/// The structure that maps keys to *jump nodes*: pages at or left of the key, from which a search walks right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchLayerKind {
    /// An immutable sorted structure, which is rebuilt by merging in the background. This is possible because a search
    /// layer may be stale. The default.
    #[default]
    Snapshot,
    /// The thesis's adaptive radix tree, changed in place.
    Art,
}

/// The threads that update the search layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Maintainers {
    /// One background thread per NUMA node (the first one also collects the changes that all threads have logged). The
    /// threads are started when the map has grown past a few hundred pages, and sleep when there is nothing to do. This
    /// is the thesis's design, and the default.
    #[default]
    Background,
    /// Client threads, during their operations: the map has no thread. (In an idle map the last removed memory is freed
    /// by one thread of the process. All such maps share this thread, which starts when it is first needed. Pages that
    /// were merged away in the last rounds of maintenance, up to three twentieths of all pages, stay until further
    /// changes or [`sync`](crate::Map::sync).)
    Clients,
}

/// A map's settings, see [`Builder`](super::Builder).
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) topology: Topology,
    pub(crate) search_layer: SearchLayerKind,
    pub(crate) maintainers: Maintainers,
    pub(crate) tuning: Tuning,
}

/// Constants of the maintenance.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// A round of maintenance is due when the number of pending structure changes is this share (in percent) of the
    /// number of anchors (the lowest keys of pages). The thesis starts a round every 200 µs, independently of changes.
    /// Up to 5 % missing anchors have no measurable cost for look-ups, and a round takes time in proportion to all
    /// anchors.
    pub stale_percent: usize,
    /// No round except a map's first one is due before this number of structure changes.
    pub stale_min: usize,
    /// If there are at most this many anchors, the thread that finds that a round is due runs the round itself,
    /// whatever `maintainers` is. Such a round takes microseconds, and small maps never start a thread.
    pub inline_anchors: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { stale_percent: 5, stale_min: 8, inline_anchors: 512 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            topology: Topology::current().clone(),
            search_layer: SearchLayerKind::default(),
            maintainers: Maintainers::default(),
            tuning: Tuning::default(),
        }
    }
}
