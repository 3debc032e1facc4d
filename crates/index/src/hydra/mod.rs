//! **HydraList** (Mathew and Min, VLDB'20; thesis chapter 4): an ordered map in two layers.
//!
//! ```text
//!  search layer   one replica per NUMA node: key -> jump node, changed in the background, may be stale
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────────
//!  data list      [low ... high) -> [low ... high) -> [low ... high)     pages of unsorted entries with tags
//! ```
//!
//! Where things are: the pages and their layouts in [`page`]; walking, point operations, splits and merges in
//! [`list`]; scans both ways in [`scan`]; op logs in [`oplog`], combiner, updaters and reclamation in [`maintain`];
//! the search layer in [`layer`] (the read-mostly kind in [`snapshot`], the thesis's radix tree in
//! [`art`](crate::art)); the types users see in [`map`], [`session`], [`bulk`] and [`iter`].

mod bulk;
mod config;
mod core;
mod iter;
mod layer;
mod list;
mod maintain;
mod map;
mod oplog;
mod page;
mod scan;
mod session;
mod snapshot;
mod stats;

pub use bulk::IntoIter;
pub use config::{Maintainers, SearchLayerKind};
pub use iter::{Iter, Range};
#[doc(hidden)]
pub use maintain::MaintenanceStats;
pub use map::{Builder, HydraList};
pub use session::Session;
pub use stats::Stats;

pub(crate) use list::{Put, When};
pub(crate) use page::bytes::{chunk, common};
pub(crate) use page::{PageForm, partition_point};
pub(crate) use snapshot::SearchForm;
