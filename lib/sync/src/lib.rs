//! Synchronization: locks, version locks, backoff, RCU (by which most structures of the workspace reclaim memory), RCX
//! for RCU's writers, regions, logs for replicas, RLU and MV-RLU.
//!
//! | module | content | use it when |
//! |---|---|---|
//! | [`lock`] | mutexes and reader-writer locks behind `lock_api`, several of which stay on a NUMA node while they can | many threads contend for a short critical section |
//! | [`rcu`] | read-side critical sections at the cost of a store, and deferred destruction | readers follow pointers that writers unlink |
//! | [`rcx`] | two-level locks, in objects or striped, for the writers of RCU-protected data | several writers change a structure that readers traverse |
//! | [`region`] | short sections that run as hardware transactions, or under version locks | a change touches a few pages that readers traverse |
//! | [`log`] | a log of operations that replicas replay, which grows and is recycled | several copies of a structure are to be kept in step |
//! | [`mvrlu`] | transactions on objects, with snapshots that never wait for writers | several objects change together, and readers need a consistent snapshot |
//! | [`rlu`] | the same with two versions per object; commits wait for readers | you compare it with MV-RLU |
//! | [`version_lock`] | eight bytes by which writers exclude each other and readers detect concurrent writes | you build an optimistic structure |
//! | [`clock`] | the order of commits and snapshots: a counter, or the processors' clocks | you build multi-version transactions |
//! | [`backoff`] | a waiting strategy: spin, then yield | you build anything that waits |
//!
//! Each module's documentation describes its consistency, memory use and performance, and when to use something else.

/// Implements `Debug` for types that show only their name.
macro_rules! debug_by_name {
    ($($type:ident)*) => { $(
        impl core::fmt::Debug for $type<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    )* };
}

pub mod backoff;
pub mod clock;
mod crowd;
mod identity;
pub mod lock;
pub mod log;
pub mod mvrlu;
pub mod rcu;
pub mod rcx;
pub mod region;
pub mod rlu;
pub mod version_lock;
// Under loom: detects unordered non-atomic accesses to a value.
pub(crate) use archipelago_platform::watch;
