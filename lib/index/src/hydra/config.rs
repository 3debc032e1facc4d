//! Configuration of a map. The defaults suit most uses.

use archipelago_platform::SIMULATED;
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
    /// is the thesis's design, and the default. It goes past the thesis where clients have all processors: when a
    /// thread had to wait for a processor during its round, clients do the next rounds as with
    /// [`Clients`](Self::Clients), if such a round takes at most ten milliseconds.
    #[default]
    Background,
    /// Client threads, during their operations: the map has no thread. (In an idle map the last removed memory is freed
    /// by one thread of the process. All such maps share this thread, which starts when it is first needed. Pages that
    /// were merged away in the last rounds of maintenance, up to three twentieths of all pages, stay until further
    /// changes or [`sync`](crate::Map::sync).)
    Clients,
}

/// The effect of a part of the design, shown by an experiment on the virtual machine that switches the part off. The
/// thesis's factor analysis (§4.5.3) has such steps. In a program for the real machine, only
/// [`Synchronous`](Self::Synchronous) has an effect.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// A look-up compares its key with all entries of a page, instead of those with the key's tag.
    NoTags,
    /// A thread that finds a page locked, or changed, tries again at once.
    NoBackoff,
    /// An update of a present key takes the page's lock, as in the thesis, instead of sharing the lock.
    LockedUpdates,
    /// [`LockedUpdates`](Self::LockedUpdates) and [`NoBackoff`](Self::NoBackoff).
    LockedUpdatesNoBackoff,
    /// Each split or merge is followed by a round in the same thread. The search layer is the radix tree, since a
    /// snapshot would be copied in each round.
    Synchronous,
}

/// A map's settings, see [`Builder`](super::Builder).
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) topology: Topology,
    pub(crate) search_layer: SearchLayerKind,
    pub(crate) maintainers: Maintainers,
    pub(crate) tuning: Tuning,
    pub(crate) experiment: Option<Experiment>,
}

impl Config {
    /// Chooses an experiment.
    pub(crate) fn choose(&mut self, experiment: Experiment) {
        self.experiment = Some(experiment);
        if experiment == Experiment::Synchronous {
            (self.search_layer, self.maintainers) = (SearchLayerKind::Art, Maintainers::Clients);
            self.tuning = Tuning { stale_percent: 0, stale_min: 1, ..self.tuning };
        }
    }

    /// Returns whether this is the experiment, on the virtual machine. The compiler knows that the answer is `false` in
    /// a program for the real machine.
    #[inline(always)]
    pub(crate) fn is(&self, experiment: Experiment) -> bool {
        SIMULATED && self.experiment == Some(experiment)
    }

    /// Returns whether a thread that finds a page locked, or changed, waits.
    #[inline(always)]
    pub(crate) fn has_backoff(&self) -> bool {
        !self.is(Experiment::NoBackoff) && !self.is(Experiment::LockedUpdatesNoBackoff)
    }

    /// Returns whether updates of present keys share a page's lock.
    #[inline(always)]
    pub(crate) fn updates_share(&self) -> bool {
        !self.is(Experiment::LockedUpdates) && !self.is(Experiment::LockedUpdatesNoBackoff)
    }
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
            experiment: None,
        }
    }
}
