//! In-memory data structures that scale on servers with many cores and several memory nodes (NUMA): concurrent ordered maps,
//! replicated structures, and the synchronization beneath them.
//!
//! ```toml
//! [dependencies]
//! archipelago = "0.1"
//! ```
//!
//! Rust 1.89 or newer, no C compiler, five small crates of other authors. Apache-2.0 or MIT, at your choice.
//!
//! # A map
//!
//! ```
//! use archipelago::HydraList;
//!
//! let map: HydraList<u64, &str> = HydraList::new();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| map.pin().insert(1, "one"));
//!     scope.spawn(|| map.pin().insert(2, "two"));
//! });
//! let session = map.pin();
//! let all: Vec<(u64, &str)> = session.range(..).collect();
//! assert_eq!(all, [(1, "one"), (2, "two")]);
//! ```
//!
//! The maps are like `BTreeMap`, but:
//!
//! - Threads share a map and change it at the same time. Methods take `&self`, and are those of a [session](index::Session):
//!   `map.pin().insert(key, value)`. To make a session takes about a nanosecond.
//! - `get` returns a clone, since other threads may remove the value at any time; `get_with` and `get_ref` show the value itself.
//! - Keys are compared by an [encoding](index::Key), not by `Ord`: numbers, strings, tuples and more have one, and
//!   [`key!`](index::key!) gives one to types of yours.
//! - An operation on one key is atomic. A scan is ordered and misses nothing that stays, but is no snapshot.
//!
//! The [guide](index::guide) has the details.
//!
//! # Which one
//!
//! | map | take it for |
//! |---|---|
//! | [`HydraList`] | most things: look-ups, updates and scans of numbers and strings, in large maps, on many cores |
//! | [`Art`] | small maps and point operations: a radix tree without threads of its own; its scans are slower |
//! | [`BLinkTree`] | scans and little memory, no threads of its own; keys up to a quarter of a page; replicas on each node on request |
//! | [`EunoBTree`] | many threads that write to a few places: counters, the next order number, time stamps |
//! | [`EunoSkipList`] | the same, in maps that grow and shrink all the time |
//!
//! All five are one type, [`Map`](index::Map), with the same methods.
//!
//! | you have | take | in |
//! |---|---|---|
//! | another structure, written for one thread | [`Replicated`]: a replica per NUMA node; [`Combined`]: one copy | [`replicate`] |
//! | objects that are changed together and read at one moment | [MV-RLU](sync::mvrlu): transactions and snapshots | [`sync`] |
//! | pointers that readers follow while writers unlink | [RCU](sync::rcu), with [RCX](sync::rcx) for the writers | [`sync`] |
//! | a short critical section, and many threads at it | [locks](sync::lock) that keep to a node while they can | [`sync`] |
//!
//! Each module begins with a guide: usage, consistency, atomicity, lifetimes and memory, performance, and when to take
//! something else.
//!
//! # Performance
//!
//! Measure with keys of your own, beside other maps: `cargo install archipelago-cli --features peers`, then
//! `archipelago bench ycsb --keys FILE`. Figures, and where the maps lose: `docs/performance.md` in the
//! [repository](https://github.com/archipelago-rs/archipelago).
//!
//! # Async
//!
//! No operation of a map blocks on input or output; writers may wait for each other for the time of a page's change. In a task
//! that moves between threads, take [`pin_owned`](index::Map::pin_owned) and keep [`Entry`](index::Entry)s, which are `Send`, over
//! an `await`, for a short time: what a map lets go of is not freed while one lives. [`Replicated`]'s handles have
//! [`write_async`](replicate::Handle::write_async).
//!
//! # What holds for all of them
//!
//! - *Safe.* No safe program causes undefined behaviour, whatever its keys' `Ord` does, whatever panics, and whatever is
//!   forgotten.
//! - *No global state.* Two structures share nothing, except one thread of the process that looks after small maps at rest.
//! - *Memory* that readers may still see is kept until they have left. `stats()` says how much; limits are per structure.
//! - *The machine* is read once ([`platform::topology`]): nodes, CPUs, clock, what the processor can do. The environment
//!   variable `ARCHIPELAGO_TOPOLOGY` (`4x28`: four nodes with 28 CPUs each) imagines another, for tests.
//! - *Everywhere* with 64-bit atomics; at their best on Linux (see `docs/platforms.md` in the repository).
//!
//! # Features
//!
//! None by default. `serde`: maps are serialized as maps. `rayon`: parallel iterators over maps. And packages of their own, in modules
//! of their names: `cache`, a bounded cache; `ranges`, a map of disjoint ranges; `txn`, transactions over tables of rows.

// Modules with globs, and not `pub use archipelago_index as index`: so the compiler's messages name the paths that users write
// (`archipelago::index::Map`), and every item has its page here.

/// Concurrent ordered maps. Begin with the [`guide`](index::guide).
pub mod index {
    #[doc(inline)]
    pub use archipelago_index::*;
}

/// The machine: topology, clock, node-local memory, threads, what the processor can do.
pub mod platform {
    #[doc(inline)]
    pub use archipelago_platform::*;
}

/// Any sequential structure made concurrent: node replication ([`Replicated`]), flat combining ([`Combined`]). Begin with the
/// [`guide`](replicate::guide).
pub mod replicate {
    #[doc(inline)]
    pub use archipelago_replicate::*;
}

/// Locks, RCU, RCX, MV-RLU, regions, and what they are made of. Each module begins with a guide.
pub mod sync {
    #[doc(inline)]
    pub use archipelago_sync::*;
}

/// A concurrent cache, bounded by bytes.
#[cfg(feature = "cache")]
pub mod cache {
    #[doc(inline)]
    pub use archipelago_cache::*;
}

/// A concurrent map of disjoint ranges.
#[cfg(feature = "ranges")]
pub mod ranges {
    #[doc(inline)]
    pub use archipelago_ranges::*;
}

/// Serializable transactions over tables of plain rows, with indexes on the maps of this crate.
#[cfg(feature = "txn")]
pub mod txn {
    #[doc(inline)]
    pub use archipelago_txn::*;
}

#[doc(inline)]
pub use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList};
#[doc(inline)]
pub use archipelago_replicate::{Combined, Replicated, Sequential};
