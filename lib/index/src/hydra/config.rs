//! Configuration of a map: defaults need no reading.

use archipelago_platform::topology::Topology;

/// Which structure maps keys to jump nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchLayerKind {
    /// An immutable sorted structure, merged anew in the background; uses the freedom to be stale. The default.
    #[default]
    Snapshot,
    /// The thesis's adaptive radix tree, changed in place.
    Art,
}

/// Who brings the search layer up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Maintainers {
    /// One background thread per NUMA node (the first also combines), started when the map has grown past a few
    /// hundred pages, asleep when there is nothing to do. The thesis's way, and the default.
    #[default]
    Background,
    /// Client threads, in passing: the map has no thread. (What was removed last from a map that rests is freed by a thread
    /// that all such maps of the process, small ones too, have in common. It starts when it is needed first.)
    Clients,
}

/// See [`Builder`](super::Builder).
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) topology: Topology,
    pub(crate) search_layer: SearchLayerKind,
    pub(crate) maintainers: Maintainers,
    pub(crate) tuning: Tuning,
}

/// Constants of the mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// A round of maintenance is due when this share of anchors (in percent) is missing from the search layer.
    /// The thesis combines every 200 µs whatever happened. Up to 5 % missing anchors cost look-ups nothing
    /// measurable, and a round costs time in proportion to all anchors.
    pub stale_percent: usize,
    /// ... but not before this many structure changes.
    pub stale_min: usize,
    /// Up to this many anchors the thread that finds a round due does it itself, whatever `maintainers` says: it is
    /// a matter of microseconds, and small maps then never start a thread.
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
