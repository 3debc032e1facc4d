//! **HydraList** (Mathew and Min, VLDB'20; thesis chapter 4): an ordered map in two layers.
//!
//! ```text
//!  search layer   one replica per NUMA node: key -> jump node, changed in the background, may be stale
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────────
//!  data list      [low ... high) -> [low ... high) -> [low ... high)     pages of unsorted entries with tags
//! ```
//!
//! Where things are: the pages and their layouts in [`page`]; walking and point operations in [`list`], splits and
//! merges in [`reshape`]; scans both ways in [`scan`], many look-ups at a time in [`batch`]; op logs in [`oplog`], combiner, updaters and reclamation in [`maintain`];
//! the search layer in [`layer`] (the read-mostly kind in [`snapshot`], the radix tree of Mathew's thesis in
//! [`art`](crate::art)). [`structure`] says how all this is a [`Structure`](crate::map::Structure), of which
//! [`Map`](crate::map::Map) makes what users see.

mod batch;
mod config;
mod crew;
mod layer;
mod list;
mod maintain;
mod map;
mod oplog;
mod page;
mod reshape;
mod scan;
mod shared;
mod shortcuts;
mod snapshot;
mod stats;
mod structure;
mod upkeep;

pub use config::{Maintainers, SearchLayerKind};
pub use map::{Builder, Hydra, HydraList, IntoIter, Iter, Range, Session};
#[doc(hidden)]
pub use stats::MaintenanceStats;

use page::PageForm;
use snapshot::SearchForm;

/// A form of keys that both layers have a layout for. Both forms are.
pub trait HydraForm: PageForm + SearchForm {}

impl<F: PageForm + SearchForm> HydraForm for F {}
