//! **HydraList** (Mathew and Min, VLDB'20; thesis chapter 4): an ordered map in two layers.
//!
//! ```text
//!  search layer   one replica per NUMA node: key -> jump node, changed in the background, may be stale
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────────
//!  data list      [low ... high) -> [low ... high) -> [low ... high)     pages of unsorted entries with tags
//! ```
//!
//! | file | contents | methods of `Core` |
//! |---|---|---|
//! | [`page`] | pages and their layouts | |
//! | [`shared`] | `Core`: everything that a map owns | making a map, memory, invariants |
//! | [`goal`] | the ends of walks | |
//! | [`list`] | walks, operations on one key and on both ends | `target`, and those whose names end in `_in_list` |
//! | [`scan`] | scans | `scan_list`, `scan_list_back` |
//! | [`batch`] | several look-ups at a time | `look_up_many` |
//! | [`reshape`] | splits and merges | `split`, `merge_next` |
//! | [`oplog`] | logs | |
//! | [`layer`], [`snapshot`] | search layers, and the read-mostly kind; the thesis's kind is in [`art`](crate::art) | |
//! | [`shortcuts`] | shortcuts past long walks | |
//! | [`upkeep`], [`crew`], [`stats`] | the state of the maintenance, sleeping and waking of its threads | |
//! | [`maintain`] | rounds, reclamation | `combine`, `update`, `reclaim`, `tidy` |
//! | `maintain/background.rs` | background threads | `wake_background`, `stop_background` |
//! | `maintain/compact.rs` | moving pages together | `compact_if_sparse` |
//! | [`structure`] | the list as the [`Structure`](crate::map::Structure) of a map | counting, retiring keys |
//! | [`config`], [`map`] | settings, and the type [`HydraList`] | |

mod batch;
mod config;
mod crew;
mod goal;
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
mod turns;
mod upkeep;

#[doc(hidden)]
pub use config::Experiment;
pub use config::{Maintainers, SearchLayerKind};
pub use map::{Builder, Hydra, HydraList, IntoIter, Iter, Range, Session};
#[doc(hidden)]
pub use stats::MaintenanceStats;

use page::PageForm;
use snapshot::SearchForm;

/// A form of keys for which both layers have a layout. The two forms, words and byte strings, implement this trait.
pub trait HydraForm: PageForm + SearchForm {}

impl<F: PageForm + SearchForm> HydraForm for F {}
