//! Node replication and flat combining: sequential structures made concurrent, without looking inside them.
//!
//! | type | how | good for |
//! |---|---|---|
//! | [`Replicated`] | one replica per NUMA node, a shared log, a combiner per node | contended structures, reads, several nodes |
//! | [`Combined`] | one structure, flat combining; reads combined (FC) or under a distributed lock (FC+) | one node, little memory |
//!
//! Both take any [`Sequential`] structure. Guide: `docs/mechanisms/node-replication.md`.
//!
//! ```
//! use archipelago_replicate::{Closures, Poisoned, Replicated};
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
//!
//! # Usage
//! Write the structure for one thread, and implement [`Sequential`]: types of the operations, a function that reads and one
//! that changes. ([`Closures`] does without, for two allocations per change; [`FromFns`] takes two functions.) Each thread
//! has a [`Handle`]; tasks have [`Handle::write_async`].
//!
//! # Consistency
//! All operations of all handles are linearizable. A change is carried out once per replica, in one order; so it must be
//! *deterministic*: what is random or depends on time is decided before, and is part of the operation.
//!
//! # Atomicity
//! An operation is one step, however much it changes: several structures that change together are one type with several
//! fields. [`Handle::write_many`] makes several operations one step.
//!
//! # Lifetimes and memory
//! One copy of the structure per replica (`Combined`: one), and a log of operations, which a replica that stands still
//! can make grow to [`Builder::largest_log`]. A handle keeps the structure alive. A panic in a change poisons the
//! structure: all operations then fail with [`Poisoned`]. No operation may be called from inside one on the same
//! structure.
//!
//! # Performance
//! Reads run in parallel on the replica of their node. Changes of a node's threads are carried out in batches by one of
//! them, so contention costs little; an uncontended change costs four times a lock's with one
//! replica, nine times with two.
//! `archipelago bench nr` compares, also with structures' own locks.
//!
//! # When not to use it
//! - Mostly changes, and large ones: each replica carries out each of them.
//! - A lock that is seldom contended does it.
//! - A structure with a concurrent algorithm of its own, if it is good: see the maps of `archipelago-index`.
//! - Operations that block, or that last: a replica's readers and writers wait for each other.

#[cfg_attr(loom, allow(dead_code))]
mod board;
#[cfg(not(loom))]
pub mod combine;
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
