//! Node replication and flat combining: two methods that make any sequential structure concurrent, without changing it.
//!
//! | type | method | suited for |
//! |---|---|---|
//! | [`Replicated`] | one replica per NUMA node, a shared log | contended structures, many reads, several nodes |
//! | [`Combined`] | one structure, flat combining | one node, little memory |
//!
//! A *combiner* is a thread that carries out the operations of other threads. At any time a `Replicated` has at most
//! one for each replica, and a `Combined` has at most one. In a `Combined`, reads are combined, too (FC), or run under
//! a distributed lock (FC+).
//!
//! Both take any [`Sequential`] structure. The [`guide`] describes their use.
//!
//! ```
//! use archipelago::replicate::{Closures, Poisoned, Replicated};
//! use std::collections::BTreeMap;
//!
//! fn main() -> Result<(), Poisoned> {
//!     let scores = Replicated::new(|| Closures::new(BTreeMap::<String, u64>::new()));
//!     std::thread::scope(|scope| {
//!         for player in ["ada", "bob", "cleo"] {
//!             let mut scores = scores.handle(); // one per thread; its first use binds it to that thread's node
//!             scope.spawn(move || scores.update(move |map| *map.entry(player.into()).or_default() += 10));
//!         }
//!     });
//!     println!("{:?}", scores.handle().view(|map| map.clone())?);
//!     Ok(())
//! }
//! ```

#[cfg_attr(loom, allow(dead_code))]
mod board;
#[cfg(not(loom))]
pub mod combine;
#[cfg(not(loom))]
#[doc = include_str!("guide.md")]
pub mod guide {}
#[cfg(not(loom))]
pub mod nr;
#[cfg(not(loom))]
mod poison;
#[cfg(not(loom))]
mod reentry;
#[cfg(not(loom))]
mod sequential;
#[cfg(not(loom))]
mod turn;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use combine::{Combined, CombinedHandle};
#[cfg(not(loom))]
pub use nr::{BATCH_CLASSES, Builder, Handle, Observer, ReadFuture, Replicable, Replicated, Stats, WriteFuture};
#[cfg(not(loom))]
pub use poison::Poisoned;
#[cfg(not(loom))]
pub use sequential::{ClosureWrite, Closures, FromFns, Sequential};
