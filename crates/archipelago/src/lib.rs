//! In-memory data structures that scale on servers with many cores and several memory nodes (NUMA).
//!
//! | you have | take | in |
//! |---|---|---|
//! | an ordered map that many threads read and change | [`HydraList`], [`Art`] | [`index`] |
//! | any other structure, written for one thread | [`Replicated`]: a replica per NUMA node; [`Combined`]: one copy | [`replicate`] |
//! | objects that are changed together and read at one moment | [MV-RLU](sync::mvrlu): transactions and snapshots | [`sync`] |
//! | pointers that readers follow while writers unlink | [RCU](sync::rcu) | [`sync`] |
//! | a short critical section, and many threads at it | [locks](sync::lock) that keep to a node while they can | [`sync`] |
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
//! Each module begins with a guide: usage, consistency, atomicity, lifetimes and memory, performance, and when to take
//! something else.
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
//! None by default. `serde`: a `HydraList` is serialized as a map.

pub use archipelago_index as index;
pub use archipelago_platform as platform;
pub use archipelago_replicate as replicate;
pub use archipelago_sync as sync;

#[doc(inline)]
pub use archipelago_index::{Art, EunoBTree, EunoSkipList, HydraList};
#[doc(inline)]
pub use archipelago_replicate::{Combined, Replicated, Sequential};
