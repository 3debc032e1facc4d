//! In-memory data structures that scale on servers with many cores and several memory nodes (NUMA): concurrent ordered
//! maps, replicated structures, and the synchronization that they use.
//!
//! ```toml
//! [dependencies]
//! archipelago = "0.1"
//! ```
//!
//! The crate needs Rust 1.89 or newer and no C compiler. It depends on five small crates of other authors. It is
//! licensed under Apache-2.0 or MIT, at your choice.
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
//! The maps resemble `BTreeMap`, with these differences:
//!
//! - Threads share a map and change it at the same time. The methods take `&self`, and are called on a
//!   [session](index::Session): `map.pin().insert(key, value)`. Making a session takes about a nanosecond.
//! - `get` returns a clone, since other threads may remove the value at any time. `get_with` and `get_ref` give access
//!   to the value itself, without a clone.
//! - Keys are compared by an [encoding](index::Key), not by `Ord`. Numbers, strings, tuples and more types have an
//!   encoding; [`key!`](index::key!) defines one for your own types.
//! - An operation on one key is atomic. A scan is ordered and returns every entry that stays in the map throughout the
//!   scan, but it is not a snapshot.
//!
//! The [guide](index::guide) has the details.
//!
//! # Which one to use
//!
//! | map | use it for |
//! |---|---|
//! | [`HydraList`] | most purposes: look-ups, updates and scans of numbers and strings, in large maps, on many cores |
//! | [`Art`] | small maps and point operations: a radix tree without background threads; its scans are slower |
//! | [`BLinkTree`] | scans and little memory, without background threads; keys up to a quarter of a page; optionally a replica on each node |
//! | [`EunoBTree`] | many threads that write to a few keys or neighbouring keys: counters, the next order number, time stamps |
//! | [`EunoSkipList`] | the same, in maps that grow and shrink all the time |
//!
//! All five are one generic type, [`Map`](index::Map), with the same methods.
//!
//! | you need | use | in |
//! |---|---|---|
//! | to share another structure that is written for one thread | [`Replicated`]: a replica per NUMA node; [`Combined`]: one copy | [`replicate`] |
//! | to change several objects together, and to read them as of one moment | [MV-RLU](sync::mvrlu): transactions and snapshots | [`sync`] |
//! | pointers that readers follow while writers unlink their targets | [RCU](sync::rcu), with [RCX](sync::rcx) for the writers | [`sync`] |
//! | a short critical section that many threads enter | [locks](sync::lock) that are handed over within a node where possible | [`sync`] |
//!
//! Each module begins with a guide: usage, consistency, atomicity, lifetimes and memory, performance, and when to use
//! something else.
//!
//! # Performance
//!
//! To compare the maps with other authors' maps on your own keys, run `cargo install archipelago-cli --features peers`,
//! then `archipelago bench ycsb --keys FILE`. `docs/performance.md` in the
//! [repository](https://github.com/archipelago-rs/archipelago) has figures, and shows where other maps are faster.
//!
//! # Async
//!
//! No operation of a map blocks on input or output. Writers may wait for each other while a page is changed. In a task
//! that moves between threads, make the session by [`pin_owned`](index::Map::pin_owned). [`Entry`](index::Entry)s are
//! `Send`, and may be kept across an `await`. Keep them only for a short time: while an `Entry` exists, the map frees
//! no memory that it removes. [`Replicated`]'s handles have [`write_async`](replicate::Handle::write_async).
//!
//! # Properties of all structures
//!
//! - *Safety.* No safe program causes undefined behaviour, even if a key's `Ord` is inconsistent, users' code panics,
//!   or values are forgotten (`mem::forget`).
//! - *No global state.* Two structures share no state, except one background thread of the process, which maintains
//!   small idle maps.
//! - *Memory.* Removed memory that readers may still access is kept until these readers have ended. `stats()` returns
//!   its size. Each structure has its own limits.
//! - *The machine* is detected once ([`platform::topology`]): nodes, CPUs, clock, the processor's features. For tests
//!   the environment variable `ARCHIPELAGO_TOPOLOGY` sets a synthetic topology (`4x28`: four nodes with 28 CPUs each).
//! - *Platforms.* The structures work wherever there are 64-bit atomics, and work best on Linux (see
//!   `docs/platforms.md` in the repository).
//!
//! # Features
//!
//! No feature is enabled by default. `serde`: maps are serialized as maps. `rayon`: parallel iterators over maps. Three
//! features add a module of the same name: `cache`, a bounded cache; `ranges`, a map of disjoint ranges; `txn`,
//! transactions over tables of rows. `durable`: with `txn`, databases in a directory, which survive the process.

// These are modules with glob re-exports instead of `pub use archipelago_index as index`. So the compiler's messages
// name the paths that users write (`archipelago::index::Map`), and every item has its page in this crate's
// documentation.

/// Concurrent ordered maps. Begin with the [`guide`](index::guide).
pub mod index {
    #[doc(inline)]
    pub use archipelago_index::*;
}

/// The machine: topology, clock, node-local memory, threads, the processor's features.
pub mod platform {
    #[doc(inline)]
    pub use archipelago_platform::*;
}

/// Wrappers that make any sequential structure concurrent: node replication ([`Replicated`]), flat combining
/// ([`Combined`]). Begin with the [`guide`](replicate::guide).
pub mod replicate {
    #[doc(inline)]
    pub use archipelago_replicate::*;
}

/// Locks, RCU, RCX, MV-RLU, regions, and the parts of which they consist. Each module begins with a guide.
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
